"""What a watch and a monitor cost in a training step, beside anomaly mode and TorchLens.

    python benchmarks/watch_cost.py [--quick] [--only mlp,gpt] [--ways watch,anomaly] [--threads 1,2]
                                    [--seconds 40] [--json out.json]

**A step** is ``optimizer.zero_grad()``, forward, loss, ``loss.backward()`` and ``optimizer.step()``, all of
it inside the block of the way that is measured, in float32 on the CPU. The MLPs have layers of 64, a ReLU
behind each, and batches of 64; their loss is the mean square error, and Adam trains them. GPT-2 small is its
124 million parameters in plain PyTorch, with ``scaled_dot_product_attention`` and without dropout, on one
sequence of 64 tokens, and SGD trains it: on a CPU, Adam's update of so many takes as long as forward and
backward together, and would make all ratios smaller.

**Ways.** *plain*: the step alone. *watch*: ``with sgt.watch()``, a new one in each step. *anomaly mode*:
``with torch.autograd.set_detect_anomaly(True)``. *bare mode*: a ``TorchFunctionMode`` that only calls
through, the limit for what sees each operation from Python. *monitor*: ``with sgt.monitor(net, every=100)``,
in the steps between its samples; those that it samples are made as well, and not timed. *torchlens record*:
the ``Recorder`` that TorchLens advises for training loops, keeping the metadata of each operation and no
tensor; it sees the forward of the model, and neither the loss nor the backward pass. *torchlens trace*: its
``trace``, ready for a backward pass and keeping the model's output alone; it records the graph of the
forward, and which of its nodes the backward pass ran. The functions of PyTorch that TorchLens replaces are
replaced before its turn and put back after it, neither of which is timed.

**Times** are wall times, in one process, with the garbage collector as Python has it. First each way makes
two steps, and the second must arrive at the gradients of the plain one. Then rounds follow each other until
the time is over: in each, the ways take turns in a new random order, each with as many steps as fit into a
tenth of a second, at least one and at most 20, after one that is not timed (GPT-2: one step in a turn). A
cell has the ratio to plain of the fastest steps, and in brackets that of the medians.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import stopgrad as sg
import stopgrad.torch as sgt

try:
    import torchlens
    from torchlens.backends.torch.wrappers import unwrap_torch, wrap_torch
    from torchlens.fastlog import CaptureSpec, Recorder
    from torchlens.options import CaptureOptions

    MISSING = ""
except ImportError as error:
    MISSING = f"{type(error).__name__}: {error}"

# ---------------------------------------------------------------------------------------------- models


@dataclass
class Case:
    """A model with its batch, and how it is trained."""

    net: nn.Module
    x: torch.Tensor
    loss: Callable[[Any], torch.Tensor]
    optimizer: torch.optim.Optimizer

    def train(self, forward: Callable[[Any], Any]) -> None:
        self.optimizer.zero_grad()
        loss = self.loss(forward(self.x))
        loss.backward()
        self.optimizer.step()


def mlp(layers: int, width: int = 64, batch: int = 64) -> Case:
    net = nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())])
    x, y = torch.randn(batch, width), torch.randn(batch, width)
    return Case(net, x, lambda made: functional.mse_loss(made, y), torch.optim.Adam(net.parameters()))


class Block(nn.Module):
    """A block of GPT-2: attention and two dense layers, each with a layer norm before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2, whose head shares the embedding's weight."""

    def __init__(self, blocks: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def gpt2(
    blocks: int = 12,
    width: int = 768,
    heads: int = 12,
    words: int = 50257,
    length: int = 1024,
    used: int = 64,
) -> Case:
    net = GPT2(blocks, width, heads, words, length)
    tokens = torch.randint(words, (1, used + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    return Case(net, x, lambda made: functional.cross_entropy(made.flatten(0, 1), y), optimizer)


SMALL_GPT2 = {"blocks": 1, "width": 8, "heads": 2, "words": 20, "length": 8, "used": 4}
CASES: dict[str, tuple[Callable[..., Case], dict[str, int], dict[str, int], int, int]] = {
    "mlp of 2 layers": (mlp, {"layers": 2}, {"layers": 2, "width": 8}, 20, 1),
    "mlp of 20 layers": (mlp, {"layers": 20}, {"layers": 3, "width": 8}, 20, 1),
    "gpt-2 small": (gpt2, {}, SMALL_GPT2, 1, 3),
}
"""How each is made, its sizes, those with --quick, the steps of a turn, and its share of --seconds."""

# ------------------------------------------------------------------------------------------------ ways

Step = Callable[[], object]


@dataclass
class Way:
    """How a step is made. A turn of steps takes place inside *open*; *before* each, what is not timed."""

    open: Callable[[], AbstractContextManager[Step]]
    before: Step = lambda: None


class CallThrough(TorchFunctionMode):
    """Sees each operation, and only calls it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def within(case: Case, block: Callable[[], AbstractContextManager[object]]) -> Way:
    """The step inside a block that is made anew each time."""

    def step() -> None:
        with block():
            case.train(case.net)

    return Way(lambda: nullcontext(step))


def monitored(case: Case) -> Way:
    monitor = sgt.monitor(case.net, every=100, to=io.StringIO())

    def step() -> None:
        with monitor:
            case.train(case.net)

    def sample() -> None:
        while monitor.due:
            step()

    return Way(lambda: nullcontext(step), sample)


@contextmanager
def in_place() -> Iterator[None]:
    """TorchLens replaces the functions of PyTorch, and leaves them so unless it is told."""
    wrap_torch()
    try:
        yield
    finally:
        unwrap_torch()


def recorded(case: Case) -> Way:
    @contextmanager
    def opened() -> Iterator[Step]:
        with in_place(), Recorder(case.net, save=lambda _: CaptureSpec(save_out=False)) as recorder:
            yield lambda: case.train(recorder.log)

    return Way(opened)


def traced(case: Case) -> Way:
    options = CaptureOptions(layers_to_save=["output_1"], backward_ready=True, save_code_context=False)

    def step() -> None:
        made: list[Any] = []

        def forward(x: Any) -> Any:
            made.append(torchlens.trace(case.net, x, capture=options))
            return made[0][made[0].output_layers[0]].out

        case.train(forward)
        made[0].cleanup()

    @contextmanager
    def opened() -> Iterator[Step]:
        with in_place():
            yield step

    return Way(opened)


WAYS: dict[str, Callable[[Case], Way]] = {
    "plain": lambda case: Way(lambda: nullcontext(lambda: case.train(case.net))),
    "watch": lambda case: within(case, sgt.watch),
    "anomaly mode": lambda case: within(case, lambda: torch.autograd.set_detect_anomaly(True)),
    "bare mode": lambda case: within(case, CallThrough),
    "monitor": monitored,
    "torchlens record": recorded,
    "torchlens trace": traced,
}


def is_peer(way: str) -> bool:
    return way.startswith("torchlens")


# ------------------------------------------------------------------------------------------- measuring


def warmed(case: Case, ways: dict[str, Way]) -> dict[str, str]:
    """Two steps of each way, which must give the gradients of the first; why peers are left out."""
    start = {name: value.clone() for name, value in case.net.state_dict().items()}
    expected: list[Any] = []
    left_out = {}
    for name, way in ways.items():
        try:
            with way.open() as step:
                step()
                case.net.load_state_dict(start)
                step()
            found = [p.grad.clone() for p in case.net.parameters()]
            expected = expected or found
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        except Exception as error:
            if not is_peer(name):
                raise
            left_out[name] = f"{type(error).__name__}: {error}"
        finally:
            case.net.load_state_dict(start)
    return left_out


def turn(way: Way, most: int, seconds: float = 0.1) -> list[float]:
    """The seconds of some steps of a way, one after the other."""
    spent: list[float] = []
    with way.open() as step:
        if most > 1:
            step()
        while len(spent) < most and sum(spent) < seconds:
            way.before()
            start = time.perf_counter()
            step()
            spent.append(time.perf_counter() - start)
    return spent


def measure(name: str, chosen: list[str], threads: int, seconds: float, quick: bool) -> dict[str, Any]:
    """The times of all ways that are chosen, in rounds of random order."""
    build, sizes, small, most, share = CASES[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    case = build(**(small if quick else sizes))
    ways = {way: WAYS[way](case) for way in chosen}
    left_out = warmed(case, ways)
    times: dict[str, list[float]] = {way: [] for way in ways if way not in left_out}
    order, end, rounds = list(times), time.perf_counter() + share * seconds, 0
    shuffle = random.Random(0).shuffle
    while rounds < 2 or time.perf_counter() < end:
        shuffle(order)
        for way in order:
            times[way] += turn(ways[way], most)
        rounds += 1
    return {
        **{"case": name, "threads": threads, "rounds": rounds, "left_out": left_out},
        **{"parameters": sum(p.numel() for p in case.net.parameters()), "seconds": times},
    }


# ------------------------------------------------------------------------------------------- reporting


def compared(row: dict[str, Any], way: str) -> str:
    """A cell: the ratio to plain of the fastest steps, and that of the medians."""
    times, plain = row["seconds"].get(way), row["seconds"]["plain"]
    if times is None:
        return "–"
    return f"{min(times) / min(plain):.2f} ({statistics.median(times) / statistics.median(plain):.2f})"


def show(rows: list[dict[str, Any]], ways: list[str]) -> None:
    header = ["step", "threads", "plain, ms (median)", *ways[1:], "steps timed"]
    print(f"| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        plain = row["seconds"]["plain"]
        counts = [len(times) for times in row["seconds"].values()]
        cells = [row["case"], f"{row['threads']}"]
        cells += [f"{1e3 * min(plain):.3g} ({1e3 * statistics.median(plain):.3g})"]
        cells += [compared(row, way) for way in ways[1:]]
        print(f"| {' | '.join(cells)} | {min(counts):,} to {max(counts):,} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, two rounds")
    parser.add_argument("--only", default="", help="models whose names begin so, comma-separated")
    parser.add_argument(
        "--ways", default="", help="ways whose names begin so, comma-separated, besides plain"
    )
    parser.add_argument(
        "--threads", default=f"{torch.get_num_threads()}", help="as many, or 1,2 for a row each"
    )
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="for a model; GPT-2 takes three times this"
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
    wanted, asked = tuple(options.only.split(",")), ("plain", *options.ways.split(","))
    ways = [way for way in WAYS if way.startswith(asked) and not (MISSING and is_peer(way))]
    seconds = 0.0 if options.quick else options.seconds
    rows = [
        measure(name, ways, threads, seconds, options.quick)
        for threads in map(int, options.threads.split(","))
        for name in CASES
        if name.startswith(wanted)
    ]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    versions = f"stopgrad {sg.__version__}, torch {torch.__version__}"
    versions += "" if MISSING else f", torchlens {torchlens.__version__}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, load {os.getloadavg()[0]:.1f}, {versions}; wall time\n")
    show(rows, ways)
    if MISSING:
        print(f"\ntorchlens: left out: {MISSING}")
    for row in rows:
        for way, why in row["left_out"].items():
            print(f"\n{row['case']}, {way}: left out: {why}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "versions": versions, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
