"""An hour of random work in one process: memory, threads, open files and our objects stay as they were.

STOPGRAD_SOAK_SECONDS says for how long. Each round makes a random program of loops, branches and stops,
differentiates it once or twice, and trains, saves, restores, writes and reads it on both engines. What the
engines, the restored sessions and the graphs read back compute must agree. ``-s`` shows the curve.

The process is one of its own, whose C heap is one (``MALLOC_ARENA_MAX=1``), and JAX's caches are emptied
before anything is counted. JAX keeps what it traced, and the compiler's threads leave holes in a heap each:
without this, random programs of JAX alone grow by 20 kB a round, 11 of them in what is allocated.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import onnxruntime
import pytest
from all_engines import ENGINES
from random_programs import Stopgrad, evaluate, made, point

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.graph.op import REGISTRY

SECONDS = float(os.environ.get("STOPGRAD_SOAK_SECONDS", "3600"))
CENSUS_AFTER = 10
NO_GROWTH = 4096
"""Bytes a round by which resident memory may grow, less three standard errors of the trend: 16 MB an hour."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks /proc what there is"),
]


class Census(NamedTuple):
    """What the process has, when all that was dropped is gone. The numbers of threads: Python's, and all."""

    seconds: float
    rounds: int
    memory: int
    threads: tuple[int, int]
    files: int
    temporary: int
    objects: Counter[str]

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s {self.rounds:6} rounds {self.memory / 2**20:8.1f} MiB "
            f"{self.threads} threads {self.files} files {self.temporary} temporary "
            f"{self.objects.total()} objects"
        )


def census(seconds: float = 0.0, rounds: int = 0) -> Census:
    for definition in REGISTRY.values():
        definition._inferred.clear()  # Our one cache that holds types: bounded, and not what is asked here.
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # What is free in C's heap is nobody's.
    kinds = (type(x) for x in gc.get_objects())
    objects = Counter(k.__qualname__ for k in kinds if str(k.__module__).startswith("stopgrad."))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads = threading.active_count(), len(os.listdir("/proc/self/task"))
    files = len(os.listdir("/proc/self/fd"))
    temporary = len(os.listdir(tempfile.gettempdir()))
    return Census(seconds, rounds, pages * os.sysconf("SC_PAGESIZE"), threads, files, temporary, objects)


def complaints(before: Census, found: Sequence[Census]) -> list[str]:
    """What grew. Memory and threads are judged after a third of the time: JAX fills its caches and pools."""
    warm = [now for now in found if now.seconds > found[-1].seconds / 3]
    odd = [f"objects: {grown}" for now in found if (grown := now.objects - before.objects)]
    odd += [f"threads: {now}" for now in warm if now.threads != warm[0].threads]
    odd += [f"files: {now}" for now in warm if now.files != warm[0].files]
    odd += [f"temporary: {now}" for now in warm if now.temporary != warm[0].temporary]
    memory = np.array([now.memory for now in warm])
    (trend, _), spread = np.polyfit([now.rounds for now in warm], memory, 1, cov=True)
    error = float(np.sqrt(spread[0, 0]))
    print(f"{trend:.0f} ± {error:.0f} bytes a round")
    return [*odd, f"memory: {trend:.0f} bytes a round"] if trend - 3 * error > NO_GROWTH else odd


def differentiated(seed: int) -> Callable[..., Any]:
    """The value of a random program and its gradient, or that of the sum of its gradient."""

    @sg.custom_gradient
    def doubled(x: Any) -> Any:
        return x * 2.0, lambda g: g * 2.0

    program = made(seed)

    def f(x: Any, w: Any) -> Any:
        return sg.reduce_sum(doubled(evaluate(program, [x, w], Stopgrad)))

    first = sg.grad(f, 1)
    second = sg.grad(lambda x, w: sg.reduce_sum(first(x, w)), 1)
    return lambda x, w: (f(x, w), (second if seed % 2 else first)(x, w))


def train(graph: sg.Graph, engine: str, x: Any, path: Path) -> list[Any]:
    """Two steps, and a third that a session makes, too, which takes over from a file."""
    with sg.Session(graph, engine=engine) as session, sg.Session(graph, engine=engine) as other:
        found = [session.run(["value", "step"], {"x": x}) for _ in range(2)]
        session.save(path)
        other.restore(path)
        last, again = (s.run(["value", "step"], {"x": x}) for s in (session, other))
    np.testing.assert_array_equal(np.hstack(last), np.hstack(again))
    return [np.hstack(results) for results in (*found, last)]


def one_round(seed: int, folder: Path) -> None:
    f, (x, w) = differentiated(seed), point(seed)[:2]
    graph = sg.Graph()
    with graph.as_default():
        held = sg.parameter(w, name="w")
        value, slope = f(sg.placeholder(sg.float64, [3], name="x"), held)
        sg.identity(value, name="value")
        sg.assign(held, held - 0.01 * slope, name="step")
    graph.save(folder / "graph")
    read = sg.Graph.from_text(graph.to_text()) if seed % 3 else sg.Graph.load(folder / "graph")
    results = [train(graph, engine, x, folder / "state") for engine in ENGINES]
    results.append(train(read, ENGINES[seed // 2 % len(ENGINES)], x, folder / "state"))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-9, atol=1e-9)
    value, slope = sg.function(f, engine=ENGINES[seed // 4 % len(ENGINES)])(x, w)
    np.testing.assert_allclose([value, *(w - 0.01 * slope)], results[0][0], rtol=1e-9, atol=1e-9)


def soak(folder: Path) -> None:
    """Rounds until the time is over, and what grew in them."""
    one_round(0, folder)  # Engines are made when they are first asked for, and stay.
    before, start, found = census(), time.monotonic(), []
    while time.monotonic() - start < SECONDS or len(found) < 6:
        for seed in range(len(found) * CENSUS_AFTER, (len(found) + 1) * CENSUS_AFTER):
            one_round(seed, folder)
        found.append(census(time.monotonic() - start, seed + 1))
        print(found[-1], flush=True)
    assert not (odd := complaints(before, found)), odd


def in_a_process(call: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Evaluate an expression in a process of its own, in which this module is imported."""
    program = f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}; import test_soak; "
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program + call],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.nightly
def test_nothing_grows_while_programs_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    call = f"test_soak.soak(test_soak.Path({str(tmp_path)!r}))"
    run = in_a_process(call, MALLOC_ARENA_MAX="1", TMPDIR=str(tmp_path / "temporary"))
    assert run.returncode == 0, run.stderr[-5000:]
    assert sorted(os.listdir(tmp_path)) == ["graph", "state", "temporary"]


def decided(seed: int) -> None:
    """A random program with all that ONNX Runtime optimises, as it is shipped, and as the engine runs it."""
    f, (x, w) = differentiated(seed), point(seed)[:2]
    graph = sg.Graph()
    with graph.as_default():
        fed = [sg.placeholder(sg.float64, [3], name=name) for name in "xw"]
        value, slope = f(*fed)
    model = sgo.to_model({"value": value, "slope": slope}, fed)
    shipped = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = np.hstack(sg.function(f, engine="numpy")(x, w))
    for found in (shipped.run(None, {"x": x, "w": w}), sg.function(f, engine="onnxruntime")(x, w)):
        np.testing.assert_allclose(np.hstack(found), expected, rtol=1e-6, atol=1e-6)


def test_a_program_whose_branches_are_constant_does_not_end_the_process() -> None:
    """ONNX Runtime 1.32.0 crashed when it folded these; found after 230 rounds."""
    run = in_a_process("test_soak.decided(234)")
    assert run.returncode == 0, run.stderr


def test_what_is_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, done, kept, found = census(), threading.Event(), [], []
    for n in range(1, 7):
        thread, file = threading.Thread(target=done.wait), (tmp_path / f"file{n}").open("w")
        thread.start()
        kept.append((sg.Graph(), b"x" * 2**26, thread, file))
        found.append(census(n, n * 1000))
    done.set()
    for _, _, thread, file in kept:
        thread.join()
        file.close()
    odd = complaints(before, found)
    assert {text.partition(":")[0] for text in odd} == {"objects", "threads", "files", "temporary", "memory"}
