"""Roots and powers, exponentials and logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Arithmetic,
    Array,
    ArrayLike,
    DTypeError,
    Elementwise,
    GradientOfElementwise,
    Namespace,
    Output,
    RealElementwise,
    Tensor,
)
from stopgrad.ops.elementwise.arithmetic import square
from stopgrad.ops.elementwise.compare import equal, logical_and
from stopgrad.ops.elementwise.convert import conj, where
from stopgrad.ops.structural.sources import Const

__all__ = [
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "pow",
    "reciprocal",
    "rsqrt",
    "sqrt",
]


LN2, LN10 = math.log(2), math.log(10)


_NEGATIVE_ROOT = d.Cure(
    "root of a negative number",
    lambda x: x < 0,
    "the operand is negative there, of which no real root exists; if only by rounding, take "
    "sg.maximum(x, 0.0) plus a small number",
    gradient=False,
)


class Sqrt(Elementwise):
    """Elementwise square root.

    Returns:
        The root √x; NaN below 0. The gradient at 0 is infinite.

    Examples:
        >>> sg.sqrt(np.array([4.0, 9.0]))
        array([2., 3.])
    """

    gradient: d.Gradient = {"x": lambda g, op: sqrt_grad(conj(op.result), g)}
    cures = (
        _NEGATIVE_ROOT,
        d.Cure(
            "root at 0",
            lambda x: x == 0,
            "the derivative of the root at 0 is infinite; keep the operand above 0, as with "
            "sg.sqrt(x + 1e-12), or replace the zeros before the root: sg.sqrt(sg.where(x > 0, x, 1.0)), "
            "and choose the result afterwards",
            gradient=True,
        ),
    )
    never_negative = True
    lower: d.Lowering = lambda xp, x: xp.sqrt(x)
    samples: d.Samples = d.singles(0.5, 2.0)


sqrt: d.Unary = d.unary(Sqrt, "sqrt")


class Cbrt(RealElementwise):
    """Elementwise cube root, of negative numbers too.

    Returns:
        The real root ∛x. The gradient at 0 is infinite.

    Examples:
        >>> sg.cbrt(np.array([8.0, -27.0]))
        array([ 2., -3.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / (3 * square(op.result))}
    cures = (
        d.Cure(
            "cube root at 0",
            lambda x: x == 0,
            "the derivative of the cube root at 0 is infinite; keep the operand away from 0",
            gradient=True,
        ),
    )
    lower: d.Lowering = lambda xp, x: xp.cbrt(x)
    xla: d.Lowering = lambda xp, x: xp.cbrt(d.flushed(xp, x))
    samples: d.Samples = [*d.singles(0.5, 2.0), d.sample(np.array([-8.0, -0.5]))]


cbrt: d.Unary = d.unary(Cbrt, "cbrt")


class Rsqrt(Elementwise):
    """Elementwise 1 / √x.

    Returns:
        The reciprocal root 1 / √x.

    Examples:
        >>> sg.rsqrt(np.array([4.0, 0.25]))
        array([0.5, 2. ])
    """

    gradient: d.Gradient = {"x": lambda g, op: rsqrt_grad(conj(op.result), g)}
    cures = (
        _NEGATIVE_ROOT,
        d.Cure(
            "inverse root at 0",
            lambda x: x == 0,
            "the inverse root of 0 is infinite; add a small number: sg.rsqrt(x + 1e-6)",
        ),
    )
    lower: d.Lowering = lambda xp, x: 1 / xp.sqrt(x)
    samples: d.Samples = d.singles(0.5, 2.0)


rsqrt: d.Unary = d.unary(Rsqrt, "rsqrt")


class Reciprocal(Elementwise):
    """Elementwise 1 / x.

    Returns:
        The reciprocal 1 / x.

    Examples:
        >>> sg.reciprocal(np.array([4.0, 0.25]))
        array([0.25, 4.  ])
    """

    gradient: d.Gradient = {"x": lambda g, op: reciprocal_grad(conj(op.result), g)}
    cures = (
        d.Cure(
            "inverse of 0",
            lambda x: x == 0,
            "the operand is 0 there; keep it away from 0, or take sg.reciprocal_no_nan",
        ),
    )
    lower: d.Lowering = lambda xp, x: 1 / x
    samples: d.Samples = d.singles(0.5, 2.0)


reciprocal: d.Unary = d.unary(Reciprocal, "reciprocal")


class Pow(Arithmetic):
    """Elementwise power, with broadcasting.

    Returns:
        The power xʸ. The gradient with respect to y takes log x as 0 where x is not positive, as in
        TensorFlow. Powers of integers are modulo 2ⁿ, like all integer arithmetic; an exponent below 0 gives
        1 / x⁻ʸ rounded toward zero, and 0 for x = 0.

    Examples:
        >>> sg.pow(np.array([2.0, 3.0]), 2.0)
        array([4., 9.])
    """

    infer = d.broadcast(d.is_number)
    gradient: d.Gradient = {
        "x": lambda g, op: g * conj(op.y * _one_lower(op.x, op.y)),
        "y": lambda g, op: g * conj(op.result * _log_or_zero(op.x)),
    }
    cures = (
        d.Cure(
            "0 to a negative power",
            lambda x, y: x == 0 and y < 0,
            "0 to a negative power is infinite; keep the base away from 0",
            gradient=False,
        ),
        d.Cure(
            "a negative number to a fraction",
            lambda x, y: x < 0,
            "a negative number has no real power that is no whole number; take the power of sg.abs(x), or "
            "keep the base positive",
            gradient=False,
        ),
    )
    lower = lambda xp, x, y: _whole_power(xp, x, y) if x.dtype.kind == "i" else xp.power(x, y)

    @staticmethod
    def numpy(xp: Namespace, x: Array, y: np.ndarray[Any, Any]) -> Array:
        power = Pow.lower(xp, x, y)
        if x.dtype.kind == "f" and y.size == 1 and np.all(y == 0.5):
            # NumPy takes the root, which is another number at −∞ and −0 (IEEE 754-2019, 9.2.1).
            return xp.where(xp.isneginf(x), xp.asarray(np.inf, x.dtype), power) + xp.zeros((), x.dtype)
        return power

    @staticmethod
    def xla(xp: Namespace, x: Array, y: Array) -> Array:
        if x.dtype.kind in "iu":
            return _whole_power(xp, x, y, _squared)
        if x.dtype.kind == "c":  # XLA's power of 0 is NaN.
            zero = (x == 0) & (xp.real(y) > 0)
            return xp.where(zero, xp.zeros((), x.dtype), xp.power(xp.where(zero, xp.ones((), x.dtype), x), y))
        return xp.power(d.flushed(xp, x), y)

    samples: d.Samples = [*d.pairs((0.5, 2.0), (-2.0, 2.0)), *d.pairs((-4, 4), (-3, 6), dtypes=("int32",))]


def _whole_power(
    xp: Namespace, x: Array, y: Array, power: Callable[[Namespace, Array, Array], Any] | None = None
) -> Array:
    """The power of integers, with exponents below 0, which NumPy's refuses."""
    odd = xp.where((y & 1) == 1, x, xp.ones((), x.dtype))
    inverse = xp.where((x == 1) | (x + 1 == 0), odd, xp.zeros((), x.dtype))
    exponent = xp.maximum(y, xp.zeros((), y.dtype))
    return xp.where(y < 0, inverse, xp.power(x, exponent) if power is None else power(xp, x, exponent))


def _squared(xp: Namespace, x: Array, y: Array) -> Array:
    """The power of integers by squaring, bit by bit of the exponent; JAX's own stops after six bits."""
    x, y = xp.broadcast_arrays(x, y)

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        result, base, exponent = state
        return xp.where((exponent & 1) == 1, result * base, result), base * base, exponent >> 1

    return xp.lax.fori_loop(0, x.dtype.itemsize * 8, step, (xp.ones_like(x), x, y))[0]


@d.builds(Pow, alike=True)
def pow(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
    if type(y) is int and y < 0 and d.type_of(x).dtype.is_integer:
        raise DTypeError(
            "Pow: integers have no negative powers among integers; convert with sg.cast(x, sg.float32) first"
        )
    return d.apply(Pow, (x, y), (), name)


def _one_lower(x: Output, y: Output) -> Tensor:
    """xʸ⁻¹; but 0 where x and y are both 0, so that its product with y is 0 there, and no NaN."""
    fixed = y.op.values[0].array if y.op.definition is Const else None
    if fixed is not None and fixed.all():
        return pow(x, np.asarray(fixed - 1))
    return pow(x, where(logical_and(equal(x, 0), equal(y, 0)), 1, y - 1))


def _log_or_zero(x: Output) -> Tensor:
    if x.dtype.is_complex:
        return log(x)
    positive = x > 0
    return where(positive, log(where(positive, x, 1)), 0)


class Exp(Elementwise):
    """Elementwise exponential.

    Returns:
        The exponential eˣ.

    Examples:
        >>> sg.exp(np.array([0.0, 1.0]))
        array([1.        , 2.71828183])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(op.result)}
    never_negative = True
    lower: d.Lowering = lambda xp, x: xp.exp(x)
    samples: d.Samples = [*d.singles(), d.sample(d.complexes(3))]


exp: d.Unary = d.unary(Exp, "exp")


class Expm1(Elementwise):
    """Elementwise eˣ - 1, precise near 0.

    Returns:
        The difference eˣ - 1.

    Examples:
        >>> sg.expm1(np.array([0.0, 1e-10]))
        array([0.e+00, 1.e-10])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * conj(exp(op.x))}
    lower: d.Lowering = lambda xp, x: xp.expm1(x)
    samples: d.Samples = d.singles()


expm1: d.Unary = d.unary(Expm1, "expm1")


class Exp2(RealElementwise):
    """Elementwise power of 2.

    Returns:
        The power 2ˣ.

    Examples:
        >>> sg.exp2(np.array([3.0, -1.0]))
        array([8. , 0.5])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * (op.result * LN2)}
    lower: d.Lowering = lambda xp, x: xp.exp2(x)
    # XLA computes exp(x log 2), which multiplies the rounding error by x.
    xla: d.Lowering = lambda xp, x: xp.power(xp.asarray(2, x.dtype), x)
    samples: d.Samples = d.singles()


exp2: d.Unary = d.unary(Exp2, "exp2")


_LOGARITHM = (
    d.Cure(
        "log of 0",
        lambda x: x == 0,
        "the logarithm of 0 is an infinity; keep the operand above 0, as with sg.log(sg.maximum(x, 1e-12)), "
        "or stay in logarithms from the start",
    ),
    d.Cure(
        "log of a negative number",
        lambda x: x < 0,
        "the operand is negative there, of which no real logarithm exists",
        gradient=False,
    ),
)


class Log(Elementwise):
    """Elementwise natural logarithm.

    Returns:
        The logarithm log x; -∞ at 0, NaN below.

    Examples:
        >>> sg.log(np.array([1.0, 0.0]))
        array([  0., -inf])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / conj(op.x)}
    cures = _LOGARITHM
    lower: d.Lowering = lambda xp, x: xp.log(x)
    samples: d.Samples = d.singles(0.5, 3.0)


log: d.Unary = d.unary(Log, "log")


class Log2(Elementwise):
    """Elementwise logarithm to the base 2.

    Returns:
        The logarithm log₂ x; -∞ at 0, NaN below.

    Examples:
        >>> sg.log2(np.array([8.0, 0.5]))
        array([ 3., -1.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / conj(op.x * LN2)}
    cures = _LOGARITHM
    lower: d.Lowering = lambda xp, x: xp.log2(x)
    samples: d.Samples = [*d.singles(0.5, 3.0), d.sample(d.complexes(3))]


log2: d.Unary = d.unary(Log2, "log2")


class Log10(Elementwise):
    """Elementwise logarithm to the base 10.

    Returns:
        The logarithm log₁₀ x; -∞ at 0, NaN below.

    Examples:
        >>> sg.log10(np.array([100.0, 0.1]))
        array([ 2., -1.])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / conj(op.x * LN10)}
    cures = _LOGARITHM
    lower: d.Lowering = lambda xp, x: xp.log10(x)
    samples: d.Samples = [*d.singles(0.5, 3.0), d.sample(d.complexes(3))]


log10: d.Unary = d.unary(Log10, "log10")


class Log1p(Elementwise):
    """Elementwise log(1 + x), precise near 0.

    Returns:
        The logarithm log(1 + x).

    Examples:
        >>> sg.log1p(np.array([0.0, 1e-10]))
        array([0.e+00, 1.e-10])
    """

    gradient: d.Gradient = {"x": lambda g, op: g / (1 + conj(op.x))}
    xla: d.Lowering = lambda xp, x: xp.log1p(x)

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        if x.dtype.kind != "c":
            return xp.log1p(x)
        # NumPy computes log(1 + x), which loses the digits of a small x; for a large one squares overflow.
        a, b = xp.real(x), xp.imag(x)
        square = a * (2 + a) + b * b
        near = (square > -0.5) & (square < 1)
        result = xp.zeros(x.shape, x.dtype)
        result.real = xp.where(near, xp.log1p(xp.where(near, square, 0)) / 2, xp.log(xp.hypot(1 + a, b)))
        result.imag = xp.arctan2(b, 1 + a)
        return result

    samples: d.Samples = d.singles(-0.5, 3.0)


log1p: d.Unary = d.unary(Log1p, "log1p")


# ------------------------------------------------------------------------------------------ gradients


class SqrtGrad(GradientOfElementwise):
    """The gradient of the square root: g / (2y), where y = √x.

    Examples:
        >>> sg.ops.SqrtGrad.function(np.array([2.0]), np.array([1.0]))
        array([0.25])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: -g * conj(op.result / op.y),
        "g": lambda g, op: sqrt_grad(conj(op.y), g),
    }
    lower: d.Lowering = lambda xp, y, g: g * 0.5 / y
    samples: d.Samples = d.pairs((0.5, 2.0), shapes=d.ALIKE)


sqrt_grad: d.Binary = d.binary(SqrtGrad, "sqrt_grad")


class RsqrtGrad(GradientOfElementwise):
    """The gradient of 1 / √x: -g · y³ / 2, where y = 1 / √x.

    Examples:
        >>> sg.ops.RsqrtGrad.function(np.array([2.0]), np.array([1.0]))
        array([-4.])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: g * conj(op.g * (-1.5 * square(op.y))),
        "g": lambda g, op: rsqrt_grad(conj(op.y), g),
    }
    lower: d.Lowering = lambda xp, y, g: -0.5 * g * (y * y * y)
    samples: d.Samples = d.pairs((0.5, 2.0), shapes=d.ALIKE)


rsqrt_grad: d.Binary = d.binary(RsqrtGrad, "rsqrt_grad")


class ReciprocalGrad(GradientOfElementwise):
    """The gradient of 1 / x: -g · y², where y = 1 / x.

    Examples:
        >>> sg.ops.ReciprocalGrad.function(np.array([2.0]), np.array([1.0]))
        array([-4.])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: g * conj(op.g * (-2 * op.y)),
        "g": lambda g, op: reciprocal_grad(conj(op.y), g),
    }
    lower: d.Lowering = lambda xp, y, g: -g * (y * y)
    samples: d.Samples = d.pairs((0.5, 2.0), shapes=d.ALIKE)


reciprocal_grad: d.Binary = d.binary(ReciprocalGrad, "reciprocal_grad")
