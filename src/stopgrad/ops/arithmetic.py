"""Elementwise arithmetic and rounding."""

from __future__ import annotations

from typing import Any

from stopgrad.errors import ArgumentError
from stopgrad.op import Op, Tensor, apply, listed, not_differentiable
from stopgrad.ops.compare import equal
from stopgrad.ops.convert import cast, conj, real, where
from stopgrad.ops.data import zeros_like
from stopgrad.ops.families import EXTREMES, Arithmetic, Elementwise, RealElementwise, binary, unary
from stopgrad.ops.inference import broadcast, broadcast_c2, check_same_dtype, is_inexact, is_number, is_real, same
from stopgrad.public import builds
from stopgrad.samples import binary as pairs, complexes, floats, sample, unary as singles
from stopgrad.types import TensorType, tensor_type

__all__ = [
    "abs",
    "add",
    "add_n",
    "ceil",
    "divide",
    "floor",
    "floor_div",
    "floormod",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "round",
    "sign",
    "square",
    "squared_difference",
    "subtract",
]


class AddV2(Arithmetic):
    """Elementwise sum, with broadcasting.

    Inputs
        x, y: numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        x + y, of the broadcast shape.
    >>> sg.add(np.array([1.0, 2.0]), 3.0)
    array([4., 5.])
    """

    gradient = {"x": lambda g, op: g, "y": lambda g, op: g}
    numpy = xla = lambda xp, x, y: xp.add(x, y)
    samples = pairs()


class Sub(Arithmetic):
    """Elementwise difference, with broadcasting.

    Inputs
        x, y: numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        x - y, of the broadcast shape.
    >>> sg.subtract(np.array([1.0, 2.0]), 3.0)
    array([-2., -1.])
    """

    gradient = {"x": lambda g, op: g, "y": lambda g, op: -g}
    numpy = xla = lambda xp, x, y: xp.subtract(x, y)
    samples = pairs()


class Mul(Arithmetic):
    """Elementwise product, with broadcasting.

    Inputs
        x, y: numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        x · y, of the broadcast shape.
    >>> sg.multiply(np.array([1.0, 2.0]), 3.0)
    array([3., 6.])
    """

    gradient = {"x": lambda g, op: g * conj(op.y), "y": lambda g, op: g * conj(op.x)}
    numpy = xla = lambda xp, x, y: xp.multiply(x, y)
    samples = [*pairs(), sample(complexes(3), complexes(2, 3))]


class RealDiv(Arithmetic):
    """Elementwise quotient, with broadcasting.

    Inputs
        x, y: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        x / y, of the broadcast shape; infinite or NaN where y is 0, as IEEE 754 has it.
    >>> sg.divide(np.array([1.0, -1.0]), 0.0)
    array([ inf, -inf])
    """

    infer = broadcast(is_inexact)
    gradient = {"x": lambda g, op: g / conj(op.y), "y": lambda g, op: -(g * conj(op.result)) / conj(op.y)}
    numpy = xla = lambda xp, x, y: xp.divide(x, y)
    samples = [*pairs(y=(0.5, 2.0)), sample(complexes(3), complexes(3))]


class FloorDiv(Arithmetic):
    """Elementwise quotient rounded towards minus infinity, with broadcasting.

    Inputs
        x, y: real numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        ⌊x / y⌋, of the broadcast shape. Dividing an integer by 0 gives a value that depends on the engine.
    >>> sg.floor_div(np.array([7, -7]), 2)
    array([ 3, -4])
    """

    infer = broadcast(is_real)
    gradient = not_differentiable("floor division is constant wherever it has a derivative")
    numpy = xla = lambda xp, x, y: xp.floor_divide(x, y)
    samples = [*pairs(y=(0.5, 2.0)), *pairs((-9, 9), (1, 5), dtypes=("int32",))]
    extremes = ()


class FloorMod(Arithmetic):
    """Elementwise remainder with the sign of the divisor, with broadcasting.

    Inputs
        x, y: real numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        x - ⌊x / y⌋ · y, of the broadcast shape.
    >>> sg.floormod(np.array([7, -7]), 3)
    array([1, 2])
    """

    infer = broadcast(is_real)
    gradient = {"x": lambda g, op: g, "y": lambda g, op: -g * floor_div(op.x, op.y)}
    numpy = xla = lambda xp, x, y: xp.remainder(x, y)
    samples = [*pairs(y=(0.5, 2.0)), *pairs((-9, 9), (1, 5), dtypes=("int32",))]
    extremes = ()


class Maximum(Arithmetic):
    """Elementwise larger operand, with broadcasting; NaN where either is NaN.

    Inputs
        x, y: real numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        max(x, y). At ties the whole gradient goes to x, as in TensorFlow.
    >>> sg.maximum(np.array([1.0, 5.0]), 3.0)
    array([3., 5.])
    """

    infer = broadcast(is_real)
    gradient = {"x": lambda g, op: where(op.x >= op.y, g, 0), "y": lambda g, op: where(op.x >= op.y, 0, g)}
    numpy = xla = lambda xp, x, y: xp.maximum(x, y)
    samples = pairs()


class Minimum(Arithmetic):
    """Elementwise smaller operand, with broadcasting; NaN where either is NaN.

    Inputs
        x, y: real numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        min(x, y). At ties the whole gradient goes to x, as in TensorFlow.
    >>> sg.minimum(np.array([1.0, 5.0]), 3.0)
    array([1., 3.])
    """

    infer = broadcast(is_real)
    gradient = {"x": lambda g, op: where(op.x <= op.y, g, 0), "y": lambda g, op: where(op.x <= op.y, 0, g)}
    numpy = xla = lambda xp, x, y: xp.minimum(x, y)
    samples = pairs()


class SquaredDifference(Arithmetic):
    """Elementwise (x - y)², with broadcasting.

    Inputs
        x, y: real numbers of one dtype (C1); shapes broadcast (C2).
    Returns
        (x - y)², of the broadcast shape.
    >>> sg.squared_difference(np.array([1.0, 5.0]), 3.0)
    array([4., 4.])
    """

    infer = broadcast(is_real)
    gradient = {"x": lambda g, op: g * (2 * (op.x - op.y)), "y": lambda g, op: g * (2 * (op.y - op.x))}
    numpy = xla = lambda xp, x, y: xp.square(xp.subtract(x, y))
    samples = pairs()


class AddN(Op):
    """Sum of several tensors of one type, added from left to right.

    Inputs
        xs: one or more tensors of one numeric dtype (C1) and one shape (C2).
    Returns
        their sum.
    >>> sg.add_n([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    array([4., 6.])
    """

    @staticmethod
    def infer(*xs: TensorType) -> TensorType:
        dtype = check_same_dtype(*xs)
        return xs[0] if all(x is xs[0] for x in xs) else tensor_type(dtype, broadcast_c2(*(x.shape for x in xs)))

    gradient = {"xs": lambda g, op, i: g}

    @staticmethod
    def numpy(xp: Any, *xs: Any) -> Any:
        total = xs[0]
        for x in xs[1:]:
            total = xp.add(total, x)
        return total

    xla = numpy
    samples = [sample(floats(3), floats(3), floats(3)), sample(floats("n", 2))]


@builds(AddN)
def add_n(xs: Any, name: str | None = None) -> Tensor:
    xs = listed(xs)
    if not xs:
        raise ArgumentError("AddN: (C1) needs at least one tensor; for an empty sum take sg.zeros")
    return apply(AddN, xs, (), name)


class Neg(Elementwise):
    """Elementwise negative.

    Inputs
        x: numbers (C1).
    Returns
        -x.
    >>> sg.negative(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """

    infer = same(is_number)
    gradient = {"x": lambda g, op: -g}
    numpy = xla = lambda xp, x: xp.negative(x)
    samples = singles()


class Abs(Op):
    """Elementwise absolute value; of complex numbers, the real modulus.

    Inputs
        x: numbers (C1).
    Returns
        |x|. The gradient at 0 is 0.
    >>> sg.abs(np.array([-1.5, 2.0]))
    array([1.5, 2. ])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return tensor_type(same(is_number)(x).dtype.real, x.shape)

    gradient = {"x": lambda g, op: cast(g, op.x.dtype) * sign(op.x)}
    numpy = xla = lambda xp, x: xp.abs(x)
    samples = [*singles(), sample(complexes(3))]
    extremes = EXTREMES


class Sign(Elementwise):
    """Elementwise sign: -1, 0 or 1; of complex numbers, x / |x|.

    Inputs
        x: numbers (C1).
    Returns
        the sign, of x's dtype; NaN for NaN. Its gradient is zero; of complex numbers, which turn, it is zero at 0 only.
    >>> sg.sign(np.array([-1.5, 0.0, 2.0]))
    array([-1.,  0.,  1.])
    """

    infer = same(is_number)
    gradient = {"x": lambda g, op: _turned(g, op) if op.x.dtype.is_complex else zeros_like(g)}
    numpy = xla = lambda xp, x: xp.sign(x)
    samples = [*singles(), sample(complexes(3))]


def _turned(g: Any, op: Any) -> Tensor:
    """The cotangent of a complex sign: the part of g at a right angle to it, divided by |x|."""
    across = g - op.result * cast(real(conj(op.result) * g), g.dtype)
    nowhere = equal(op.x, 0)
    return where(nowhere, 0, across / where(nowhere, 1, cast(abs(op.x), g.dtype)))


class Square(Elementwise):
    """Elementwise square.

    Inputs
        x: numbers (C1).
    Returns
        x².
    >>> sg.square(np.array([-1.5, 2.0]))
    array([2.25, 4.  ])
    """

    infer = same(is_number)
    gradient = {"x": lambda g, op: g * (2 * conj(op.x))}
    numpy = xla = lambda xp, x: xp.square(x)
    samples = [*singles(), sample(complexes(3))]


class Floor(RealElementwise):
    """Elementwise rounding towards minus infinity.

    Inputs
        x: floating-point (C1).
    Returns
        ⌊x⌋, of x's dtype.
    >>> sg.floor(np.array([1.7, -1.2]))
    array([ 1., -2.])
    """

    gradient = not_differentiable("floor is constant wherever it has a derivative")
    numpy = xla = lambda xp, x: xp.floor(x)
    samples = singles()


class Ceil(RealElementwise):
    """Elementwise rounding towards plus infinity.

    Inputs
        x: floating-point (C1).
    Returns
        ⌈x⌉, of x's dtype.
    >>> sg.ceil(np.array([1.2, -1.7]))
    array([ 2., -1.])
    """

    gradient = not_differentiable("ceil is constant wherever it has a derivative")
    numpy = xla = lambda xp, x: xp.ceil(x)
    samples = singles()


class Round(RealElementwise):
    """Elementwise rounding to the nearest integer, halves to even.

    Inputs
        x: floating-point (C1).
    Returns
        x rounded, of x's dtype.
    >>> sg.round(np.array([0.5, 1.5, -1.2]))
    array([ 0.,  2., -1.])
    """

    gradient = not_differentiable("rounding is constant wherever it has a derivative")
    numpy = xla = lambda xp, x: xp.round(x)
    samples = singles()


add = binary(AddV2, "add")
subtract = binary(Sub, "subtract")
multiply = binary(Mul, "multiply")
divide = binary(RealDiv, "divide")
floor_div = binary(FloorDiv, "floor_div")
floormod = binary(FloorMod, "floormod")
maximum = binary(Maximum, "maximum")
minimum = binary(Minimum, "minimum")
squared_difference = binary(SquaredDifference, "squared_difference")
negative = unary(Neg, "negative")
abs = unary(Abs, "abs")
sign = unary(Sign, "sign")
square = unary(Square, "square")
floor = unary(Floor, "floor")
ceil = unary(Ceil, "ceil")
round = unary(Round, "round")
