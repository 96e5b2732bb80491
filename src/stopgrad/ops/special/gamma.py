"""The error function and the gamma function, with their relatives.

DLMF is the Digital Library of Mathematical Functions: chapter 5 has the gamma function, 7 the error function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Namespace,
    Op,
    Promotion,
    RealElementwise,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import multiply, square
from stopgrad.ops.elementwise.powers import exp

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "lgamma",
    "ndtri",
    "polygamma",
]


class Erf(RealElementwise):
    """Elementwise error function (DLMF 7.2.1).

    Returns:
        The integral 2/√π ∫₀ˣ exp(-t²) dt.

    Examples:
        >>> sg.erf(np.array([0.0, 1.0]))
        array([0.        , 0.84270079])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (2 / math.sqrt(math.pi) * exp(-square(op.x)))}
    lower: d.Lowering = lambda xp, x: xp.special.erf(x)
    samples: d.Samples = d.singles()


erf: d.Unary = d.unary(Erf, "erf")


class Erfc(RealElementwise):
    """Elementwise complementary error function, 1 - erf x, precise for large x (DLMF 7.2.2).

    Returns:
        The complement 1 - erf x.

    Examples:
        >>> sg.erfc(np.array([0.0, 1.0]))
        array([1.        , 0.15729921])
    """

    gradient: d.Gradient = {"x": lambda g, op: -g * (2 / math.sqrt(math.pi) * exp(-square(op.x)))}
    lower: d.Lowering = lambda xp, x: xp.special.erfc(x)
    samples: d.Samples = d.singles()


erfc: d.Unary = d.unary(Erfc, "erfc")


class Erfinv(RealElementwise):
    """Elementwise inverse of the error function.

    Args:
        x: floating-point, in (-1, 1).

    Returns:
        The y with erf y = x.

    Examples:
        >>> sg.erfinv(np.array([0.0, 0.5]))
        array([0.        , 0.47693628])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (math.sqrt(math.pi) / 2 * exp(square(op.result)))}
    lower: d.Lowering = lambda xp, x: xp.special.erfinv(x)
    samples: d.Samples = d.singles(-0.8, 0.8)


erfinv: d.Unary = d.unary(Erfinv, "erfinv")


class Ndtri(RealElementwise):
    """Elementwise inverse of the distribution function of the standard normal distribution.

    Args:
        x: floating-point, probabilities.

    Returns:
        The quantile y: a standard normal variable lies below y with probability x. -∞ at 0, ∞ at 1, and NaN
        outside [0, 1].

    Examples:
        >>> sg.ndtri(np.array([0.5, 0.975]))
        array([0.        , 1.95996398])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (math.sqrt(2 * math.pi) * exp(square(op.result) * 0.5))}
    lower: d.Lowering = lambda xp, x: xp.special.ndtri(x)
    samples: d.Samples = d.singles(0.1, 0.9)


ndtri: d.Unary = d.unary(Ndtri, "ndtri")


@d.guarded("erfcinv")
def erfcinv(x: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise inverse of the complementary error function.

    Args:
        x: floating-point, in (0, 2).
        name: of the last operation; by default none.

    Returns:
        The y with erfc y = x, precise for small x.

    Examples:
        >>> sg.erfcinv(np.array([1.0, 0.5]))
        array([-0.        ,  0.47693628])
    """
    return multiply(ndtri(multiply(x, 0.5)), -math.sqrt(0.5), name)


_POLE = d.Cure(
    "pole of the gamma function",
    lambda x: x <= 0 and x == np.floor(x),
    "the function is infinite at 0 and at negative whole numbers; keep the operand positive",
)


class Lgamma(RealElementwise):
    """Elementwise logarithm of |Γ(x)| (DLMF 5.2.1).

    Returns:
        The logarithm log |Γ(x)|; ∞ at 0, -1, -2 and so on, and at -∞.

    Examples:
        >>> sg.lgamma(np.array([1.0, 4.0]))
        array([0.        , 1.79175947])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * digamma(op.x)}
    cures = (_POLE,)
    xla: d.Lowering = lambda xp, x: xp.special.gammaln(x)

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        # SciPy gives -∞ at -∞, and ∞ at the smallest numbers, where Γ(x) is 1 / x.
        size = xp.abs(x)
        small = size < xp.finfo(x.dtype).tiny
        log_gamma = xp.special.gammaln(xp.where(small | (size == d.INF), xp.ones((), x.dtype), x))
        return xp.where(small, -xp.log(size), xp.where(size == d.INF, size, log_gamma))

    samples: d.Samples = d.singles(0.5, 4.0)
    extremes = ((0.0,), (d.INF,), (d.NAN,))


lgamma: d.Unary = d.unary(Lgamma, "lgamma")


# ------------------------------------------------------------------------------------------- polygamma
# For negative x the libraries are wrong: JAX's zeta function below about -7.4, SciPy's digamma near poles.
# So there both engines reflect (DLMF 5.15.6): ψ⁽ⁿ⁾(x) = (-1)ⁿ ψ⁽ⁿ⁾(1 - x) - dⁿ/dxⁿ π cot πx.


def _cotangent(xp: Namespace, r: Array) -> Array:
    """cot πr for |r| ≤ 1/2, precise near both its pole and its zeros."""
    size = xp.abs(r)
    complement = xp.tan(math.pi * (0.5 - size))
    return xp.copysign(xp.where(size > 0.25, complement, 1 / xp.tan(math.pi * size)), r)


@functools.lru_cache(64)
def _derivative_of_cotangent(n: int) -> tuple[float, ...]:
    """dⁿ/dxⁿ π cot πx as a polynomial in c = cot πx: its coefficients, highest power first.

    Since c′ = -π (1 + c²), the next derivative is -π (1 + c²) times the polynomial's derivative.
    """
    powers = [0, 1]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return tuple(_product(a, math.pi ** (n + 1)) for a in reversed(powers))


def _product(whole: int, x: float) -> float:
    """whole · x, infinite where it is too large."""
    return math.copysign(d.INF, whole) if abs(whole) > 1e300 / x else whole * x


def _number(xp: Namespace, a: float, dtype: np.dtype[Any]) -> Array:
    """A constant, infinite if the dtype is too small for it; JAX would warn otherwise."""
    fits = abs(a) <= float(np.finfo(dtype).max)
    return xp.asarray(a if fits else math.copysign(d.INF, a), dtype)


def _reflected(xp: Namespace, x: Array, n: int, right: Callable[[Any], Any], pole: float) -> Array:
    """ψ⁽ⁿ⁾(x), from a function that computes it for x > 0."""
    left = x < 0
    r = x - xp.round(x)
    c = _cotangent(xp, xp.where(r == 0, xp.full((), 0.25, x.dtype), r))
    first, *others = (_number(xp, a, x.dtype) for a in _derivative_of_cotangent(n))
    cotangent = first
    for a in others:
        cotangent = cotangent * c + a
    polygamma = right(xp.where(left, 1 - x, x))
    polygamma = xp.where(left, (-polygamma if n % 2 else polygamma) - cotangent, polygamma)
    return xp.where(left & (r == 0), xp.full((), pole, x.dtype), polygamma)


def _trigamma_and_higher(xp: Namespace, x: Array, n: int) -> Array:
    """ψ⁽ⁿ⁾(x) for x > 0, from the Hurwitz zeta function (DLMF 5.15.3 and 25.11.12)."""
    limits = np.finfo(x.dtype)
    zeta = xp.special.zeta(xp.full((), n + 1, x.dtype), x)
    if math.factorial(n) < float(limits.max):
        size = xp.asarray(float(math.factorial(n)), x.dtype) * zeta
    else:
        size = xp.exp(math.lgamma(n + 1) + xp.log(zeta))
    size = xp.where(x == 0, xp.full((), d.INF, x.dtype), size)
    if math.factorial(n - 1) < float(limits.max):
        # The first terms of DLMF 5.15.8, since JAX's zeta function is 0 or NaN for large x.
        far = xp.asarray(float(math.factorial(n - 1)), x.dtype) * xp.power(1 / x, n) * (1 + n / 2 / x)
        size = xp.where(x > n / math.sqrt(limits.eps), far, size)
    return size if n % 2 else -size


class Digamma(RealElementwise):
    """Elementwise derivative of log Γ(x) (DLMF 5.2.2).

    Returns:
        The quotient Γ′(x) / Γ(x). As in SciPy, it is -∞ at 0, ∞ at -0.0, and NaN at -∞ and at the other
        poles: -1, -2 and so on.

    Examples:
        >>> sg.digamma(np.array([1.0, 4.0]))
        array([-0.57721566,  1.25611767])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * polygamma(1, op.x)}
    cures = (_POLE,)

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        digamma = _reflected(xp, x, 0, xp.special.digamma, d.NAN)
        # JAX gives NaN at both zeros.
        return xp.where(x == 0, -xp.copysign(xp.full((), d.INF, x.dtype), x), digamma)

    samples: d.Samples = [*d.singles(0.5, 4.0), *d.singles(-8.9, -8.1)]
    extremes = ((0.0,), (-0.0,), (d.INF,), (-d.INF,), (d.NAN,), (-3.0,), (-20.4,))


digamma: d.Unary = d.unary(Digamma, "digamma")


class Polygamma(Op):
    """Elementwise derivative of order n ≥ 1 of the digamma function (DLMF 5.15).

    Args:
        n (``a``): the order of the derivative, an integer or a whole float; 0 gives :func:`digamma`.
        x: floating-point.

    Returns:
        The derivative ψ⁽ⁿ⁾(x). At the poles 0, -1, -2 and so on it is ∞ for odd n; for even n, where the two
        one-sided limits differ, -∞, as in SciPy. NaN at -∞.

    Constraints:
        (C1) x is floating-point.
        (C2) n is an integer of at least 1; the function takes 0 too.

    Examples:
        >>> sg.polygamma(1, np.array([1.0]))
        array([1.64493407])
    """

    @staticmethod
    def infer(x: TensorType, *, n: int) -> TensorType:
        return d.same(d.is_floating)(x)

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: g * polygamma(op.n + 1, op.x)}
    batch = d.ELEMENTWISE
    rounds_once = True
    lower: d.Lowering = lambda xp, x, n: _reflected(
        xp, x, n, lambda y: _trigamma_and_higher(xp, y, n), d.INF if n % 2 else -d.INF
    )
    samples: d.Samples = [
        d.sample(d.floats(3, low=0.5, high=4.0), n=1),
        d.sample(d.floats("n", low=0.5, high=4.0), n=2),
        d.sample(d.floats(3, low=-8.9, high=-8.1), n=1),
    ]
    extremes = ((0.0,), (d.INF,), (-d.INF,), (d.NAN,), (-3.0,), (-20.4,))


@d.builds(Polygamma)
def polygamma(a: int, x: ArrayLike, name: str | None = None) -> Tensor:
    order = int(a) if isinstance(a, (float, np.floating)) and a == a // 1 else a
    if not d.is_whole(order) or order < 0:
        raise ArgumentError(
            f"Polygamma: (C2) the order must be one integer of at least 0, known when the graph is built, "
            f"not {a!r:.60}"
        )
    return d.apply(Polygamma, (x,), (d.whole(order),), name) if order else digamma(x, name)
