"""Comparisons, logical and bit operations. None has a derivative."""

from __future__ import annotations

from typing import ClassVar

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Op

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "invert",
    "is_finite",
    "is_inf",
    "is_nan",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
]

_COMPARISON = d.not_differentiable("a comparison is constant wherever it has a derivative")
_BITS = d.not_differentiable("integers and booleans have no derivative")
_BOOLS = [d.sample(d.bools(3), d.bools(2, 3)), d.sample(d.bools("n"), d.bools())]
_INTS = [d.sample(d.ints(3), d.ints(2, 3)), d.sample(d.ints("n"), d.ints())]


class Comparison(Op, abstract=True):
    """Two real operands of one dtype (C1) whose shapes broadcast (C2); the result is boolean."""

    infer: ClassVar[d.Infer] = d.broadcast_to_bool(d.is_real)
    gradient: d.Gradient = _COMPARISON
    batch = d.ELEMENTWISE
    samples: d.Samples = d.pairs(dtypes=("float64", "int32"))
    extremes: ClassVar[d.Extremes] = d.PAIRS


class Equal(Comparison):
    """Elementwise x = y, with broadcasting. NaN equals nothing.

    Examples:
        >>> sg.equal(np.array([1, 2]), 2)
        array([False,  True])
    """

    infer = d.broadcast_to_bool(d.is_any)
    lower: d.Lowering = lambda xp, x, y: xp.equal(x, y)


equal: d.Binary = d.binary(Equal, "equal")


class NotEqual(Comparison):
    """Elementwise x ≠ y, with broadcasting. NaN differs from everything.

    Examples:
        >>> sg.not_equal(np.array([1, 2]), 2)
        array([ True, False])
    """

    infer = d.broadcast_to_bool(d.is_any)
    lower: d.Lowering = lambda xp, x, y: xp.not_equal(x, y)


not_equal: d.Binary = d.binary(NotEqual, "not_equal")


class Less(Comparison):
    """Elementwise x < y, with broadcasting.

    Examples:
        >>> sg.less(np.array([1, 2]), 2)
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x, y: xp.less(x, y)


less: d.Binary = d.binary(Less, "less")


class LessEqual(Comparison):
    """Elementwise x ≤ y, with broadcasting.

    Examples:
        >>> sg.less_equal(np.array([1, 3]), 2)
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x, y: xp.less_equal(x, y)


less_equal: d.Binary = d.binary(LessEqual, "less_equal")


class Greater(Comparison):
    """Elementwise x > y, with broadcasting.

    Examples:
        >>> sg.greater(np.array([1, 3]), 2)
        array([False,  True])
    """

    lower: d.Lowering = lambda xp, x, y: xp.greater(x, y)


greater: d.Binary = d.binary(Greater, "greater")


class GreaterEqual(Comparison):
    """Elementwise x ≥ y, with broadcasting.

    Examples:
        >>> sg.greater_equal(np.array([1, 2]), 2)
        array([False,  True])
    """

    lower: d.Lowering = lambda xp, x, y: xp.greater_equal(x, y)


greater_equal: d.Binary = d.binary(GreaterEqual, "greater_equal")


class Test(Op, abstract=True):
    """One floating-point or complex operand (C1); the result is boolean."""

    infer: ClassVar[d.Infer] = d.to_bool(d.is_inexact)
    gradient: d.Gradient = _COMPARISON
    batch = d.ELEMENTWISE
    samples: d.Samples = d.singles()
    extremes: ClassVar[d.Extremes] = d.EXTREMES


class IsNan(Test):
    """Elementwise test for NaN.

    Examples:
        >>> sg.is_nan(np.array([np.nan, 1.0]))
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x: xp.isnan(x)


is_nan: d.Unary = d.unary(IsNan, "is_nan")


class IsInf(Test):
    """Elementwise test for infinity of either sign.

    Examples:
        >>> sg.is_inf(np.array([-np.inf, 1.0]))
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x: xp.isinf(x)


is_inf: d.Unary = d.unary(IsInf, "is_inf")


class IsFinite(Test):
    """Elementwise test for being neither infinite nor NaN.

    Examples:
        >>> sg.is_finite(np.array([np.nan, 1.0]))
        array([False,  True])
    """

    lower: d.Lowering = lambda xp, x: xp.isfinite(x)


is_finite: d.Unary = d.unary(IsFinite, "is_finite")


class Logical(Op, abstract=True):
    """Two boolean operands (C1) whose shapes broadcast (C2)."""

    infer: ClassVar[d.Infer] = d.broadcast(d.is_boolean)
    gradient: d.Gradient = _BITS
    batch = d.ELEMENTWISE
    samples: d.Samples = _BOOLS


class LogicalAnd(Logical):
    """Elementwise conjunction, with broadcasting.

    Returns:
        Whether x and y are both True.

    Examples:
        >>> sg.logical_and(np.array([True, False]), True)
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x, y: xp.logical_and(x, y)


logical_and: d.Binary = d.binary(LogicalAnd, "logical_and")


class LogicalOr(Logical):
    """Elementwise disjunction, with broadcasting.

    Returns:
        Whether x or y is True, or both.

    Examples:
        >>> sg.logical_or(np.array([True, False]), False)
        array([ True, False])
    """

    lower: d.Lowering = lambda xp, x, y: xp.logical_or(x, y)


logical_or: d.Binary = d.binary(LogicalOr, "logical_or")


class LogicalXor(Logical):
    """Elementwise exclusive or, with broadcasting.

    Returns:
        Whether exactly one of x and y is True.

    Examples:
        >>> sg.logical_xor(np.array([True, False]), True)
        array([False,  True])
    """

    lower: d.Lowering = lambda xp, x, y: xp.logical_xor(x, y)


logical_xor: d.Binary = d.binary(LogicalXor, "logical_xor")


class LogicalNot(Op):
    """Elementwise negation.

    Returns:
        Whether x is False.

    Examples:
        >>> sg.logical_not(np.array([True, False]))
        array([False,  True])
    """

    infer = d.same(d.is_boolean)
    gradient: d.Gradient = _BITS
    batch = d.ELEMENTWISE
    lower: d.Lowering = lambda xp, x: xp.logical_not(x)
    samples: d.Samples = d.singles(dtypes=(d.bool_,))


logical_not: d.Unary = d.unary(LogicalNot, "logical_not")


class Bitwise(Op, abstract=True):
    """Two integer or boolean operands of one dtype (C1) whose shapes broadcast (C2)."""

    infer: ClassVar[d.Infer] = d.broadcast(d.is_integral)
    gradient: d.Gradient = _BITS
    batch = d.ELEMENTWISE
    samples: d.Samples = [*_INTS, *_BOOLS]


class BitwiseAnd(Bitwise):
    """Elementwise and of bits, with broadcasting.

    Returns:
        The bits of x & y.

    Examples:
        >>> sg.bitwise_and(np.array([6]), 3)
        array([2])
    """

    lower: d.Lowering = lambda xp, x, y: xp.bitwise_and(x, y)


bitwise_and: d.Binary = d.binary(BitwiseAnd, "bitwise_and")


class BitwiseOr(Bitwise):
    """Elementwise or of bits, with broadcasting.

    Returns:
        The bits of x | y.

    Examples:
        >>> sg.bitwise_or(np.array([6]), 3)
        array([7])
    """

    lower: d.Lowering = lambda xp, x, y: xp.bitwise_or(x, y)


bitwise_or: d.Binary = d.binary(BitwiseOr, "bitwise_or")


class BitwiseXor(Bitwise):
    """Elementwise exclusive or of bits, with broadcasting.

    Returns:
        The bits of x ^ y.

    Examples:
        >>> sg.bitwise_xor(np.array([6]), 3)
        array([5])
    """

    lower: d.Lowering = lambda xp, x, y: xp.bitwise_xor(x, y)


bitwise_xor: d.Binary = d.binary(BitwiseXor, "bitwise_xor")


class Invert(Op):
    """Elementwise complement of bits; for booleans, negation.

    Returns:
        The bits of ~x.

    Examples:
        >>> sg.invert(np.array([0, 5]))
        array([-1, -6])
    """

    infer = d.same(d.is_integral)
    gradient: d.Gradient = _BITS
    batch = d.ELEMENTWISE
    lower: d.Lowering = lambda xp, x: xp.invert(x)
    samples: d.Samples = d.singles(-5, 6, dtypes=(d.int32, d.bool_))


invert: d.Unary = d.unary(Invert, "invert")


class Shift(Op, abstract=True):
    """Two integer operands of one dtype (C1) whose shapes broadcast (C2)."""

    infer: ClassVar[d.Infer] = d.broadcast(d.is_integer)
    gradient: d.Gradient = _BITS
    batch = d.ELEMENTWISE
    samples: d.Samples = [
        d.sample(d.ints(3), d.ints(2, 3, low=0, high=8)),
        d.sample(d.ints("n"), d.ints(low=0, high=8)),
    ]


class LeftShift(Shift):
    """Elementwise shift of bits to the left, with broadcasting.

    Returns:
        The product x · 2ʸ, without the bits that fall off; 0 where y is negative or not below the number of
        bits, as in NumPy.

    Examples:
        >>> sg.left_shift(np.array([1, 3]), 2)
        array([ 4, 12])
    """

    lower: d.Lowering = lambda xp, x, y: xp.left_shift(x, y)


left_shift: d.Binary = d.binary(LeftShift, "left_shift")


class RightShift(Shift):
    """Elementwise shift of bits to the right, with broadcasting; signed integers keep their sign.

    Returns:
        The quotient ⌊x / 2ʸ⌋; where y is negative or not below the number of bits, -1 for a negative x and 0
        for others, as in NumPy.

    Examples:
        >>> sg.right_shift(np.array([4, 12]), 2)
        array([1, 3])
    """

    lower: d.Lowering = lambda xp, x, y: xp.right_shift(x, y)


right_shift: d.Binary = d.binary(RightShift, "right_shift")
