"""How long a model of many equal layers takes to be built and compiled, by its depth.

    python benchmarks/depth.py [--quick] [--models mlp,transformer] [--programs forward,gradient,train]
                               [--ways loop,scan,jax loop,jax scan] [--depths 1,4,16,64,256] [--json out.json]

The layers are written as a loop of Python (which stopgrad rolls by itself, where that pays) and as a scan
over stacked parameters, in stopgrad and in JAX (with Optax), both compiled by XLA. A training step is that of
AdamW, for all parameters. Each way is a process of its own, in which the depths follow each other after a
small warm-up; nothing is read from disk. Shown are seconds of the processor, in all threads, until the
program is compiled (the graph and its gradient, or tracing, + the rest, up to the first result) and the
milliseconds of a later run, the fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
MODELS = ("mlp", "transformer")
PROGRAMS = ("forward", "gradient", "train")
WAYS = ("loop", "scan", "jax loop", "jax scan")
DEPTHS = (1, 4, 16, 64, 256)
BATCH, TIME, WIDTH, HEADS = 8, 16, 64, 4
RATE = 1e-3

# ---------------------------------------------------------------------------------------------- models


def parameters(model: str, depth: int) -> list[dict[str, np.ndarray]]:
    """Small random weights for each layer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def layer() -> dict[str, np.ndarray]:
        if model == "mlp":
            return {"w": normal(WIDTH, WIDTH), "b": normal(WIDTH)}
        matrices = {name: normal(WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
        norms = {name: np.ones(WIDTH, np.float32) for name in ("n1", "n2")}
        shifts = {name: np.zeros(WIDTH, np.float32) for name in ("s1", "s2")}
        wide = {"up": normal(WIDTH, 4 * WIDTH), "down": normal(4 * WIDTH, WIDTH)}
        return {**matrices, **norms, **shifts, **wide, "b": np.zeros(4 * WIDTH, np.float32)}

    return [layer() for _ in range(depth)]


def stacked(layers: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}


def batch(model: str) -> np.ndarray:
    shape = (BATCH, WIDTH) if model == "mlp" else (BATCH, TIME, WIDTH)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


class Library:
    """What the layers are written with."""

    def __init__(self, name: str) -> None:
        if name == "jax":
            import jax
            import jax.numpy as jnp

            self.matmul, self.tanh, self.sqrt = jnp.matmul, jnp.tanh, jnp.sqrt
            self.mean = lambda x: jnp.mean(x, axis=-1, keepdims=True)
            self.softmax = lambda x: jax.nn.softmax(x, axis=-1)
            self.maximum, self.reshape, self.transpose = jnp.maximum, jnp.reshape, jnp.transpose
            self.total = lambda x: jnp.mean(x * x)
        else:
            import stopgrad as sg

            self.matmul, self.tanh, self.sqrt = sg.matmul, sg.tanh, sg.sqrt
            self.mean = lambda x: sg.reduce_mean(x, axis=-1, keepdims=True)
            self.softmax = lambda x: sg.softmax(x, axis=-1)
            self.maximum, self.reshape, self.transpose = sg.maximum, sg.reshape, sg.transpose
            self.total = lambda x: sg.reduce_mean(x * x)

    def layer(self, model: str) -> Callable[[Any, Any], Any]:
        return self.dense if model == "mlp" else self.block

    def dense(self, x: Any, p: Any) -> Any:
        return self.tanh(self.matmul(x, p["w"]) + p["b"])

    def block(self, x: Any, p: Any) -> Any:
        h = self.norm(x, p["n1"], p["s1"])
        q, k, v = (self.heads(self.matmul(h, p[name])) for name in "qkv")
        scores = self.matmul(q, self.transpose(k, (0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5
        mixed = self.transpose(self.matmul(self.softmax(scores), v), (0, 2, 1, 3))
        x = x + self.matmul(self.reshape(mixed, (BATCH, TIME, WIDTH)), p["o"])
        h = self.matmul(self.norm(x, p["n2"], p["s2"]), p["up"]) + p["b"]
        return x + self.matmul(self.maximum(h, 0.0), p["down"])

    def norm(self, x: Any, scale: Any, shift: Any) -> Any:
        centred = x - self.mean(x)
        return centred / self.sqrt(self.mean(centred * centred) + 1e-5) * scale + shift

    def heads(self, x: Any) -> Any:
        return self.transpose(self.reshape(x, (BATCH, TIME, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))


# ------------------------------------------------------------------------------------------------- ways


def ours(model: str, program: str, depth: int, scans: bool) -> dict[str, Any]:
    import stopgrad as sg

    layer = Library("stopgrad").layer(model)
    values, x = parameters(model, depth), batch(model)
    start = time.process_time()
    with sg.Graph().as_default() as graph:
        given = sg.placeholder(sg.float32, x.shape)
        if scans:
            held = {name: sg.parameter(value, name=name) for name, value in stacked(values).items()}
            y = sg.scan(lambda x, p: (layer(x, p), None), given, held)[0]
            leaves = list(held.values())
        else:
            each = [
                {n: sg.parameter(v, name=f"{n}_{i}") for n, v in one.items()} for i, one in enumerate(values)
            ]
            y = given
            for p in each:
                y = layer(y, p)
            leaves = [leaf for p in each for leaf in p.values()]
        loss = sg.reduce_mean(y * y)
        if program == "forward":
            fetches: Any = loss
        elif program == "gradient":
            fetches = [loss, *sg.gradients(loss, leaves)]
        else:
            fetches = [loss, sg.optimizers.adamw(loss, leaves, RATE).run]
    built = time.process_time() - start
    with sg.Session(graph, engine="xla") as session:
        first = session.run(fetches, {given: x})
        took = time.process_time() - start - built
        again = fastest(lambda: session.run(fetches, {given: x}))
        notes = [str(note) for note in getattr(session.report()[-1], "notes", ())]
    value = first if program == "forward" else first[0]
    made = {"operations": len(graph), "notes": notes, "loss": float(value)}
    return {"build": built, "compile": took, "run": again, **made}


def theirs(model: str, program: str, depth: int, scans: bool) -> dict[str, Any]:
    import jax
    import optax

    library = Library("jax")
    layer = library.layer(model)
    values, x = parameters(model, depth), batch(model)
    held = jax.device_put(stacked(values) if scans else values)

    def loss(p: Any, x: Any) -> Any:
        if scans:
            return library.total(jax.lax.scan(lambda x, p: (layer(x, p), None), x, p)[0])
        for one in p:
            x = layer(x, one)
        return library.total(x)

    adamw = optax.adamw(RATE, weight_decay=1e-2)

    def train(p: Any, state: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, x)
        updates, state = adamw.update(gradient, state, p)
        return value, optax.apply_updates(p, updates), state

    if program == "train":
        function, arguments = jax.jit(train), (held, jax.jit(adamw.init)(held), x)
    else:
        function = jax.jit(loss if program == "forward" else jax.value_and_grad(loss))
        arguments = (held, x)
    start = time.process_time()
    lowered = function.lower(*arguments)
    built = time.process_time() - start
    compiled = lowered.compile()
    first = jax.block_until_ready(compiled(*arguments))
    took = time.process_time() - start - built
    again = fastest(lambda: jax.block_until_ready(compiled(*arguments)))
    value = first if program == "forward" else first[0]
    return {"build": built, "compile": took, "run": again, "notes": [], "loss": float(value)}


def fastest(run: Callable[[], Any], seconds: float = 0.5) -> float:
    """The fastest of the runs of half a second, three at least."""
    best, count, end = float("inf"), 0, time.perf_counter() + seconds
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best, count = min(best, time.perf_counter() - start), count + 1
    return best


# -------------------------------------------------------------------------------------------- measuring


def work(way: str, model: str, program: str, depths: list[int], limit: float) -> None:
    """Measure one way at all depths, a line of JSON each; once it took longer than the limit, no more."""
    measure, scans = (theirs if way.startswith("jax") else ours), way.endswith("scan")
    measure(model, program, 2, scans)
    for depth in depths:
        found = measure(model, program, depth, scans)
        print(json.dumps({"way": way, "model": model, "program": program, "depth": depth, **found}))
        sys.stdout.flush()
        if found["build"] + found["compile"] > limit:
            return


def measured(way: str, model: str, program: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE), "--worker", json.dumps([way, model, program])]
    command += ["--depths", options.depths, "--limit", str(options.limit)]
    environment = {**os.environ, "STOPGRAD_COMPILED": "0", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{way}, {model}, {program}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(rows: list[dict[str, Any]], depths: list[int]) -> None:
    print("\nProcessor seconds to build + compile, ms of a run, by depth\n")
    print("| model | program | way | " + " | ".join(map(str, depths)) + " |")
    print("|---|---|---|" + "---:|" * len(depths))
    for key in dict.fromkeys((r["model"], r["program"], r["way"]) for r in rows):
        by_depth = {r["depth"]: r for r in rows if (r["model"], r["program"], r["way"]) == key}
        cells = [_cell(by_depth.get(depth)) for depth in depths]
        print(f"| {' | '.join(key)} | " + " | ".join(cells) + " |")
    for row in rows:
        for note in row["notes"]:
            print(f"{row['model']}, {row['program']}, {row['way']}, {row['depth']}: {note}")


def _cell(row: dict[str, Any] | None) -> str:
    return "-" if row is None else f"{row['build']:.2f} + {row['compile']:.2f}, {1e3 * row['run']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="depths 1 and 8 of the MLP's gradient")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)))
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds after which no deeper one is tried"
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        depths = [int(depth) for depth in options.depths.split(",")]
        return work(*json.loads(options.worker), depths, options.limit)
    if options.quick:
        options.models, options.programs, options.depths = "mlp", "gradient", "1,8"
    rows = []
    for model in options.models.split(","):
        for program in options.programs.split(","):
            for way in options.ways.split(","):
                rows += measured(way, model, program, options)
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}")
    show(rows, [int(depth) for depth in options.depths.split(",")])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
