"""What TensorFlow 2.21 gave for calls in which it is easily another's: values, dtypes, shapes and gradients.

Everything expected here was computed by TensorFlow's function of the same name with the same arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES, each_engine

import stopgrad as sg

NAN = np.nan


def assert_same(made: Any, expected: np.ndarray) -> None:
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(made, expected)


@each_engine
def test_reduce_logsumexp_of_nan_has_no_gradient_that_looks_right(engine: str) -> None:
    slope = sg.function(sg.grad(sg.reduce_logsumexp), engine=engine)
    np.testing.assert_array_equal(slope(np.array([NAN, 1.0, 2.0], np.float32)), [NAN, NAN, NAN])
    np.testing.assert_array_equal(slope(np.array([-np.inf, -np.inf], np.float32)), [0, 0])  # Unlike theirs.


def test_argmax_and_argmin_take_booleans() -> None:
    mask = np.array([[True, False, True], [False, False, True]])
    assert_same(sg.argmax(mask, 1), np.array([0, 2]))
    assert_same(sg.argmin(mask, axis=0, output_type="int32"), np.array([1, 0, 0], np.int32))
    assert_same(sg.function(lambda x: x.argmax())(mask), np.array(0))


def test_pad_takes_booleans_and_scalars() -> None:
    assert_same(sg.pad(np.array([True]), [[1, 1]]), np.array([False, True, False]))
    for engine in ENGINES:
        padded = sg.function(lambda x: sg.pad(x, np.zeros((0, 2), np.int32)), engine=engine)
        assert_same(padded(np.float32(1.5)), np.array(1.5, np.float32))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_real_and_imag_keep_the_dtype_of_integers(dtype: str) -> None:
    x = np.array([1, 0, 1], dtype)
    assert_same(sg.real(x), x)
    assert_same(sg.imag(x), np.zeros(3, dtype))
    assert_same(sg.real([1, 2]), np.array([1, 2], np.int32))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), np.float32([[1, 0], [0, 1]])),
        ((5, 1), np.int32([[5, 1], [1, 5]])),
        ((True, False), np.array([[True, False], [False, True]])),
        ((None, 2), np.int32([[1, 2], [2, 1]])),
        ((2.5,), np.float32([[2.5, 0], [0, 2.5]])),
        ((np.float64(2),), np.array([[2.0, 0], [0, 2.0]])),
    ],
)
def test_one_hot_has_the_dtype_of_its_values(values: tuple[Any, ...], expected: np.ndarray) -> None:
    assert_same(sg.one_hot([0, 1], 2, *values), expected)
    assert_same(sg.function(lambda i: sg.one_hot(i, 2, *values))(np.array([0, 1])), expected)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((np.float64(2.5),), np.array([0.0, 1.0, 2.0])),
        ((0, np.int64(4)), np.array([0, 1, 2, 3])),
        ((np.int32(3),), np.array([0, 1, 2], np.int32)),
        ((5,), np.arange(5, dtype=np.int32)),
        ((0.0, 1.0, 0.25), np.array([0, 0.25, 0.5, 0.75], np.float32)),
    ],
)
def test_range_has_the_dtype_of_its_numbers(numbers: tuple[Any, ...], expected: np.ndarray) -> None:
    assert_same(sg.range(*numbers), expected)


def test_selu_has_at_0_the_gradient_of_the_right_side() -> None:
    slope = sg.grad(lambda x: sg.reduce_sum(sg.selu(x)))(np.array([-1.0, 0.0, 2.0]))
    np.testing.assert_allclose(slope, [0.64676837, 1.05070099, 1.05070099], rtol=1e-6)
    assert np.signbit(sg.selu(-0.0))


def test_polygamma_takes_its_order_as_a_float() -> None:
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_allclose(sg.polygamma(1.0, x), [1.6449341, 0.6449341], rtol=1e-6)
    np.testing.assert_allclose(sg.polygamma(np.float32(2), x), [-2.4041138, -0.4041138], rtol=1e-6)
    np.testing.assert_allclose(sg.polygamma(0.0, x), [-0.57721567, 0.42278433], rtol=1e-6)


def test_axes_may_be_an_array() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    assert_same(sg.reduce_sum(x, np.array([0, -1])), np.array(15.0, np.float32))
    assert_same(sg.reduce_max(x, axis=np.array([1]), keepdims=True), np.array([[2.0], [5.0]], np.float32))
    assert_same(sg.reverse(x, np.array([0])), x[::-1])
    assert_same(sg.reduce_sum(x, np.array([0])), np.array([3.0, 5.0, 7.0], np.float32))
    assert_same(sg.reduce_sum(x, np.array([1])), np.array([3.0, 12.0], np.float32))
    with pytest.raises(sg.StopgradError, match="integer"):
        sg.reduce_sum(x, np.array([0.5]))
