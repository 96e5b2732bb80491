"""Comparisons, logical and bit operations. None has a derivative."""

from __future__ import annotations

from stopgrad.base.samples import bools, ints, pairs, sample, singles
from stopgrad.base.types import bool_, int32
from stopgrad.graph.batch_rules import ELEMENTWISE
from stopgrad.graph.families import EXTREMES, PAIRS, binary, unary
from stopgrad.graph.op import Op, not_differentiable
from stopgrad.graph.type_rules import (
    broadcast,
    broadcast_to_bool,
    is_any,
    is_boolean,
    is_inexact,
    is_integer,
    is_integral,
    is_real,
    same,
    to_bool,
)

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

_COMPARISON = not_differentiable("a comparison is constant wherever it has a derivative")
_BITS = not_differentiable("integers and booleans have no derivative")
_BOOLS = [sample(bools(3), bools(2, 3)), sample(bools("n"), bools())]
_INTS = [sample(ints(3), ints(2, 3)), sample(ints("n"), ints())]


class Comparison(Op, abstract=True):
    """Two real operands of one dtype (C1) whose shapes broadcast (C2); the result is boolean."""

    infer = broadcast_to_bool(is_real)
    gradient = _COMPARISON
    batch = ELEMENTWISE
    samples = pairs(dtypes=("float64", "int32"))
    extremes = PAIRS


class Equal(Comparison):
    """Elementwise x = y, with broadcasting. NaN equals nothing.

    Args:
        x: any dtype.
        y: the same dtype, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y have one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.equal(np.array([1, 2]), 2)
        array([False,  True])
    """

    infer = broadcast_to_bool(is_any)
    lower = lambda xp, x, y: xp.equal(x, y)


equal = binary(Equal, "equal")


class NotEqual(Comparison):
    """Elementwise x ≠ y, with broadcasting. NaN differs from everything.

    Args:
        x: any dtype.
        y: the same dtype, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y have one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.not_equal(np.array([1, 2]), 2)
        array([ True, False])
    """

    infer = broadcast_to_bool(is_any)
    lower = lambda xp, x, y: xp.not_equal(x, y)


not_equal = binary(NotEqual, "not_equal")


class Less(Comparison):
    """Elementwise x < y, with broadcasting.

    Args:
        x: real numbers.
        y: real numbers, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y hold real numbers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.less(np.array([1, 2]), 2)
        array([ True, False])
    """

    lower = lambda xp, x, y: xp.less(x, y)


less = binary(Less, "less")


class LessEqual(Comparison):
    """Elementwise x ≤ y, with broadcasting.

    Args:
        x: real numbers.
        y: real numbers, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y hold real numbers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.less_equal(np.array([1, 3]), 2)
        array([ True, False])
    """

    lower = lambda xp, x, y: xp.less_equal(x, y)


less_equal = binary(LessEqual, "less_equal")


class Greater(Comparison):
    """Elementwise x > y, with broadcasting.

    Args:
        x: real numbers.
        y: real numbers, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y hold real numbers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.greater(np.array([1, 3]), 2)
        array([False,  True])
    """

    lower = lambda xp, x, y: xp.greater(x, y)


greater = binary(Greater, "greater")


class GreaterEqual(Comparison):
    """Elementwise x ≥ y, with broadcasting.

    Args:
        x: real numbers.
        y: real numbers, of a shape that broadcasts with x's.

    Returns:
        Booleans, of the broadcast shape.

    Constraints:
        (C1) x and y hold real numbers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.greater_equal(np.array([1, 2]), 2)
        array([False,  True])
    """

    lower = lambda xp, x, y: xp.greater_equal(x, y)


greater_equal = binary(GreaterEqual, "greater_equal")


class Test(Op, abstract=True):
    """One floating-point or complex operand (C1); the result is boolean."""

    infer = to_bool(is_inexact)
    gradient = _COMPARISON
    batch = ELEMENTWISE
    samples = singles()
    extremes = EXTREMES


class IsNan(Test):
    """Elementwise test for NaN.

    Args:
        x: floating-point or complex.

    Returns:
        Booleans.

    Constraints:
        (C1) x is floating-point or complex.

    Examples:
        >>> sg.is_nan(np.array([np.nan, 1.0]))
        array([ True, False])
    """

    lower = lambda xp, x: xp.isnan(x)


is_nan = unary(IsNan, "is_nan")


class IsInf(Test):
    """Elementwise test for infinity of either sign.

    Args:
        x: floating-point or complex.

    Returns:
        Booleans.

    Constraints:
        (C1) x is floating-point or complex.

    Examples:
        >>> sg.is_inf(np.array([-np.inf, 1.0]))
        array([ True, False])
    """

    lower = lambda xp, x: xp.isinf(x)


is_inf = unary(IsInf, "is_inf")


class IsFinite(Test):
    """Elementwise test for being neither infinite nor NaN.

    Args:
        x: floating-point or complex.

    Returns:
        Booleans.

    Constraints:
        (C1) x is floating-point or complex.

    Examples:
        >>> sg.is_finite(np.array([np.nan, 1.0]))
        array([False,  True])
    """

    lower = lambda xp, x: xp.isfinite(x)


is_finite = unary(IsFinite, "is_finite")


class Logical(Op, abstract=True):
    """Two boolean operands (C1) whose shapes broadcast (C2)."""

    infer = broadcast(is_boolean)
    gradient = _BITS
    batch = ELEMENTWISE
    samples = _BOOLS


class LogicalAnd(Logical):
    """Elementwise conjunction, with broadcasting.

    Args:
        x: booleans.
        y: booleans, of a shape that broadcasts with x's.

    Returns:
        Whether both hold.

    Constraints:
        (C1) x and y hold booleans.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.logical_and(np.array([True, False]), True)
        array([ True, False])
    """

    lower = lambda xp, x, y: xp.logical_and(x, y)


logical_and = binary(LogicalAnd, "logical_and")


class LogicalOr(Logical):
    """Elementwise disjunction, with broadcasting.

    Args:
        x: booleans.
        y: booleans, of a shape that broadcasts with x's.

    Returns:
        Whether either holds.

    Constraints:
        (C1) x and y hold booleans.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.logical_or(np.array([True, False]), False)
        array([ True, False])
    """

    lower = lambda xp, x, y: xp.logical_or(x, y)


logical_or = binary(LogicalOr, "logical_or")


class LogicalXor(Logical):
    """Elementwise exclusive or, with broadcasting.

    Args:
        x: booleans.
        y: booleans, of a shape that broadcasts with x's.

    Returns:
        Whether just one holds.

    Constraints:
        (C1) x and y hold booleans.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.logical_xor(np.array([True, False]), True)
        array([False,  True])
    """

    lower = lambda xp, x, y: xp.logical_xor(x, y)


logical_xor = binary(LogicalXor, "logical_xor")


class LogicalNot(Op):
    """Elementwise negation.

    Args:
        x: booleans.

    Returns:
        Whether x does not hold.

    Constraints:
        (C1) x holds booleans.

    Examples:
        >>> sg.logical_not(np.array([True, False]))
        array([False,  True])
    """

    infer = same(is_boolean)
    gradient = _BITS
    batch = ELEMENTWISE
    lower = lambda xp, x: xp.logical_not(x)
    samples = singles(dtypes=(bool_,))


logical_not = unary(LogicalNot, "logical_not")


class Bitwise(Op, abstract=True):
    """Two integer or boolean operands of one dtype (C1) whose shapes broadcast (C2)."""

    infer = broadcast(is_integral)
    gradient = _BITS
    batch = ELEMENTWISE
    samples = [*_INTS, *_BOOLS]


class BitwiseAnd(Bitwise):
    """Elementwise and of bits, with broadcasting.

    Args:
        x: integers or booleans.
        y: integers or booleans, of a shape that broadcasts with x's.

    Returns:
        The bits of x & y.

    Constraints:
        (C1) x and y hold integers or booleans, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.bitwise_and(np.array([6]), 3)
        array([2])
    """

    lower = lambda xp, x, y: xp.bitwise_and(x, y)


bitwise_and = binary(BitwiseAnd, "bitwise_and")


class BitwiseOr(Bitwise):
    """Elementwise or of bits, with broadcasting.

    Args:
        x: integers or booleans.
        y: integers or booleans, of a shape that broadcasts with x's.

    Returns:
        The bits of x | y.

    Constraints:
        (C1) x and y hold integers or booleans, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.bitwise_or(np.array([6]), 3)
        array([7])
    """

    lower = lambda xp, x, y: xp.bitwise_or(x, y)


bitwise_or = binary(BitwiseOr, "bitwise_or")


class BitwiseXor(Bitwise):
    """Elementwise exclusive or of bits, with broadcasting.

    Args:
        x: integers or booleans.
        y: integers or booleans, of a shape that broadcasts with x's.

    Returns:
        The bits of x ^ y.

    Constraints:
        (C1) x and y hold integers or booleans, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.bitwise_xor(np.array([6]), 3)
        array([5])
    """

    lower = lambda xp, x, y: xp.bitwise_xor(x, y)


bitwise_xor = binary(BitwiseXor, "bitwise_xor")


class Invert(Op):
    """Elementwise complement of bits; of booleans, negation.

    Args:
        x: integers or booleans.

    Returns:
        The bits of ~x.

    Constraints:
        (C1) x holds integers or booleans.

    Examples:
        >>> sg.invert(np.array([0, 5]))
        array([-1, -6])
    """

    infer = same(is_integral)
    gradient = _BITS
    batch = ELEMENTWISE
    lower = lambda xp, x: xp.invert(x)
    samples = singles(-5, 6, dtypes=(int32, bool_))


invert = unary(Invert, "invert")


class Shift(Op, abstract=True):
    """Two integer operands of one dtype (C1) whose shapes broadcast (C2)."""

    infer = broadcast(is_integer)
    gradient = _BITS
    batch = ELEMENTWISE
    samples = [sample(ints(3), ints(2, 3, low=0, high=8)), sample(ints("n"), ints(low=0, high=8))]


class LeftShift(Shift):
    """Elementwise shift of bits to the left, with broadcasting.

    Args:
        x: integers.
        y: integers, of a shape that broadcasts with x's.

    Returns:
        The product x · 2ʸ, without the bits that fall off; 0 where y is negative or not below the number of
        bits, as in NumPy.

    Constraints:
        (C1) x and y hold integers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.left_shift(np.array([1, 3]), 2)
        array([ 4, 12])
    """

    lower = lambda xp, x, y: xp.left_shift(x, y)


left_shift = binary(LeftShift, "left_shift")


class RightShift(Shift):
    """Elementwise shift of bits to the right, with broadcasting; signed integers keep their sign.

    Args:
        x: integers.
        y: integers, of a shape that broadcasts with x's.

    Returns:
        The quotient ⌊x / 2ʸ⌋; where y is negative or not below the number of bits, -1 for a negative x and 0
        for others, as in NumPy.

    Constraints:
        (C1) x and y hold integers, of one dtype.
        (C2) The shapes of x and y broadcast.

    Examples:
        >>> sg.right_shift(np.array([4, 12]), 2)
        array([1, 3])
    """

    lower = lambda xp, x, y: xp.right_shift(x, y)


right_shift = binary(RightShift, "right_shift")
