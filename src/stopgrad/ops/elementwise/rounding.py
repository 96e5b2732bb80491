"""Rounding, and the division that rounds toward zero."""

from __future__ import annotations

from typing import ClassVar

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Arithmetic, Array, ArrayLike, Elementwise, Namespace, Tensor
from stopgrad.ops.elementwise.arithmetic import divide, floordiv

__all__ = [
    "ceil",
    "floor",
    "rint",
    "round",
    "trunc",
    "truncatediv",
    "truncatemod",
]


class Rounding(Elementwise, abstract=True):
    """One real operand (C1), rounded to an integer of its dtype; integers are unchanged."""

    infer: ClassVar[d.Infer] = d.same(d.is_real)
    gradient: d.Gradient = d.not_differentiable("rounding is constant wherever it has a derivative")
    samples: d.Samples = [*d.singles(), *d.singles(-9, 9, dtypes=("int32",), shapes=((3,),))]


def _is_whole(x: Array) -> bool:
    """Whether an array holds integers, which are rounded already."""
    return x.dtype.kind in "iu"


class Floor(Rounding):
    """Elementwise rounding down to an integer.

    Returns:
        The integer ⌊x⌋, of x's dtype.

    Examples:
        >>> sg.floor(np.array([1.7, -1.2]))
        array([ 1., -2.])
    """

    lower: d.Lowering = lambda xp, x: x if _is_whole(x) else xp.floor(x)


floor: d.Unary = d.unary(Floor, "floor")


class Ceil(Rounding):
    """Elementwise rounding up to an integer.

    Returns:
        The integer ⌈x⌉, of x's dtype.

    Examples:
        >>> sg.ceil(np.array([1.2, -1.7]))
        array([ 2., -1.])
    """

    lower: d.Lowering = lambda xp, x: x if _is_whole(x) else xp.ceil(x)


ceil: d.Unary = d.unary(Ceil, "ceil")


class Round(Rounding):
    """Elementwise rounding to the nearest integer, halves to even.

    Returns:
        The nearest integer, of x's dtype.

    Examples:
        >>> sg.round(np.array([0.5, 1.5, -1.2]))
        array([ 0.,  2., -1.])
    """

    lower: d.Lowering = lambda xp, x: x if _is_whole(x) else xp.round(x)


round: d.Unary = d.unary(Round, "round")
rint = round


class Trunc(Rounding):
    """Elementwise rounding toward zero to an integer.

    Returns:
        The integer part of x, of x's dtype.

    Examples:
        >>> sg.trunc(np.array([1.7, -1.7]))
        array([ 1., -1.])
    """

    lower: d.Lowering = lambda xp, x: x if _is_whole(x) else xp.trunc(x)


trunc: d.Unary = d.unary(Trunc, "trunc")


class TruncateMod(Arithmetic):
    """Elementwise remainder with the sign of the dividend, as in C, with broadcasting.

    Returns:
        The remainder x - trunc(x / y) · y, of the broadcast shape; for integers, 0 where y is 0.

    Examples:
        >>> sg.truncatemod(np.array([7, -7]), 3)
        array([ 1, -1])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = {"x": lambda g, op: g, "y": lambda g, op: -g * truncatediv(op.x, op.y)}
    unsound = d.BY_ZERO
    lower: d.Lowering = lambda xp, x, y: xp.fmod(x, y)

    @staticmethod
    def xla(xp: Namespace, x: Array, y: Array) -> Array:
        remainder = xp.fmod(x, y)
        return xp.where(y == 0, xp.zeros((), x.dtype), remainder) if _is_whole(x) else remainder

    samples: d.Samples = [*d.pairs(y=(0.5, 2.0)), *d.pairs((-9, 9), (1, 5), dtypes=("int32",))]
    extremes = ()


truncatemod: d.Binary = d.binary(TruncateMod, "truncatemod")


@d.guarded("truncatediv")
def truncatediv(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise quotient, rounded toward zero as in C, with broadcasting.

    Args:
        x: real numbers.
        y: real numbers, of x's dtype and a shape that broadcasts with x's.
        name: of the last operation; by default none.

    Returns:
        The integer part of x / y, of the broadcast shape. An integer divided by 0 gives 0.

    Examples:
        >>> sg.truncatediv(np.array([7, -7]), 2)
        array([ 3, -3])
    """
    rest = truncatemod(x, y)
    if d.type_of(rest).dtype.is_integer:
        return floordiv(x - rest, y, name)
    return trunc(divide(x, y), name)
