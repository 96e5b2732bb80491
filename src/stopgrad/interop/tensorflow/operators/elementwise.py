"""Elementwise operations: arithmetic, logic, bits, comparisons, casts, choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.operators.calling import Call, Rule, Table


def unary(function: Callable[..., Tensor]) -> Rule:
    """A rule for one operand, from a function of it."""
    return lambda node, x: function(x)


def binary(function: Callable[..., sg.Output]) -> Rule:
    """A rule for two operands, from a function of them."""
    return lambda node, x, y: function(x, y)


def _quotient(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """``Div`` truncates the quotient of integers."""
    return sg.truncatediv(x, y) if x.dtype.is_integer else sg.realdiv(x, y)


def _sum(node: Call, *xs: sg.Output) -> sg.Output:
    return sg.add_n(list(xs))


def _approximately_equal(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    distance = sg.abs(sg.subtract(x, y))
    return sg.less(distance, brought(node.attribute("tolerance", 1e-5), distance.dtype))


def _compared(function: Callable[..., sg.Output], otherwise: bool) -> Rule:
    """``Equal`` and ``NotEqual``, which may answer for shapes that do not broadcast."""

    def rule(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
        if not node.attribute("incompatible_shape_error", True):
            try:
                sg.broadcast_static_shape(tuple(x.shape), tuple(y.shape))
            except sg.ShapeError:
                return sg.constant(np.asarray(otherwise), sg.bool_)
        return function(x, y)

    return rule


def _shifted_right(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """Shifting by more than there are bits leaves only the sign, as by one less."""
    last = brought(x.dtype.itemsize * 8 - 1, y.dtype)
    return sg.right_shift(x, sg.minimum(sg.maximum(y, brought(0, y.dtype)), last))


def _shifted_left(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    last = brought(x.dtype.itemsize * 8 - 1, y.dtype)
    return sg.left_shift(x, sg.minimum(sg.maximum(y, brought(0, y.dtype)), last))


def _zero_at_zero(function: Callable[..., sg.Output]) -> Rule:
    """A rule for a product that is 0 where x is 0; TensorFlow's gradient towards x is 0 there, too."""

    def rule(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
        zero = brought(0, x.dtype)
        return function(sg.where(sg.equal(x, zero), zero, x), y)

    return rule


def ungraded(x: sg.Output) -> sg.Output:
    """An operand to which TensorFlow defines no gradient; a stop says so, unless it is a constant."""
    return (
        x if x.op.type == "Const" or not x.dtype.is_differentiable else sg.stop_gradient(x, name="ungraded")
    )


def _polygamma(node: Call, order: sg.Output, x: sg.Output) -> sg.Output:
    number = np.unique(node.known(order))
    if number.size != 1 or number[0] not in range(100):
        node.fail("its order is one natural number below 100 here")
    return sg.polygamma(int(number[0]), x)


# -------------------------------------------------------------------------------------------------- casts


def wanted_dtype(node: Call, name: str, default: DType | None = None) -> DType:
    """The element type that an attribute names, after a check that we have it."""
    dtype = node.attribute(name, default)
    if not isinstance(dtype, DType):
        node.fail(f"there is no element type here for its attribute {name}")
    return dtype


def _cast(node: Call, x: sg.Output) -> sg.Output:
    return brought(x, wanted_dtype(node, "DstT"))


def _bitcast(node: Call, x: sg.Output) -> sg.Output:
    """The same bits as another type of one width: for known values, between integers, and of short floats.

    Keras finds negative zeros so, wherever it takes an ``argmax``.
    """
    dtype = wanted_dtype(node, "type")
    if dtype is x.dtype:
        return x
    if dtype.is_integer and x.dtype.is_integer and dtype.itemsize == x.dtype.itemsize:  # A cast wraps.
        return sg.cast(x, dtype)
    if dtype.itemsize != x.dtype.itemsize:
        node.fail("bits are taken for an element type of the same width")
    if dtype.is_integer and x.dtype.is_floating and x.dtype.itemsize <= 4 and not node.is_known(x):
        return sg.cast(_bits(x), dtype)
    return sg.constant(np.array(node.known(x)).view(dtype.numpy), dtype)


_FORMATS = {"float16": (10, -14, 16), "bfloat16": (7, -126, 128), "float32": (23, -126, 128)}
"""The bits of the fraction, and the exponents: the least, and the one behind the largest."""


def _bits(x: sg.Output) -> sg.Output:
    """The bits of numbers of 16 or 32 bits, as int64, by exact arithmetic in float64."""
    fraction, least, largest = _FORMATS[x.dtype.name]
    exponents, width = np.arange(least, largest), 8 * x.dtype.itemsize
    size = sg.cast(sg.abs(x), sg.float64)
    finite = sg.is_finite(size)
    # How many powers of two are not larger is the exponent's field: 0 for zeros and subnormal numbers.
    field = sg.digitize(size, np.append(2.0**exponents, np.inf))
    scales = np.concatenate([[2.0 ** (fraction - least)], 2.0 ** (fraction - exponents), [0.0]])
    leading = np.concatenate([[0.0], np.full(len(exponents), 2.0**fraction), [0.0]])
    inside = sg.where(finite, size, brought(0, sg.float64))
    rest = sg.subtract(sg.multiply(inside, sg.gather(scales, field)), sg.gather(leading, field))
    rest = sg.where(sg.is_nan(size), brought(2.0 ** (fraction - 1), sg.float64), rest)
    whole = sg.multiply(brought(field, sg.int64), brought(2**fraction, sg.int64))
    bits = sg.add(whole, sg.cast(rest, sg.int64))
    return sg.where(sg.signbit(x), sg.subtract(bits, brought(2 ** (width - 1), sg.int64)), bits)


def _complex(node: Call, real: sg.Output, imag: sg.Output) -> sg.Output:
    return sg.complex(real, imag)


# ------------------------------------------------------------------------------------------------ choices


def _select(node: Call, condition: sg.Output, x: sg.Output, y: sg.Output) -> sg.Output:
    """TensorFlow 1's choice: a vector of conditions chooses rows."""
    if condition.ndim == 1 and x.ndim > 1:
        condition = sg.reshape(condition, [condition.shape[0]] + [1] * (x.ndim - 1))
    return sg.where(condition, x, y)


def _select_v2(node: Call, condition: sg.Output, x: sg.Output, y: sg.Output) -> sg.Output:
    return sg.where(condition, x, y)


def _clipped(node: Call, x: sg.Output, low: sg.Output, high: sg.Output) -> sg.Output:
    """The gradient reaches x up to and including the bounds, and beyond them the bounds."""
    below, above = sg.less(x, low), sg.greater(x, high)
    return sg.where(below, low, sg.where(above, high, x))


# ---------------------------------------------------------------- gradients of operations, as operations


def _of_result(slope: Callable[[sg.Output], Any]) -> Rule:
    """A rule for g · slope(y), where y is the result of the function whose gradient it is."""
    return lambda node, y, g: sg.multiply(g, slope(y))


def _tanh_slope(y: sg.Output) -> sg.Output:
    return sg.subtract(brought(1, y.dtype), sg.square(sg.conj(y) if y.dtype.is_complex else y))


def _sigmoid_slope(y: sg.Output) -> sg.Output:
    y = sg.conj(y) if y.dtype.is_complex else y
    return sg.multiply(y, sg.subtract(brought(1, y.dtype), y))


def _sqrt_grad(node: Call, y: sg.Output, g: sg.Output) -> sg.Output:
    return sg.realdiv(sg.multiply(g, brought(0.5, g.dtype)), y)


def _rsqrt_slope(y: sg.Output) -> sg.Output:
    return sg.multiply(sg.multiply(y, brought(-0.5, y.dtype)), sg.square(y))


def _reciprocal_slope(y: sg.Output) -> sg.Output:
    return sg.negative(sg.square(y))


ELEMENTWISE: Table = {
    "Add": binary(sg.add),
    "AddV2": binary(sg.add),
    "AddN": _sum,
    "AccumulateNV2": _sum,
    "Sub": binary(sg.subtract),
    "Mul": binary(sg.multiply),
    "MulNoNan": binary(sg.multiply_no_nan),
    "Div": _quotient,
    "RealDiv": binary(sg.realdiv),
    "DivNoNan": binary(sg.divide_no_nan),
    "FloorDiv": binary(sg.floordiv),
    "TruncateDiv": binary(sg.truncatediv),
    "FloorMod": binary(sg.floormod),
    "Mod": binary(sg.truncatemod),
    "TruncateMod": binary(sg.truncatemod),
    "Pow": binary(sg.pow),
    "Maximum": binary(sg.maximum),
    "Minimum": binary(sg.minimum),
    "SquaredDifference": binary(sg.squared_difference),
    "Xlogy": _zero_at_zero(sg.xlogy),
    "Xlog1py": _zero_at_zero(sg.xlog1py),
    "Xdivy": _zero_at_zero(sg.xdivy),
    "Atan2": binary(sg.atan2),
    "NextAfter": binary(sg.nextafter),
    "Igamma": binary(sg.igamma),
    "Igammac": binary(sg.igammac),
    "Betainc": lambda node, a, b, x: sg.betainc(a, b, x),
    "Polygamma": _polygamma,
    "Neg": unary(sg.negative),
    "Abs": unary(sg.abs),
    "ComplexAbs": unary(sg.abs),
    "Sign": unary(sg.sign),
    "Ceil": unary(sg.ceil),
    "Floor": unary(sg.floor),
    "Round": unary(sg.round),
    "Rint": unary(sg.rint),
    "Sqrt": unary(sg.sqrt),
    "Rsqrt": unary(sg.rsqrt),
    "Square": unary(sg.square),
    "Reciprocal": unary(sg.reciprocal),
    "Inv": unary(sg.reciprocal),
    "Exp": unary(sg.exp),
    "Expm1": unary(sg.expm1),
    "Log": unary(sg.log),
    "Log1p": unary(sg.log1p),
    "Sin": unary(sg.sin),
    "Cos": unary(sg.cos),
    "Tan": unary(sg.tan),
    "Asin": unary(sg.asin),
    "Acos": unary(sg.acos),
    "Atan": unary(sg.atan),
    "Sinh": unary(sg.sinh),
    "Cosh": unary(sg.cosh),
    "Tanh": unary(sg.tanh),
    "Asinh": unary(sg.asinh),
    "Acosh": unary(sg.acosh),
    "Atanh": unary(sg.atanh),
    "Sigmoid": unary(sg.sigmoid),
    "Erf": unary(sg.erf),
    "Erfc": unary(sg.erfc),
    "Erfinv": unary(sg.erfinv),
    "Ndtri": unary(sg.ndtri),
    "Lgamma": unary(sg.lgamma),
    "Digamma": unary(sg.digamma),
    "BesselI0": unary(sg.bessel_i0),
    "BesselI0e": unary(sg.bessel_i0e),
    "BesselI1": unary(sg.bessel_i1),
    "BesselI1e": unary(sg.bessel_i1e),
    "IsNan": unary(sg.is_nan),
    "IsInf": unary(sg.is_inf),
    "IsFinite": unary(sg.is_finite),
    "LogicalNot": unary(sg.logical_not),
    "LogicalAnd": binary(sg.logical_and),
    "LogicalOr": binary(sg.logical_or),
    "Equal": _compared(sg.equal, False),
    "NotEqual": _compared(sg.not_equal, True),
    "ApproximateEqual": _approximately_equal,
    "Less": binary(sg.less),
    "LessEqual": binary(sg.less_equal),
    "Greater": binary(sg.greater),
    "GreaterEqual": binary(sg.greater_equal),
    "BitwiseAnd": binary(sg.bitwise_and),
    "BitwiseOr": binary(sg.bitwise_or),
    "BitwiseXor": binary(sg.bitwise_xor),
    "Invert": unary(sg.invert),
    "LeftShift": _shifted_left,
    "RightShift": _shifted_right,
    "Cast": _cast,
    "Bitcast": _bitcast,
    "Complex": _complex,
    "Real": unary(sg.real),
    "Imag": unary(sg.imag),
    "Conj": unary(sg.conj),
    "Angle": unary(sg.angle),
    "Select": _select,
    "SelectV2": _select_v2,
    "ClipByValue": _clipped,
    "TanhGrad": _of_result(_tanh_slope),
    "SigmoidGrad": _of_result(_sigmoid_slope),
    "SqrtGrad": _sqrt_grad,
    "RsqrtGrad": _of_result(_rsqrt_slope),
    "ReciprocalGrad": _of_result(_reciprocal_slope),
    "InvGrad": _of_result(_reciprocal_slope),
}
