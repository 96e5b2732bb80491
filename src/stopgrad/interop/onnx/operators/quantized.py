"""Quantisation, dequantisation, and products of quantised numbers.

Rounding to integers has no gradient, and reports name it; dequantisation passes gradients to the scale. Where
it is asked for, gradients go straight through the rounding: integers remember the numbers that they are
rounded from, and what makes floats of them takes their gradient to these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.interop.onnx.operators.attention import precision
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.convolutions import geometry
from stopgrad.interop.shared.conversions import along, axis_of, brought
from stopgrad.interop.shared.convolutions import convolved
from stopgrad.interop.shared.normalizations import wide
from stopgrad.interop.shared.slices import part


def spread(node: Call, scale: sg.Output, x: sg.Output) -> sg.Output:
    """A scale or zero point shaped to broadcast with x: one, one along an axis, or one for each block."""
    if scale.ndim == 0 or tuple(scale.shape) == (1,):
        return sg.reshape(scale, [])
    axis, size = int(node.attribute("axis", 1)), int(node.attribute("block_size", 0))
    if size:
        axis = axis_of(axis, x.ndim)
        return part(sg.repeat(scale, size, axis), axis, 0, x.shape[axis])
    # A vector has one scale or as many as elements, whatever the axis is.
    return along(scale, axis_of(axis, x.ndim), x.ndim) if x.ndim > 1 and scale.ndim == 1 else scale


def rounded(x: sg.Output, zero_point: sg.Output | None, dtype: DType) -> sg.Output:
    """x rounded, plus the zero point, and clipped to the range of an element type."""
    values = sg.round(x)
    if zero_point is not None:
        values = sg.add(values, brought(zero_point, values.dtype))
    limits = np.iinfo(dtype.numpy)
    low, high = (brought(n, values.dtype) for n in (limits.min, limits.max))
    return sg.cast(sg.clip_by_value(values, low, high), dtype)


def quantized(
    node: Call, x: sg.Output, zero_point: sg.Output | None, dtype: DType, soft: sg.Output | None = None
) -> sg.Output:
    """The same, which remembers *soft*, by default x; beyond the range there is no gradient."""
    integers = rounded(x, zero_point, dtype)
    if node.straight:
        soft, values = x if soft is None else soft, sg.round(x)
        if zero_point is not None:
            soft = sg.add(soft, brought(zero_point, soft.dtype))
            values = sg.add(values, brought(zero_point, values.dtype))
        limits = np.iinfo(dtype.numpy)
        inside = sg.equal(values, sg.clip_by_value(values, float(limits.min), float(limits.max)))
        node.soften(integers, sg.where(inside, soft, sg.stop_gradient(soft)))
    return integers


def quantize(node: Call, x: sg.Output, scale: sg.Output, zero_point: sg.Output | None = None) -> sg.Output:
    dtype = precision(node, "output_dtype", sg.uint8) if zero_point is None else zero_point.dtype
    if not dtype.is_integer or dtype.itemsize > 2:
        node.fail(f"it quantizes to {dtype.name}; here it is to int8, uint8, int16 and uint16")
    within = precision(node, "precision", scale.dtype)
    x, scale = (brought(t, within) for t in (x, spread(node, scale, x)))
    zero = None if zero_point is None else spread(node, zero_point, x)
    exact = sg.realdiv(x, scale)
    shares = sg.round(exact)
    shares = shares if shares.dtype.itemsize > 2 else sg.cast(shares, sg.float32)
    return quantized(node, shares, zero, dtype, brought(exact, shares.dtype))


def _operand(node: Call, x: sg.Output | Known | None) -> sg.Output:
    """An operand as a tensor; stored numbers of a type that we lack, such as int4, in a wider type."""
    if not isinstance(x, Known) or x.dtype is not None:
        return node.tensor(x)
    whole = "int" in x.array.dtype.name
    return sg.constant(x.array.astype(np.int8 if whole else np.float32))


@knows(0, 2)
def dequantize(
    node: Call, x: sg.Output | Known, scale: sg.Output, zero_point: sg.Output | Known | None = None
) -> sg.Output:
    numbers, point = _operand(node, x), _operand(node, zero_point)
    dtype = precision(node, "output_dtype", scale.dtype)
    within = dtype if dtype.itemsize > 2 else sg.float32
    values = node.floated(numbers, within)
    if point is not None:
        values = sg.subtract(values, brought(spread(node, point, numbers), within))
    y = brought(sg.multiply(values, brought(spread(node, scale, numbers), within)), dtype)
    node.dequantized(x, y)
    return y


def dynamic_quantize(node: Call, x: sg.Output) -> tuple[sg.Output, sg.Output, sg.Output]:
    zero, most = brought(0, x.dtype), brought(255, x.dtype)
    high, low = sg.maximum(sg.reduce_max(x), zero), sg.minimum(sg.reduce_min(x), zero)
    span = sg.subtract(high, low)
    scale = sg.realdiv(sg.where(sg.equal(span, zero), brought(1, x.dtype), span), most)
    point = sg.round(sg.clip_by_value(sg.realdiv(sg.negative(low), scale), zero, most))
    return quantized(node, sg.realdiv(x, scale), point, sg.uint8), scale, sg.cast(point, sg.uint8)


def _centred(node: Call, x: sg.Output, zero_point: sg.Output | None, dtype: DType) -> sg.Output:
    x = node.floated(x, dtype)
    return x if zero_point is None else sg.subtract(x, sg.cast(zero_point, dtype))


def by_rows(point: sg.Output | None) -> Any:
    """One number, or one for each row, shaped to broadcast with the matrix."""
    if point is None or point.ndim != 1:
        return point
    return _number(point) if tuple(point.shape) == (1,) else sg.expand_dims(point, -1)


def _number(x: sg.Output) -> sg.Output:
    """What is one number, without an axis."""
    return sg.reshape(x, []) if tuple(x.shape) == (1,) else x


def matmul_integer(
    node: Call, a: sg.Output, b: sg.Output, a_zero: sg.Output | None = None, b_zero: sg.Output | None = None
) -> sg.Output:
    """The product as int32, which remembers that of the numbers before rounding."""

    def product(dtype: DType) -> sg.Output:
        return sg.matmul(_centred(node, a, by_rows(a_zero), dtype), _centred(node, b, b_zero, dtype))

    integers = product(sg.int32)
    if node.straight:
        node.soften(integers, product(sg.float32))
    return integers


def product_by_matrix(
    node: Call,
    a: sg.Output,
    a_zero: sg.Output | None,
    b: sg.Output,
    b_scale: sg.Output,
    b_zero: sg.Output | None,
    bias: sg.Output | None = None,
    turned: tuple[bool, bool] = (False, False),
) -> tuple[sg.Output, sg.Output]:
    """Integers times a matrix of integers, in float64, and the scale by which that is still to be multiplied.

    The product is exact; but where adapters may stand beside the matrix, it is made of floats first.
    """
    columns = 0 if turned[1] else b.ndim - 1
    whole = _centred(node, b, _by_channel(b_zero, b.ndim, columns), sg.float64)
    scale = _by_channel(wide(b_scale), b.ndim, columns)
    matrix = sg.multiply(sg.cast(whole, scale.dtype), scale)
    node.dequantized(b, matrix)
    factor = sg.cast(matrix, sg.float64) if node.adapted else whole
    product = sg.matmul(_centred(node, a, by_rows(a_zero), sg.float64), factor, *turned)
    one, b_scale = brought(1, b_scale.dtype), _number(b_scale)
    if bias is not None:
        unit = sg.cast(b_scale if node.adapted else one, sg.float64)
        product = sg.add(product, sg.multiply(sg.cast(bias, sg.float64), unit))
    return product, one if node.adapted else b_scale


def quantized_matmul(
    node: Call,
    a: sg.Output,
    a_scale: sg.Output,
    a_zero: sg.Output,
    b: sg.Output,
    b_scale: sg.Output,
    b_zero: sg.Output,
    scale: sg.Output,
    zero: sg.Output,
) -> sg.Output:
    product, b_scale = product_by_matrix(node, a, a_zero, b, b_scale, b_zero)
    factor = sg.realdiv(sg.multiply(by_rows(a_scale), b_scale), scale)
    return quantized(node, sg.multiply(product, sg.cast(factor, sg.float64)), zero, zero.dtype)


def _by_channel(x: sg.Output | None, ndim: int, axis: int) -> Any:
    """A number, or one for each place along an axis, shaped to broadcast."""
    if x is None or x.ndim != 1:
        return x
    return _number(x) if tuple(x.shape) == (1,) else along(x, axis, ndim)


def integer_convolution(
    node: Call, x: sg.Output, w: sg.Output, x_zero: sg.Output | None, w_zero: sg.Output | None
) -> sg.Output:
    """Computed in float64, which is exact for sums of such small products."""
    spatial = geometry(node, x, w)
    values = _centred(node, x, None if x_zero is None else sg.reshape(x_zero, []), sg.float64)
    weights = _centred(node, w, _by_channel(w_zero, w.ndim, 0), sg.float64)
    groups = int(node.attribute("group", 1))
    return convolved(values, weights, None, spatial.stride, spatial.pads, spatial.dilation, groups)


def conv_integer(
    node: Call, x: sg.Output, w: sg.Output, x_zero: sg.Output | None = None, w_zero: sg.Output | None = None
) -> sg.Output:
    exact = integer_convolution(node, x, w, x_zero, w_zero)
    integers = sg.cast(exact, sg.int32)
    node.soften(integers, exact)
    return integers


def quantized_convolution(
    node: Call,
    x: sg.Output,
    x_scale: sg.Output,
    x_zero: sg.Output,
    w: sg.Output,
    w_scale: sg.Output,
    w_zero: sg.Output,
    scale: sg.Output,
    zero: sg.Output,
    bias: sg.Output | None = None,
) -> sg.Output:
    whole = integer_convolution(node, x, w, x_zero, w_zero)
    if bias is not None:
        whole = sg.add(whole, along(sg.cast(bias, sg.float64), 1, x.ndim))
    factor = sg.realdiv(sg.multiply(x_scale, _by_channel(w_scale, x.ndim, 1)), scale)
    return quantized(node, sg.multiply(whole, sg.cast(factor, sg.float64)), zero, zero.dtype)


# ------------------------------------------------------------------------------- floats between integers


def floats(node: Call, x: sg.Output, scale: sg.Output, zero: sg.Output | None) -> sg.Output:
    """Quantised numbers of one scale as floats."""
    point = None if zero is None else sg.reshape(zero, [])
    return sg.multiply(_centred(node, x, point, scale.dtype), sg.reshape(scale, []))


def wholes(node: Call, y: sg.Output, scale: sg.Output, zero: sg.Output | None) -> sg.Output:
    """Floats as quantised numbers."""
    shares = sg.realdiv(y, brought(sg.reshape(scale, []), y.dtype))
    return quantized(node, shares, None if zero is None else sg.reshape(zero, []), _kind(zero))


def _kind(zero: sg.Output | None) -> DType:
    return sg.uint8 if zero is None else zero.dtype


def quantized_affine(
    node: Call,
    a: sg.Output,
    a_scale: sg.Output,
    a_zero: sg.Output | None,
    b: sg.Output,
    b_scale: sg.Output,
    b_zero: sg.Output | None,
    c: sg.Output | None = None,
    scale: sg.Output | None = None,
    zero: sg.Output | None = None,
) -> sg.Output:
    """``QGemm``: the bias is of whole numbers, of the scale alpha · a_scale · b_scale."""
    turned = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    a_zero = None if a_zero is None else sg.reshape(a_zero, [])
    product, b_scale = product_by_matrix(node, a, a_zero, b, b_scale, b_zero, c, turned)
    factor = sg.multiply(sg.reshape(a_scale, []), b_scale)
    factor = sg.multiply(sg.cast(factor, sg.float64), float(node.attribute("alpha", 1.0)))
    y = sg.multiply(product, factor)
    if scale is None:
        return sg.cast(y, sg.float32)
    return wholes(node, y, sg.cast(scale, sg.float64), zero)


def pair(combine: Callable[[sg.Output, sg.Output], sg.Output]) -> Callable[..., sg.Output]:
    """The rule of what combines two tensors of whole numbers as floats."""

    def rule(
        node: Call,
        a: sg.Output,
        a_scale: sg.Output,
        a_zero: sg.Output | None,
        b: sg.Output,
        b_scale: sg.Output,
        b_zero: sg.Output | None,
        scale: sg.Output,
        zero: sg.Output | None = None,
    ) -> sg.Output:
        y = combine(floats(node, a, a_scale, a_zero), floats(node, b, b_scale, b_zero))
        return wholes(node, y, scale, zero)

    return rule


def single(compute: Callable[[Call, sg.Output], sg.Output]) -> Callable[..., sg.Output]:
    """The rule of what computes with a tensor of whole numbers as floats."""

    def rule(
        node: Call,
        x: sg.Output,
        x_scale: sg.Output,
        x_zero: sg.Output | None,
        scale: sg.Output,
        zero: sg.Output | None = None,
    ) -> sg.Output:
        return wholes(node, compute(node, floats(node, x, x_scale, x_zero)), scale, zero)

    return rule


def _global_mean(node: Call, x: sg.Output) -> sg.Output:
    if node.attribute("channels_last", 0):
        axes = tuple(range(1, x.ndim - 1))
    else:
        axes = tuple(range(2, x.ndim))
    return sg.reduce_mean(x, axis=axes, keepdims=True)


def _leaky(node: Call, x: sg.Output) -> sg.Output:
    return sg.leaky_relu(x, float(node.attribute("alpha", 0.01)))


def _shares(node: Call, x: sg.Output) -> sg.Output:
    axis = axis_of(int(node.attribute("axis", -1)), x.ndim)
    if int(node.attribute("opset", 13)) >= 13 or axis == x.ndim - 1:
        return sg.softmax(x, axis)
    return node.fail("it is translated as of opset 13, for one axis")


def quantized_shares(
    node: Call,
    x: sg.Output,
    x_scale: sg.Output,
    x_zero: sg.Output | None,
    scale: sg.Output,
    zero: sg.Output | None = None,
) -> sg.Output:
    """``QLinearSoftmax``: ONNX Runtime counts how many whole steps there are in 1, and rounds to these."""
    y = _shares(node, floats(node, x, x_scale, x_zero))
    steps = sg.floor(sg.realdiv(brought(1, scale.dtype), sg.reshape(scale, [])))
    point = None if zero is None else sg.reshape(zero, [])
    return quantized(node, sg.multiply(y, brought(steps, y.dtype)), point, _kind(zero))


def quantized_joined(node: Call, scale: sg.Output, zero: sg.Output, *parts: sg.Output) -> sg.Output:
    if not parts or len(parts) % 3:
        node.fail("it joins tensors that come each with a scale and a zero point")
    xs = [floats(node, *parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return wholes(node, sg.concat(xs, int(node.attribute("axis"))), scale, zero)


def dynamic_product(
    node: Call,
    a: sg.Output,
    b: sg.Output,
    b_scale: sg.Output,
    b_zero: sg.Output | None = None,
    bias: sg.Output | None = None,
) -> sg.Output:
    """Floats, quantised as they come, times a matrix of whole numbers."""
    whole, scale, zero = dynamic_quantize(node, a)
    product, b_scale = product_by_matrix(node, whole, zero, b, b_scale, b_zero)
    y = sg.multiply(sg.cast(product, scale.dtype), sg.multiply(scale, b_scale))
    return y if bias is None else sg.add(y, bias)


QUANTIZED: Table = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": quantized_matmul,
    "ConvInteger": conv_integer,
    "QLinearConv": quantized_convolution,
}

_MICROSOFT: Table = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "QGemm": quantized_affine,
    "QLinearAdd": pair(sg.add),
    "QLinearMul": pair(sg.multiply),
    "QLinearGlobalAveragePool": single(_global_mean),
    "QLinearSigmoid": single(lambda node, x: sg.sigmoid(x)),
    "QLinearLeakyRelu": single(_leaky),
    "QLinearSoftmax": quantized_shares,
    "QLinearConcat": quantized_joined,
    "DynamicQuantizeMatMul": dynamic_product,
}

QUANTIZED |= {f"com.microsoft::{name}": rule for name, rule in _MICROSOFT.items()}

ROUNDS = frozenset(
    {"QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "QGemm"}
    | {name.removeprefix("com.microsoft::") for name in QUANTIZED if "QLinear" in name}
)
"""The operators that round floats to quantised numbers."""
