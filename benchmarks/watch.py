"""What it costs to watch a training step of PyTorch, and to explain what was seen.

    python benchmarks/watch.py [--quick] [--only mlp,chain] [--rounds 15] [--json out.json]

**Steps.** A step is forward, loss and backward. Plain and watched steps alternate, in one process and one
thread, after warming; each is timed in processor time. *ratio* is that of the medians, and beside it that of
the fastest rounds. *explain* asks about all parameters of the model.

**Memory.** Each of the two ways has a process of its own that makes one step: *peak* is by how much the most
that it has held grew over what it held with the model and the batch, *kept* by how much it holds more
afterwards, with the gradients and, in the watched one, with the watch; both as the system counts them.

**Chains.** N recorded operations on vectors of 4, over a hundred parameters: what recording one costs above
the plain operation, and the time of ``explain`` and of its text.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import stopgrad as sg
import stopgrad.torch as sgt

Step = tuple[nn.Module, Callable[[], Any]]

# ----------------------------------------------------------------------------------------------- steps


def mlp(layers: int = 10, width: int = 512, batch: int = 128) -> Step:
    sizes = [nn.Linear(width, width) for _ in range(layers)]
    model = nn.Sequential(*[layer for linear in sizes for layer in (linear, nn.ReLU())])
    x, y = torch.randn(batch, width), torch.randn(batch, width)
    return model, lambda: functional.mse_loss(model(x), y)


class Block(nn.Module):
    """A residual block of a ResNet."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.short = (
            nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()
        )

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet(width: int = 32, batch: int = 8, size: int = 32) -> Step:
    """As ResNet-18, for small images."""
    widths = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
    strides = [1, 1, 2, 1, 2, 1, 2, 1]
    blocks = [Block(a, b, s) for a, b, s in zip(widths, widths[1:], strides, strict=False)]
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))
    x, labels = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return model, lambda: functional.cross_entropy(model(x), labels)


def transformer(layers: int = 6, width: int = 256, batch: int = 8, length: int = 64) -> Step:
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(1000, width),
            "encoder": nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
            "head": nn.Linear(width, 1000),
        }
    )
    words = torch.randint(1000, (batch, length))

    def loss() -> Any:
        made = model["head"](model["encoder"](model["embedding"](words)))
        return functional.cross_entropy(made.flatten(0, 1), words.flatten())

    return model, loss


STEPS: dict[str, tuple[Callable[..., Step], dict[str, int], dict[str, int]]] = {
    "mlp": (mlp, {}, {"layers": 3, "width": 16}),
    "mlp of 100 layers": (mlp, {"layers": 100, "width": 64, "batch": 32}, {"layers": 5, "width": 8}),
    "resnet": (resnet, {}, {"width": 4, "size": 8}),
    "transformer": (transformer, {}, {"layers": 1, "width": 16, "length": 8}),
}
"""How each is made, its sizes, and its sizes with --quick."""


def made(case: str, quick: bool) -> Step:
    torch.manual_seed(0)
    build, sizes, small = STEPS[case]
    return build(**(small if quick else sizes))


def measure_step(case: str, quick: bool, rounds: int) -> dict[str, Any]:
    """Times of plain and watched steps, by turns, and of a report."""
    model, loss = made(case, quick)
    times: dict[str, list[float]] = {"plain": [], "watched": []}
    for k in range(rounds + 2):
        for way in times:
            model.zero_grad()
            with sgt.watch() if way == "watched" else nullcontext() as seen:
                start = time.process_time()
                value = loss()
                value.backward()
                spent = time.process_time() - start
            if k >= 2:
                times[way].append(spent)
    flow, explained = timed(seen.explain, value, model)
    _, told = timed(flow.to_text)
    assert all(reach.arrives for reach in flow.values())
    return {
        "case": case,
        "parameters": len(flow),
        "operations": len(flow.ys[0].graph.operations),
        "plain_ms": [1e3 * t for t in times["plain"]],
        "watched_ms": [1e3 * t for t in times["watched"]],
        "explain_ms": 1e3 * explained,
        "text_ms": 1e3 * told,
    }


def measure_memory(case: str, quick: bool, way: str) -> dict[str, float]:
    """MiB of one step, above what the model and the batch need."""
    warm(way)
    model, loss = made(case, quick)
    model.zero_grad()
    gc.collect()
    before, most = held(), peak()
    with sgt.watch() if way == "watched" else nullcontext() as seen:
        value = loss()
        value.backward()
    at_most = max(peak() - before, 0.0) if peak() > most else 0.0
    value = value.detach()
    gc.collect()
    found = {"peak": at_most, "kept": held() - before}
    del seen, value
    return found


def warm(way: str) -> None:
    """Let the libraries take what they need once."""
    _, loss = mlp(2, 8, 8)
    with sgt.watch() if way == "watched" else nullcontext():
        loss().backward()


def held() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


# ----------------------------------------------------------------------------------------------- chains


_HELD: list[Any] = []
"""What a worker does not take apart again, for that is not measured."""


def chain(size: int, ws: list[Any]) -> Any:
    y = ws[0]
    for k in range(size // 2):
        y = torch.tanh(y * ws[k % len(ws)])
    return y.sum()


def measure_chain(size: int) -> dict[str, Any]:
    """Of one size: recording, explaining, and what the record holds."""
    ws = [torch.randn(4, requires_grad=True) for _ in range(100)]
    chain(100, ws)
    value, plain = timed(chain, size, ws)
    del value
    gc.collect()
    before = held()
    with sgt.watch() as seen:
        loss, watched = timed(chain, size, ws)
    kept = held() - before
    flow, explained = timed(seen.explain, loss, {f"w{k}": w for k, w in enumerate(ws)})
    _, told = timed(flow.to_text)
    found = {"case": "chain", "size": size, "plain": plain, "watched": watched, "explain": explained}
    _HELD.extend([loss, seen])
    return found | {"text": told, "MiB": kept}


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    start = time.process_time()
    value = function(*args)
    return value, time.process_time() - start


# ------------------------------------------------------------------------------------------- reporting


def show_steps(rows: list[dict[str, Any]]) -> None:
    header = [
        "step",
        "parameters",
        "operations",
        "plain, ms",
        "watched, ms",
        "ratio",
        "of fastest",
        "explain, ms",
    ]
    header += ["text, ms", "peak, MiB", "watched", "kept, MiB", "watched"]
    print(f"| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        plain, watched = row["plain_ms"], row["watched_ms"]
        medians = statistics.median(plain), statistics.median(watched)
        cells = [f"{row['parameters']}", f"{row['operations']:,}", *[f"{t:.3g}" for t in medians]]
        cells += [f"{medians[1] / medians[0]:.2f}", f"{min(watched) / min(plain):.2f}"]
        cells += [f"{row['explain_ms']:.3g}", f"{row['text_ms']:.3g}"]
        cells += [f"{row[way][what]:.0f}" for what in ("peak", "kept") for way in ("plain", "watched")]
        print(f"| {row['case']} | {' | '.join(cells)} |")


def show_chains(rows: list[dict[str, Any]]) -> None:
    header = [
        "operations",
        "plain, s",
        "watched, s",
        "above, µs/op",
        "explain, s",
        "µs/op",
        "text, s",
        "MiB kept",
    ]
    print(f"\n| {' | '.join(header)} |\n|{'---:|' * len(header)}")
    for row in rows:
        above = 1e6 * (row["watched"] - row["plain"]) / row["size"]
        cells = [f"{row['size']:,}", f"{row['plain']:.3g}", f"{row['watched']:.3g}", f"{above:.1f}"]
        cells += [f"{row['explain']:.3g}", f"{1e6 * row['explain'] / row['size']:.1f}", f"{row['text']:.3g}"]
        print(f"| {' | '.join(cells)} | {row['MiB']:.1f} |")


def worker(*job: Any) -> dict[str, Any]:
    """A job in a process of its own, with one thread."""
    command = [sys.executable, __file__, "--worker", json.dumps(job)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout)


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "step": measure_step,
    "memory": measure_memory,
    "chain": measure_chain,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="tiny models and 1,000 operations")
    parser.add_argument("--only", default="", help="cases whose names begin so, comma-separated")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.worker:
        job, *arguments = json.loads(options.worker)
        print(json.dumps(JOBS[job](*arguments)), flush=True)
        os._exit(0)
    wanted = tuple(options.only.split(","))
    steps = []
    for case in [name for name in STEPS if name.startswith(wanted)]:
        row = worker("step", case, options.quick, options.rounds)
        steps.append(row | {way: worker("memory", case, options.quick, way) for way in ("plain", "watched")})
    sizes = [1_000] if options.quick else [1_000, 10_000, 100_000]
    sizes = sizes if "chain".startswith(wanted) else []
    chains = [worker("chain", size) for size in sizes]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    versions = f"stopgrad {sg.__version__}, torch {torch.__version__}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, {versions}; processor time, one thread\n")
    show_steps(steps)
    show_chains(chains)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "steps": steps, "chains": chains}, indent=1))


if __name__ == "__main__":
    main()
