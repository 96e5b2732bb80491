"""Elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Arithmetic,
    Array,
    ArrayLike,
    Elementwise,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import cast, conj, real, where
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "abs",
    "add",
    "add_n",
    "divide",
    "floor_div",
    "floordiv",
    "floormod",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "realdiv",
    "sign",
    "square",
    "squared_difference",
    "subtract",
    "truediv",
]


class AddV2(Arithmetic):
    """Elementwise sum, with broadcasting.

    Returns:
        The sum x + y, of the broadcast shape.

    Examples:
        >>> sg.add(np.array([1.0, 2.0]), 3.0)
        array([4., 5.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g, "y": lambda g, op: g}
    folded = True
    magnitudes = d.Magnitudes.ADDED
    lower: d.Lowering = lambda xp, x, y: xp.add(x, y)
    samples: d.Samples = d.pairs()


add: d.Binary = d.binary(AddV2, "add")


class Sub(Arithmetic):
    """Elementwise difference, with broadcasting.

    Returns:
        The difference x - y, of the broadcast shape.

    Examples:
        >>> sg.subtract(np.array([1.0, 2.0]), 3.0)
        array([-2., -1.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g, "y": lambda g, op: -g}
    cures = (
        d.Cure(
            "infinities subtracted",
            lambda x, y: np.isinf(x) and np.isinf(y),
            "the difference of two infinities is a NaN; keep one of them finite",
            gradient=False,
        ),
    )
    folded = True
    magnitudes = d.Magnitudes.ADDED
    lower: d.Lowering = lambda xp, x, y: xp.subtract(x, y)
    samples: d.Samples = d.pairs()


subtract: d.Binary = d.binary(Sub, "subtract")


class Mul(Arithmetic):
    """Elementwise product, with broadcasting.

    Returns:
        The product x · y, of the broadcast shape.

    Examples:
        >>> sg.multiply(np.array([1.0, 2.0]), 3.0)
        array([3., 6.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(op.y), "y": lambda g, op: g * conj(op.x)}
    cures = (
        d.Cure(
            "a mask by multiplication",
            lambda x, y: (x == 0 and np.isinf(y)) or (y == 0 and np.isinf(x)),
            "0 times an infinity is a NaN: multiplying by 0 does not mask it. Choose with sg.where, or keep "
            "the other factor finite",
            gradient=False,
        ),
    )
    folded = True
    magnitudes = d.Magnitudes.SCALED
    lower: d.Lowering = lambda xp, x, y: xp.multiply(x, y)
    samples: d.Samples = [*d.pairs(), d.sample(d.complexes(3), d.complexes(2, 3))]


multiply: d.Binary = d.binary(Mul, "multiply")


class RealDiv(Arithmetic):
    """Elementwise quotient, with broadcasting.

    Returns:
        The quotient x / y, of the broadcast shape; infinite or NaN where y is 0, as in IEEE 754.

    Examples:
        >>> sg.divide(np.array([1.0, -1.0]), 0.0)
        array([ inf, -inf])
    """

    infer = d.broadcast(d.is_inexact)
    gradient: d.Gradient = {
        "x": lambda g, op: g / conj(op.y),
        "y": lambda g, op: -(g * conj(op.result)) / conj(op.y),
    }
    cures = (
        d.Cure(
            "division by 0",
            lambda x, y: y == 0,
            "the divisor is 0 there; keep it away from 0, as with sg.maximum(y, 1e-12) where it is positive, "
            "or choose: x / sg.where(y == 0, 1.0, y)",
        ),
    )
    magnitudes = d.Magnitudes.SCALED
    lower: d.Lowering = lambda xp, x, y: xp.divide(x, y)
    samples: d.Samples = [*d.pairs(y=(0.5, 2.0)), d.sample(d.complexes(3), d.complexes(3))]


divide: d.Binary = d.binary(RealDiv, "divide")
realdiv: d.Binary = divide
truediv: d.Binary = divide


class FloorDiv(Arithmetic):
    """Elementwise quotient, rounded down, with broadcasting.

    Returns:
        The quotient ⌊x / y⌋, of the broadcast shape. An integer divided by 0 gives 0, as in NumPy. The least
        integer divided by -1 gives itself, since integer arithmetic is modulo 2ⁿ.

    Examples:
        >>> sg.floordiv(np.array([7, -7]), 2)
        array([ 3, -4])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = d.not_differentiable("floor division is constant wherever it has a derivative")
    unsound = d.BY_ZERO
    lower: d.Lowering = lambda xp, x, y: xp.floor_divide(x, y)

    @staticmethod
    def xla(xp: Namespace, x: Array, y: Array) -> Array:
        quotient = xp.floor_divide(x, y)
        return quotient if x.dtype.kind not in "iu" else xp.where(y == 0, xp.zeros((), x.dtype), quotient)

    samples: d.Samples = [*d.pairs(y=(0.5, 2.0)), *d.pairs((-9, 9), (1, 5), dtypes=("int32",))]
    extremes = ()


floordiv: d.Binary = d.binary(FloorDiv, "floordiv")
floor_div = floordiv


class FloorMod(Arithmetic):
    """Elementwise remainder with the sign of the divisor, with broadcasting.

    Returns:
        The remainder x - ⌊x / y⌋ · y, of the broadcast shape; for integers, 0 where y is 0, as in NumPy.

    Examples:
        >>> sg.floormod(np.array([7, -7]), 3)
        array([1, 2])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = {"x": lambda g, op: g, "y": lambda g, op: -g * floordiv(op.x, op.y)}
    unsound = d.BY_ZERO
    lower: d.Lowering = lambda xp, x, y: xp.remainder(x, y)
    samples: d.Samples = [*d.pairs(y=(0.5, 2.0)), *d.pairs((-9, 9), (1, 5), dtypes=("int32",))]
    extremes = ()


floormod: d.Binary = d.binary(FloorMod, "floormod")
mod = floormod


class Maximum(Arithmetic):
    """Elementwise larger operand, with broadcasting; NaN where either is NaN.

    Returns:
        The larger of x and y. At ties the whole gradient goes to x, as in TensorFlow.

    Examples:
        >>> sg.maximum(np.array([1.0, 5.0]), 3.0)
        array([3., 5.])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = {
        "x": lambda g, op: where(op.x >= op.y, g, 0),
        "y": lambda g, op: where(op.x >= op.y, 0, g),
    }
    lower: d.Lowering = lambda xp, x, y: xp.maximum(x, y)
    samples: d.Samples = d.pairs()


maximum: d.Binary = d.binary(Maximum, "maximum")


class Minimum(Arithmetic):
    """Elementwise smaller operand, with broadcasting; NaN where either is NaN.

    Returns:
        The smaller of x and y. At ties the whole gradient goes to x, as in TensorFlow.

    Examples:
        >>> sg.minimum(np.array([1.0, 5.0]), 3.0)
        array([1., 3.])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = {
        "x": lambda g, op: where(op.x <= op.y, g, 0),
        "y": lambda g, op: where(op.x <= op.y, 0, g),
    }
    lower: d.Lowering = lambda xp, x, y: xp.minimum(x, y)
    samples: d.Samples = d.pairs()


minimum: d.Binary = d.binary(Minimum, "minimum")


class SquaredDifference(Arithmetic):
    """Elementwise (x - y)², with broadcasting.

    Returns:
        The squares (x - y)², of the broadcast shape.

    Examples:
        >>> sg.squared_difference(np.array([1.0, 5.0]), 3.0)
        array([4., 4.])
    """

    infer = d.broadcast(d.is_real)
    gradient: d.Gradient = {
        "x": lambda g, op: g * (2 * (op.x - op.y)),
        "y": lambda g, op: g * (2 * (op.y - op.x)),
    }
    lower: d.Lowering = lambda xp, x, y: xp.square(xp.subtract(x, y))
    samples: d.Samples = d.pairs()


squared_difference: d.Binary = d.binary(SquaredDifference, "squared_difference")


class AddN(Op):
    """Sum of several tensors of one dtype and shape, added from left to right.

    Args:
        xs (``inputs``): one or more tensors.

    Returns:
        Their sum.

    Constraints:
        (C1) There is at least one tensor.
        (C2) The tensors hold numbers, of one dtype.
        (C3) The tensors have one shape.

    Examples:
        >>> sg.add_n([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
        array([4., 6.])
    """

    @staticmethod
    def infer(*xs: TensorType) -> TensorType:
        dtype = d.check_same_dtype(*xs, constraint="C2")
        d.check_dtype(xs[0], d.is_number, "numbers", "C2")
        if all(x is xs[0] for x in xs):
            return xs[0]
        for x in xs[1:]:
            d.check_shape(x, xs[0].shape, "each tensor", "C3", of="the first")
        # A size may be a number in one tensor and a name in another; the sum has the number.
        return d.tensor_type(dtype, d.broadcast_shapes(*(x.shape for x in xs)))

    promotes = Promotion(d.is_number)
    gradient: d.Gradient = {"xs": lambda g, op, i: g}

    batch = d.ALONG
    rounds_once = True
    elementwise = True
    magnitudes = d.Magnitudes.SAME

    @staticmethod
    def lower(xp: Namespace, *xs: Array) -> Array:
        total = xs[0]
        for x in xs[1:]:
            total = xp.add(total, x)
        return total

    samples: d.Samples = [d.sample(d.floats(3), d.floats(3), d.floats(3)), d.sample(d.floats("n", 2))]


@d.builds(AddN)
def add_n(inputs: Sequence[ArrayLike], name: str | None = None) -> Tensor:
    xs = d.as_list(inputs)
    if not xs:
        raise ArgumentError("AddN: (C1) needs at least one tensor; for an empty sum take sg.zeros")
    return d.apply(AddN, xs, (), name)


class Neg(Elementwise):
    """Elementwise negative.

    Returns:
        The negative -x.

    Examples:
        >>> sg.negative(np.array([1.0, -2.0]))
        array([-1.,  2.])
    """

    infer = d.same(d.is_number)
    gradient: d.Gradient = {"x": lambda g, op: -g}
    folded = True
    magnitudes = d.Magnitudes.KEPT
    lower: d.Lowering = lambda xp, x: xp.negative(x)
    samples: d.Samples = d.singles()


negative: d.Unary = d.unary(Neg, "negative")


class Abs(Op):
    """Elementwise absolute value; for complex numbers, the real modulus.

    Args:
        x: numbers.

    Returns:
        The modulus |x|. The gradient at 0 is 0.

    Constraints:
        (C1) x holds numbers.

    Examples:
        >>> sg.abs(np.array([-1.5, 2.0]))
        array([1.5, 2. ])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return d.tensor_type(d.same(d.is_number)(x).dtype.real, x.shape)

    promotes = Promotion(d.is_number)
    gradient: d.Gradient = {"x": lambda g, op: cast(g, op.x.dtype) * sign(op.x)}
    batch = d.ELEMENTWISE
    never_negative = True
    not_holomorphic = "the absolute value of a complex number is real"
    lower: d.Lowering = lambda xp, x: xp.abs(x)
    samples: d.Samples = [*d.singles(), d.sample(d.complexes(3))]
    extremes = d.EXTREMES


abs: d.Unary = d.unary(Abs, "abs")


class Sign(Elementwise):
    """Elementwise sign: -1, 0 or 1; for complex numbers, x / |x|.

    Returns:
        The sign, of x's dtype; NaN for NaN. The gradient is zero for real numbers; for complex numbers, whose
        direction can change, it is zero only at 0.

    Examples:
        >>> sg.sign(np.array([-1.5, 0.0, 2.0]))
        array([-1.,  0.,  1.])
    """

    infer = d.same(d.is_number)
    gradient: d.Gradient = {
        "x": lambda g, op: _to_direction(g, op) if op.x.dtype.is_complex else zeros_like(g)
    }
    not_holomorphic = "of a complex number it is z / |z|"
    lower: d.Lowering = lambda xp, x: xp.sign(x)
    samples: d.Samples = [*d.singles(), d.sample(d.complexes(3))]


sign: d.Unary = d.unary(Sign, "sign")


def _to_direction(g: Output, op: Operation) -> Tensor:
    """The cotangent of x for a complex sign: the part of g at a right angle to the sign, divided by |x|."""
    across = g - op.result * cast(real(conj(op.result) * g), g.dtype)
    nowhere = equal(op.x, 0)
    return where(nowhere, 0, across / where(nowhere, 1, cast(abs(op.x), g.dtype)))


class Square(Elementwise):
    """Elementwise square.

    Returns:
        The squares x².

    Examples:
        >>> sg.square(np.array([-1.5, 2.0]))
        array([2.25, 4.  ])
    """

    infer = d.same(d.is_number)
    gradient: d.Gradient = {"x": lambda g, op: g * (2 * conj(op.x))}
    never_negative = True
    lower: d.Lowering = lambda xp, x: xp.square(x)
    samples: d.Samples = [*d.singles(), d.sample(d.complexes(3))]


square: d.Unary = d.unary(Square, "square")
