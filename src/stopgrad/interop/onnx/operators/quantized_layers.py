"""Layers of ``com.microsoft`` on quantised numbers, and those whose channels come last.

Quantisers and ONNX Runtime's optimiser write them into models that they have quantised.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.onnx.operators.contrib import attended, embed_layer, scaled_product, unpacked
from stopgrad.interop.onnx.operators.convolutions import conv
from stopgrad.interop.onnx.operators.pooling import average_pool, max_pool
from stopgrad.interop.onnx.operators.quantized import floats, pair, quantized_convolution, single
from stopgrad.interop.shared.conversions import axis_of, brought
from stopgrad.interop.shared.slices import part


def _to_front(x: sg.Output) -> sg.Output:
    return sg.moveaxis(x, -1, 1)


def _to_back(x: sg.Output) -> sg.Output:
    return sg.moveaxis(x, 1, -1)


# --------------------------------------------------------------------------------------- channels last


def convolution(node: Call, x: sg.Output, *rest: sg.Output) -> sg.Output:
    """``QLinearConv`` of this domain, whose images may have their channels last."""
    if not node.attribute("channels_last", 0):
        return quantized_convolution(node, x, *rest)
    return node.moved(quantized_convolution(node, node.moved(x, _to_front), *rest), _to_back)


def convolution_of_floats(node: Call, x: sg.Output, w: sg.Output, b: sg.Output | None = None) -> sg.Output:
    """``NhwcConv``: images and kernels have their channels last."""
    return _to_back(conv(node, _to_front(x), _to_front(w), b))


def maxima(node: Call, x: sg.Output) -> sg.Output:
    largest: Any = max_pool(node, _to_front(x))  # One result: the operator has no indices.
    return _to_back(largest)


def _means(node: Call, x: sg.Output) -> sg.Output:
    if not node.attribute("channels_last", 0):
        return average_pool(node, x)
    return _to_back(average_pool(node, _to_front(x)))


# ------------------------------------------------------------------------------------------- selections


def chosen(node: Call, condition: sg.Output, *rest: sg.Output) -> sg.Output:
    """``QLinearWhere``: two tensors, each with its scale and zero point, and those of the result."""
    return pair(lambda x, y: sg.where(condition, x, y))(node, *rest)


def rows_of_blocks(
    node: Call, data: sg.Output, indices: sg.Output, scales: sg.Output, zeros: sg.Output | None = None
) -> sg.Output:
    """``GatherBlockQuantized``: rows of a table of 4 or 8 bits, with a scale for each block."""
    bits, size = int(node.attribute("bits", 4)), int(node.attribute("block_size", 128))
    if bits not in (4, 8):
        node.fail(f"bits={bits}: numbers of 4 and 8 bits are read here")
    packed = data.dtype is sg.uint8 and bits == 4
    numbers = brought(unpacked(data, bits) if packed else data, scales.dtype)
    axis = axis_of(int(node.attribute("quantize_axis", 1)), data.ndim)

    def spread(x: sg.Output) -> sg.Output:
        return part(sg.repeat(brought(x, scales.dtype), size, axis), axis, 0, numbers.shape[axis])

    if zeros is not None:
        numbers = sg.subtract(numbers, spread(unpacked(zeros, bits) if packed else zeros))
    elif data.dtype is sg.uint8:
        numbers = sg.subtract(numbers, brought(2 ** (bits - 1), scales.dtype))
    table = sg.multiply(numbers, spread(scales))
    node.dequantized(data, table)
    return sg.gather(table, indices, axis=int(node.attribute("gather_axis", 0)))


LEVELS = (
    np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32),
    np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
            *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
            *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
            *(0.7229568362236023, 1.0),
        ],
        np.float32,
    ),
)
"""The numbers that 4 bits stand for in the types fp4 (first those that are not negative) and nf4."""


def product_of_levels(node: Call, a: sg.Output, b: sg.Output, largest: sg.Output) -> sg.Output:
    """``MatMulBnb4``: a times the transpose of weights of 16 levels, with a factor for each block."""
    rows, columns = int(node.attribute("N")), int(node.attribute("K"))
    size, kind = int(node.attribute("block_size")), int(node.attribute("quant_type"))
    if kind not in (0, 1):
        node.fail(f"quant_type={kind} is unknown; it is 0 (fp4) or 1 (nf4)")
    levels = LEVELS[1] if kind else np.concatenate([LEVELS[0], -LEVELS[0]])
    high, low = sg.right_shift(b, brought(4, b.dtype)), sg.bitwise_and(b, brought(15, b.dtype))
    places = sg.reshape(sg.stack([high, low], -1), [-1])[: rows * columns]
    factors = sg.repeat(largest, size, 0)[: rows * columns]
    values = sg.multiply(sg.gather(levels, sg.cast(places, sg.int32)), sg.cast(factors, sg.float32))
    weights = sg.reshape(values, [rows, columns])
    node.dequantized(b, weights)
    return sg.matmul(a, brought(sg.transpose(weights), a.dtype))


# --------------------------------------------------------------------------------------------- attention


def attention(
    node: Call,
    x: sg.Output,
    weights: sg.Output,
    bias: sg.Output,
    x_scale: sg.Output,
    scale: sg.Output,
    mask: sg.Output | None = None,
    x_zero: sg.Output | None = None,
    zero: sg.Output | None = None,
    past: sg.Output | None = None,
) -> tuple[sg.Output, sg.Output | None]:
    """``QAttention``: the product that makes queries, keys and values is one of whole numbers."""
    factors = (sg.reshape(x_scale, []), sg.reshape(scale, []) if scale.shape == (1,) else scale)
    x_zero = None if x_zero is None else sg.reshape(x_zero, [])
    zero = sg.reshape(zero, []) if zero is not None and zero.shape == (1,) else zero
    whole = scaled_product(node, x, weights, *factors, x_zero, zero, bias)
    return attended(node, whole, mask, past)


def embedded(
    node: Call,
    words: sg.Output,
    segments: sg.Output | None,
    word: sg.Output,
    position: sg.Output,
    segment: sg.Output | None,
    scale: sg.Output,
    bias: sg.Output,
    mask: sg.Output | None,
    *numbers: sg.Output,
) -> tuple[sg.Output, Tensor]:
    """``QEmbedLayerNormalization``: the tables, the scale and the bias are of whole numbers."""
    tables = (word, position, segment, scale, bias)
    scales, zeros = numbers[:5], numbers[5:]
    dequantized: list[sg.Output | None] = []
    for i, x in enumerate(tables):
        table = None if x is None else floats(node, x, scales[i], zeros[i])
        dequantized.append(table)
        if x is not None and table is not None:
            node.dequantized(x, table)
    arguments: Any = (words, segments, *dequantized, mask)
    y, length, _ = embed_layer(node, *arguments)
    return y, length


_MICROSOFT: Table = {
    "QLinearConv": convolution,
    "QLinearAveragePool": single(_means),
    "QLinearWhere": chosen,
    "NhwcMaxPool": maxima,
    "NhwcConv": convolution_of_floats,
    "GatherBlockQuantized": rows_of_blocks,
    "MatMulBnb4": product_of_levels,
    "QAttention": attention,
    "QEmbedLayerNormalization": embedded,
}

QUANTIZED_LAYERS: Table = {f"com.microsoft::{name}": rule for name, rule in _MICROSOFT.items()}
