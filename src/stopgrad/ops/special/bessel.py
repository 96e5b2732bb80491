"""Modified Bessel functions of the first kind, as DLMF 10.25 defines them."""

from __future__ import annotations

import math

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Array, Namespace, Output, RealElementwise, Tensor
from stopgrad.ops.elementwise.arithmetic import abs, sign, square
from stopgrad.ops.elementwise.compare import less
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.elementwise.powers import exp

__all__ = ["bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"]


def _unscaled(xp: Namespace, y: Array, x: Array) -> Array:
    """y · exp |x|, in two steps; JAX's functions without a scale overflow before the product does."""
    half = xp.exp(xp.abs(x) / 2)
    return y * half * half


class BesselI0(RealElementwise):
    """Elementwise modified Bessel function of order 0 (DLMF 10.25.2).

    Returns:
        I₀(x), which is even and at least 1.

    Examples:
        >>> sg.bessel_i0(np.array([0.0, 1.0]))
        array([1.        , 1.26606588])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * bessel_i1(op.x)}
    # SciPy and JAX give NaN at infinity.
    lower: d.Lowering = lambda xp, x: xp.where(xp.isinf(x), xp.abs(x), xp.special.i0(x))
    xla: d.Lowering = lambda xp, x: xp.where(xp.isinf(x), xp.abs(x), _unscaled(xp, xp.special.i0e(x), x))
    samples: d.Samples = d.singles()


bessel_i0: d.Unary = d.unary(BesselI0, "bessel_i0")


class BesselI0e(RealElementwise):
    """Elementwise e⁻ˡˣˡ I₀(x), which does not overflow.

    Returns:
        I₀(x) divided by the exponential of |x|.

    Examples:
        >>> sg.bessel_i0e(np.array([0.0, 1.0]))
        array([1.        , 0.46575961])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (bessel_i1e(op.x) - sign(op.x) * op.result)}
    lower: d.Lowering = lambda xp, x: xp.special.i0e(x)
    samples: d.Samples = d.singles()


bessel_i0e: d.Unary = d.unary(BesselI0e, "bessel_i0e")


class BesselI1(RealElementwise):
    """Elementwise modified Bessel function of order 1 (DLMF 10.25.2).

    Returns:
        I₁(x), which is odd.

    Examples:
        >>> sg.bessel_i1(np.array([0.0, 1.0]))
        array([0.       , 0.5651591])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (bessel_i0(op.x) - _over(op.result, op.x))}
    lower: d.Lowering = lambda xp, x: xp.where(xp.isinf(x), x, xp.special.i1(x))
    xla: d.Lowering = lambda xp, x: xp.where(xp.isinf(x), x, _unscaled(xp, xp.special.i1e(x), x))
    samples: d.Samples = d.singles()


bessel_i1: d.Unary = d.unary(BesselI1, "bessel_i1")


class BesselI1e(RealElementwise):
    """Elementwise e⁻ˡˣˡ I₁(x), which does not overflow.

    Returns:
        I₁(x) divided by the exponential of |x|.

    Examples:
        >>> sg.bessel_i1e(np.array([0.0, 1.0]))
        array([0.        , 0.20791042])
    """

    gradient: d.Gradient = {
        "x": lambda g, op: (
            g * (bessel_i0e(op.x) - sign(op.x) * op.result - _over(op.result, op.x, exp(-abs(op.x))))
        )
    }
    lower: d.Lowering = lambda xp, x: xp.special.i1e(x)
    samples: d.Samples = d.singles()


bessel_i1e: d.Unary = d.unary(BesselI1e, "bessel_i1e")


_NEAR = 0.1
_SERIES = tuple([1 / (2 * 4**k * math.factorial(k) * math.factorial(k + 1)) for k in range(4, -1, -1)])
"""I₁(x) / x in powers of x², the highest first (DLMF 10.25.2); below 0.1 the next is under 10⁻¹⁸."""


def _over(y: Output, x: Output, scale: Tensor = 1.0) -> Tensor:
    """y / x where y is I₁(x) times a scale: near 0 by its series, as the quotient has no derivatives at 0."""
    near = less(abs(x), _NEAR)
    series: Tensor = _SERIES[0]
    for coefficient in _SERIES[1:]:
        series = coefficient + series * square(x)
    return where(near, scale * series, y / where(near, 1, x))
