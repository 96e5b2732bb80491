"""An hour of random work in one process: memory, threads, open files and our objects stay as they were.

STOPGRAD_SOAK_SECONDS says for how long. Each round makes a random program of loops, branches and stops,
differentiates it once or twice, and trains, saves, restores, writes and reads it on both engines; what the
engines, the restored sessions and the graphs read back compute must agree. ``-s`` shows the curve.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import stopgrad as sg
from control.test_random_programs import Expr, Stopgrad, evaluate, made, point
from fault_tools import ENGINES
from stopgrad.op import REGISTRY

SECONDS = float(os.environ.get("STOPGRAD_SOAK_SECONDS", "3600"))
ROUNDS_BETWEEN = 10
NO_GROWTH = 4096
"""Bytes a round: what the trend of the resident memory may be after the warm-up, beside its uncertainty."""


class Census(NamedTuple):
    """What the process has at one moment, when all that it has dropped is gone."""

    seconds: float
    rounds: int
    memory: int
    threads: tuple[int, int]
    files: int
    objects: Counter[str]

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s {self.rounds:6} rounds {self.memory / 2**20:8.1f} MiB "
            f"{self.threads} threads {self.files} files {self.objects.total()} objects"
        )


def census(seconds: float, rounds: int) -> Census:
    for definition in REGISTRY.values():
        definition._inferred.clear()  # The one cache of ours that holds types: bounded, but not to be counted.
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # What is free in C's heap is nobody's.
    kinds = (type(x) for x in gc.get_objects())
    ours = Counter(k.__qualname__ for k in kinds if str(k.__module__).startswith("stopgrad."))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads = threading.active_count(), len(os.listdir("/proc/self/task"))
    return Census(
        seconds, rounds, pages * os.sysconf("SC_PAGESIZE"), threads, len(os.listdir("/proc/self/fd")), ours
    )


def loss(program: Expr) -> Callable[..., Any]:
    @sg.custom_gradient
    def doubled(x: Any) -> Any:
        return x * 2.0, lambda g: g * 2.0

    def f(x: Any, w: Any) -> Any:
        return sg.reduce_sum(doubled(evaluate(program, [x, w], Stopgrad)))

    return f


def differentiated(program: Expr, order: int) -> Callable[..., Any]:
    """The value of a program and its gradient, or that of the sum of its gradient."""
    f = loss(program)
    first = sg.grad(f, 1)
    of = f if order == 1 else lambda x, w: sg.reduce_sum(first(x, w))
    return lambda x, w: (f(x, w), sg.grad(of, 1)(x, w))


def train(graph: sg.Graph, engine: str, x: Any, path: Path) -> list[Any]:
    """Two steps, and one more in a session that takes over from a file."""
    feed = {"x": x}
    with sg.Session(graph, engine=engine) as session:
        found = [session.run(["value", "step"], feed) for _ in range(2)]
        session.save(path)
        with sg.Session(graph, engine=engine) as second:
            second.restore(path)
            again = [s.run(["value", "step"], feed) for s in (session, second)]
    for a, b in zip(*again, strict=True):
        np.testing.assert_array_equal(a, b)
    return [*found, again[0]]


def build(program: Expr, order: int, w: Any) -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [3], name="x")
        held = sg.parameter(w, name="w")
        value, slope = differentiated(program, order)(x, held)
        sg.identity(value, name="value")
        sg.assign(held, held - 0.01 * slope, name="step")
    return graph


def one_round(seed: int, folder: Path) -> None:
    program, order = made(seed), 1 + seed % 2
    x, w = point(seed)[:2]
    graph = build(program, order, w)
    if order == 1:
        graph.save(folder / "graph")
        read = sg.Graph.load(folder / "graph")
    else:
        read = sg.Graph.from_text(graph.to_text())
    results = [train(graph, engine, x, folder / "state") for engine in ENGINES]
    for other in (results[1], train(read, ENGINES[seed % 2], x, folder / "state")):
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a[0], b[0], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(a[1], b[1], rtol=1e-9, atol=1e-9)
    f = sg.function(differentiated(program, order), engine=ENGINES[seed // 2 % 2])
    np.testing.assert_allclose(f(x, w)[0], results[0][0][0], rtol=1e-9, atol=1e-9)


def rounds(folder: Path, seconds: float) -> Iterator[Census]:
    """Work for some time; a census after every few rounds."""
    start, count = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _ in range(ROUNDS_BETWEEN):
            one_round(count, folder)
            count += 1
        yield census(time.monotonic() - start, count)


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks /proc what the process has")
def test_nothing_grows_while_programs_come_and_go(tmp_path: Path) -> None:
    one_round(0, tmp_path)  # Engines are made when they are first asked for, and stay.
    before = census(0, 0)
    found = []
    for now in rounds(tmp_path, SECONDS):
        print(now, flush=True)
        assert now.objects == before.objects
        found.append(now)
    warm = [now for now in found if now.seconds > SECONDS / 3]
    assert {now.threads for now in warm} == {warm[0].threads}
    assert {now.files for now in warm} == {warm[0].files}
    trend = np.polyfit([now.rounds for now in warm], [now.memory for now in warm], 1)[0]
    print(f"{trend:.0f} bytes a round")
    assert trend < NO_GROWTH
