"""Reductions, losses and norms in float32: many numbers leave no larger error than a few roundings.

`benchmarks/accuracy.py` compares more of them with JAX's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT

import stopgrad as sg

UNIT = 2.0**-23
SIZE = 100_000

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": sg.reduce_mean,
    "sum of columns": lambda x: sg.reduce_sum(sg.reshape(x, [-1, 4]), 0),
    "variance of columns": lambda x: sg.reduce_variance(sg.reshape(x, [-1, 100]), 0),
    "logsumexp": sg.reduce_logsumexp,
    "log_softmax": sg.log_softmax,
    "softmax": sg.softmax,
    "layer norm": sg.layer_norm,
    "rms norm of rows": lambda x: sg.rms_norm(sg.reshape(x, [-1, 1000])),
    "l2_normalize": sg.l2_normalize,
    "cumsum": sg.cumsum,
    "huber": lambda x: sg.huber(np.float32(0), x),
}
DATA = {
    "around 1": 1 + np.random.default_rng(0).normal(size=SIZE),
    "around 1000": 1000 + np.random.default_rng(1).normal(size=SIZE),
    "equal": np.full(SIZE, 0.7),
}


def value_and_gradient(f: Callable[[Any], Any], engine: str) -> Callable[..., Any]:
    weighted = lambda x, w: sg.reduce_sum(f(x) * w)
    return sg.function(lambda x, w: (f(x), sg.grad(weighted)(x, w)), engine=engine)


def errors(f: Callable[[Any], Any], data: str, engine: str) -> list[float]:
    """Of value and gradient, in units of the last place of the greatest number."""
    x = DATA[data].astype(np.float32)
    w = np.random.default_rng(2).normal(size=f(x).shape).astype(np.float32)
    w = w if w.ndim else np.float32(1)
    right = value_and_gradient(f, "numpy")(x.astype(np.float64), np.float64(w))
    found = value_and_gradient(f, engine)(x, w)
    return [
        float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max() / UNIT)
        for a, b in zip(found, right, strict=True)
    ]


UNSTABLE = {"variance of columns": ("equal",), "layer norm": ("around 1000", "equal")}
"""Data for which the rounding of a mean alone makes a large error: JAX's are as large."""


def compared(name: str, engine: str) -> None:
    for data in DATA:
        if data not in UNSTABLE.get(name, ()):
            assert max(errors(FUNCTIONS[name], data, engine)) < (4 if name == "cumsum" else 2), data


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_those_of_a_few_roundings_on_numpy(name: str) -> None:
    compared(name, "numpy")


ELSEWHERE = [("xla", "logsumexp"), ("onnxruntime", "mean"), ("onnxruntime", "cumsum")]
"""The runtimes' own sums: of those that were wrong, some; the slow test has all."""


@pytest.mark.parametrize(("engine", "name"), ELSEWHERE)
def test_errors_are_those_of_a_few_roundings_elsewhere(engine: str, name: str) -> None:
    compared(name, engine)


# Without the variance on xla, which computes one mean in two ways where a reshape is in between, JAX's too.
EVERYWHERE = [
    (engine, name)
    for engine in ("xla", "onnxruntime")
    for name in FUNCTIONS
    if (engine, name) != ("xla", "variance of columns")
]


@pytest.mark.slow
@pytest.mark.usefixtures("users_compiler")
@pytest.mark.parametrize(("engine", "name"), EVERYWHERE)
def test_errors_are_those_of_a_few_roundings_on_every_engine(engine: str, name: str) -> None:
    compared(name, engine)


def test_a_running_logsumexp_has_precise_gradients() -> None:
    """There are as many factors near 1 as elements, and their errors must not add up."""
    x, w = np.random.default_rng(3).normal(size=(2, 20_000)).astype(np.float32)
    slope = sg.grad(lambda x: sg.reduce_sum(sg.cumulative_logsumexp(x) * w))
    found, right = (
        slope(x),
        sg.grad(lambda x: sg.reduce_sum(sg.cumulative_logsumexp(x) * np.float64(w)))(np.float64(x)),
    )
    assert np.abs(found - right).max() < 4 * UNIT * np.abs(right).max()


@pytest.mark.parametrize("shape", [(1009, 3), (2, 1009, 3), (4096, 5, 7), (33,), (70, 70, 70)])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_sums_in_parts_are_sums(shape: tuple[int, ...], engine: str) -> None:
    x = np.random.default_rng(4).normal(size=shape)
    axes = [*[(i,) for i in range(x.ndim)], tuple(range(0, x.ndim, 2)), tuple(range(x.ndim))]
    ways = [(some, kept) for some in axes for kept in (False, True)]
    made = sg.function(lambda x: [sg.reduce_sum(x, *way) for way in ways], engine=engine)(x)
    for found, (some, kept) in zip(made, ways, strict=True):
        np.testing.assert_allclose(found, np.sum(x, some, keepdims=kept), atol=1e-10)


@pytest.mark.nightly
def test_errors_beside_those_of_jax(tmp_path: Path) -> None:
    made = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), "--size", "100000", "--draws", "2"]
    command += ["--engines", "xla,numpy", "--json", str(made)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XLA_FLAGS": ""}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=900)
    rows = json.loads(made.read_text())
    assert len(rows) >= 30 * 5
    for row in rows:
        if (row["case"], row["data"]) == ("sum of kernels", "wide"):
            continue  # xla multiplies squared distances out, and nearly all of these cancels.
        if "norm" in row["case"] and row["data"] == "equal":
            continue  # One rounding of the mean is all there is, and either may have it.
        for engine in ("xla", "numpy"):
            for ours, theirs in zip(row["errors"][engine], row["errors"]["jax"], strict=True):
                assert np.isnan(theirs) or ours <= max(2 * theirs, 4 * UNIT), (engine, row)
