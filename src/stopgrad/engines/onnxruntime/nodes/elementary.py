"""Formulas for elementary functions that ONNX lacks, or that runtimes have in float32 only.

Each takes an array namespace and operands of one floating-point dtype, mostly float64. Of the namespace they
use arithmetic, comparisons, ``where``, ``exp``, ``log``, ``sqrt``, ``sin``, ``cos``, ``round`` and ``floor``.
Errors are a few ulps of float64, measured in tests/engines/onnxruntime/test_mathematics.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from stopgrad.base.arrays import Namespace
from stopgrad.engines.onnxruntime.nodes import series
from stopgrad.engines.onnxruntime.nodes.values import Value

_HALF_PI_LOW = 6.123233995736766e-17
"""π/2 less its value in float64."""
_BIG = 2.0**28


def horner(coefficients: Sequence[float], t: Value) -> Value:
    """The value of a polynomial at *t*. Coefficients are given from the highest power down."""
    first, second, *others = coefficients
    value = t * first + second
    for a in others:
        value = value * t + a
    return value


def on(low: float, high: float, x: Value) -> Value:
    """Maps [low, high] to [-1, 1], the domain of the polynomials in :mod:`series`."""
    return (x - (high + low) / 2) * (2 / (high - low))


_SHORT = tuple(1 / math.factorial(k) for k in range(7, 0, -1))
"""Of expm1's Taylor polynomial, without the factor x: exact to float32 below log(2) / 2."""


def expm1(xp: Namespace, x: Value) -> Value:
    """W. Kahan's method: dividing by log u cancels the rounding error of u = exp x.

    It needs a logarithm that is exact near 1. WebGPU's, which has no float64, is wrong there by 2⁻²¹, so that
    shorter numbers go by a polynomial.
    """
    u = xp.exp(x)
    if x.dtype.itemsize < 8:
        return xp.where(xp.abs(x) < 0.35, horner(_SHORT, x) * x, u - 1)
    v = u - 1
    plain = (v == -1) | (u == math.inf)
    return xp.where(v == 0, x, xp.where(plain, v, v * (x / xp.log(u))))


def log1p(xp: Namespace, x: Value) -> Value:
    """W. Kahan's method: multiplying by x / (u - 1) cancels the rounding error of u = 1 + x."""
    u = x + 1
    v = u - 1
    return xp.where(v == 0, x, xp.where(u == math.inf, u, xp.log(u) * (x / v)))


def logaddexp(xp: Namespace, x: Value, y: Value) -> Value:
    top, apart = xp.maximum(x, y), xp.abs(x - y)
    return xp.where(x == y, x + math.log(2), top + log1p(xp, xp.exp(-apart)))


_PI = (3.1415926534682512, 1.2154201012607932e-10, 4.044532497591901e-21)
"""π as a sum of three parts. Products of the first two with integers below 2²⁰ are exact."""


def _less_turns(xp: Namespace, x: Value, turns: Value) -> Value:
    """x - turns * π, without the rounding error of π."""
    return ((x - turns * _PI[0]) - turns * _PI[1]) - turns * _PI[2]


def sin(xp: Namespace, x: Value, sine: Callable[[Value], Value]) -> Value:
    """Near multiples of π the runtime's float64 sine has a small absolute, but not relative, error."""
    turns = xp.round(xp.where(xp.abs(x) < 1e6, x, 0.0) * (1 / math.pi))
    sine_of_rest = sine(_less_turns(xp, x, turns))
    return xp.where(xp.fmod(turns, 2.0) == 0, sine_of_rest, -sine_of_rest)


def cos(xp: Namespace, x: Value, sine: Callable[[Value], Value], cosine: Callable[[Value], Value]) -> Value:
    """The same as :func:`sin`, a quarter of a turn further."""
    small = xp.abs(x) < 1e6
    turns = xp.floor(xp.where(small, x, 0.0) * (1 / math.pi)) + 0.5
    near = sine(_less_turns(xp, x, turns))
    near = xp.where(xp.fmod(turns - 0.5, 2.0) == 0, -near, near)
    return xp.where(small, near, cosine(x))


def tan(xp: Namespace, x: Value) -> Value:
    return xp.sin(x) / xp.cos(x)


def sinh(xp: Namespace, x: Value) -> Value:
    a = xp.abs(x)
    e = expm1(xp, xp.minimum(a, 1))
    half = xp.exp(a * 0.5)
    magnitude = xp.where(a < 1, (e + e / (e + 1)) * 0.5, half * 0.5 * half - 0.5 / half / half)
    return xp.copysign(magnitude, x)


def cosh(xp: Namespace, x: Value) -> Value:
    half = xp.exp(xp.abs(x) * 0.5)
    return half * 0.5 * half + 0.5 / half / half


def arctan(xp: Namespace, x: Value) -> Value:
    """A polynomial up to tan π/8; beyond by the addition theorem, from 1 / x or (x - 1) / (x + 1)."""
    a = xp.abs(x)
    far, middle = a > 1 + math.sqrt(2), a > math.sqrt(2) - 1
    r = xp.where(far, -1 / a, xp.where(middle, (a - 1) / (a + 1), a))
    base = xp.where(far, math.pi / 2, xp.where(middle, math.pi / 4, 0.0))
    rest = xp.where(far, _HALF_PI_LOW, xp.where(middle, _HALF_PI_LOW / 2, 0.0))
    z = r * r
    near = r * horner(series.ATAN, on(0, 0.1716, z))
    return xp.copysign(base + (near + rest), x)


def arcsin(xp: Namespace, x: Value) -> Value:
    a = xp.abs(x)
    return xp.copysign(arctan(xp, a / (1 + xp.sqrt((1 - a) * (1 + a)))) * 2, x)


def arccos(xp: Namespace, x: Value) -> Value:
    return arctan(xp, xp.sqrt((1 - x) / (1 + x))) * 2


def arctan2(xp: Namespace, y: Value, x: Value) -> Value:
    a, b = xp.abs(y), xp.abs(x)
    slope = xp.where(a == b, xp.where(a == 0, a, xp.ones_like(a)), a / b)
    angle = arctan(xp, slope)
    return xp.copysign(xp.where(xp.signbit(x), math.pi - (angle - 2 * _HALF_PI_LOW), angle), y)


def arcsinh(xp: Namespace, x: Value) -> Value:
    a = xp.abs(x)
    near = log1p(xp, a + a * a / (1 + xp.sqrt(a * a + 1)))
    return xp.copysign(xp.where(a > _BIG, xp.log(a) + math.log(2), near), x)


def arccosh(xp: Namespace, x: Value) -> Value:
    t = x - 1
    near = log1p(xp, t + xp.sqrt(t) * xp.sqrt(t + 2))
    return xp.where(x > _BIG, xp.log(x) + math.log(2), near)


def arctanh(xp: Namespace, x: Value) -> Value:
    a = xp.abs(x)
    return xp.copysign(log1p(xp, a * 2 / (1 - a)) * 0.5, x)


def cbrt(xp: Namespace, x: Value) -> Value:
    """One step of Newton's method from exp(log(x) / 3)."""
    a = xp.abs(x)
    plain = (a == 0) | (a == math.inf)
    start = xp.exp(xp.log(a) * (1 / 3))
    return xp.where(plain, x, xp.copysign(start - (start - a / (start * start)) * (1 / 3), x))


def hypot(xp: Namespace, x: Value, y: Value) -> Value:
    a, b = xp.abs(x), xp.abs(y)
    large, small = xp.maximum(a, b), xp.minimum(a, b)
    ratio = xp.where(large == 0, large, small / large)
    infinite = (a == math.inf) | (b == math.inf)
    return xp.where(infinite, math.inf, large * xp.sqrt(ratio * ratio + 1))


def nextafter(xp: Namespace, x: Value, y: Value) -> Value:
    """Adds a little more than half a unit in the last place, and rounds the sum.

    By S. M. Rump, P. Zimmermann, S. Boldo and G. Melquiond 2009, "Computing predecessor and successor in
    rounding to nearest".

    float16 and bfloat16 are computed in float32, so that the only rounding is that to their own dtype.
    """
    dtype = x.dtype
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    unit, least, largest = float(limits.eps) / 2, float(limits.smallest_subnormal), float(limits.max)
    narrow = dtype.itemsize == 2
    wide = np.dtype(np.float32) if narrow else dtype
    x, y = x.astype(wide), y.astype(wide)
    size = xp.abs(x)

    def moved(direction: float) -> Value:
        step = direction * unit * (1 + 2 * unit)
        shifted = xp.where(size < least / unit, size + direction * least, size + size * step)
        if narrow:
            return shifted
        scaled = size * (1 / unit)
        return xp.where(
            (size >= least / unit) & (size < least / unit / unit), (scaled + scaled * step) * unit, shifted
        )

    back = xp.where(size == math.inf, largest, moved(-1.0))
    grows = (x == 0) | ((x < y) == (x > 0))
    neighbour = xp.copysign(xp.where(grows, moved(1.0), back), xp.where(x == 0, y, x))
    return xp.where(x == y, y, xp.where((x != x) | (y != y), x + y, neighbour)).astype(dtype)


def to_11_bits(xp: Namespace, x: Value) -> Value:
    """Rounds float64 to the 11 bits of float16. Numbers that float32 holds exactly stay as they are.

    By the splitting of G. W. Veltkamp (T. J. Dekker 1971, "A floating-point technique for extending the
    available precision"); subnormal numbers of float16 are rounded by adding a
    large number and subtracting it again.
    """
    bounded = xp.where(xp.abs(x) > 1e6, xp.sign(x) * math.inf, x)
    scaled = bounded * (2.0**42 + 1)
    split = scaled - (scaled - bounded)
    large = 1.5 * 2.0**28
    rounded = xp.where(xp.abs(x) < 2.0**-14, (x + large) - large, split)
    return xp.where(
        x.astype(np.float32).astype(np.float64) == x, x, xp.where(xp.abs(x) > 1e6, bounded, rounded)
    )
