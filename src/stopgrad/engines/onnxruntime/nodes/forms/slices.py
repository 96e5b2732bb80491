"""Slices, their gradients and updates, padding, and slices whose starts are tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import along, number, reshaped
from stopgrad.engines.onnxruntime.nodes.forms.indexing import bounded
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.graph.op import Op
from stopgrad.ops.indexing.dynamic import DynamicSlice, DynamicUpdateSlice
from stopgrad.ops.indexing.scatters import TensorStridedSliceUpdate
from stopgrad.ops.indexing.slices import StridedSlice, StridedSliceGrad
from stopgrad.ops.shapes.join import PadV2, Split


def _spread(xp: Writing, g: Array, *, shape: Sequence[Size], spans: Sequence[tuple[Any, Any, int]]) -> Any:
    """The gradient of a slice: puts *step* - 1 zeros between the elements, then zeros around them."""
    g = xp.flip(g, [i for i, (_, _, step) in enumerate(spans) if step < 0])
    strides = [abs(step) for *_, step in spans]
    if any(step != 1 for step in strides):
        single = tuple(n for size in g.shape for n in (size, 1))
        g = xp.padded(reshaped(xp, g, single), [p for step in strides for p in ((0, 0), (0, step - 1))])
        g = reshaped(xp, g, tuple(n * s for n, s in zip(g.shape[::2], strides, strict=True)))
    around = []
    for total, (start, count, step), size in zip(shape, spans, g.shape, strict=True):
        low = start if step > 0 or (is_known([count]) and not count) else start + (count - 1) * step
        around.append((low, total - low - size))
    return xp.padded(g, around)


def _updated(xp: Writing, x: Array, updates: Array, *, spans: Sequence[tuple[Size, Size, int]]) -> Any:
    """A concatenation if one axis is cut without gaps; else a choice by a mask."""
    cut = [i for i, (span, size) in enumerate(zip(spans, x.shape, strict=True)) if span != (0, size, 1)]
    if not cut:
        return updates
    if len(cut) == 1 and spans[cut[0]][2] == 1:
        axis, (start, count, _) = cut[0], spans[cut[0]]
        stop, size = start + count, x.shape[cut[0]]
        parts = [xp.part(x, axis, 0, start)] if not is_known([start]) or start else []
        parts.append(updates)
        parts += [xp.part(x, axis, stop, size - stop)] if not is_known([size - stop]) or size - stop else []
        return xp.concatenate(parts, axis)
    cut_spans = [(span if i in cut else (0, 1, 1)) for i, span in enumerate(spans)]
    ones = xp.ones(tuple(count for _, count, _ in cut_spans), np.bool_)
    sizes = tuple(n if i in cut else 1 for i, n in enumerate(x.shape))
    mask = _spread(xp, ones, shape=sizes, spans=cut_spans)
    return xp.where(mask, _spread(xp, updates, shape=x.shape, spans=spans), x)


# ----------------------------------------------------------------------------------- where tensors say


def _starts(
    xp: Writing, starts: Array, shape: Sequence[Size], sizes: Sequence[Size], axes: Sequence[int]
) -> Any:
    """The starts of a block along some axes, clipped so that it fits: a vector of int64."""
    if list(axes) != list(range(len(shape))):
        starts = xp.take(starts, np.array(axes, np.int64), axis=0)
    signed = np.dtype(starts.dtype).kind == "i"
    if np.dtype(starts.dtype) == np.uint64:
        starts = xp.minimum(starts, number(2**63 - 1, np.uint64))
    signed_starts, zero = xp.astype(starts, np.int64), number(0, np.int64)
    if signed:
        from_end = xp.less(signed_starts, zero)
        from_front = xp.add(signed_starts, xp.ints([shape[i] for i in axes]))
        signed_starts = xp.where(from_end, from_front, signed_starts)
    return xp.minimum(xp.maximum(signed_starts, zero), xp.ints([shape[i] - sizes[i] for i in axes]))


def _cut(shape: Sequence[Size], sizes: Sequence[Size]) -> list[int]:
    return [i for i, (n, count) in enumerate(zip(shape, sizes, strict=True)) if n != count]


def _places(xp: Writing, starts: Array, position: int, count: Size) -> Any:
    """The positions of a block's elements along an axis; *position* is that of the axis among the starts."""
    return xp.add(xp.part(xp.value(starts), 0, position, 1), xp.arange(count, dtype=np.int64))


def _dynamic_slice(xp: Writing, x: Array, starts: Array, *, sizes: Sequence[Size]) -> Any:
    """Gathers, because the sizes of a Slice with computed bounds would be unknown."""
    axes = _cut(x.shape, sizes)
    if not axes:
        return x
    clipped = _starts(xp, starts, x.shape, sizes, axes)
    for i, axis in enumerate(axes):
        x = xp.take(x, _places(xp, clipped, i, sizes[axis]), axis)
    return x


def _dynamic_update_slice(xp: Writing, x: Array, updates: Array, starts: Array) -> Any:
    """A scatter if one axis is cut; else each element looks up whether it lies in the block."""
    axes = _cut(x.shape, updates.shape)
    if not axes:
        return updates
    clipped = _starts(xp, starts, x.shape, updates.shape, axes)
    if axes == [0]:
        rows = xp.expand_dims(_places(xp, clipped, 0, updates.shape[0]), 1)
        return xp.node("ScatterND", [x, rows, updates], x.dtype, x.shape)
    if len(axes) == 1:
        (axis,) = axes
        places = along(xp, _places(xp, clipped, 0, updates.shape[axis]), axis, x.ndim)
        places = xp.broadcast_to(places, updates.shape)
        return xp.node("ScatterElements", [x, places, updates], x.dtype, x.shape, axis=axis)
    inside: Any = None
    for i, axis in enumerate(axes):
        start = xp.part(xp.value(clipped), 0, i, 1)
        from_start = xp.subtract(xp.arange(x.shape[axis], dtype=np.int64), start)
        fitting, within = bounded(xp, from_start, updates.shape[axis])
        updates = xp.take(updates, fitting, axis)
        within = along(xp, within, axis, x.ndim)
        inside = within if inside is None else xp.logical_and(inside, within)
    return xp.where(inside, updates, x)


def _split(xp: Writing, x: Array, *, sizes: Sequence[Size], axis: int) -> Any:
    parts = xp.parts(xp.value(x), sizes, axis)
    return parts if len(parts) > 1 else parts[0]


SLICES: Mapping[type[Op], Callable[..., Any]] = {
    StridedSlice: lambda xp, x, *, spans: xp.cut(x, spans),
    StridedSliceGrad: _spread,
    TensorStridedSliceUpdate: _updated,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _dynamic_update_slice,
    PadV2: lambda xp, x, value, *, paddings: xp.padded(x, paddings, value),
    Split: _split,
}
