"""Trigonometric and hyperbolic functions, and their inverses."""

from __future__ import annotations

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Arithmetic,
    Array,
    ArrayLike,
    Elementwise,
    GradientOfElementwise,
    Namespace,
    Tensor,
)
from stopgrad.ops.elementwise.arithmetic import square
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.elementwise.powers import rsqrt

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
    "sin",
    "sinh",
    "tan",
    "tanh",
]


class Sin(Elementwise):
    """Elementwise sine of radians.

    Returns:
        The sine of x.

    Examples:
        >>> sg.sin(np.array([0.0, np.pi / 2]))
        array([0., 1.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(cos(op.x))}
    lower: d.Lowering = lambda xp, x: xp.sin(x)
    samples: d.Samples = d.singles()


sin: d.Unary = d.unary(Sin, "sin")


class Cos(Elementwise):
    """Elementwise cosine of radians.

    Returns:
        The cosine of x.

    Examples:
        >>> sg.cos(np.array([0.0, np.pi]))
        array([ 1., -1.])
    """

    gradient: d.Gradient = {"x": lambda g, op: -(g * conj(sin(op.x)))}
    lower: d.Lowering = lambda xp, x: xp.cos(x)
    samples: d.Samples = d.singles()


cos: d.Unary = d.unary(Cos, "cos")


class Tan(Elementwise):
    """Elementwise tangent of radians.

    Returns:
        The tangent of x.

    Examples:
        >>> sg.tan(np.array([0.0, 1.0]))
        array([0.        , 1.55740772])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (1 + square(conj(op.result)))}
    lower: d.Lowering = lambda xp, x: xp.tan(x)
    samples: d.Samples = d.singles(-1.2, 1.2)


tan: d.Unary = d.unary(Tan, "tan")


_ARC_OF_ONE = d.Cure(
    "arc of 1",
    lambda x: abs(x) == 1,
    "the derivative at -1 and 1 is infinite; clip before: sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6), or "
    "take an angle from sg.atan2",
    gradient=True,
)
_ARC_BEYOND_ONE = d.Cure(
    "arc beyond 1",
    lambda x: abs(x) > 1,
    "the operand is beyond 1 there (a cosine by rounding, perhaps); clip before: "
    "sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6)",
    gradient=False,
)


class Asin(Elementwise):
    """Elementwise arc sine, in radians.

    Args:
        x: floating-point or complex, in [-1, 1].

    Returns:
        The angle in [-π/2, π/2]; NaN outside the domain.

    Examples:
        >>> sg.asin(np.array([0.0, 1.0]))
        array([0.        , 1.57079633])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * rsqrt(1 - square(conj(op.x)))}
    cures = (_ARC_OF_ONE, _ARC_BEYOND_ONE)
    lower: d.Lowering = lambda xp, x: xp.arcsin(x)
    samples: d.Samples = d.singles(-0.8, 0.8)


asin: d.Unary = d.unary(Asin, "asin")


class Acos(Elementwise):
    """Elementwise arc cosine, in radians.

    Args:
        x: floating-point or complex, in [-1, 1].

    Returns:
        The angle in [0, π]; NaN outside the domain.

    Examples:
        >>> sg.acos(np.array([1.0, 0.0]))
        array([0.        , 1.57079633])
    """

    gradient: d.Gradient = {"x": lambda g, op: -g * rsqrt(1 - square(conj(op.x)))}
    cures = (_ARC_OF_ONE, _ARC_BEYOND_ONE)
    lower: d.Lowering = lambda xp, x: xp.arccos(x)
    samples: d.Samples = d.singles(-0.8, 0.8)


acos: d.Unary = d.unary(Acos, "acos")


class Atan(Elementwise):
    """Elementwise arc tangent, in radians.

    Returns:
        The angle in [-π/2, π/2].

    Examples:
        >>> sg.atan(np.array([0.0, 1.0]))
        array([0.        , 0.78539816])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / (1 + square(conj(op.x)))}
    lower: d.Lowering = lambda xp, x: xp.arctan(x)
    samples: d.Samples = d.singles()


atan: d.Unary = d.unary(Atan, "atan")


class Atan2(Arithmetic):
    """Elementwise angle of the point (x, y), in radians, with broadcasting.

    Args:
        y: the second coordinate, floating-point.
        x: the first coordinate, floating-point, of a shape that broadcasts with y's.

    Returns:
        The angle in [-π, π].

    Examples:
        >>> sg.atan2(np.array([0.0, 1.0]), np.array([-1.0, 0.0]))
        array([3.14159265, 1.57079633])
    """

    infer = d.broadcast(d.is_floating, "y", "x")
    gradient: d.Gradient = {
        "y": lambda g, op: g * (op.x / (square(op.x) + square(op.y))),
        "x": lambda g, op: -g * (op.y / (square(op.x) + square(op.y))),
    }
    cures = (
        d.Cure(
            "angle of the origin",
            lambda y, x: x == 0 and y == 0,
            "at (0, 0) there is no angle, and so no gradient; replace such points before: "
            "sg.atan2(y, sg.where(origin, 1.0, x))",
            gradient=True,
        ),
    )
    lower: d.Lowering = lambda xp, y, x: xp.arctan2(y, x)
    # XLA takes subnormal numbers for 0 in some of the steps, and gives NaN or the other sign.
    xla: d.Lowering = lambda xp, y, x: xp.arctan2(d.flushed(xp, y), d.flushed(xp, x))
    samples: d.Samples = d.pairs((0.5, 2.0), (0.5, 2.0))


@d.builds(Atan2)
def atan2(y: ArrayLike, x: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Atan2, (y, x), (), name)


class Sinh(Elementwise):
    """Elementwise hyperbolic sine.

    Returns:
        The hyperbolic sine of x.

    Examples:
        >>> sg.sinh(np.array([0.0, 1.0]))
        array([0.        , 1.17520119])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(cosh(op.x))}
    lower: d.Lowering = lambda xp, x: xp.sinh(x)

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        if x.dtype.kind != "c":
            return xp.sinh(x)
        # XLA computes (eˣ - e⁻ˣ) / 2, which loses a small real part.
        a, b = xp.real(x), xp.imag(x)
        return xp.lax.complex(xp.sinh(a) * xp.cos(b), xp.cosh(a) * xp.sin(b))

    samples: d.Samples = d.singles()


sinh: d.Unary = d.unary(Sinh, "sinh")


class Cosh(Elementwise):
    """Elementwise hyperbolic cosine.

    Returns:
        The hyperbolic cosine of x.

    Examples:
        >>> sg.cosh(np.array([0.0, 1.0]))
        array([1.        , 1.54308063])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(sinh(op.x))}
    lower: d.Lowering = lambda xp, x: xp.cosh(x)
    samples: d.Samples = d.singles()


cosh: d.Unary = d.unary(Cosh, "cosh")


class Tanh(Elementwise):
    """Elementwise hyperbolic tangent.

    Returns:
        The hyperbolic tangent of x.

    Examples:
        >>> sg.tanh(np.array([0.0, 1.0]))
        array([0.        , 0.76159416])
    """

    gradient: d.Gradient = {"x": lambda g, op: tanh_grad(conj(op.result), g)}
    lower: d.Lowering = lambda xp, x: xp.tanh(x)
    samples: d.Samples = [*d.singles(), d.sample(d.complexes(3))]


tanh: d.Unary = d.unary(Tanh, "tanh")


class TanhGrad(GradientOfElementwise):
    """The gradient of tanh: g · (1 - y²), where y = tanh x.

    Examples:
        >>> sg.ops.TanhGrad.function(np.array([0.5]), np.array([1.0]))
        array([0.75])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: g * conj(op.g * (-2 * op.y)),
        "g": lambda g, op: tanh_grad(conj(op.y), g),
    }
    lower: d.Lowering = lambda xp, y, g: g * (1 - xp.square(y))


tanh_grad: d.Binary = d.binary(TanhGrad, "tanh_grad")


class Asinh(Elementwise):
    """Elementwise inverse hyperbolic sine.

    Returns:
        The y whose hyperbolic sine is x.

    Examples:
        >>> sg.asinh(np.array([0.0, 1.0]))
        array([0.        , 0.88137359])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / conj(cosh(op.result))}
    lower: d.Lowering = lambda xp, x: xp.arcsinh(x)
    samples: d.Samples = d.singles()


asinh: d.Unary = d.unary(Asinh, "asinh")


class Acosh(Elementwise):
    """Elementwise inverse hyperbolic cosine.

    Args:
        x: floating-point or complex, at least 1.

    Returns:
        The y ≥ 0 whose hyperbolic cosine is x; NaN below 1.

    Examples:
        >>> sg.acosh(np.array([1.0, 2.0]))
        array([0.        , 1.3169579])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / conj(sinh(op.result))}
    cures = (
        d.Cure(
            "acosh at 1",
            lambda x: abs(x) == 1,
            "the derivative of acosh at 1 is infinite; keep the operand above 1",
            gradient=True,
        ),
    )
    lower: d.Lowering = lambda xp, x: xp.arccosh(x)
    samples: d.Samples = d.singles(1.5, 3.0)


acosh: d.Unary = d.unary(Acosh, "acosh")


class Atanh(Elementwise):
    """Elementwise inverse hyperbolic tangent.

    Args:
        x: floating-point or complex, in (-1, 1).

    Returns:
        The y whose hyperbolic tangent is x.

    Examples:
        >>> sg.atanh(np.array([0.0, 0.5]))
        array([0.        , 0.54930614])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / (1 - square(conj(op.x)))}
    cures = (
        _ARC_BEYOND_ONE,
        d.Cure(
            "atanh at 1",
            lambda x: abs(x) == 1,
            "atanh and its derivative are infinite at -1 and 1; clip before: "
            "sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6)",
        ),
    )
    lower: d.Lowering = lambda xp, x: xp.arctanh(x)
    samples: d.Samples = d.singles(-0.8, 0.8)


atanh: d.Unary = d.unary(Atanh, "atanh")
