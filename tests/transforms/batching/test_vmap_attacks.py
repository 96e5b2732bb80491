"""What broke, or could have broken, where vmap, derivatives, gates, keys and loops meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.rewrite import prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
KEYS = sg.random_split(sg.random_key(7), 4)


@pytest.mark.parametrize("dtype", [sg.float64, sg.float32, sg.bfloat16])
def test_both_ends_of_a_drawn_interval_are_numbers_of_any_dtype(dtype: Any) -> None:
    unit = sg.cast(sg.random_uniform((5,), KEYS[0], dtype=dtype), sg.float64)
    drawn = sg.random_uniform((5,), KEYS[0], -1, 1.5, dtype=dtype)
    assert drawn.dtype == dtype.numpy
    np.testing.assert_allclose(sg.cast(drawn, sg.float64), unit * 2.5 - 1.0, atol=0.02)
    if dtype is sg.float64:
        np.testing.assert_array_equal(sg.random_uniform((5,), KEYS[0], 0.3, 1.3, dtype), unit * 1.0 + 0.3)


def test_an_interval_for_each_key() -> None:
    low = RNG.uniform(size=4)
    f = lambda key, a: sg.random_uniform((2,), key, a, a + 1.0, dtype=sg.float64)
    expected = np.stack([f(key, a) for key, a in zip(KEYS, low, strict=True)])
    np.testing.assert_allclose(sg.vmap(f)(KEYS, low), expected, rtol=1e-15)


@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_stop_names_the_argument_through_two_vmaps(outer: int, wrapped: bool) -> None:
    def f(a: Any) -> Any:
        return sg.stop_gradient(a * a, wrt=[sg.identity(a) if wrapped else a]) * a

    nested = sg.vmap(sg.vmap(f), in_axes=outer)
    np.testing.assert_allclose(sg.grad(lambda x: sg.reduce_sum(nested(x)))(X), X * X)


def stopped_in_scan(row: Any) -> Any:
    """The gate names what the scan takes apart."""
    step = lambda c, t: (sg.stop_gradient(c * t, wrt=[t]) + t, c)
    return sg.scan(step, np.float64(1.0), row)[0]


def stopped_in_loop(row: Any) -> Any:
    step = lambda i, c: (i + 1, sg.stop_gradient(row * c, wrt=[row]) + row)
    return sg.while_loop(lambda i, _: i < 2, step, (0, row), maximum_iterations=3)[1]


def stopped_in_branch(row: Any) -> Any:
    stopped = lambda: sg.reduce_sum(sg.stop_gradient(row * row, wrt=[row]) * row)
    return sg.cond(row[0] > 0.0, stopped, lambda: sg.reduce_sum(row * row))


def stopped_in_both(row: Any) -> Any:
    """A gate in a branch in a loop names a tensor outside of both."""

    def step(c: Any, t: Any) -> Any:
        grown = sg.cond(t > 0.0, lambda: sg.stop_gradient(c * row[0], wrt=[row]) * t, lambda: c - t)
        return grown, c

    return sg.scan(step, np.float64(1.0), row)[0]


def stopped_in_checkpoint(row: Any) -> Any:
    return sg.checkpoint(lambda q: sg.reduce_sum(sg.stop_gradient(q * q, wrt=[q]) * q))(row)


@pytest.mark.parametrize(
    "f", [stopped_in_scan, stopped_in_loop, stopped_in_branch, stopped_in_both, stopped_in_checkpoint]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_stop_in_a_body_names_the_argument_along_any_axis(f: Any, axis: int) -> None:
    one = sg.grad(lambda row: sg.reduce_sum(f(row)))
    expected = np.stack([one(row) for row in X])
    x = X if axis == 0 else X.T
    mapped = sg.vmap(f, in_axes=axis)
    total = lambda v: sg.reduce_sum(mapped(v))
    again = lambda v: sg.reduce_sum(sg.vmap(lambda _: mapped(v))(np.zeros(1)))
    inner = sg.vmap(mapped, in_axes=1)
    deeper = lambda v: sg.reduce_sum(inner(v))
    for found in (sg.grad(total), sg.grad(again), sg.function(sg.grad(total), engine="xla")):
        np.testing.assert_allclose(found(x), expected if axis == 0 else expected.T, rtol=1e-12, atol=1e-12)
    there = sg.grad(deeper)(np.expand_dims(x, 1))
    np.testing.assert_allclose(there[:, 0], expected if axis == 0 else expected.T, rtol=1e-12, atol=1e-12)


def test_the_jacobian_of_a_complex_value_of_a_real_argument_is_refused() -> None:
    turned = lambda x: sg.cast(x, sg.complex128) * np.array(1 + 2j)
    with pytest.raises(sg.DTypeError, match=r"take the Jacobians of sg\.real and sg\.imag"):
        sg.jacobian(turned)(X[0])
    np.testing.assert_array_equal(sg.jacobian(lambda x: sg.imag(turned(x)))(X[0]), 2.0 * np.eye(3))
    dx, dz = sg.jacobian(lambda x, z: z * z, (0, 1))(X[0], X[0] + 1j)  # x takes no part
    np.testing.assert_array_equal(dx, np.zeros((3, 3)))
    np.testing.assert_allclose(dz, np.diag(2 * (X[0] - 1j)))


@each_engine
def test_what_an_example_does_not_compute_leaves_no_nan_in_its_gradient(engine: str) -> None:
    chosen = lambda a: sg.cond(a > 0.0, lambda: sg.sqrt(a), lambda: a * 2.0)
    ways = lambda a: sg.switch(sg.cast(a, sg.int32), [lambda: a, lambda: sg.sqrt(a - 1.0), lambda: 3.0 * a])

    def ended(a: Any) -> Any:
        step = lambda i, y: (i + 1.0, sg.sqrt(y - 1.0))
        start = (np.float64(0.0), a * a + 1.0)
        return sg.while_loop(lambda i, _: i < a, step, start, maximum_iterations=6)[1]

    for f, x in ((chosen, [4.0, -1.0, 0.0]), (ways, [0.5, 1.25, 9.0]), (ended, [1.0, 0.5, 0.0])):
        expected = np.array([sg.grad(f)(a) for a in np.array(x)])
        assert np.isfinite(expected).all()
        found = sg.function(sg.grad(lambda v, f=f: sg.reduce_sum(sg.vmap(f)(v))), engine=engine)
        np.testing.assert_allclose(found(np.array(x)), expected)


def test_a_choice_between_a_tensor_and_itself_is_not_computed() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, here = sg.placeholder(sg.float64, [3]), sg.placeholder(sg.bool, [3])
        wide = sg.placeholder(sg.bool, [2, 3])
        plain = sg.where(here, x, sg.zero_gradient(x))
        wider = sg.where(wide, x, x)
    assert prepare([plain], [x, here]).outputs[0].op.type == "Placeholder"
    assert prepare([wider], [x, wide]).outputs[0].op.type == "SelectV2"


def test_what_no_example_takes_leaves_no_nan_in_what_all_share():
    """The root of -1 is not computed for the second example, nor is its derivative."""

    def loss(w):
        branches = lambda a: sg.cond(a > 0.0, lambda: w * sg.sqrt(a), lambda: 2.0 * a * w)
        return sg.reduce_sum(sg.vmap(branches)(np.array([4.0, -1.0])))

    assert sg.grad(loss)(np.float64(2.0)) == 2.0 - 2.0
