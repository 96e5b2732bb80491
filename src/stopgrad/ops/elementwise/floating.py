"""Signs of floating-point numbers and their neighbours, and the hypotenuse."""

from __future__ import annotations

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Arithmetic, Array, ArrayLike, Namespace, Op, Output, Tensor
from stopgrad.ops.elementwise.arithmetic import sign
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import where

__all__ = [
    "copysign",
    "hypot",
    "nextafter",
    "signbit",
]


class SignBit(Op):
    """Elementwise test for a minus sign, which -0.0 and NaN can have too.

    Examples:
        >>> sg.signbit(np.array([-1.0, -0.0, 0.0]))
        array([ True,  True, False])
    """

    infer = d.to_bool(d.is_floating)
    gradient: d.Gradient = d.not_differentiable("a sign is constant wherever it has a derivative")
    batch = d.ELEMENTWISE
    lower: d.Lowering = lambda xp, x: xp.signbit(x)
    samples: d.Samples = d.singles()
    extremes = d.EXTREMES


signbit: d.Unary = d.unary(SignBit, "signbit")


class CopySign(Arithmetic):
    """Elementwise combination of one number's magnitude with another's sign, with broadcasting.

    Args:
        x: floating-point; its magnitude is taken.
        y: floating-point; its sign is taken. The shape broadcasts with x's.

    Returns:
        The number |x|, or -|x| where y has a minus sign (-0.0 has one). The gradient at x = 0 is 0.

    Examples:
        >>> sg.copysign(np.array([1.0, -2.0]), np.array([-0.0, 3.0]))
        array([-1.,  2.])
    """

    infer = d.broadcast(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: g * (sign(op.x) * copysign(1.0, op.y)),
        "y": d.not_differentiable("a sign is constant wherever it has a derivative"),
    }
    lower: d.Lowering = lambda xp, x, y: xp.copysign(x, y)
    samples: d.Samples = d.pairs()


copysign: d.Binary = d.binary(CopySign, "copysign")


def _next_by_bits(xp: Namespace, x: Array, y: Array) -> Array:
    """The next number in the order of bits; XLA's own function takes subnormal numbers as equal to 0."""
    bits = np.dtype(f"int{8 * x.dtype.itemsize}")
    least = np.iinfo(bits).min
    # For negative numbers larger bits mean smaller numbers; subtracted from the least integer, the bits have
    # the order of the numbers.
    i, j = (xp.lax.bitcast_convert_type(v, bits) for v in (x, y))
    here, there = (xp.where(k < 0, least - k, k) for k in (i, j))
    step = xp.where(there > here, 1, xp.where(there < here, -1, 0)).astype(bits)
    following = here + step
    following = xp.where((following < 0) | ((following == 0) & (i < 0)), least - following, following)
    following = xp.where(here == there, j, following)
    return xp.where(xp.isnan(x) | xp.isnan(y), x + y, xp.lax.bitcast_convert_type(following, x.dtype))


class NextAfter(Op):
    """Elementwise next representable number after x1 in the direction of x2, with broadcasting.

    Args:
        x1: floating-point, the number to start from.

    Returns:
        The neighbour of x1 in the direction of x2; x2 where the two are equal.

    Examples:
        >>> sg.nextafter(np.array([1.0]), 2.0) - 1.0
        array([2.22044605e-16])
    """

    infer = d.broadcast(d.is_floating, "x1", "x2")
    gradient: d.Gradient = {
        "x1": lambda g, op: g,
        "x2": d.not_differentiable("only the direction is taken from it"),
    }
    batch = d.ELEMENTWISE
    lower: d.Lowering = lambda xp, x1, x2: xp.nextafter(x1, x2)
    xla: d.Lowering = lambda xp, x1, x2: _next_by_bits(xp, *xp.broadcast_arrays(x1, x2))
    samples: d.Samples = d.pairs()


@d.builds(NextAfter)
def nextafter(x1: ArrayLike, x2: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(NextAfter, (x1, x2), (), name)


class Hypot(Arithmetic):
    """Elementwise √(x² + y²), without overflow of the squares, with broadcasting.

    Returns:
        The length of the hypotenuse; ∞ where either is infinite. The gradient at the origin is 0.

    Examples:
        >>> sg.hypot(np.array([3.0, 5.0]), np.array([4.0, 12.0]))
        array([ 5., 13.])
    """

    infer = d.broadcast(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: g * (op.x / _not_zero(op.result)),
        "y": lambda g, op: g * (op.y / _not_zero(op.result)),
    }
    lower: d.Lowering = lambda xp, x, y: xp.hypot(x, y)

    @staticmethod
    def xla(xp: Namespace, x: Array, y: Array) -> Array:
        infinite = xp.isinf(x) | xp.isinf(y)
        return xp.where(infinite, xp.full((), xp.inf, x.dtype), xp.hypot(x, y))

    samples: d.Samples = d.pairs()


hypot: d.Binary = d.binary(Hypot, "hypot")


def _not_zero(length: Output) -> Tensor:
    """The length as a divisor: 1 at the origin, where the dividend is 0."""
    return where(equal(length, 0), 1, length)
