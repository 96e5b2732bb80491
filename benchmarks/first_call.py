"""What happens between a user's first call and its result, by part, in processor time.

    python benchmarks/first_call.py [--programs transformer,cnn,mlp] [--depths 256,512,1024] [--rounds 3]
                                    [--peers jax] [--quick] [--json out.json]

Three training steps (loss, gradient, descent), each as a function of NumPy arrays: a transformer of 12
layers, a network of four convolutions, and an MLP written as a loop of Python, of 1,000 layers and of
``--depths``. Each round is a process of its own, on xla: a first one, which finds no program on disk, and a
second one, which finds those that the first has stored. JAX's own tracing, lowering and compiling stand
beside it; there the transformer's blocks are a scan.

A part's milliseconds are its own: what runs inside another part counts there. ``engine`` is a small call
before, for which JAX is imported, ``plan`` finding what the C++ kernels compute, ``lower`` JAX's tracing of
our program and its lowering, ``load`` reading a stored program, ``run``
its first call, ``rest`` all else until the result is there, ``threads`` what other threads, XLA's, do
during ours. ``ours`` is the parts from ``trace`` to ``fingerprint``, and ``rest``. Shown is the least of
the rounds, part by part. The kernels are built and measured before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
PROGRAMS = ("transformer", "cnn", "mlp")
LAYERS = {"transformer": 12, "cnn": 4, "mlp": 1000}
PARTS = (
    *("import", "engine", "trace", "gradient", "prepare", "forms", "rolling", "edges", "plan"),
    *("fingerprint", "lower", "compile", "store", "load", "run", "rest", "threads"),
)
OURS = ("trace", "gradient", "prepare", "forms", "rolling", "edges", "plan", "fingerprint", "rest")
MODULES = ("stopgrad", "numpy", "jax", "torch")
HEADS, RATE = 4, 1e-3

# ---------------------------------------------------------------------------------------------- programs


def given(name: str, layers: int, library: str) -> tuple[Any, list[np.ndarray]]:
    """The parameters of a program, and a batch."""
    from depth import batch, parameters
    from runtime.steps import StepNumbers

    numbers = StepNumbers()
    if name == "mlp":
        return parameters(name, layers), [batch(name)]
    if name == "cnn":
        widths = [3, *[16 * 2 ** (i // 2) for i in range(layers)]]
        filters = [numbers.weights(3, 3, m, n) for m, n in itertools.pairwise(widths)]
        return [{"w": w, "b": numbers.normal(w.shape[-1])} for w in filters], [numbers.normal(8, 32, 32, 3)]
    data = numbers.gpt(8, 32, 64, HEADS, layers, 100)
    params = data["params"]
    if library == "jax":
        import jax

        params["blocks"] = jax.tree.map(lambda *each: np.stack(each), *params["blocks"])
    return params, data["batch"]


def loss_of(name: str, library: str) -> Callable[..., Any]:
    """The loss of a program in a library."""
    from depth import Library

    if name == "transformer":
        steps = import_module("runtime.steps_jax" if library == "jax" else "runtime.steps_ours")
        return lambda params, x, labels: steps.gpt_loss(params, x, labels, HEADS)
    written = Library(library)
    layer = _convolved(library) if name == "cnn" else written.layer(name)

    def loss(layers: Any, x: Any) -> Any:
        for one in layers:
            x = layer(x, one)
        return written.total(x)

    return loss


def _convolved(library: str) -> Callable[[Any, Any], Any]:
    if library == "jax":
        import jax

        dims = ("NHWC", "HWIO", "NHWC")
        return lambda x, p: jax.nn.relu(
            jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims) + p["b"]
        )
    import stopgrad as sg

    return lambda x, p: sg.relu(sg.conv2d(x, p["w"], 1, "SAME") + p["b"])


# ----------------------------------------------------------------------------------------------- parts


class Clock:
    """The processor time of each part, without that of the parts inside it; of ours, this thread's alone."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.spent = dict.fromkeys(PARTS[2:], 0.0)
        self._running, self._since = ["rest"], self._now()

    def so_far(self) -> float:
        """Milliseconds since the start, of all parts."""
        self._turn()
        return 1e3 * sum(self.spent.values())

    def result(self) -> dict[str, float]:
        """Milliseconds of each part."""
        self._turn()
        return {name: 1e3 * seconds for name, seconds in self.spent.items()}

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.thread_time(), time.process_time()

    def _turn(self) -> None:
        now, (thread, process), part = self._now(), self._since, self._running[-1]
        self.spent[part] += now[0] - thread
        self.spent["threads" if part in OURS else part] += (now[1] - process) - (now[0] - thread)
        self._since = now

    def during(self, part: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, whose time counts to a part."""
        self._turn()
        self._running.append(part)
        try:
            return function(*args, **kwargs)
        finally:
            self._turn()
            self._running.pop()

    def watch(self, owner: Any, name: str, part: str, inside: str = "") -> None:
        """Count the calls of a function to a part; if *inside* is given, only those made by that part."""
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if inside and self._running[-1] != inside:
                return function(*args, **kwargs)
            return self.during(part, function, *args, **kwargs)

        setattr(owner, name, timed)


def watched(clock: Clock) -> None:
    """Have the clock watch each part of a call."""
    import stopgrad.run.function as function
    from stopgrad.engines.xla import stored, work
    from stopgrad.rewrite import passes
    from stopgrad.run import traced
    from stopgrad.transforms.gradients import transforms

    stored.WORTH = 0.0  # All programs are stored, however soon they are compiled.
    clock.watch(function, "trace", "trace")
    clock.watch(transforms, "gradients", "gradient")
    clock.watch(traced, "prepare", "prepare")
    clock.watch(passes, "formed", "rolling")
    clock.watch(passes, "rewrite", "forms", inside="rolling")
    clock.watch(work, "edges", "edges")
    clock.watch(work, "regions", "plan")
    clock.watch(stored, "fingerprint", "fingerprint")
    clock.watch(stored, "unsealed", "load")
    clock.watch(stored, "compile_lowered", "compile")
    clock.watch(stored.Programs, "load", "load")
    clock.watch(stored.Programs, "_save", "store")
    clock.watch(function, "results_of", "run")
    plain = stored.Programs.make

    def make(self: Any, lower: Callable[[], Any], *args: Any) -> Any:
        return plain(self, lambda: clock.during("lower", lower), *args)

    stored.Programs.make = make  # type: ignore[method-assign]


# --------------------------------------------------------------------------------------------- workers


def ours(name: str, layers: int) -> dict[str, Any]:
    """The parts of a first call in this process."""
    clock = Clock()
    import stopgrad as sg

    imported = clock.so_far()
    step = _step(sg.value_and_grad, sg.tree_map, loss_of(name, "stopgrad"))
    weights, batch = given(name, layers, "stopgrad")
    watched(clock)
    clock.restart()
    sg.function(sg.grad(lambda x: sg.reduce_sum(x * x)), engine="xla")(np.ones(3, np.float32))
    engine = clock.so_far()
    clock.restart()
    value, _ = sg.function(step, engine="xla")(weights, *batch)
    return {"loss": float(value), "parts": {"import": imported, "engine": engine, **clock.result()}}


def theirs(name: str, layers: int) -> dict[str, Any]:
    clock = Clock()
    import jax

    imported = clock.so_far()
    step = jax.jit(_step(jax.value_and_grad, jax.tree.map, loss_of(name, "jax")))
    weights, batch = given(name, layers, "jax")
    clock.restart()
    jax.jit(jax.grad(lambda x: (x * x).sum()))(np.ones(3, np.float32))
    engine = clock.so_far()
    clock.restart()
    traced = clock.during("trace", step.trace, weights, *batch)
    lowered = clock.during("lower", traced.lower)
    compiled = clock.during("compile", lowered.compile)
    value, _ = clock.during("run", lambda: jax.block_until_ready(compiled(weights, *batch)))
    return {"loss": float(value), "parts": {"import": imported, "engine": engine, **clock.result()}}


def _step(
    value_and_grad: Callable[..., Any], tree_map: Callable[..., Any], loss: Callable[..., Any]
) -> Callable[..., Any]:
    """A step of gradient descent."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradient = value_and_grad(loss)(params, *batch)
        return value, tree_map(lambda w, g: w - RATE * g, params, gradient)

    return step


# ------------------------------------------------------------------------------------------- measuring


def worked(what: str, *arguments: Any, cache: str) -> Any:
    """What a worker finds, in a process of its own."""
    command = [sys.executable, str(HERE), "--worker", json.dumps([what, *arguments])]
    environment = {**os.environ, "STOPGRAD_CACHE_DIR": cache, "STOPGRAD_COMPILED": "1"}
    environment["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def least(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of each part over the rounds."""
    parts = {name: min(one["parts"][name] for one in found) for name in found[0]["parts"]}
    return {"loss": found[0]["loss"], "parts": parts}


def measured(name: str, layers: int, rounds: int, peers: bool, cache: str) -> list[dict[str, Any]]:
    """A first and a second process of ours, and one of JAX's, in turns."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        shutil.rmtree(Path(cache) / "xla", ignore_errors=True)
        for way in ("first", "second"):
            found.setdefault(way, []).append(worked("ours", name, layers, cache=cache))
        if peers:
            found.setdefault("jax", []).append(worked("theirs", name, layers, cache=cache))
    return [{"program": name, "layers": layers, "way": way, **least(some)} for way, some in found.items()]


def imported(module: str) -> dict[str, float]:
    """How long a module takes to be imported, in a new process."""
    code = f"import sys, time; a = time.process_time(); import {module}; b = time.process_time()"
    command = [sys.executable, "-c", f"{code}; print(1e3 * (b - a), len(sys.modules))"]
    ms, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"ms": float(ms), "modules": int(modules)}


def slowest_imports(count: int) -> list[tuple[str, float]]:
    """The modules that take longest at ``import stopgrad``, each without what it imports, in ms."""
    command = [sys.executable, "-X", "importtime", "-c", "import stopgrad"]
    lines = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
    split = [line.removeprefix("import time:").split("|") for line in lines if line.count("|") == 2]
    rows = [(name.strip(), int(own) / 1e3) for own, _, name in split if own.strip().isdigit()]
    return sorted(rows, key=lambda row: -row[1])[:count]


def show(rows: list[dict[str, Any]]) -> None:
    print(f"| program | process | ours | {' | '.join(PARTS)} |")
    print(f"|---|---|---:|{'---:|' * len(PARTS)}")
    for row in rows:
        parts = row["parts"]
        own = "–" if row["way"] == "jax" else f"{sum(parts[name] for name in OURS):.0f}"
        cells = [f"{parts[name]:.0f}" if parts[name] >= 0.5 else "–" for name in PARTS]
        print(f"| {row['program']}, {row['layers']} | {row['way']} | {own} | {' | '.join(cells)} |")


def cases(options: argparse.Namespace) -> list[tuple[str, int]]:
    if options.quick:
        return [("mlp", 4)]
    found = [(name, LAYERS[name]) for name in options.programs.split(",")]
    return [*found, *[("mlp", int(depth)) for depth in options.depths.split(",") if depth]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="an MLP of 4 layers, once")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--depths", default="256,512,1024", help="of further MLPs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="jax", help="jax or none")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        what, *arguments = json.loads(options.worker)
        return print(json.dumps({"ours": ours, "theirs": theirs}[what](*arguments)))
    rounds, rows = 1 if options.quick else options.rounds, []
    with tempfile.TemporaryDirectory() as cache:
        if not options.quick:
            worked("ours", "transformer", 1, cache=cache)  # Builds the kernels, and measures them.
        for name, layers in cases(options):
            rows += measured(name, layers, rounds, options.peers == "jax", cache)
    modules = MODULES[:1] if options.quick else MODULES if options.peers == "jax" else MODULES[:2]
    found = {module: [imported(module) for _ in range(rounds)] for module in modules}
    slowest = slowest_imports(12)
    times = {module: min(some, key=lambda one: one["ms"]) for module, some in found.items()}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}; milliseconds of the processor\n")
    show(rows)
    print()
    for module, one in times.items():
        print(f"import {module}: {one['ms']:.0f} ms, {one['modules']} modules")
    print("of import stopgrad, wall: " + ", ".join(f"{name} {ms:.1f}" for name, ms in slowest))
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "rows": rows, "imports": times, "modules": slowest}, indent=1)
        )


if __name__ == "__main__":
    main()
