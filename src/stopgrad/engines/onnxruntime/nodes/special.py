"""The error-function, gamma and Bessel families for float64, from operators that runtimes have.

Each function takes an array namespace and operands of float64, as in the module ``elementary``. DLMF is the
Digital Library of Mathematical Functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from stopgrad.engines.onnxruntime.nodes import series
from stopgrad.engines.onnxruntime.nodes.elementary import horner, log1p, on
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.values import Value

_BERNOULLI = (
    *(Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66)),
    *(
        Fraction(-691, 2730),
        Fraction(7, 6),
        Fraction(-3617, 510),
        Fraction(43867, 798),
        Fraction(-174611, 330),
    ),
)
"""The Bernoulli numbers B₂, B₄, …"""
_SHIFTED = 10
"""How far arguments are shifted up before asymptotic series of the gamma family are used."""


def _exp_of_minus_square(xp: Writing, x: Value) -> Any:
    """exp(-x²) without the rounding error of x²: by the exact square of a rounded x, and a correction."""
    head = xp.round(x * 16) * 0.0625
    return xp.exp(-(head * head)) * xp.exp((head - x) * (head + x))


def _erfc_right(xp: Writing, a: Value) -> Any:
    """erfc(a) for a ≥ 0."""
    t = xp.where(a == math.inf, xp.ones_like(a), (a - 2) / (a + 2))
    scaled = horner(series.SCALED_ERFC, t) / (1 + 2 * a)
    bounded = xp.minimum(a, 28)
    return _exp_of_minus_square(xp, bounded) * scaled


def erf(xp: Writing, x: Value) -> Any:
    a = xp.abs(x)
    z = xp.minimum(a * a, 1)
    near = x * horner(series.ERF, on(0, 1, z))
    return xp.where(a < 1, near, xp.copysign(1 - _erfc_right(xp, a), x))


def erfc(xp: Writing, x: Value) -> Any:
    a = xp.abs(x)
    z = xp.minimum(a * a, 1)
    near = x * horner(series.ERF, on(0, 1, z))
    right = _erfc_right(xp, a)
    return xp.where(a < 0.5, 1 - near, xp.where(x < 0, 2 - right, right))


def erfc_in_float32(xp: Writing, x: Value) -> Any:
    """erfc for float32, with a third of the nodes of :func:`erfc`. The derivative of GELU needs it."""
    a = xp.minimum(xp.abs(x), np.float32(12))
    scaled = horner(series.SCALED_ERFC_IN_FLOAT32, (a - 2) / (a + 2)) / (1 + 2 * a)
    right = _exp_of_minus_square(xp, a) * scaled
    return xp.where(x < 0, 2 - right, right)


def _tail_quantile(xp: Writing, p: Value) -> Any:
    """The quantile of the standard normal distribution for 0 ≤ p < 0.1."""
    r = xp.sqrt(-xp.log(p))
    near = horner(series.NEAR_QUANTILE, on(1.5, 4, xp.minimum(r, 4)))
    far = horner(series.FAR_QUANTILE, on(0.036, 0.25, 1 / xp.maximum(r, 4))) * r
    return xp.where(p == 0, -math.inf, -xp.where(r < 4, near, far))


def _middle_quantile(y: Value) -> Any:
    return y * horner(series.MIDDLE_QUANTILE, on(0, 0.17, y * y))


def ndtri(xp: Writing, p: Value) -> Any:
    y = p - 0.5
    tail = _tail_quantile(xp, xp.where(y < 0, p, 1 - p))
    return xp.where(xp.abs(y) < 0.4, _middle_quantile(y), xp.where(y < 0, tail, -tail))


def erfinv(xp: Writing, x: Value) -> Any:
    a = xp.abs(x)
    tail = xp.copysign(_tail_quantile(xp, (1 - a) * 0.5), x)
    return xp.where(a < 0.8, _middle_quantile(x * 0.5), tail) * math.sqrt(0.5)


# ---------------------------------------------------------------------------------------------- gamma


def _sine_of_pi(xp: Writing, x: Value) -> Any:
    """|sin πx|, exact zeros included."""
    return xp.abs(xp.sin((x - xp.round(x)) * math.pi))


def _lgamma_right(xp: Writing, x: Value) -> Any:
    """log Γ(x) for x > 0."""
    up = xp.where(x < 0.5, x + 1, x)
    low = (up - 1) * (up - 2) * horner(series.LGAMMA_LOW, on(0.5, 3, xp.minimum(up, 3)))
    low = xp.where(x < 0.5, low - xp.log(x), low)
    middle = horner(series.LGAMMA_MIDDLE, on(3, 8, xp.maximum(xp.minimum(x, 8), 3)))
    far = xp.maximum(x, 8)
    square = 1 / (far * far)
    terms = [float(b / ((2 * k + 1) * (2 * k + 2))) for k, b in enumerate(_BERNOULLI)]
    stirling = (far - 0.5) * (xp.log(far) - 1) + horner(terms[::-1], square) / far
    stirling = stirling + (math.log(2 * math.pi) - 1) / 2
    return xp.where(x < 3, low, xp.where(x < 8, middle, xp.where(x == math.inf, x, stirling)))


def gammaln(xp: Writing, x: Value) -> Any:
    """log |Γ(x)|; by reflection (DLMF 5.5.3) for x < 0."""
    left = x < 0
    right = _lgamma_right(xp, xp.where(left, 1 - x, x))
    sine = _sine_of_pi(xp, x)
    value = xp.where(left, math.log(math.pi) - xp.log(sine) - right, right)
    return xp.where((xp.abs(x) == math.inf) | (left & (sine == 0)), math.inf, value)


def digamma(xp: Writing, x: Value) -> Any:
    """ψ(x) for x > 0: shifted up by the recurrence (DLMF 5.5.2), then the asymptotic series (DLMF 5.11.2)."""
    low = x < _SHIFTED
    back = xp.zeros_like(x)
    for k in range(_SHIFTED):
        back = back + 1 / (x + k)
    far = xp.where(low, x + _SHIFTED, x)
    square = 1 / (far * far)
    terms = [float(b / (2 * k + 2)) for k, b in enumerate(_BERNOULLI)]
    asymptotic = xp.log(far) - 0.5 / far - horner(terms[::-1], square) * square
    asymptotic = xp.where(x == math.inf, x, asymptotic)
    return xp.where(low, asymptotic - back, asymptotic)


def zeta(xp: Writing, s: float, q: Value) -> Any:
    """The Hurwitz zeta function for a known s > 1 and q > 0, by Euler and Maclaurin (DLMF 25.11.5)."""
    total = xp.zeros_like(q)
    for k in range(_SHIFTED):
        total = total + (q + k) ** -s
    far = q + _SHIFTED
    power = far**-s
    value = total + power * far / (s - 1) + power * 0.5
    factor = s
    for k, b in enumerate(_BERNOULLI):
        value = value + float(b) / math.factorial(2 * k + 2) * factor * power * far ** -(2.0 * k + 1)
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2)
    return xp.where(q == math.inf, 0.0, value)


# --------------------------------------------------------------------------------------- incomplete
# These loop, and need a namespace with ``lax.while_loop``.

_ROUNDS = 10_000
_PRECISE = 2.0**-53
_TINY = 1e-300


def _converging(xp: Writing, step: Callable[..., Any], state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Steps until all terms, the last part of the state, are negligible. The first part counts the rounds."""
    goes_on = lambda state: xp.any(xp.abs(state[-1]) > _PRECISE) & (state[0] < _ROUNDS)
    last: tuple[Any, ...] = xp.lax.while_loop(goes_on, step, state)
    return last


def _lower_series(xp: Writing, a: Value, x: Value) -> Any:
    """Σ xⁿ / (a (a + 1) … (a + n)) (DLMF 8.7.1)."""

    def step(state: tuple[Value, ...]) -> Any:
        n, total, term, _ = state
        term = term * (x / (a + n))
        return n + 1.0, total + term, term, term / total

    first = 1 / a
    one = xp.ones((), a.dtype)
    return _converging(xp, step, (one, first, first, xp.ones_like(first)))[1]


def _lentz(xp: Writing, step: Callable[..., Any], start: Value, below: Value, above: Value) -> Any:
    """A continued fraction by W. J. Lentz's method, as modified by I. J. Thompson and A. R. Barnett 1986.

    ``step(n)`` returns the n-th numerator and denominator.
    """

    def next_(state: tuple[Value, ...]) -> Any:
        n, fraction, c, d, _ = state
        up, down = step(n)
        d = down + up * d
        c = down + up / c
        d = 1 / xp.where(xp.abs(d) < _TINY, _TINY, d)
        c = xp.where(xp.abs(c) < _TINY, _TINY, c)
        return n + 1.0, fraction * (c * d), c, d, c * d - 1.0

    one = xp.ones((), start.dtype)
    return _converging(xp, next_, (one, start, above, below, xp.ones_like(start)))[1]


def _upper_fraction(xp: Writing, a: Value, x: Value) -> Any:
    """The continued fraction of Γ(a, x) exp(x) x⁻ᵃ (DLMF 8.9.2)."""
    first = x + 1 - a
    step = lambda n: (n * (a - n), first + n * 2.0)
    below = 1 / xp.where(xp.abs(first) < _TINY, _TINY, first)
    return _lentz(xp, step, below, below, xp.full_like(first, 1 / _TINY))


def gammainc(xp: Writing, a: Value, x: Value, upper: bool) -> Any:
    """P(a, x) or, if *upper*, Q(a, x)."""
    a, x = xp.broadcast_arrays(a, x)
    inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    a_in, x_in = xp.where(inside, a, 1.0), xp.where(inside, x, 1.0)
    by_series = x_in < a_in + 1
    mass = xp.exp(a_in * xp.log(x_in) - x_in - gammaln(xp, a_in))
    p = mass * _lower_series(xp, a_in, xp.where(by_series, x_in, 1e-3))
    q = mass * _upper_fraction(xp, xp.where(by_series, 1.0, a_in), xp.where(by_series, 2.0, x_in))
    probability = xp.where(by_series, 1 - p, q) if upper else xp.where(by_series, p, 1 - q)
    # The whole mass lies between 0 and ∞; at 0 if a is 0, and at ∞ if a is ∞.
    below = xp.where((x == math.inf) | (a == 0), 1.0, 0.0)
    edge = 1 - below if upper else below
    undefined = (
        (a < 0) | (x < 0) | (a != a) | (x != x) | ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    )
    return xp.where(undefined, math.nan, xp.where(inside, probability, edge))


def betainc(xp: Writing, a: Value, b: Value, x: Value) -> Any:
    """Iₓ(a, b), from the side on which the continued fraction (DLMF 8.17.22) converges."""
    a, b, x = xp.broadcast_arrays(a, b, x)
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
    a, b, y = xp.where(inside, a, 1.0), xp.where(inside, b, 1.0), xp.where(inside, x, 0.5)
    turned = y * (a + b + 2) > a + 1
    p, q = xp.where(turned, b, a), xp.where(turned, a, b)
    z = xp.where(turned, 1 - y, y)

    def step(n: Value) -> Any:
        m = xp.floor(n * 0.5)
        odd = -(p + m) * (p + q + m) * z / ((p + 2 * m) * (p + 2 * m + 1))
        even = m * (q - m) * z / ((p + 2 * m - 1) * (p + 2 * m))
        return xp.where(xp.fmod(n, 2.0) == 1, odd, even), 1.0

    one = xp.ones_like(z)
    fraction = _lentz(xp, step, one, xp.zeros_like(z), one)
    logarithm = gammaln(xp, a + b) - gammaln(xp, a) - gammaln(xp, b)
    mass = xp.exp(logarithm + p * xp.log(z) + q * log1p(xp, -z)) / p
    probability = mass / fraction
    probability = xp.where(turned, 1 - probability, probability)
    return xp.where(inside, probability, xp.where(x == 0, 0.0, xp.where(x == 1, 1.0, math.nan)))


# ------------------------------------------------------------------------------------------- of Bessel


def _bessel(xp: Writing, a: Value, near: Sequence[float], far: Sequence[float]) -> tuple[Any, Any]:
    low = horner(near, on(0, 8, xp.minimum(a, 8)))
    high = xp.maximum(a, 8)
    return low, horner(far, 16 / high - 1) / xp.sqrt(high)


def i0e(xp: Writing, x: Value) -> Any:
    a = xp.abs(x)
    low, high = _bessel(xp, a, series.I0_NEAR, series.I0_FAR)
    return xp.where(a < 8, low, high)


def i1e(xp: Writing, x: Value) -> Any:
    a = xp.abs(x)
    low, high = _bessel(xp, a, series.I1_NEAR, series.I1_FAR)
    return xp.where(a < 8, low * x, xp.copysign(high, x))


def _unscaled(xp: Writing, y: Value, x: Value) -> Any:
    """y exp |x|, which may be finite where exp |x| is not."""
    half = xp.exp(xp.abs(x) * 0.5)
    return y * half * half


def i0(xp: Writing, x: Value) -> Any:
    return _unscaled(xp, i0e(xp, x), x)


def i1(xp: Writing, x: Value) -> Any:
    return _unscaled(xp, i1e(xp, x), x)
