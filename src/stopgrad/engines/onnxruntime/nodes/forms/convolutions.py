"""Convolutions and their gradients: Conv and ConvTranspose, which take [batch, channels, spatial...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size, product
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import reshaped, transposed
from stopgrad.engines.onnxruntime.nodes.forms.windows import added, apart, around, counted, windows
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.graph.op import Op
from stopgrad.ops.neural.convolution import Conv, ConvBackpropFilter, ConvBackpropInput
from stopgrad.ops.neural.windows import Geometry, Padding, convolved, reach

_CONV = frozenset(map(np.dtype, ("float32", "float16")))
"""The runtime has kernels for these; for others, convolutions are written as products of matrices."""


def first(xp: Writing, x: Array) -> Any:
    """Transposes [batch, spatial..., channels] to [batch, channels, spatial...]."""
    return transposed(xp, x, (0, len(x.shape) - 1, *range(1, len(x.shape) - 1)))


def last(xp: Writing, x: Array) -> Any:
    """Transposes [batch, channels, spatial...] to [batch, spatial..., channels]."""
    return transposed(xp, x, (0, *range(2, len(x.shape)), 1))


def _weights(xp: Writing, filters: Array) -> Any:
    """Transposes filters from [window..., in, out] to [out, in, window...]."""
    rank = len(filters.shape) - 2
    return transposed(xp, filters, (rank + 1, rank, *range(rank)))


def steps(strides: tuple[int, ...], dilations: tuple[int, ...], groups: int = 1) -> dict[str, Any]:
    """The attributes that differ from their defaults."""
    attributes: dict[str, Any] = {}
    if set(strides) != {1}:
        attributes["strides"] = list(strides)
    if set(dilations) != {1}:
        attributes["dilations"] = list(dilations)
    if groups != 1:
        attributes["group"] = groups
    return attributes


def pads_of(pairs: Sequence[tuple[Size, Size]], dilations: tuple[int, ...]) -> dict[str, Any] | None:
    """The padding as attributes; None where it depends on unknown sizes and is not SAME."""
    numbers = [low for low, _ in pairs] + [high for _, high in pairs]
    if is_known(numbers):
        return {"pads": numbers} if any(numbers) else {}
    return {"auto_pad": "SAME_UPPER"} if set(dilations) == {1} else None


def _conv(
    xp: Writing,
    x: Array,
    filters: Array,
    *,
    strides: tuple[int, ...],
    padding: Padding,
    dilations: tuple[int, ...],
    groups: int,
) -> Any:
    geometry, ksize = (strides, padding, dilations), filters.shape[:-2]
    shape = convolved(x.shape, filters.shape, strides, padding, dilations, groups)
    if 0 in (*shape, *filters.shape):
        return xp.zeros(shape, x.dtype)
    if x.dtype not in _CONV:
        rows = _columns(xp, x, ksize, geometry, groups)
        products = xp.matmul(rows, _matrices(xp, filters, groups))
        return reshaped(xp, transposed(xp, products, (1, 0, 2)), shape)
    pairs = around(x.shape[1:-1], ksize, geometry)
    pads = pads_of(pairs, dilations)
    if pads is None:
        x, pads = xp.padded(x, [(0, 0), *pairs, (0, 0)]), {}
    attributes = {**pads, **steps(strides, dilations, groups)}
    kind = (shape[0], shape[-1], *shape[1:-1])
    return last(xp, xp.node("Conv", [first(xp, x), _weights(xp, filters)], x.dtype, kind, **attributes))


def _conv_back_input(
    xp: Writing,
    filters: Array,
    g: Array,
    *,
    shape: Sequence[Size],
    strides: tuple[int, ...],
    padding: Padding,
    dilations: tuple[int, ...],
    groups: int,
) -> Any:
    """ConvTranspose. Elements at the end that no window reaches are padding of its result."""
    geometry, ksize = (strides, padding, dilations), filters.shape[:-2]
    if 0 in (*shape, *g.shape, *filters.shape):
        return xp.zeros(shape, g.dtype)
    if g.dtype not in _CONV:
        return _input_by_products(xp, filters, g, shape, geometry, groups)
    spatial, pairs = shape[1:-1], around(shape[1:-1], ksize, geometry)
    full = [
        (o - 1) * s + reach(k, d) for o, k, s, d in zip(g.shape[1:-1], ksize, strides, dilations, strict=True)
    ]
    output_padding = [n + low + high - m for n, m, (low, high) in zip(spatial, full, pairs, strict=True)]
    numbers = [low for low, _ in pairs] + [high for _, high in pairs]
    attributes, operands = steps(strides, dilations, groups), [first(xp, g), _weights(xp, filters)]
    if is_known([*output_padding, *numbers]):
        attributes |= {"pads": numbers} if any(numbers) else {}
        attributes |= {"output_padding": output_padding} if any(output_padding) else {}
        gradient = xp.node("ConvTranspose", operands, g.dtype, (shape[0], shape[-1], *spatial), **attributes)
        return last(xp, gradient)
    gradient = last(
        xp, xp.node("ConvTranspose", operands, g.dtype, (shape[0], shape[-1], *full), **attributes)
    )
    rest = [(-low, n + low - m) for n, m, (low, _) in zip(spatial, full, pairs, strict=True)]
    return xp.padded(gradient, [(0, 0), *rest, (0, 0)])


def _conv_back_filter(
    xp: Writing,
    x: Array,
    g: Array,
    *,
    shape: Sequence[Size],
    strides: tuple[int, ...],
    padding: Padding,
    dilations: tuple[int, ...],
    groups: int,
) -> Any:
    """A convolution of x with the cotangent as filters; channels and batch change places."""
    geometry, ksize, rank = (strides, padding, dilations), shape[:-2], len(strides)
    if 0 in (*shape, *g.shape, *x.shape):
        return xp.zeros(shape, g.dtype)
    if g.dtype not in _CONV:
        rows = transposed(xp, _columns(xp, x, ksize, geometry, groups), (0, 2, 1))
        gradient = xp.matmul(rows, _by_group(xp, g, groups))
        return reshaped(xp, transposed(xp, gradient, (1, 0, 2)), shape)
    spatial, pairs = x.shape[1:-1], around(x.shape[1:-1], ksize, geometry)
    if groups == 1 and _is_quicker_by_products(x.shape[-1], ksize, g.shape[1:-1]):
        return _filter_by_products(xp, x, g, ksize, geometry)
    turned, weights = _by_channel(xp, x, groups), transposed(xp, g, (rank + 1, 0, *range(1, rank + 1)))
    numbers = [low for low, _ in pairs] + [high for _, high in pairs]
    attributes = steps(dilations, strides, groups)
    if not is_known(numbers):
        turned = xp.padded(turned, [(0, 0), (0, 0), *pairs])
    elif any(numbers):
        attributes["pads"] = numbers
    sizes = [
        (n + low + high - reach(o, s)) // d + 1
        for n, o, s, d, (low, high) in zip(spatial, g.shape[1:-1], strides, dilations, pairs, strict=True)
    ]
    gradient = xp.node("Conv", [turned, weights], g.dtype, (shape[-2], shape[-1], *sizes), **attributes)
    gradient = xp.cut(gradient, [(0, n, 1) for n in (shape[-2], shape[-1], *ksize)])
    return transposed(xp, gradient, (*range(2, rank + 2), 0, 1))


_NARROW = 8
"""For fewer channels than this, a product for each element of the window is too narrow to be quick."""

_FEW, _MANY = 9, 49
"""The most elements of a window for which products are the quicker form: of few channels, and of more."""


def _is_quicker_by_products(channels: Size, ksize: Sequence[Size], counts: Sequence[Size]) -> bool:
    """Whether the gradient of filters is computed by products of matrices.

    As a convolution, its filters are as large as the image, for which the runtime has no good kernel:
    products take 0.3 to 0.7 of its time for windows of 3 × 3 to 7 × 7, but more for large windows of few
    channels.
    """
    if not is_known([*ksize, *counts]):
        return False
    return product(ksize) <= (_FEW if _is_narrow(channels) else _MANY)


def _is_narrow(channels: Size) -> bool:
    return is_known([channels]) and channels < _NARROW


def _filter_by_products(xp: Writing, x: Array, g: Array, ksize: Sequence[Any], geometry: Geometry) -> Any:
    """A product for each element of the window, over all windows of all examples.

    It has the cotangent's channels first, so that only one axis has to move to where ONNX's filters have it.
    """
    strides, _, dilations = geometry
    batch, *counts, out = g.shape
    channels, rank, count = x.shape[-1], len(counts), batch * product(counts)
    wide = xp.padded(x, [(0, 0), *around(x.shape[1:-1], ksize, geometry), (0, 0)])
    turned = transposed(xp, g, (rank + 1, *range(rank + 1)))
    weights = reshaped(xp, turned, (out, count))
    parts = []
    for position in np.ndindex(*ksize):
        spans = [(i * d, o, s) for i, d, o, s in zip(position, dilations, counts, strides, strict=True)]
        part = xp.cut(wide, [(0, batch, 1), *spans, (0, channels, 1)])
        parts.append(reshaped(xp, part, (count, channels)))
    if _is_narrow(channels):
        gradient = xp.matmul(weights, _side_by_side(xp, parts))
    else:
        gradient = _side_by_side(xp, [xp.matmul(weights, part) for part in parts])
    return transposed(xp, reshaped(xp, gradient, (out, *ksize, channels)), (*range(1, rank + 2), 0))


def _side_by_side(xp: Writing, matrices: list[Any]) -> Any:
    return matrices[0] if len(matrices) == 1 else xp.concatenate(matrices, 1)


def _by_channel(xp: Writing, x: Array, groups: int) -> Any:
    """Transposes [batch, spatial..., groups * each] to [each, groups * batch, spatial...]."""
    batch, *spatial, channels = x.shape
    rank = len(spatial)
    if groups == 1:
        return transposed(xp, x, (rank + 1, 0, *range(1, rank + 1)))
    split = reshaped(xp, x, (batch, *spatial, groups, channels // groups))
    turned = transposed(xp, split, (rank + 2, rank + 1, 0, *range(1, rank + 1)))
    return reshaped(xp, turned, (channels // groups, groups * batch, *spatial))


# ----------------------------------------------------------------------------- as products of matrices


def _columns(xp: Writing, x: Array, ksize: Sequence[Size], geometry: Geometry, groups: int) -> Any:
    """All windows as rows, by group: [groups, batch * counts, window * channels / groups]."""
    counts, channels = counted(x.shape[1:-1], ksize, geometry), x.shape[-1] // groups
    rows = apart(xp, windows(xp, x, ksize, geometry), len(counts))
    count = x.shape[0] * product(counts)
    rows = reshaped(xp, rows, (count, product(ksize), groups, channels))
    return reshaped(xp, transposed(xp, rows, (2, 0, 1, 3)), (groups, count, product(ksize) * channels))


def _matrices(xp: Writing, filters: Array, groups: int) -> Any:
    """Filters as a matrix for each group: [groups, window * channels in, channels out]."""
    split = reshaped(xp, filters, (product(filters.shape[:-1]), groups, filters.shape[-1] // groups))
    return transposed(xp, split, (1, 0, 2))


_by_group = _matrices


def _input_by_products(
    xp: Writing, filters: Array, g: Array, shape: Sequence[Size], geometry: Geometry, groups: int
) -> Any:
    ksize, counts, channels, rank = filters.shape[:-2], g.shape[1:-1], shape[-1] // groups, len(g.shape) - 2
    turned = transposed(xp, _matrices(xp, filters, groups), (0, 2, 1))
    rows = xp.matmul(_by_group(xp, g, groups), turned)
    rows = reshaped(xp, rows, (groups, shape[0], *counts, *ksize, channels))
    pairs = [axis for i in range(rank) for axis in (2 + i, 2 + rank + i)]
    rows = transposed(xp, rows, (1, *pairs, 0, 2 + 2 * rank))
    many = tuple(n for pair in zip(counts, ksize, strict=True) for n in pair)
    return added(xp, reshaped(xp, rows, (shape[0], *many, shape[-1])), shape[1:-1], ksize, geometry)


CONVOLUTIONS: Mapping[type[Op], Callable[..., Any]] = {
    Conv: _conv,
    ConvBackpropInput: _conv_back_input,
    ConvBackpropFilter: _conv_back_filter,
}
