"""Roots and powers, exponentials and logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

from typing import Any

from stopgrad.batch_rules import ELEMENTWISE
from stopgrad.op import Op
from stopgrad.operands import Tensor
from stopgrad.ops.arithmetic import square
from stopgrad.ops.convert import conj, where
from stopgrad.ops.families import PAIRS, Arithmetic, Elementwise, binary, unary
from stopgrad.ops.inference import broadcast, is_floating, is_inexact
from stopgrad.samples import binary as pairs, complexes, sample, unary as singles
from stopgrad.types import TensorType

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "log",
    "log1p",
    "pow",
    "reciprocal",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


class Sqrt(Elementwise):
    """Elementwise square root.

    Args:
        x: floating-point or complex (C1).

    Returns:
        √x; NaN below 0. The gradient at 0 is infinite.

    Examples:
        >>> sg.sqrt(np.array([4.0, 9.0]))
        array([2., 3.])
    """

    gradient = {"x": lambda g, op: sqrt_grad(conj(op.result), g)}
    lower = lambda xp, x: xp.sqrt(x)
    samples = singles(0.5, 2.0)


sqrt = unary(Sqrt, "sqrt")


class Rsqrt(Elementwise):
    """Elementwise 1 / √x.

    Args:
        x: floating-point or complex (C1).

    Returns:
        1 / √x.

    Examples:
        >>> sg.rsqrt(np.array([4.0, 0.25]))
        array([0.5, 2. ])
    """

    gradient = {"x": lambda g, op: rsqrt_grad(conj(op.result), g)}
    lower = lambda xp, x: xp.reciprocal(xp.sqrt(x))
    samples = singles(0.5, 2.0)


rsqrt = unary(Rsqrt, "rsqrt")


class Reciprocal(Elementwise):
    """Elementwise 1 / x.

    Args:
        x: floating-point or complex (C1).

    Returns:
        1 / x.

    Examples:
        >>> sg.reciprocal(np.array([4.0, 0.25]))
        array([0.25, 4.  ])
    """

    gradient = {"x": lambda g, op: reciprocal_grad(conj(op.result), g)}
    lower = lambda xp, x: xp.reciprocal(x)
    samples = singles(0.5, 2.0)


reciprocal = unary(Reciprocal, "reciprocal")


class Pow(Arithmetic):
    """Elementwise power, with broadcasting.

    Args:
        x, y: floating-point or complex, of one dtype (C1); shapes broadcast (C2).

    Returns:
        x to the power y. The gradient towards y counts log x as 0 where x is not positive, as TensorFlow's does.

    Examples:
        >>> sg.pow(np.array([2.0, 3.0]), 2.0)
        array([4., 9.])
    """

    infer = broadcast(is_inexact)
    gradient = {
        "x": lambda g, op: g * conj(op.y * pow(op.x, op.y - 1)),
        "y": lambda g, op: g * conj(op.result * _log_or_zero(op.x)),
    }
    lower = lambda xp, x, y: xp.power(x, y)
    samples = pairs((0.5, 2.0), (-2.0, 2.0))


pow = binary(Pow, "pow")


def _log_or_zero(x: Any) -> Tensor:
    if x.dtype.is_complex:
        return log(x)
    positive = x > 0
    return where(positive, log(where(positive, x, 1)), 0)


class Exp(Elementwise):
    """Elementwise exponential.

    Args:
        x: floating-point or complex (C1).

    Returns:
        eˣ.

    Examples:
        >>> sg.exp(np.array([0.0, 1.0]))
        array([1.        , 2.71828183])
    """

    gradient = {"x": lambda g, op: g * conj(op.result)}
    lower = lambda xp, x: xp.exp(x)
    samples = [*singles(), sample(complexes(3))]


exp = unary(Exp, "exp")


class Expm1(Elementwise):
    """Elementwise eˣ - 1, precise near 0.

    Args:
        x: floating-point or complex (C1).

    Returns:
        eˣ - 1.

    Examples:
        >>> sg.expm1(np.array([0.0, 1e-10]))
        array([0.e+00, 1.e-10])
    """

    gradient = {"x": lambda g, op: g * conj(exp(op.x))}
    lower = lambda xp, x: xp.expm1(x)
    samples = singles()


expm1 = unary(Expm1, "expm1")


class Log(Elementwise):
    """Elementwise natural logarithm.

    Args:
        x: floating-point or complex (C1).

    Returns:
        log x; -∞ at 0, NaN below.

    Examples:
        >>> sg.log(np.array([1.0, 0.0]))
        array([  0., -inf])
    """

    gradient = {"x": lambda g, op: g / conj(op.x)}
    lower = lambda xp, x: xp.log(x)
    samples = singles(0.5, 3.0)


log = unary(Log, "log")


class Log1p(Elementwise):
    """Elementwise log(1 + x), precise near 0.

    Args:
        x: floating-point or complex (C1).

    Returns:
        log(1 + x).

    Examples:
        >>> sg.log1p(np.array([0.0, 1e-10]))
        array([0.e+00, 1.e-10])
    """

    gradient = {"x": lambda g, op: g / (1 + conj(op.x))}
    lower = lambda xp, x: xp.log1p(x)
    samples = singles(-0.5, 3.0)


log1p = unary(Log1p, "log1p")


class Sin(Elementwise):
    """Elementwise sine of radians.

    Args:
        x: floating-point or complex (C1).

    Returns:
        sin x.

    Examples:
        >>> sg.sin(np.array([0.0, np.pi / 2]))
        array([0., 1.])
    """

    gradient = {"x": lambda g, op: g * conj(cos(op.x))}
    lower = lambda xp, x: xp.sin(x)
    samples = singles()


sin = unary(Sin, "sin")


class Cos(Elementwise):
    """Elementwise cosine of radians.

    Args:
        x: floating-point or complex (C1).

    Returns:
        cos x.

    Examples:
        >>> sg.cos(np.array([0.0, np.pi]))
        array([ 1., -1.])
    """

    gradient = {"x": lambda g, op: -(g * conj(sin(op.x)))}
    lower = lambda xp, x: xp.cos(x)
    samples = singles()


cos = unary(Cos, "cos")


class Tan(Elementwise):
    """Elementwise tangent of radians.

    Args:
        x: floating-point or complex (C1).

    Returns:
        tan x.

    Examples:
        >>> sg.tan(np.array([0.0, 1.0]))
        array([0.        , 1.55740772])
    """

    gradient = {"x": lambda g, op: g * (1 + square(conj(op.result)))}
    lower = lambda xp, x: xp.tan(x)
    samples = singles(-1.2, 1.2)


tan = unary(Tan, "tan")


class Asin(Elementwise):
    """Elementwise arc sine, in radians.

    Args:
        x: floating-point or complex (C1), in [-1, 1].

    Returns:
        the angle in [-π/2, π/2]; NaN outside the domain.

    Examples:
        >>> sg.asin(np.array([0.0, 1.0]))
        array([0.        , 1.57079633])
    """

    gradient = {"x": lambda g, op: g * rsqrt(1 - square(conj(op.x)))}
    lower = lambda xp, x: xp.arcsin(x)
    samples = singles(-0.8, 0.8)


asin = unary(Asin, "asin")


class Acos(Elementwise):
    """Elementwise arc cosine, in radians.

    Args:
        x: floating-point or complex (C1), in [-1, 1].

    Returns:
        the angle in [0, π]; NaN outside the domain.

    Examples:
        >>> sg.acos(np.array([1.0, 0.0]))
        array([0.        , 1.57079633])
    """

    gradient = {"x": lambda g, op: -g * rsqrt(1 - square(conj(op.x)))}
    lower = lambda xp, x: xp.arccos(x)
    samples = singles(-0.8, 0.8)


acos = unary(Acos, "acos")


class Atan(Elementwise):
    """Elementwise arc tangent, in radians.

    Args:
        x: floating-point or complex (C1).

    Returns:
        the angle in [-π/2, π/2].

    Examples:
        >>> sg.atan(np.array([0.0, 1.0]))
        array([0.        , 0.78539816])
    """

    gradient = {"x": lambda g, op: g / (1 + square(conj(op.x)))}
    lower = lambda xp, x: xp.arctan(x)
    samples = singles()


atan = unary(Atan, "atan")


class Atan2(Arithmetic):
    """Elementwise angle of the point (x, y), in radians, with broadcasting.

    Args:
        y, x: floating-point, of one dtype (C1); shapes broadcast (C2).

    Returns:
        the angle in [-π, π].

    Examples:
        >>> sg.atan2(np.array([0.0, 1.0]), np.array([-1.0, 0.0]))
        array([3.14159265, 1.57079633])
    """

    @staticmethod
    def infer(y: TensorType, x: TensorType) -> TensorType:
        return broadcast(is_floating)(y, x)

    gradient = {
        "y": lambda g, op: g * (op.x / (square(op.x) + square(op.y))),
        "x": lambda g, op: -g * (op.y / (square(op.x) + square(op.y))),
    }
    lower = lambda xp, y, x: xp.arctan2(y, x)
    samples = pairs((0.5, 2.0), (0.5, 2.0))


atan2 = binary(Atan2, "atan2")


class Sinh(Elementwise):
    """Elementwise hyperbolic sine.

    Args:
        x: floating-point or complex (C1).

    Returns:
        sinh x.

    Examples:
        >>> sg.sinh(np.array([0.0, 1.0]))
        array([0.        , 1.17520119])
    """

    gradient = {"x": lambda g, op: g * conj(cosh(op.x))}
    lower = lambda xp, x: xp.sinh(x)
    samples = singles()


sinh = unary(Sinh, "sinh")


class Cosh(Elementwise):
    """Elementwise hyperbolic cosine.

    Args:
        x: floating-point or complex (C1).

    Returns:
        cosh x.

    Examples:
        >>> sg.cosh(np.array([0.0, 1.0]))
        array([1.        , 1.54308063])
    """

    gradient = {"x": lambda g, op: g * conj(sinh(op.x))}
    lower = lambda xp, x: xp.cosh(x)
    samples = singles()


cosh = unary(Cosh, "cosh")


class Tanh(Elementwise):
    """Elementwise hyperbolic tangent.

    Args:
        x: floating-point or complex (C1).

    Returns:
        tanh x.

    Examples:
        >>> sg.tanh(np.array([0.0, 1.0]))
        array([0.        , 0.76159416])
    """

    gradient = {"x": lambda g, op: tanh_grad(conj(op.result), g)}
    lower = lambda xp, x: xp.tanh(x)
    samples = [*singles(), sample(complexes(3))]


tanh = unary(Tanh, "tanh")


class Asinh(Elementwise):
    """Elementwise inverse hyperbolic sine.

    Args:
        x: floating-point or complex (C1).

    Returns:
        asinh x.

    Examples:
        >>> sg.asinh(np.array([0.0, 1.0]))
        array([0.        , 0.88137359])
    """

    gradient = {"x": lambda g, op: g / conj(cosh(op.result))}
    lower = lambda xp, x: xp.arcsinh(x)
    samples = singles()


asinh = unary(Asinh, "asinh")


class Acosh(Elementwise):
    """Elementwise inverse hyperbolic cosine.

    Args:
        x: floating-point or complex (C1), at least 1.

    Returns:
        acosh x; NaN below 1.

    Examples:
        >>> sg.acosh(np.array([1.0, 2.0]))
        array([0.        , 1.3169579])
    """

    gradient = {"x": lambda g, op: g / conj(sinh(op.result))}
    lower = lambda xp, x: xp.arccosh(x)
    samples = singles(1.5, 3.0)


acosh = unary(Acosh, "acosh")


class Atanh(Elementwise):
    """Elementwise inverse hyperbolic tangent.

    Args:
        x: floating-point or complex (C1), in (-1, 1).

    Returns:
        atanh x.

    Examples:
        >>> sg.atanh(np.array([0.0, 0.5]))
        array([0.        , 0.54930614])
    """

    gradient = {"x": lambda g, op: g / (1 - square(conj(op.x)))}
    lower = lambda xp, x: xp.arctanh(x)
    samples = singles(-0.8, 0.8)


atanh = unary(Atanh, "atanh")


class GradientOfUnary(Op, abstract=True):
    """From a result y and a cotangent g to the cotangent of the operand, in one operation instead of several.

    Complex y comes conjugated, so that each is a holomorphic function of y and g.
    """

    infer = staticmethod(lambda y, g: broadcast(is_inexact)(y, g))
    batch = ELEMENTWISE
    extremes = PAIRS


_ALIKE: Any = (((3,), (3,)), (("n",), ("n",)), ((0, 2), (0, 2)))


class TanhGrad(GradientOfUnary):
    """The gradient of tanh: g · (1 - y²), where y = tanh x.

    Args:
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).

    Returns:
        the cotangent of x.

    Examples:
        >>> sg.ops.TanhGrad.function(np.array([0.5]), np.array([1.0]))
        array([0.75])
    """

    gradient = {"y": lambda g, op: g * conj(op.g * (-2 * op.y)), "g": lambda g, op: tanh_grad(conj(op.y), g)}
    lower = lambda xp, y, g: g * (1 - xp.square(y))
    samples = pairs(shapes=_ALIKE)


tanh_grad = binary(TanhGrad, "tanh_grad")


class SqrtGrad(GradientOfUnary):
    """The gradient of the square root: g / (2y), where y = √x.

    Args:
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).

    Returns:
        the cotangent of x.

    Examples:
        >>> sg.ops.SqrtGrad.function(np.array([2.0]), np.array([1.0]))
        array([0.25])
    """

    gradient = {"y": lambda g, op: -g * conj(op.result / op.y), "g": lambda g, op: sqrt_grad(conj(op.y), g)}
    lower = lambda xp, y, g: g * 0.5 / y
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


sqrt_grad = binary(SqrtGrad, "sqrt_grad")


class RsqrtGrad(GradientOfUnary):
    """The gradient of 1 / √x: -g · y³ / 2, where y = 1 / √x.

    Args:
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).

    Returns:
        the cotangent of x.

    Examples:
        >>> sg.ops.RsqrtGrad.function(np.array([2.0]), np.array([1.0]))
        array([-4.])
    """

    gradient = {
        "y": lambda g, op: g * conj(op.g * (-1.5 * square(op.y))),
        "g": lambda g, op: rsqrt_grad(conj(op.y), g),
    }
    lower = lambda xp, y, g: -0.5 * g * (y * y * y)
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


rsqrt_grad = binary(RsqrtGrad, "rsqrt_grad")


class ReciprocalGrad(GradientOfUnary):
    """The gradient of 1 / x: -g · y², where y = 1 / x.

    Args:
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).

    Returns:
        the cotangent of x.

    Examples:
        >>> sg.ops.ReciprocalGrad.function(np.array([2.0]), np.array([1.0]))
        array([-4.])
    """

    gradient = {
        "y": lambda g, op: g * conj(op.g * (-2 * op.y)),
        "g": lambda g, op: reciprocal_grad(conj(op.y), g),
    }
    lower = lambda xp, y, g: -g * (y * y)
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


reciprocal_grad = binary(ReciprocalGrad, "reciprocal_grad")
