"""What broke, or could have broken, where vmap, derivatives, gates, keys and loops meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
KEYS = sg.random_split(sg.random_key(7), 4)


@pytest.mark.parametrize("dtype", [sg.float64, sg.float32, sg.bfloat16])
def test_both_ends_of_a_drawn_interval_are_numbers_of_any_dtype(dtype: Any) -> None:
    unit = sg.cast(sg.random_uniform(KEYS[0], (5,), dtype=dtype), sg.float64)
    drawn = sg.random_uniform(KEYS[0], (5,), -1, 1.5, dtype=dtype)
    assert drawn.dtype == dtype.numpy
    np.testing.assert_allclose(sg.cast(drawn, sg.float64), unit * 2.5 - 1.0, atol=0.02)
    if dtype is sg.float64:
        np.testing.assert_array_equal(sg.random_uniform(KEYS[0], (5,), 0.3, 1.3, dtype), unit * 1.0 + 0.3)


def test_an_interval_for_each_key() -> None:
    low = RNG.uniform(size=4)
    f = lambda key, a: sg.random_uniform(key, (2,), a, a + 1.0, dtype=sg.float64)
    expected = np.stack([f(key, a) for key, a in zip(KEYS, low, strict=True)])
    np.testing.assert_allclose(sg.vmap(f)(KEYS, low), expected, rtol=1e-15)


@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_stop_names_the_argument_through_two_vmaps(outer: int, wrapped: bool) -> None:
    def f(a: Any) -> Any:
        return sg.stop_gradient(a * a, wrt=[sg.identity(a) if wrapped else a]) * a

    nested = sg.vmap(sg.vmap(f), in_axes=outer)
    np.testing.assert_allclose(sg.grad(lambda x: sg.reduce_sum(nested(x)))(X), X * X)
