"""Roots and powers, exponentials and logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

from typing import Any

from stopgrad.op import Op, Tensor
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

    Inputs
        x: floating-point or complex (C1).
    Returns
        √x; NaN below 0. The gradient at 0 is infinite.
    >>> sg.sqrt(np.array([4.0, 9.0]))
    array([2., 3.])
    """

    gradient = {"x": lambda g, op: sqrt_grad(conj(op.result), g)}
    numpy = xla = lambda xp, x: xp.sqrt(x)
    samples = singles(0.5, 2.0)


class Rsqrt(Elementwise):
    """Elementwise 1 / √x.

    Inputs
        x: floating-point or complex (C1).
    Returns
        1 / √x.
    >>> sg.rsqrt(np.array([4.0, 0.25]))
    array([0.5, 2. ])
    """

    gradient = {"x": lambda g, op: rsqrt_grad(conj(op.result), g)}
    numpy = xla = lambda xp, x: xp.reciprocal(xp.sqrt(x))
    samples = singles(0.5, 2.0)


class Reciprocal(Elementwise):
    """Elementwise 1 / x.

    Inputs
        x: floating-point or complex (C1).
    Returns
        1 / x.
    >>> sg.reciprocal(np.array([4.0, 0.25]))
    array([0.25, 4.  ])
    """

    gradient = {"x": lambda g, op: reciprocal_grad(conj(op.result), g)}
    numpy = xla = lambda xp, x: xp.reciprocal(x)
    samples = singles(0.5, 2.0)


class Pow(Arithmetic):
    """Elementwise power, with broadcasting.

    Inputs
        x, y: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        x to the power y. The gradient towards y counts log x as 0 where x is not positive, as TensorFlow's does.
    >>> sg.pow(np.array([2.0, 3.0]), 2.0)
    array([4., 9.])
    """

    infer = broadcast(is_inexact)
    gradient = {
        "x": lambda g, op: g * conj(op.y * pow(op.x, op.y - 1)),
        "y": lambda g, op: g * conj(op.result * _log_or_zero(op.x)),
    }
    numpy = xla = lambda xp, x, y: xp.power(x, y)
    samples = pairs((0.5, 2.0), (-2.0, 2.0))


def _log_or_zero(x: Any) -> Tensor:
    if x.dtype.is_complex:
        return log(x)
    positive = x > 0
    return where(positive, log(where(positive, x, 1)), 0)


class Exp(Elementwise):
    """Elementwise exponential.

    Inputs
        x: floating-point or complex (C1).
    Returns
        eˣ.
    >>> sg.exp(np.array([0.0, 1.0]))
    array([1.        , 2.71828183])
    """

    gradient = {"x": lambda g, op: g * conj(op.result)}
    numpy = xla = lambda xp, x: xp.exp(x)
    samples = [*singles(), sample(complexes(3))]


class Expm1(Elementwise):
    """Elementwise eˣ - 1, precise near 0.

    Inputs
        x: floating-point or complex (C1).
    Returns
        eˣ - 1.
    >>> sg.expm1(np.array([0.0, 1e-10]))
    array([0.e+00, 1.e-10])
    """

    gradient = {"x": lambda g, op: g * conj(exp(op.x))}
    numpy = xla = lambda xp, x: xp.expm1(x)
    samples = singles()


class Log(Elementwise):
    """Elementwise natural logarithm.

    Inputs
        x: floating-point or complex (C1).
    Returns
        log x; -∞ at 0, NaN below.
    >>> sg.log(np.array([1.0, 0.0]))
    array([  0., -inf])
    """

    gradient = {"x": lambda g, op: g / conj(op.x)}
    numpy = xla = lambda xp, x: xp.log(x)
    samples = singles(0.5, 3.0)


class Log1p(Elementwise):
    """Elementwise log(1 + x), precise near 0.

    Inputs
        x: floating-point or complex (C1).
    Returns
        log(1 + x).
    >>> sg.log1p(np.array([0.0, 1e-10]))
    array([0.e+00, 1.e-10])
    """

    gradient = {"x": lambda g, op: g / (1 + conj(op.x))}
    numpy = xla = lambda xp, x: xp.log1p(x)
    samples = singles(-0.5, 3.0)


class Sin(Elementwise):
    """Elementwise sine of radians.

    Inputs
        x: floating-point or complex (C1).
    Returns
        sin x.
    >>> sg.sin(np.array([0.0, np.pi / 2]))
    array([0., 1.])
    """

    gradient = {"x": lambda g, op: g * conj(cos(op.x))}
    numpy = xla = lambda xp, x: xp.sin(x)
    samples = singles()


class Cos(Elementwise):
    """Elementwise cosine of radians.

    Inputs
        x: floating-point or complex (C1).
    Returns
        cos x.
    >>> sg.cos(np.array([0.0, np.pi]))
    array([ 1., -1.])
    """

    gradient = {"x": lambda g, op: -(g * conj(sin(op.x)))}
    numpy = xla = lambda xp, x: xp.cos(x)
    samples = singles()


class Tan(Elementwise):
    """Elementwise tangent of radians.

    Inputs
        x: floating-point or complex (C1).
    Returns
        tan x.
    >>> sg.tan(np.array([0.0, 1.0]))
    array([0.        , 1.55740772])
    """

    gradient = {"x": lambda g, op: g * (1 + square(conj(op.result)))}
    numpy = xla = lambda xp, x: xp.tan(x)
    samples = singles(-1.2, 1.2)


class Asin(Elementwise):
    """Elementwise arc sine, in radians.

    Inputs
        x: floating-point or complex (C1), in [-1, 1].
    Returns
        the angle in [-π/2, π/2]; NaN outside the domain.
    >>> sg.asin(np.array([0.0, 1.0]))
    array([0.        , 1.57079633])
    """

    gradient = {"x": lambda g, op: g * rsqrt(1 - square(conj(op.x)))}
    numpy = xla = lambda xp, x: xp.arcsin(x)
    samples = singles(-0.8, 0.8)


class Acos(Elementwise):
    """Elementwise arc cosine, in radians.

    Inputs
        x: floating-point or complex (C1), in [-1, 1].
    Returns
        the angle in [0, π]; NaN outside the domain.
    >>> sg.acos(np.array([1.0, 0.0]))
    array([0.        , 1.57079633])
    """

    gradient = {"x": lambda g, op: -g * rsqrt(1 - square(conj(op.x)))}
    numpy = xla = lambda xp, x: xp.arccos(x)
    samples = singles(-0.8, 0.8)


class Atan(Elementwise):
    """Elementwise arc tangent, in radians.

    Inputs
        x: floating-point or complex (C1).
    Returns
        the angle in [-π/2, π/2].
    >>> sg.atan(np.array([0.0, 1.0]))
    array([0.        , 0.78539816])
    """

    gradient = {"x": lambda g, op: g / (1 + square(conj(op.x)))}
    numpy = xla = lambda xp, x: xp.arctan(x)
    samples = singles()


class Atan2(Arithmetic):
    """Elementwise angle of the point (x, y), in radians, with broadcasting.

    Inputs
        y, x: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the angle in [-π, π].
    >>> sg.atan2(np.array([0.0, 1.0]), np.array([-1.0, 0.0]))
    array([3.14159265, 1.57079633])
    """

    @staticmethod
    def infer(y: TensorType, x: TensorType) -> TensorType:
        return broadcast(is_floating)(y, x)

    gradient = {"y": lambda g, op: g * (op.x / (square(op.x) + square(op.y))), "x": lambda g, op: -g * (op.y / (square(op.x) + square(op.y)))}
    numpy = xla = lambda xp, y, x: xp.arctan2(y, x)
    samples = pairs((0.5, 2.0), (0.5, 2.0))


class Sinh(Elementwise):
    """Elementwise hyperbolic sine.

    Inputs
        x: floating-point or complex (C1).
    Returns
        sinh x.
    >>> sg.sinh(np.array([0.0, 1.0]))
    array([0.        , 1.17520119])
    """

    gradient = {"x": lambda g, op: g * conj(cosh(op.x))}
    numpy = xla = lambda xp, x: xp.sinh(x)
    samples = singles()


class Cosh(Elementwise):
    """Elementwise hyperbolic cosine.

    Inputs
        x: floating-point or complex (C1).
    Returns
        cosh x.
    >>> sg.cosh(np.array([0.0, 1.0]))
    array([1.        , 1.54308063])
    """

    gradient = {"x": lambda g, op: g * conj(sinh(op.x))}
    numpy = xla = lambda xp, x: xp.cosh(x)
    samples = singles()


class Tanh(Elementwise):
    """Elementwise hyperbolic tangent.

    Inputs
        x: floating-point or complex (C1).
    Returns
        tanh x.
    >>> sg.tanh(np.array([0.0, 1.0]))
    array([0.        , 0.76159416])
    """

    gradient = {"x": lambda g, op: tanh_grad(conj(op.result), g)}
    numpy = xla = lambda xp, x: xp.tanh(x)
    samples = [*singles(), sample(complexes(3))]


class Asinh(Elementwise):
    """Elementwise inverse hyperbolic sine.

    Inputs
        x: floating-point or complex (C1).
    Returns
        asinh x.
    >>> sg.asinh(np.array([0.0, 1.0]))
    array([0.        , 0.88137359])
    """

    gradient = {"x": lambda g, op: g / conj(cosh(op.result))}
    numpy = xla = lambda xp, x: xp.arcsinh(x)
    samples = singles()


class Acosh(Elementwise):
    """Elementwise inverse hyperbolic cosine.

    Inputs
        x: floating-point or complex (C1), at least 1.
    Returns
        acosh x; NaN below 1.
    >>> sg.acosh(np.array([1.0, 2.0]))
    array([0.        , 1.3169579])
    """

    gradient = {"x": lambda g, op: g / conj(sinh(op.result))}
    numpy = xla = lambda xp, x: xp.arccosh(x)
    samples = singles(1.5, 3.0)


class Atanh(Elementwise):
    """Elementwise inverse hyperbolic tangent.

    Inputs
        x: floating-point or complex (C1), in (-1, 1).
    Returns
        atanh x.
    >>> sg.atanh(np.array([0.0, 0.5]))
    array([0.        , 0.54930614])
    """

    gradient = {"x": lambda g, op: g / (1 - square(conj(op.x)))}
    numpy = xla = lambda xp, x: xp.arctanh(x)
    samples = singles(-0.8, 0.8)


class GradientOfUnary(Op, abstract=True):
    """From a result y and a cotangent g to the cotangent of the operand, in one operation instead of several.

    Complex y comes conjugated, so that each is a holomorphic function of y and g.
    """

    infer = staticmethod(lambda y, g: broadcast(is_inexact)(y, g))
    extremes = PAIRS


_ALIKE: Any = (((3,), (3,)), (("n",), ("n",)), ((0, 2), (0, 2)))


class TanhGrad(GradientOfUnary):
    """The gradient of tanh: g · (1 - y²), where y = tanh x.

    Inputs
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.TanhGrad.function(np.array([0.5]), np.array([1.0]))
    array([0.75])
    """

    gradient = {"y": lambda g, op: g * conj(op.g * (-2 * op.y)), "g": lambda g, op: tanh_grad(conj(op.y), g)}
    numpy = xla = lambda xp, y, g: g * (1 - xp.square(y))
    samples = pairs(shapes=_ALIKE)


class SqrtGrad(GradientOfUnary):
    """The gradient of the square root: g / (2y), where y = √x.

    Inputs
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.SqrtGrad.function(np.array([2.0]), np.array([1.0]))
    array([0.25])
    """

    gradient = {"y": lambda g, op: -g * conj(op.result / op.y), "g": lambda g, op: sqrt_grad(conj(op.y), g)}
    numpy = xla = lambda xp, y, g: g * 0.5 / y
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


class RsqrtGrad(GradientOfUnary):
    """The gradient of 1 / √x: -g · y³ / 2, where y = 1 / √x.

    Inputs
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.RsqrtGrad.function(np.array([2.0]), np.array([1.0]))
    array([-4.])
    """

    gradient = {"y": lambda g, op: g * conj(op.g * (-1.5 * square(op.y))), "g": lambda g, op: rsqrt_grad(conj(op.y), g)}
    numpy = xla = lambda xp, y, g: -0.5 * g * (y * y * y)
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


class ReciprocalGrad(GradientOfUnary):
    """The gradient of 1 / x: -g · y², where y = 1 / x.

    Inputs
        y, g: floating-point or complex, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.ReciprocalGrad.function(np.array([2.0]), np.array([1.0]))
    array([-4.])
    """

    gradient = {"y": lambda g, op: g * conj(op.g * (-2 * op.y)), "g": lambda g, op: reciprocal_grad(conj(op.y), g)}
    numpy = xla = lambda xp, y, g: -g * (y * y)
    samples = pairs((0.5, 2.0), shapes=_ALIKE)


sqrt = unary(Sqrt, "sqrt")
rsqrt = unary(Rsqrt, "rsqrt")
reciprocal = unary(Reciprocal, "reciprocal")
pow = binary(Pow, "pow")
exp = unary(Exp, "exp")
expm1 = unary(Expm1, "expm1")
log = unary(Log, "log")
log1p = unary(Log1p, "log1p")
sin = unary(Sin, "sin")
cos = unary(Cos, "cos")
tan = unary(Tan, "tan")
asin = unary(Asin, "asin")
acos = unary(Acos, "acos")
atan = unary(Atan, "atan")
atan2 = binary(Atan2, "atan2")
sinh = unary(Sinh, "sinh")
cosh = unary(Cosh, "cosh")
tanh = unary(Tanh, "tanh")
asinh = unary(Asinh, "asinh")
acosh = unary(Acosh, "acosh")
atanh = unary(Atanh, "atanh")
tanh_grad = binary(TanhGrad, "tanh_grad")
sqrt_grad = binary(SqrtGrad, "sqrt_grad")
rsqrt_grad = binary(RsqrtGrad, "rsqrt_grad")
reciprocal_grad = binary(ReciprocalGrad, "reciprocal_grad")
