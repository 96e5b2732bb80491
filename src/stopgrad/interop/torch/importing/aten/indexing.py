"""Operators that read or write at given indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import Refused, Value, along, axis_of, brought, product, static
from stopgrad.interop.shared.slices import part
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table
from stopgrad.interop.torch.importing.aten.shapes import diagonal_places, strided_places
from stopgrad.ops.indexing.indexed_updates import Updates
from stopgrad.ops.shapes.reshape import reshape


def _cut(x: sg.Output, index: sg.Output, axis: int) -> sg.Output:
    """x cut to the sizes of the index along all axes but one."""
    for i in range(x.ndim):
        if i != axis and x.shape[i] is not index.shape[i] and x.shape[i] != index.shape[i]:
            x = part(x, i, 0, index.shape[i])
    return x


def _gathered(call: Call, x: sg.Output, dim: int, index: sg.Output, **_: object) -> sg.Output:
    if not x.ndim:
        return x if not index.ndim else sg.broadcast_to(x, index.shape)
    if not index.ndim:
        index = reshape(index, [1])
        return reshape(sg.take_along_axis(x, index, axis_of(dim, x.ndim)), [])
    axis = axis_of(dim, x.ndim)
    return sg.take_along_axis(_cut(x, index, axis), index, axis)


class _Scattering:
    """The elements of a tensor that an index selects along one axis, to be written to."""

    def __init__(self, x: sg.Output, dim: int, index: sg.Output) -> None:
        self.scalar = not x.ndim
        self.x = reshape(x, [1]) if self.scalar else x
        self.index = reshape(index, [1]) if not index.ndim else index
        axis = axis_of(dim, self.x.ndim)
        ndim = self.x.ndim
        self.places = tuple(
            self.index if i == axis else along(sg.range(0, self.index.shape[i], dtype=sg.int64), i, ndim)
            for i in range(ndim)
        )

    def updates(self, source: Value) -> sg.Output:
        """What is written: a number broadcast to the index's shape, or a tensor cut to it."""
        if not isinstance(source, sg.Output) or not source.ndim:
            return sg.broadcast_to(brought(source, self.x.dtype, self.x), self.index.shape)
        written = brought(source, self.x.dtype)
        for i in range(written.ndim):
            if _differs(written, self.index, i):
                written = part(written, i, 0, self.index.shape[i])
        return written

    def at(self, x: sg.Output | None = None) -> Updates:
        return sg.at(self.x if x is None else x)[self.places]

    def ended(self, y: sg.Output) -> sg.Output:
        return reshape(y, []) if self.scalar else y


def _differs(x: sg.Output, y: sg.Output, axis: int) -> bool:
    return bool(x.shape[axis] is not y.shape[axis] and x.shape[axis] != y.shape[axis])


def _scattered(
    call: Call, x: sg.Output, dim: int, index: sg.Output, source: Value, *, reduce: str | None = None
) -> sg.Output:
    to = _Scattering(x, dim, index)
    if _is_empty(to.index):
        return x
    if reduce is None:
        return to.ended(to.at().set(to.updates(source)))
    return to.ended(getattr(to.at(), reduce)(to.updates(source)))


def _is_empty(index: sg.Output) -> bool:
    return any(not isinstance(size, sg.Dim) and size == 0 for size in index.shape)


def _scatter_added(call: Call, x: sg.Output, dim: int, index: sg.Output, source: sg.Output) -> sg.Output:
    to = _Scattering(x, dim, index)
    if _is_empty(to.index):
        return x
    return to.ended(to.at().add(to.updates(source)))


def _scatter_reduced(
    call: Call,
    x: sg.Output,
    dim: int,
    index: sg.Output,
    source: sg.Output,
    reduce: str,
    *,
    include_self: bool = True,
) -> sg.Output:
    to = _Scattering(x, dim, index)
    if _is_empty(to.index):
        return x
    updates = to.updates(source)
    base = to.x
    if not include_self:  # The old elements are replaced by the neutral element of the reduction.
        base = to.at().set(_neutral(reduce, updates))
    at = to.at(base)
    if reduce in ("sum", "mean"):
        total = at.add(updates)
        if reduce == "sum":
            return to.ended(total)
        counted = sg.int64 if base.dtype.is_integer else base.dtype
        first: Any = sg.full(list(base.shape), 1 if include_self else 0, counted)
        counts = to.at(first).add(sg.full(list(to.index.shape), 1, counted))
        counts = sg.maximum(counts, brought(1, counted))
        if base.dtype.is_integer:
            return to.ended(sg.cast(sg.floor_divide(total, sg.cast(counts, base.dtype)), base.dtype))
        return to.ended(sg.realdiv(total, counts))
    return to.ended({"prod": at.multiply, "amax": at.max, "amin": at.min}[reduce](updates))


def _neutral(reduce: str, updates: sg.Output) -> Tensor:
    if reduce in ("amax", "amin") and updates.dtype.is_floating:
        value = -np.inf if reduce == "amax" else np.inf
    elif reduce in ("amax", "amin"):
        limits = np.iinfo(updates.dtype.numpy)
        value = limits.min if reduce == "amax" else limits.max
    else:
        value = 1 if reduce == "prod" else 0
    return sg.full(list(updates.shape), value, updates.dtype)


# ------------------------------------------------------------------------------------- advanced indices


def _index_of(x: sg.Output, indices: Sequence[sg.Output | None]) -> tuple[Any, ...]:
    """PyTorch's list of indices as a tuple for brackets: None stands for a whole axis."""
    return tuple(slice(None) if index is None else index for index in indices)


def _indexed(call: Call, x: sg.Output, indices: Sequence[sg.Output | None]) -> sg.Output:
    if any(index is not None and index.dtype.is_bool for index in indices):
        raise Refused(
            "how many elements a mask chooses is known only when the program runs; keep the shape instead, "
            "with torch.where(mask, x, 0), or multiply by the mask"
        )
    return x[_index_of(x, indices)]


def _put(
    call: Call, x: sg.Output, indices: Sequence[sg.Output | None], values: sg.Output, accumulate: bool = False
) -> sg.Output:
    masks = [index for index in indices if index is not None and index.dtype.is_bool]
    values = brought(values, x.dtype)
    if masks and not _is_scalar(values):
        raise Refused(
            "a mask takes a number here, for how many elements it chooses is known only when the program "
            "runs; write torch.where(mask, values, x)"
        )
    if masks:
        values = reshape(values, [])
    at = sg.at(x)[_index_of(x, indices)]
    return at.add(values) if accumulate else at.set(values)


def _is_scalar(x: sg.Output) -> bool:
    return all(not isinstance(size, sg.Dim) and size == 1 for size in x.shape)


def _chosen(call: Call, x: sg.Output, dim: int, index: sg.Output) -> sg.Output:
    if not x.ndim:
        return x
    index = reshape(index, [-1]) if not index.ndim else index
    return sg.take(x, index, axis_of(dim, x.ndim))


def _mask_scattered(call: Call, x: sg.Output, mask: sg.Output, source: sg.Output) -> sg.Output:
    """Writes the elements of a source, one after the other, where a mask is true."""
    mask = sg.broadcast_to(mask, x.shape)
    number = sg.cumsum(sg.cast(reshape(mask, [-1]), sg.int64), 0)
    place = sg.maximum(sg.subtract(number, brought(1, sg.int64)), brought(0, sg.int64))
    values = reshape(sg.take(reshape(source, [-1]), place, 0), list(x.shape))
    return sg.where(mask, values, x)


def _nonzero(call: Call, x: sg.Output) -> sg.Output:
    raise Refused(
        "how many elements are not 0 is known only when the program runs; use masks that keep the shape, "
        "such as torch.where(x != 0, y, 0)"
    )


def _masked(call: Call, x: sg.Output, mask: sg.Output) -> sg.Output:
    return _indexed(call, x, [mask])


# ------------------------------------------------------------------------------------- written views


def _slice_written(
    call: Call,
    x: sg.Output,
    source: sg.Output,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> sg.Output:
    axis = axis_of(dim, x.ndim)
    size = x.shape[axis]
    if not isinstance(size, sg.Dim) and not any(isinstance(n, sg.Dim) for n in (start, end)):
        places: Any = np.arange(size)[slice(start, end, step)]
        if not places.size:
            return x
    else:
        every: Any = sg.range(0, size, dtype=sg.int64)
        places = part(every, 0, 0 if start is None else start, end or None, step)
    source = sg.broadcast_to(source, [*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :]])
    return sg.at(x)[(slice(None),) * axis + (places,)].set(source)


def _diagonal_written(
    call: Call, x: sg.Output, source: sg.Output, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    rows, columns = static([x.shape[first], x.shape[second]], "a diagonal")
    moved = sg.moveaxis(x, (first, second), (x.ndim - 2, x.ndim - 1))
    written = sg.at(moved)[(..., *diagonal_places(rows, columns, offset))].set(source)
    return sg.moveaxis(written, (x.ndim - 2, x.ndim - 1), (first, second))


def _strided_written(
    call: Call,
    x: sg.Output,
    source: sg.Output,
    size: Sequence[Size],
    stride: Sequence[Size],
    offset: int | None = None,
) -> sg.Output:
    if not call.scale(0).is_contiguous():
        raise Refused("as_strided writes the memory of a tensor that is not laid out row by row; use views")
    sizes, strides = static(size, "as_strided"), static(stride, "as_strided")
    places = strided_places(sizes, strides, int(offset or 0))
    return reshape(sg.at(reshape(x, [-1]))[places].set(source), list(x.shape))


# -------------------------------------------------------------------------------------------- embeddings


def _embedded(
    call: Call,
    weight: sg.Output,
    indices: sg.Output,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> sg.Output:
    rows = sg.take(weight, indices, 0)
    if padding_idx >= 0:  # The row of the padding takes no gradient.
        padding = sg.expand_dims(sg.equal(indices, brought(padding_idx, indices.dtype)), -1)
        rows = sg.where(padding, sg.stop_gradient(rows), rows)
    if scale_grad_by_freq:
        counts = sg.at(sg.zeros([weight.shape[0]], weight.dtype))[indices].add(brought(1, weight.dtype))
        share = sg.expand_dims(sg.reciprocal(sg.take(counts, indices, 0)), -1)
        stopped = sg.stop_gradient(rows)
        rows = sg.add(stopped, sg.multiply(sg.subtract(rows, stopped), share))
    return rows


def _bagged(
    call: Call,
    weight: sg.Output,
    indices: sg.Output,
    offsets: sg.Output,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: sg.Output | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[sg.Output, None, None, None]:
    """Embedding bags: sums (mode 0), means (1) or maxima (2) of the rows of each bag."""
    if any(call.uses(i) for i in (1, 2, 3)):
        raise Refused("of embedding_bag only the first result is translated; use that alone")
    count = product(indices.shape)
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    starts = part(offsets, 0, 0, bags)
    steps = sg.range(0, count, dtype=offsets.dtype)
    bag = sg.subtract(sg.searchsorted(starts, steps, side="right"), 1)
    rows = _embedded(call, weight, indices, -1, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = sg.multiply(rows, sg.expand_dims(brought(per_sample_weights, rows.dtype), -1))
    if padding_idx >= 0:  # Rows outside of all segments are dropped.
        bag = sg.where(sg.equal(indices, brought(padding_idx, indices.dtype)), brought(-1, bag.dtype), bag)
    if mode == 2:
        most = sg.unsorted_segment_max(rows, bag, bags)
        empty = sg.equal(sg.unsorted_segment_sum(sg.ones_like(bag), bag, bags), brought(0, bag.dtype))
        result = sg.where(sg.expand_dims(empty, -1), brought(0, rows.dtype), most)
    else:
        result = (sg.unsorted_segment_sum, sg.unsorted_segment_mean)[mode](rows, bag, bags)
    return result, None, None, None


def _bucketed(
    call: Call, x: sg.Output, bounds: sg.Output, *, out_int32: bool = False, right: bool = False
) -> sg.Output:
    x = brought(x, bounds.dtype if bounds.dtype.is_floating else x.dtype, bounds)
    return sg.cast(
        sg.searchsorted(brought(bounds, x.dtype), x, side="right" if right else "left"), call.dtype
    )


def _searched(
    call: Call,
    bounds: sg.Output,
    x: sg.Output,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: sg.Output | None = None,
) -> sg.Output:
    if sorter is not None:
        bounds = sg.take_along_axis(bounds, sorter, -1)
    x = brought(x, bounds.dtype, bounds)
    if bounds.ndim > 1 and not x.ndim:
        raise Refused("searchsorted of one number in several rows has no translation; repeat the number")
    where = side or ("right" if right else "left")
    return sg.cast(sg.searchsorted(bounds, x, side=where), call.dtype)


INDEXING: Table = dict(
    table(
        {
            "gather": _gathered,
            "scatter.src scatter.value": _scattered,
            "scatter.reduce scatter.value_reduce": _scattered,
            "scatter_add": _scatter_added,
            "scatter_reduce.two": _scatter_reduced,
            "index.Tensor": _indexed,
            "index_put": _put,
            "index_select": _chosen,
            "masked_scatter": _mask_scattered,
            "masked_select": _masked,
            "nonzero": _nonzero,
            "slice_scatter": _slice_written,
            "diagonal_scatter": _diagonal_written,
            "as_strided_scatter": _strided_written,
            "embedding": _embedded,
            "_embedding_bag _embedding_bag_forward_only": _bagged,
            "bucketize.Tensor": _bucketed,
            "searchsorted.Tensor searchsorted.Scalar": _searched,
        }
    )
)
