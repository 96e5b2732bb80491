"""Magnitudes of gradients in JAX are those of JAX's own gradients."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tiers import some

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import stopgrad.jax as sgj
from helpers.nans_in_jax import CASES, EYE


def vectors(a: Any) -> Any:
    w, v = jnp.linalg.eigh(a)
    return (v[:, 0] ** 2).sum() + ((v * jnp.sqrt(w)) @ v.T).sum()


def test_a_gradient_that_is_nan_in_jax_is_told_as_one() -> None:
    flow = sgj.explain(vectors, jnp.asarray(EYE), magnitudes=True)
    assert flow["a"].magnitude is not None
    assert flow["a"].magnitude.nans == int(jnp.isnan(jax.grad(vectors)(EYE)).sum())
    assert "NaN: a\n  trace_nan finds the operation" in str(flow)
    right = sgj.explain(vectors, jnp.diag(jnp.array([1.0, 2.0])), magnitudes=True)
    assert right["a"].magnitude is not None
    assert right["a"].magnitude.is_finite
    assert not right.troubles


def test_the_monitor_tells_it() -> None:
    monitor = sgj.monitor(vectors, every=1, to=io.StringIO())
    monitor(jnp.diag(jnp.array([1.0, 2.0])))
    assert not monitor.changes
    monitor(jnp.asarray(EYE))
    assert [change.state for change in monitor.changes] == ["not finite"]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("name", some(CASES))
def test_norms_are_those_of_jax(name: str) -> None:
    case = CASES[name]
    for f, args in ((case.wrong, case.args), (case.right, case.fixed or case.args)):
        flow = sgj.explain(f, *args, argnums=0, magnitudes=True)
        (key,) = flow
        measured, expected = flow[key].magnitude, jax.grad(f)(*map(jnp.asarray, args))
        if measured is None:
            assert not flow[key].arrives
            continue
        assert measured.nans == int(jnp.isnan(expected).sum())
        assert measured.infs == int(jnp.isinf(expected).sum())
        if measured.is_finite:
            assert measured.norm == pytest.approx(float(jnp.linalg.norm(expected)), rel=1e-4, abs=1e-30)
