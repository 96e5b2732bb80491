"""NaNs and infinities of JAX code: the line, and the cure; JAX itself says if there are any."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

import numpy as np
import pytest
from tiers import some

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import stopgrad as sg
import stopgrad.jax as sgj
from helpers import nans_in_jax
from helpers.nans_in_jax import CASES, EYE, X


def is_bad(f: Any, args: Any) -> tuple[bool, bool]:
    """Whether JAX's own values, and its own gradients, hold NaNs or infinities."""
    value, pull = jax.value_and_grad(f, argnums=tuple(range(len(args))))(*map(jnp.asarray, args))
    found = [not bool(jnp.all(jnp.isfinite(x))) for x in (value, *pull)]
    return found[0], any(found[1:])


@pytest.mark.parametrize("name", some(CASES, 3))
def test_the_line_at_fault_is_named_and_right_twins_are_finite(name: str) -> None:
    case = CASES[name]
    in_values, in_gradient = is_bad(case.wrong, case.args)
    assert in_values or in_gradient
    trace = sg.trace_nan(case.wrong, *case.args)
    assert trace.found
    assert trace.first is not None
    assert trace.first.where == case.where == ("forward" if in_values else case.where)
    assert ("the result" in trace.reaches, any("gradient" in x for x in trace.reaches)) == (
        in_values,
        in_gradient,
    )
    assert trace.first.location is not None
    assert trace.first.location.file == nans_in_jax.__file__
    assert "# here" in linecache.getline(trace.first.location.file, trace.first.location.line)
    assert trace.first.pattern == case.pattern
    fixed = case.args if case.fixed is None else case.fixed
    assert is_bad(case.right, fixed) == (False, False)
    right = sgj.trace_nan(case.right, *fixed)
    assert not right, str(right)


@pytest.mark.parametrize(
    "name", [n for n in CASES if CASES[n].where == "forward" and n != "index out of bounds"]
)
def test_debug_nans_finds_the_same_line(name: str) -> None:
    """JAX's own search, which runs forwards and looks for NaNs and infinities."""
    case = CASES[name]
    finds = pytest.raises(FloatingPointError)
    with jax.debug_nans(True), jax.debug_infs(True), jax.disable_jit(), finds as caught:
        jax.block_until_ready(case.wrong(*map(jnp.asarray, case.args)))
    lines = [e.lineno + 1 for e in caught.traceback if str(e.path) == nans_in_jax.__file__]
    source = linecache.getline(nans_in_jax.__file__, lines[-1])
    assert "# here" in source or name in ("all masked", "while_loop", "p log p")


def test_the_case_of_equal_eigenvalues() -> None:
    def loss(a: Any) -> Any:
        w, v = jnp.linalg.eigh(a)
        return (v[:, 0] ** 2).sum() + ((v * jnp.sqrt(w)) @ v.T).sum()

    assert bool(jnp.isnan(jax.grad(loss)(EYE)).any())
    trace = sg.trace_nan(loss, jnp.asarray(EYE))
    assert trace.first is not None
    assert trace.first.origin_name == "jax.lax.linalg.eigh"
    assert "equal" in (trace.first.cure or "")
    assert trace.reaches == ("the gradient of a",)


def test_arguments_hold_them_themselves_by_their_paths() -> None:
    params = {"w": jnp.array([1.0, jnp.nan]), "b": jnp.zeros(2)}
    trace = sg.trace_nan(lambda params: jnp.sum(params["w"] * params["b"]), params)
    assert trace.first is not None
    assert (trace.first.source, trace.first.name, trace.first.index) == ("argument", "params.w", (1,))


def test_the_step_of_a_scan_is_told() -> None:
    trace = sg.trace_nan(nans_in_jax.scanned, jnp.array([3.0, 2.0, 0.0, 1.0]))
    assert trace.first is not None
    assert trace.first.iteration == 2
    assert "in step 2 of jax.lax.scan" in str(trace)
    back = sg.trace_nan(nans_in_jax.scanned_backwards, jnp.array([3.0, 2.0, 0.0, 1.0]))
    assert back.first is not None
    assert back.first.iteration == 2


def test_long_loops_are_entered_only_if_they_matter() -> None:
    def loss(x: Any) -> Any:
        return jax.lax.scan(lambda c, t: (c + jnp.sqrt(t), None), 0.0, x)[0]

    x = jnp.ones(50).at[33].set(0.0)
    trace = sg.trace_nan(loss, x)
    assert trace.first is not None
    assert trace.first.iteration == 33
    assert not sg.trace_nan(loss, jnp.ones(50))


def test_what_is_discarded_is_harmless() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0) * 0 + x)

    trace = sg.trace_nan(
        lambda x: jnp.sum(jnp.where(x > 0, jax.lax.stop_gradient(jnp.log(x)), x)), jnp.asarray(X)
    )
    assert not trace
    assert trace.harmless == 1
    assert sg.trace_nan(loss, jnp.asarray(X)).found == is_bad(loss, (X,))[1]


def test_argnums_and_gradient_narrow_the_question() -> None:
    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.sqrt(a)) + jnp.sum(b)

    assert sg.trace_nan(loss, X, X).reaches == ("the gradient of a",)
    assert not sg.trace_nan(loss, X, X, argnums=1)
    assert not sg.trace_nan(loss, X, X, gradient=False)


def test_bad_arguments_are_told() -> None:
    with pytest.raises(sg.ArgumentError, match="a is only a shape"):
        sgj.trace_nan(lambda a: jnp.sum(a), jax.ShapeDtypeStruct((2,), jnp.float32))
    with pytest.raises(sg.GradientError, match="returned no array"):
        sgj.trace_nan(lambda a: None, jnp.ones(2))


def test_dtypes_keys_and_integers_are_taken() -> None:
    def loss(key: Any, n: Any, h: Any) -> Any:
        noise = jax.random.normal(key, h.shape)
        return jnp.sum(jnp.sqrt(h).astype(jnp.float32) * n + noise)

    key = jax.random.key(0)
    trace = sg.trace_nan(loss, key, jnp.int32(2), jnp.array([0.0, 1.0], jnp.bfloat16))
    assert trace.first is not None
    assert trace.first.inputs[-1].dtype == "bfloat16"
    assert not sg.trace_nan(loss, key, jnp.int32(2), jnp.array([1.0, 1.0], jnp.bfloat16))


def test_sources_of_cases_are_there() -> None:
    assert all("# here" in inspect.getsource(nans_in_jax) for _ in CASES)
    assert np.isfinite(X).all()
