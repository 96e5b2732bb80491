"""Elementwise operators: arithmetic, logic, bits, comparisons, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Rule, Table, dtype_of_code
from stopgrad.interop.shared.conversions import brought


def _unary(function: Callable[..., object]) -> Rule:
    return lambda node, x: function(x)


def _binary(function: Callable[..., object]) -> Rule:
    return lambda node, x, y: function(x, y)


def _many(function: Callable[..., object]) -> Rule:
    """A rule for any number of operands, from a function of two."""
    return lambda node, *xs: functools.reduce(function, xs)


def _identity(node: Call, x: sg.Output) -> sg.Output:
    return x


# -------------------------------------------------------------------------------------------- arithmetic


def _quotient(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """Division; that of integers truncates."""
    return sg.truncatediv(x, y) if x.dtype.is_integer else sg.realdiv(x, y)


def _remainder(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """The remainder has the sign of the divisor; with ``fmod``, as in C, that of the dividend."""
    if node.attribute("fmod", 0):
        return sg.truncatemod(x, y)
    return sg.floormod(x, y)


def _power(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """Computed in x's element type; the exponent may have another one."""
    if x.dtype.is_integer and y.dtype.is_floating:
        return sg.cast(sg.pow(sg.cast(x, y.dtype), y), x.dtype)
    return sg.pow(x, brought(y, x.dtype))


def _mean(node: Call, *xs: sg.Output) -> sg.Output:
    total = functools.reduce(sg.add, xs)
    return sg.realdiv(total, brought(len(xs), total.dtype))


def _negated(node: Call, x: sg.Output) -> sg.Output:
    return sg.negative(x)


def _reciprocal(node: Call, x: sg.Output) -> sg.Output:
    return sg.realdiv(brought(1, x.dtype), x)


# ------------------------------------------------------------------------------------------ logic and bits


def _is_infinite(node: Call, x: sg.Output) -> sg.Output:
    infinite = sg.is_inf(x)
    zero = brought(0, x.dtype)
    if not node.attribute("detect_negative", 1):
        infinite = sg.logical_and(infinite, sg.greater(x, zero))
    if not node.attribute("detect_positive", 1):
        infinite = sg.logical_and(infinite, sg.less(x, zero))
    return infinite


def _shifted(node: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    directions = {"LEFT": sg.left_shift, "RIGHT": sg.right_shift}
    direction = node.attribute("direction")
    if direction not in directions:
        node.fail(f"the direction of a shift is LEFT or RIGHT, not {direction!r}")
    last = x.dtype.itemsize * 8 - 1
    shift = directions[direction](x, sg.minimum(y, brought(last, y.dtype)))
    if direction == "RIGHT" and x.dtype.kind == "i":  # Shifting further leaves only the sign, too.
        return shift
    return sg.where(sg.less_equal(y, brought(last, y.dtype)), shift, brought(0, x.dtype))


def _where(node: Call, condition: sg.Output, x: sg.Output, y: sg.Output) -> sg.Output:
    return sg.where(condition, x, y)


def _binarized(node: Call, x: sg.Output) -> sg.Output:
    above = sg.greater(x, brought(node.attribute("threshold", 0.0), x.dtype))
    return sg.cast(above, x.dtype)


# -------------------------------------------------------------------------------------------------- casts


def _cast(node: Call, x: sg.Output) -> sg.Output:
    code = node.attribute("to")
    dtype = dtype_of_code(code)
    if dtype is None:
        node.fail(f"there is no element type here for number {code} of TensorProto.DataType")
    return x if dtype is x.dtype else node.floated(x, dtype)


def _bit_cast(node: Call, x: sg.Output) -> sg.Output:
    """The same bits as another type: for known values, and between integers of one width."""
    dtype = dtype_of_code(node.attribute("to"))
    if dtype is None or dtype.itemsize != x.dtype.itemsize:
        node.fail("bits are taken for an element type of the same width that there is here")
    if dtype is x.dtype:
        return x
    if dtype.is_integer and x.dtype.is_integer:  # A cast wraps.
        return sg.cast(x, dtype)
    return sg.constant(np.array(node.known(0, x)).view(dtype.numpy), dtype)


ELEMENTWISE: Table = {
    "Identity": _identity,
    "Add": _binary(sg.add),
    "Sub": _binary(sg.subtract),
    "Mul": _binary(sg.multiply),
    "Div": _quotient,
    "Mod": _remainder,
    "Pow": _power,
    "Max": _many(sg.maximum),
    "Min": _many(sg.minimum),
    "Sum": _many(sg.add),
    "Mean": _mean,
    "Neg": _negated,
    "Reciprocal": _reciprocal,
    "Abs": _unary(sg.abs),
    "Sign": _unary(sg.sign),
    "Ceil": _unary(sg.ceil),
    "Floor": _unary(sg.floor),
    "Round": _unary(sg.round),
    "Sqrt": _unary(sg.sqrt),
    "Exp": _unary(sg.exp),
    "Log": _unary(sg.log),
    "Erf": _unary(sg.erf),
    "Sin": _unary(sg.sin),
    "Cos": _unary(sg.cos),
    "Tan": _unary(sg.tan),
    "Asin": _unary(sg.asin),
    "Acos": _unary(sg.acos),
    "Atan": _unary(sg.atan),
    "Sinh": _unary(sg.sinh),
    "Cosh": _unary(sg.cosh),
    "Asinh": _unary(sg.asinh),
    "Acosh": _unary(sg.acosh),
    "Atanh": _unary(sg.atanh),
    "IsNaN": _unary(sg.is_nan),
    "IsInf": _is_infinite,
    "Not": _unary(sg.logical_not),
    "And": _binary(sg.logical_and),
    "Or": _binary(sg.logical_or),
    "Xor": _binary(sg.logical_xor),
    "Equal": _binary(sg.equal),
    "Less": _binary(sg.less),
    "LessOrEqual": _binary(sg.less_equal),
    "Greater": _binary(sg.greater),
    "GreaterOrEqual": _binary(sg.greater_equal),
    "BitwiseAnd": _binary(sg.bitwise_and),
    "BitwiseOr": _binary(sg.bitwise_or),
    "BitwiseXor": _binary(sg.bitwise_xor),
    "BitwiseNot": _unary(sg.invert),
    "BitShift": _shifted,
    "Where": _where,
    "Cast": _cast,
    "BitCast": _bit_cast,
    "ai.onnx.ml::Binarizer": _binarized,
}
