"""Operators that move elements, and those that make tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import Dim
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import Refused, axes_of, axis_of, brought, product, static
from stopgrad.interop.shared.slices import padded, part
from stopgrad.interop.torch.importing.aten.calling import Call, Table, Translation, table
from stopgrad.ops.shapes.reshape import reshape


def _viewed(call: Call, x: sg.Output, sizes: Sequence[Size]) -> sg.Output:
    return reshape(x, list(sizes))


def _permuted(call: Call, x: sg.Output, dims: Sequence[int]) -> sg.Output:
    return sg.transpose(x, axes_of(dims, x.ndim)) if x.ndim else x


def _transposed(call: Call, x: sg.Output) -> sg.Output:
    return sg.swapaxes(x, 0, 1) if x.ndim > 1 else x


def _expanded(call: Call, x: sg.Output, sizes: Sequence[Size], **_: object) -> sg.Output:
    present = (1,) * (len(sizes) - x.ndim) + tuple(x.shape)
    shape = [
        old if isinstance(new, int) and new == -1 else new for old, new in zip(present, sizes, strict=True)
    ]
    return sg.broadcast_to(x, shape)


def _squeezed(call: Call, x: sg.Output, dims: Sequence[int] | int | None = None) -> sg.Output:
    every = axes_of(dims, x.ndim) if x.ndim else ()
    if dims is not None and not isinstance(dims, int) and not len(dims):
        every = ()
    gone = {axis for axis in every if not isinstance(x.shape[axis], sg.Dim) and x.shape[axis] == 1}
    return sg.squeeze(x, sorted(gone)) if gone else x


def _unsqueezed(call: Call, x: sg.Output, dim: int) -> sg.Output:
    return sg.expand_dims(x, axis_of(dim, x.ndim + 1))


def _sliced(
    call: Call, x: sg.Output, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> sg.Output:
    return part(x, axis_of(dim, x.ndim), start, end, step)


def _selected(call: Call, x: sg.Output, dim: int, index: sg.Output | Size) -> sg.Output:
    axis = axis_of(dim, x.ndim)
    if isinstance(index, sg.Output):
        return sg.take(x, index, axis)
    return x[(slice(None),) * axis + (index,)]


def _joined(call: Call, tensors: Sequence[sg.Output], dim: int = 0) -> sg.Output:
    # PyTorch allows empty vectors among tensors of any shape.
    ndim = max(x.ndim for x in tensors)
    same_rank = [x for x in tensors if x.ndim == ndim]
    same_rank = [brought(x, call.dtype) for x in same_rank]
    return sg.concat(same_rank, axis_of(dim, ndim)) if len(same_rank) > 1 else same_rank[0]


def _split(call: Call, x: sg.Output, sizes: Sequence[Size] | int, dim: int = 0) -> tuple[sg.Output, ...]:
    axis = axis_of(dim, x.ndim)
    if not isinstance(sizes, Sequence):
        (length,) = static([x.shape[axis]], "a split into parts of one size")
        step = max(sizes, 1)
        sizes = [min(step, length - start) for start in range(0, length, step)] or [0]
    starts: list[Size] = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return tuple(part(x, axis, a, b) for a, b in itertools.pairwise(starts))


def _unbound(call: Call, x: sg.Output, dim: int = 0) -> tuple[sg.Output, ...]:
    return tuple(sg.unstack(x, axis=axis_of(dim, x.ndim)))


def _flipped(call: Call, x: sg.Output, dims: Sequence[int]) -> sg.Output:
    return sg.flip(x, axes_of(dims, x.ndim)) if len(dims) and x.ndim else x


def _repeated(call: Call, x: sg.Output, repeats: Sequence[Size]) -> sg.Output:
    missing = len(repeats) - x.ndim
    if missing:
        x = reshape(x, [1] * missing + list(x.shape))
    return sg.tile(x, list(repeats)) if x.ndim else x


def _diagonal(call: Call, x: sg.Output, offset: int = 0, dim1: int = 0, dim2: int = 1) -> sg.Output:
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    rows, columns = static([x.shape[first], x.shape[second]], "a diagonal")
    i, j = diagonal_places(rows, columns, offset)
    x = sg.moveaxis(x, (first, second), (x.ndim - 2, x.ndim - 1))
    flat = reshape(x, [*x.shape[:-2], rows * columns])
    return sg.take(flat, i * columns + j, flat.ndim - 1)


def diagonal_places(rows: int, columns: int, offset: int) -> tuple[Any, Any]:
    """The rows and columns of a diagonal's elements."""
    start = (0, offset) if offset >= 0 else (-offset, 0)
    count = max(min(rows - start[0], columns - start[1]), 0)
    return start[0] + np.arange(count), start[1] + np.arange(count)


def _strided(
    call: Call, x: sg.Output, size: Sequence[Size], stride: Sequence[Size], offset: int | None = None
) -> sg.Output:
    sizes, strides = static(size, "as_strided"), static(stride, "as_strided")
    before = call.scale(0)
    if not before.is_contiguous():
        raise Refused("as_strided reads the memory of a tensor that is not laid out row by row; use views")
    return sg.take(reshape(x, [-1]), strided_places(sizes, strides, int(offset or 0)), 0)


def strided_places(sizes: Sequence[int], strides: Sequence[int], offset: int) -> np.ndarray[Any, Any]:
    """The positions in memory of the elements of a tensor with these strides."""
    places = np.full(sizes, offset, np.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        shape = [1] * len(sizes)
        shape[axis] = size
        places = places + (np.arange(size) * stride).reshape(shape)
    return places


def _unfolded(call: Call, x: sg.Output, dim: int, size: int, step: int) -> sg.Output:
    if not x.ndim:
        return reshape(x, [1])
    axis = axis_of(dim, x.ndim)
    (length,) = static([x.shape[axis]], "unfold")
    starts = np.arange(0, length - size + 1, step)
    windows = sg.take(x, starts[:, None] + np.arange(size), axis)
    return sg.moveaxis(windows, axis + 1, windows.ndim - 1)


def triangle(lower: bool) -> Callable[..., sg.Output]:
    """tril and triu."""

    def translated(call: Call, x: sg.Output, diagonal: int = 0) -> sg.Output:
        return (sg.tril if lower else sg.triu)(x, diagonal)

    return translated


# -------------------------------------------------------------------------------------------- padding


def _pairs(pad: Sequence[Size], ndim: int) -> list[tuple[Any, Any]]:
    """PyTorch's list of paddings, which begins with the last axis, as a pair for each axis."""
    pairs: list[tuple[Any, Any]] = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        pairs[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return pairs


def _constant_padded(call: Call, x: sg.Output, pad: Sequence[Size], value: float = 0) -> sg.Output:
    return padded(x, _pairs(pad, x.ndim), value)


# ---------------------------------------------------------------------------------------------- making


def _filled(call: Call, size: Sequence[Size], value: float, **_: object) -> sg.Output:
    return _of_shape(call, size, value)


def _of_shape(call: Call, size: Sequence[Size], value: float) -> Tensor:
    if isinstance(value, (sg.Output, sg.Dim)):
        return sg.broadcast_to(brought(value, call.dtype, value), list(size))
    if call.dtype.is_bool:
        value = bool(value)
    return sg.full(list(size), value, call.dtype)


def _filled_like(call: Call, x: sg.Output, value: float, **_: object) -> sg.Output:
    return _of_shape(call, x.shape, value)


def constant_of(value: float) -> Translation:
    """``zeros``, ``ones``, and ``empty``, for which we take 0."""

    def translated(call: Call, size: Sequence[Size], *_: object, **__: object) -> sg.Output:
        return _of_shape(call, size, value)

    return translated


def _counted(call: Call, *numbers: Any, **_: object) -> sg.Output:
    start, end, step = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: numbers}[len(numbers)]
    dtype = call.dtype
    if any(isinstance(n, sg.Dim) for n in (start, end, step)):
        return sg.cast(sg.range(start, end, step, dtype=sg.int64), dtype)
    count = max(math.ceil((end - start) / step), 0)
    steps = np.arange(count, dtype=np.float64 if isinstance(start + step, float) else np.int64)
    return sg.constant((start + steps * step).astype(dtype.numpy), dtype)


def _count(call: Call, x: sg.Output) -> Size:
    return product(x.shape)


def _size(call: Call, x: sg.Output, dim: int) -> int | Dim:
    return x.shape[axis_of(dim, x.ndim)]


def _stride(call: Call, x: sg.Output, dim: int) -> Size:
    """The stride of an axis, for a tensor laid out row by row."""
    if not call.scale(0).is_contiguous():
        return call.values[0]
    return product(x.shape[axis_of(dim, x.ndim) + 1 :])


def _start(call: Call, x: sg.Output) -> int:
    return call.scale(0).storage_offset()


def _same(call: Call, x: sg.Output, *_: object, **__: object) -> sg.Output:
    return x


SHAPES: Table = dict(
    table(
        {
            "view reshape view_copy _reshape_copy": _viewed,
            "permute permute_copy": _permuted,
            "numpy_T": _transposed,
            "expand": _expanded,
            "squeeze.dims": _squeezed,
            "unsqueeze": _unsqueezed,
            "slice.Tensor slice_copy.Tensor": _sliced,
            "narrow narrow_copy": lambda call, x, dim, start, length: _sliced(
                call, x, dim, start, start + length
            ),
            "select.int select_copy.int": _selected,
            "cat": _joined,
            "split_with_sizes split_copy.Tensor": _split,
            "unbind_copy.int": _unbound,
            "flip": _flipped,
            "repeat": _repeated,
            "diagonal": _diagonal,
            "as_strided as_strided_copy": _strided,
            "unfold": _unfolded,
            "constant_pad_nd": _constant_padded,
            "clone alias view_of contiguous": _same,
            "full": _filled,
            "full_like": _filled_like,
            "empty.memory_format empty_strided empty_permuted": constant_of(0),
            "arange.start_step": _counted,
            "sym_numel": _count,
            "sym_size.int": _size,
            "sym_stride.int": _stride,
            "sym_storage_offset": _start,
        }
    )
)
