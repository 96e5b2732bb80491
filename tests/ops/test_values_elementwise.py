"""Values of elementwise functions: Python's own, one number at a time, wherever it has the function."""

from __future__ import annotations

import cmath
import math
import operator
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
from all_engines import each_engine
from values import Cases, by, complex_normal, each, normal, uniform

import stopgrad as sg

NAN, INF = math.nan, math.inf
CASES = Cases()
add = CASES.add

R, S = 3 * normal(2, 3), 2 * normal(3, seed=1)
COLUMN = normal(2, 1, seed=2)
INSIDE, POSITIVE = uniform(-0.95, 0.95, 2, 3), uniform(0.05, 9.0, 2, 3)
C, D = complex_normal(2, 3), complex_normal(3, seed=1)
SMALL = np.array([-1e-9, 1e-12, -0.5, 0.25, 1e-5])
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5])
INTS = np.array([[7, -7, 5], [-1, 0, 2**40]])
DIVISORS = np.array([3, -2, 5])
TRUTH, OTHER = np.array([[True, False], [False, True]]), np.array([True, False])

# ------------------------------------------------------------------------------------ of one operand

for ours, theirs, x in [
    (sg.abs, abs, R),
    (sg.abs, abs, C),
    (sg.abs, abs, INTS),
    (sg.negative, operator.neg, R),
    (sg.negative, operator.neg, C),
    (sg.negative, operator.neg, INTS),
    (sg.sign, lambda x: float((x > 0) - (x < 0)), np.array([-2.5, 0.0, 3.0, -INF])),
    (sg.sign, lambda x: x / abs(x), C),
    (sg.square, lambda x: x * x, R),
    (sg.square, lambda x: x * x, C),
    (sg.square, lambda x: x * x, DIVISORS),
    (sg.reciprocal, lambda x: 1 / x, R),
    (sg.reciprocal, lambda x: 1 / x, C),
    (sg.floor, lambda x: float(math.floor(x)), np.array([-2.5, -0.1, 2.9, 3.0])),
    (sg.ceil, lambda x: float(math.ceil(x)), np.array([-2.5, -1.1, 2.1, 3.0])),
    (sg.round, lambda x: float(round(x)), np.array([-2.5, -1.5, -0.7, 0.5, 1.5, 2.4999, 2.5])),
    (sg.trunc, lambda x: float(math.trunc(x)), np.array([-2.5, -1.1, 2.1, 3.0])),
    (sg.floor, lambda x: x, INTS),
    (sg.ceil, lambda x: x, INTS),
    (sg.round, lambda x: x, INTS),
    (sg.trunc, lambda x: x, INTS),
    (sg.signbit, lambda x: math.copysign(1, x) < 0, SPECIAL),
    (sg.cbrt, math.cbrt, R),
    (sg.exp2, math.exp2, R),
    (sg.log2, math.log2, POSITIVE),
    (sg.log2, lambda x: cmath.log(x) / math.log(2), C),
    (sg.log10, math.log10, POSITIVE),
    (sg.log10, cmath.log10, C),
    (sg.sqrt, math.sqrt, POSITIVE),
    (sg.sqrt, cmath.sqrt, C),
    (sg.rsqrt, lambda x: 1 / math.sqrt(x), POSITIVE),
    (sg.exp, math.exp, R),
    (sg.exp, cmath.exp, C),
    (sg.expm1, math.expm1, SMALL),
    (sg.log, math.log, POSITIVE),
    (sg.log, cmath.log, C),
    (sg.log1p, math.log1p, SMALL),
    (sg.sin, math.sin, R),
    (sg.sin, cmath.sin, C),
    (sg.cos, math.cos, R),
    (sg.cos, cmath.cos, C),
    (sg.tan, math.tan, R),
    (sg.asin, math.asin, INSIDE),
    (sg.acos, math.acos, INSIDE),
    (sg.atan, math.atan, R),
    (sg.sinh, math.sinh, R),
    (sg.cosh, math.cosh, R),
    (sg.tanh, math.tanh, R),
    (sg.tanh, cmath.tanh, C),
    (sg.asinh, math.asinh, R),
    (sg.acosh, math.acosh, 1 + POSITIVE),
    (sg.atanh, math.atanh, INSIDE),
    (sg.erf, math.erf, R),
    (sg.erfc, math.erfc, np.array([-3.0, -0.2, 0.0, 1.0, 5.0, 20.0])),
    (sg.lgamma, math.lgamma, np.array([-2.5, -0.3, 0.1, 1.0, 4.0, 100.0])),
    (sg.real, lambda x: x.real, C),
    (sg.real, lambda x: x.real, R),
    (sg.imag, lambda x: x.imag, C),
    (sg.imag, lambda x: x.imag, R),
    (sg.conj, lambda x: x.conjugate(), C),
    (sg.conj, lambda x: x, R),
    (sg.is_nan, math.isnan, SPECIAL),
    (sg.is_inf, math.isinf, SPECIAL),
    (sg.is_finite, math.isfinite, SPECIAL),
    (sg.is_nan, cmath.isnan, C + np.array([NAN, 0, 1j * NAN])),
    (sg.logical_not, operator.not_, TRUTH),
    (sg.invert, operator.invert, INTS),
    (sg.invert, operator.not_, TRUTH),
]:
    add(ours, each(theirs), x, atol=0)

add(sg.ndtri, each(NormalDist().inv_cdf), (INSIDE + 1) / 2)
add(sg.erfcinv, each(lambda x: -NormalDist().inv_cdf(x / 2) / math.sqrt(2)), 1 - INSIDE)
for ours, theirs in [
    (sg.bessel_i0, scipy.special.i0),
    (sg.bessel_i0e, scipy.special.i0e),
    (sg.bessel_i1, scipy.special.i1),
    (sg.bessel_i1e, scipy.special.i1e),
]:
    add(ours, theirs, R)
# Abramowitz and Stegun 1972, table 9.8.
add(sg.bessel_i0e, np.array([0.4657596077, 0.1835408126]), np.array([1.0, 5.0]), rtol=1e-9)
add(sg.angle, each(cmath.phase), C, atol=0)
add(sg.angle, each(cmath.phase), R, atol=0)
ZEROS = np.array([0.0, 2.0, -0.0, -4.0])
add(sg.reciprocal_no_nan, np.array([0.0, 0.5, 0.0, -0.25]), ZEROS)
add(sg.reciprocal_no_nan, each(lambda x: 1 / x), C)
add(sg.multiply_no_nan, np.array([0.0, 6.0, 0.0, -INF]), np.array([INF, 3.0, NAN, INF]), ZEROS)
add(sg.scalar_mul, lambda s, x: s * x, np.array(2.5), R)
add(
    sg.polyval,
    lambda c, x: np.polyval([c[0], c[1], c[2]], x),
    [np.array(2.0), np.array(-1.0), np.array(0.5)],
    R,
)
add(sg.xlog1py, scipy.special.xlog1py, np.array([0.0, 0.0, 2.0]), np.array([-1.0, 5.0, 1e-9]))
add(sg.xlog1py, each(lambda x, y: x * math.log1p(y)), COLUMN, POSITIVE)
add(sg.zero_fraction, np.array(0.4, np.float32), np.array([0.0, 1.0, -0.0, NAN, 2.0]), rtol=1e-6)
add(sg.saturate_cast, np.array([127, -128, 3], np.int8), np.array([300, -200, 3]), dtype="int8")
add(sg.saturate_cast, np.array([255, 0], np.uint8), np.array([1e9, -INF]), dtype="uint8")
add(sg.saturate_cast, np.array([65504.0, -65504.0], np.float16), np.array([1e9, -INF]), dtype="float16")
add(sg.saturate_cast, np.array([65504.0, -7.0], np.float16), np.array([70_000, -7]), dtype="float16")
add(sg.saturate_cast, np.array([2**31 - 1, 0], np.int32), np.array([2**32 - 1, 0], np.uint32), dtype="int32")
add(sg.is_non_decreasing, np.array(True), np.array([[1.0, 2.0], [2.0, 3.0]]))
add(sg.is_non_decreasing, np.array(False), np.array([[1.0, 2.0], [1.5, 3.0]]))
add(sg.is_strictly_increasing, np.array(False), np.array([1.0, 2.0, 2.0]))
add(sg.is_strictly_increasing, np.array(True), np.array([[1, 2], [3, 4]]))
add(sg.erfinv, each(lambda x: NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)), INSIDE)

GAMMA = 0.57721566490153286061  # Euler's constant
add(
    sg.digamma,
    np.array([-GAMMA, -GAMMA - 2 * math.log(2), 1 + 1 / 2 + 1 / 3 - GAMMA, 2 - GAMMA - 2 * math.log(2)]),
    np.array([1.0, 0.5, 4.0, -0.5]),
)
add(sg.digamma, scipy.special.digamma, POSITIVE)
add(
    sg.polygamma, np.array([math.pi**2 / 6, math.pi**2 / 2, math.pi**2 / 6 - 1]), 1, np.array([1.0, 0.5, 2.0])
)
add(sg.polygamma, lambda n, x: 24 * -scipy.special.zeta(5, x), 4, POSITIVE)
add(sg.polygamma, lambda n, x: 6 * scipy.special.zeta(4, x), 3, POSITIVE)

# ---------------------------------------------------------------------------------------- activations

X = np.array([-30.0, -3.5, -1.0, -1e-3, -0.0, 0.0, 1e-9, 0.5, 1.0, 4.0, 6.5, 50.0])


def activation(ours: Any, theirs: Any, **attributes: Any) -> None:
    add(ours, theirs, X, rtol=1e-9, atol=1e-300, **attributes)


activation(sg.relu, lambda x: np.clip(x, 0, None))
activation(sg.relu6, lambda x: np.clip(x, 0, 6))
activation(sg.leaky_relu, lambda x: np.maximum(x, 0.2 * x))
activation(sg.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), alpha=0.01)
activation(sg.elu, lambda x: np.where(x > 0, x, np.expm1(x)))
activation(sg.sigmoid, scipy.special.expit)
activation(sg.log_sigmoid, scipy.special.log_expit)
activation(sg.softplus, lambda x: np.logaddexp(0, x))
activation(sg.silu, lambda x: x * scipy.special.expit(x))
activation(sg.silu, lambda x: x * scipy.special.expit(0.5 * x), beta=0.5)
activation(sg.silu, lambda x: x * scipy.special.expit(1.5 * x), beta=np.float64(1.5))
activation(sg.swish, lambda x: x * scipy.special.expit(2 * x), beta=2)
activation(sg.gelu, lambda x: x * scipy.special.ndtr(x))
activation(sg.gelu, lambda x: jax.nn.gelu(x, approximate=True), approximate=True)
activation(sg.clip, lambda x: np.clip(x, -1.0, 2.0), min=-1.0, max=2.0)
activation(sg.clip, lambda x: np.minimum(x, 2.0), max=2.0)

# ------------------------------------------------------------------------------------ of two operands

for ours, theirs, x, y in [
    (sg.add, operator.add, R, S),
    (sg.add, operator.add, COLUMN, S),
    (sg.add, operator.add, INTS, DIVISORS),
    (sg.subtract, operator.sub, R, S),
    (sg.subtract, operator.sub, S, COLUMN),
    (sg.multiply, operator.mul, R, S),
    (sg.multiply, operator.mul, C, D),
    (sg.divide, operator.truediv, R, S),
    (sg.divide, operator.truediv, C, D),
    (sg.floordiv, lambda x, y: float(x // y), R, S),
    (sg.floordiv, operator.floordiv, INTS, DIVISORS),
    (sg.floormod, operator.mod, R, S),
    (sg.floormod, operator.mod, INTS, DIVISORS),
    (sg.truncatediv, lambda x, y: float(math.trunc(x / y)), R, S),
    (sg.truncatediv, lambda x, y: abs(x) // abs(y) * (1 if x * y > 0 else -1), INTS, DIVISORS),
    (sg.truncatemod, math.fmod, R, S),
    (sg.truncatemod, lambda x, y: int(math.fmod(x, y)), INTS, DIVISORS),
    (sg.copysign, math.copysign, R, S),
    (sg.copysign, math.copysign, SPECIAL, SPECIAL[::-1].copy()),
    (sg.nextafter, math.nextafter, R, S),
    (sg.nextafter, math.nextafter, SPECIAL, SPECIAL[::-1].copy()),
    (sg.hypot, math.hypot, R, S),
    (sg.hypot, math.hypot, np.array([INF, 0.0, 3e200]), np.array([NAN, 0.0, 4e200])),
    (sg.maximum, max, R, S),
    (sg.maximum, max, INTS, DIVISORS),
    (sg.minimum, min, R, S),
    (sg.minimum, min, INTS, DIVISORS),
    (sg.squared_difference, lambda x, y: (x - y) ** 2, R, S),
    (sg.squared_difference, lambda x, y: (x - y) ** 2, COLUMN, S),
    (sg.pow, math.pow, POSITIVE, S),
    (sg.pow, math.pow, R, np.array([2.0, -1.0, 3.0])),
    (sg.atan2, math.atan2, R, S),
    (sg.atan2, math.atan2, np.array([0.0, -0.0, 0.0, 1.0]), np.array([-1.0, -1.0, 1.0, 0.0])),
    (sg.complex, complex, R, S),
    (sg.equal, operator.eq, np.array([1, 2, 3]), np.array([[1, 2, 4], [0, 2, 3]])),
    (sg.equal, operator.eq, SPECIAL, SPECIAL),
    (sg.equal, operator.eq, C, C[:, :1]),
    (sg.not_equal, operator.ne, np.array([1, 2, 3]), np.array([[1, 2, 4], [0, 2, 3]])),
    (sg.not_equal, operator.ne, SPECIAL, SPECIAL),
    *(
        (ours, theirs, x, y)
        for ours, theirs in [
            (sg.less, operator.lt),
            (sg.less_equal, operator.le),
            (sg.greater, operator.gt),
            (sg.greater_equal, operator.ge),
        ]
        for x, y in [(R, S), (INTS, np.array([7, 0, 5])), (SPECIAL, SPECIAL), (SPECIAL, SPECIAL[::-1].copy())]
    ),
    (sg.logical_and, lambda x, y: x and y, TRUTH, OTHER),
    (sg.logical_or, lambda x, y: x or y, TRUTH, OTHER),
    (sg.logical_xor, operator.ne, TRUTH, OTHER),
    (sg.bitwise_and, operator.and_, INTS, DIVISORS),
    (sg.bitwise_and, operator.and_, TRUTH, OTHER),
    (sg.bitwise_or, operator.or_, INTS, DIVISORS),
    (sg.bitwise_xor, operator.xor, INTS, DIVISORS),
    (sg.left_shift, operator.lshift, np.array([[1], [-3], [5]]), np.array([0, 4, 40])),
    (sg.right_shift, operator.rshift, np.array([[1], [-3], [2**50]]), np.array([0, 4, 40])),
]:
    add(ours, each(theirs), x, y, atol=0)

add(
    sg.left_shift,
    np.array([-128, 4, 2], np.int8),
    np.array([1, 2, -127], np.int8),
    np.array([7, 1, 1], np.int8),
)
add(sg.right_shift, np.array([127, 1], np.uint8), np.array([255, 128], np.uint8), np.array([1, 7], np.uint8))
add(sg.pow, lambda x, y: np.exp(y * np.log(x)), C, D)
add(sg.add_n, lambda xs: xs[0] + xs[1] + xs[2], [R, 2 * R, POSITIVE])
add(sg.add_n, lambda xs: xs[0], [R])
add(sg.clip_by_value, each(lambda x, low, high: min(max(x, low), high)), R, -1 + 0.1 * S, np.array(1.5))
add(sg.clip_by_value, each(lambda x, low, high: min(max(x, low), high)), INTS, np.array(-3), DIVISORS + 4)
add(sg.where, each(lambda c, x, y: x if c else y), np.array([True, False, True]), R, COLUMN)
add(sg.where, lambda c, x: np.where(c, x, 0), R > 0, INTS, y=0)
add(sg.xlogy, scipy.special.xlogy, np.array([0.0, 0.0, 2.0, -1.0]), np.array([0.0, 5.0, 3.0, 2.0]))
add(sg.xlogy, each(lambda x, y: x * math.log(y)), COLUMN, POSITIVE)
add(sg.xdivy, np.array([0, 0, 2 / 3, -0.5]), np.array([0.0, 0.0, 2.0, -1.0]), np.array([0.0, 5.0, 3.0, 2.0]))
add(sg.xdivy, each(operator.truediv), COLUMN, R)
add(sg.logaddexp, each(lambda x, y: math.log(math.exp(x) + math.exp(y))), R, S)
add(
    sg.logaddexp,
    np.array([1000.0 + math.log(2), -1000.0]),
    np.array([1000.0, -1000.0]),
    np.array([1000.0, -INF]),
)


@CASES.compared
def test_elementwise_functions(engine: str, name: str) -> None:
    CASES.check(engine, name)


def test_integers_are_clipped_from_one_side() -> None:
    np.testing.assert_array_equal(sg.clip(INTS, min=-3), np.clip(INTS, -3, None))


@each_engine
def test_polygamma_where_the_factorial_is_beyond_the_dtype(engine: str) -> None:
    x = np.array([4.0, 5.0, 6.0], np.float32)
    np.testing.assert_allclose(
        by(engine, lambda x: sg.polygamma(36, x), x), scipy.special.polygamma(36, x), 1e-4
    )


# --------------------------------------------------------------- gradients where a derivative is missing


@each_engine
@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (sg.reciprocal_no_nan, np.array([0.0, 2.0]), np.array([0.0, -0.25])),
        (sg.reduce_euclidean_norm, np.array([0.0, 0.0]), np.array([0.0, 0.0])),
        (sg.reduce_euclidean_norm, np.array([3.0, 4.0]), np.array([0.6, 0.8])),
        (lambda x: sg.hypot(x, np.array([0.0, 4.0])), np.array([0.0, 3.0]), np.array([0.0, 0.6])),
        (
            lambda x: sg.copysign(x, np.array([1.0, -1.0, 1.0])),
            np.array([2.0, 3.0, 0.0]),
            np.array([1.0, -1.0, 0.0]),
        ),
        (lambda x: sg.copysign(x, -1.0), np.array([2.0, -3.0]), np.array([-1.0, 1.0])),
        (sg.cbrt, np.array([-8.0, 27.0]), np.array([1 / 12, 1 / 27])),
        (lambda x: sg.truncatemod(np.array([7.0, -7.0]), x), np.array([2.0, 2.0]), np.array([-3.0, 3.0])),
        (sg.angle, np.array([-1.0, 2.0]), np.array([0.0, 0.0])),
    ],
)
def test_gradients_at_the_edges_of_domains(engine: str, f: Any, x: Any, expected: Any) -> None:
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(f(x))), x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
