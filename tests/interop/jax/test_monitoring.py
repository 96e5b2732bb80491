"""Monitors of trainings in JAX: what they tell, with what values, and how often they trace."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
sgj = pytest.importorskip("stopgrad.jax")
sg = pytest.importorskip("stopgrad")
jnp = pytest.importorskip("jax.numpy")
optax = pytest.importorskip("optax")

TRACED: list[int] = []


def loss(params: Any, x: Any, y: Any) -> Any:
    TRACED.append(1)
    h = jax.nn.relu(x @ params["w"] + params["b"])
    return jnp.mean((h @ params["v"] - y) ** 2)


def fresh() -> Any:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((3, 4)), "b": np.zeros(4), "v": rng.standard_normal((4, 2))}
    return jax.tree_util.tree_map(lambda x: jnp.asarray(x, jnp.float32), params)


def batch(step: int, size: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    return rng.standard_normal((size, 3)).astype(np.float32), np.ones((size, 2), np.float32)


@pytest.mark.slow
def test_a_layer_that_dies_is_told_with_its_line_in_the_next_sample(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    monitor = sgj.monitor(loss, every=3, to=[io.StringIO(), path])
    params, optimizer = fresh(), optax.adam(1e-2)
    state = optimizer.init(params)
    for step in range(8):
        if step == 4:
            params["b"] = params["b"] - 100.0
        monitor(params, *batch(step))
        updates, state = optimizer.update(jax.grad(loss)(params, *batch(step)), state)
        params = optax.apply_updates(params, updates)
    states = [(change.step, change.state, change.keys) for change in monitor.changes]
    assert states == [(6, "zero", ("params.b", "params.w")), (6, "zero", ("params.v",))]
    assert " relu is dead" in monitor.changes[0].cause
    assert "test_monitoring.py:" in monitor.changes[0].cause
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 3, 6]
    expected = float(jnp.linalg.norm(jax.grad(loss)(fresh(), *batch(0))["w"]))
    assert lines[0]["parameters"]["params.w"]["magnitude"]["norm"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_the_function_is_traced_again_only_for_other_shapes() -> None:
    monitor, counts = sgj.monitor(loss, every=1, to=io.StringIO()), []
    for size in (6, 6, 6, 2, 2):
        TRACED.clear()
        monitor(fresh(), *batch(0, size))
        counts.append(len(TRACED))
    assert counts == [1, 0, 0, 1, 0]
    assert monitor.changes == ()


def test_a_step_that_cannot_be_sampled_is_a_warning_and_the_training_goes_on() -> None:
    monitor = sgj.monitor(lambda w: w if float(w) > 0 else -w, every=1, to=io.StringIO())
    with pytest.warns(RuntimeWarning, match="failed at step 0, sampling .ArgumentError"):
        monitor(1.0)
    monitor(1.0)
    assert monitor.step == 2


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(sg.ArgumentError, match="takes a function"):
        sgj.monitor(3.0)
