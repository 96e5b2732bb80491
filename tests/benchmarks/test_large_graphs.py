"""Graphs too large to hold twice: what an operation takes, and programs that do not grow with depth."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT

import stopgrad as sg
from stopgrad.rewrite import rolling

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
BYTES = 400
"""An operation takes no more, its share of all that stands beside it included."""
PEAK = 1.35
"""While a gradient is generated, no more than so many times what the graph takes afterwards."""


def chain(operations: int) -> tuple[Any, list[Any]]:
    x, v = sg.placeholder(sg.float32, [4]), sg.placeholder(sg.float32, [4])
    y = x
    for _ in range(operations // 4):
        y = sg.sin(sg.tanh(y) * v) + v
    return sg.reduce_sum(y), [x, v]


def layers(operations: int) -> tuple[Any, list[Any]]:
    y, held = sg.placeholder(sg.float32, [4, 4]), []
    for _ in range(operations // 5):
        w, b = sg.placeholder(sg.float32, [4, 4]), sg.placeholder(sg.float32, [4])
        y = sg.tanh(y @ w + b)
        held += [w, b]
    return sg.reduce_sum(y), held


def traced(build: Callable[[int], tuple[Any, list[Any]]], operations: int) -> list[float]:
    """Bytes of each operation: built, with the gradient, and at most while that is generated."""
    with sg.Graph().as_default():
        sg.gradients(*build(100))  # What is remembered of types and rules is there.
    gc.collect()
    tracemalloc.start(1)
    try:
        graph = sg.Graph()
        with graph.as_default():
            y, xs = build(operations)
        built = tracemalloc.get_traced_memory()[0] / len(graph)
        tracemalloc.reset_peak()
        found = sg.gradients(y, xs)
        both, peak = (size / len(graph) for size in tracemalloc.get_traced_memory())
        assert all(g is not None for g in found)
        return [built, both, peak]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("build", [chain, layers])
def test_an_operation_takes_few_bytes_however_many_there_are(build: Any) -> None:
    small, large = traced(build, 4_000), traced(build, 20_000)
    for found in (small, large):
        assert max(found[:2]) < BYTES
        assert found[2] < PEAK * found[1]
    np.testing.assert_allclose(small[:2], large[:2], rtol=0.05)


def measured(case: str, size: int, stages: str) -> dict[str, dict[str, float]]:
    """What the benchmark measures, in a process of its own at a recursion limit of 200."""
    script, asked = ROOT / "benchmarks" / "large_graphs.py", json.dumps([case, size, stages.split(",")])
    done = subprocess.run(
        [sys.executable, str(script), "--worker", asked], capture_output=True, text=True, check=True
    )
    return {row["stage"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of a process")
def test_ten_million_operations_take_ten_times_what_a_million_take() -> None:
    available = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    if available < 14 * 2**30:
        pytest.skip("10,000,000 operations and their gradient need 10 GB")
    small, large = (measured("chain", size, "build,gradient") for size in (10**6, 10**7))
    for stage in ("build", "gradient"):
        each = [found[stage]["held"] / found[stage]["operations"] for found in (small, large)]
        assert max(each) < 500
        assert 0.9 < each[1] / each[0] < 1.1
        assert large[stage]["peak"] < PEAK * large[stage]["held"]


# ------------------------------------------------------------------------------------------------- depth


def mlp(params: Any, x: Any) -> Any:
    for w, b in params:
        x = sg.tanh(x @ w + b)
    return sg.reduce_mean(x * x)


def mlp_scan(params: Any, x: Any) -> Any:
    last, _ = sg.scan(lambda x, p: (sg.tanh(x @ p[0] + p[1]), None), x, params)
    return sg.reduce_mean(last * last)


def weights(depth: int, width: int = 4) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(width, width)).astype(np.float32), np.zeros(width, np.float32))
        for _ in range(depth)
    ]


def stacked(params: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.stack([w for w, _ in params]), np.stack([b for _, b in params])


def instructions(f: Any, *args: Any) -> int:
    """How many instructions XLA compiles, but those that name an argument."""
    pytest.importorskip("jax")
    text = sg.function(f, engine="xla").lower(*args).compile().as_text()
    return sum(" = " in line and " parameter(" not in line for line in text.splitlines())


def test_a_scan_is_compiled_once_however_deep() -> None:
    x = np.ones((2, 4), np.float32)
    counts = [instructions(sg.value_and_grad(mlp_scan), stacked(weights(depth)), x) for depth in (8, 64)]
    assert counts[0] == counts[1]


def test_layers_written_out_are_compiled_once_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    # Multiples of what is stacked at a time, so that none are left over to be stacked by the program.
    x, depths = np.ones((2, 4), np.float32), (150, 300)
    monkeypatch.setattr(rolling, "LEAST_SAVED", 800)
    counts = [instructions(sg.value_and_grad(mlp), weights(depth), x) for depth in depths]
    assert counts[0] > 50
    assert counts[1] < 1.1 * counts[0]
    monkeypatch.setattr(rolling, "LEAST_SAVED", 10**9)
    assert instructions(sg.value_and_grad(mlp), weights(depths[0]), x) > 2 * counts[0]


def test_a_report_says_which_layers_run_as_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(rolling, "LEAST_SAVED", 100)
    f = sg.function(sg.value_and_grad(mlp), engine="xla")
    f(weights(40), np.ones((2, 4), np.float32))
    (report,) = f.report()
    forward, backward = report.notes
    assert forward.startswith("40 times 3 operations, built at ")
    assert "test_large_graphs.py:" in forward
    assert forward.endswith(", run as a loop")
    assert backward.startswith("39 times 4 operations")
    assert all(f"\n  {note}" in str(report) for note in report.notes)


@pytest.mark.parametrize(
    ("width", "why"),
    [(4, "40 of their values are used one by one outside"), (200, "would be copied at every run")],
)
def test_a_report_says_which_layers_do_not_and_why(
    width: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(rolling, "LEAST_SAVED", 100)
    graph = sg.Graph()
    with graph.as_default():
        x = y = sg.placeholder(sg.float32, [2, width])
        kept = []
        for w, b in weights(40, width):
            y = sg.tanh(y @ sg.parameter(w) + sg.parameter(b))
            kept.append(y)
        parts = np.random.default_rng(0).integers(1, 5, 40).tolist()
        seen = [sg.reduce_sum(one[:, :part]) for one, part in zip(kept, parts, strict=True)]
    with sg.Session(graph, engine="xla") as session:
        session.run([y, *(seen if width == 4 else ())], {x: np.ones((2, width), np.float32)})
        (report,) = session.report()
    (note,) = report.notes
    assert note.startswith("40 times 3 operations, built at ")
    assert why in note
    assert "sg.scan" in note


def test_small_graphs_have_nothing_to_be_said_of_them() -> None:
    f = sg.function(sg.value_and_grad(mlp))
    f(weights(3), np.ones((2, 4), np.float32))
    assert [report.notes for report in f.report()] == [()]
