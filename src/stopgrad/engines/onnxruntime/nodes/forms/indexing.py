"""Elements chosen by integer tensors.

ONNX counts negative indices from the end of an axis and refuses those outside. In our
operations both select nothing: such an index is clipped, and what it selects is replaced or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, DType, Size, product
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import (
    along,
    highest,
    lowest,
    moved,
    number,
    reshaped,
    transposed,
)
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing, has_value
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.graph.op import Op
from stopgrad.ops.indexing.gather import (
    GatherV2,
    OneHot,
    ScatterAddAlongAxis,
    TakeAlongAxis,
    TensorScatterAdd,
    gather_perm,
)
from stopgrad.ops.indexing.positions import RavelMultiIndex
from stopgrad.ops.indexing.scatters import (
    TensorScatterMax,
    TensorScatterMin,
    TensorScatterMul,
    TensorScatterUpdate,
)
from stopgrad.ops.order.bins import SearchSorted


def _as_index(xp: Writing, indices: Array, wide: bool) -> Any:
    """Indices as int32 or int64, which Gather takes."""
    dtype = np.dtype(indices.dtype)
    if dtype == np.uint64:
        indices = xp.minimum(indices, number(2**63 - 1, np.uint64))
    target = np.int64 if wide or dtype.itemsize == 8 or dtype == np.uint32 else np.int32
    return xp.astype(indices, target)


def bounded(xp: Writing, indices: Array, size: Size, wide: bool = False) -> tuple[Any, Any]:
    """Indices clipped to an axis of this size, and which were inside; None where all are known to be."""
    indices = _as_index(xp, indices, wide)
    dtype = indices.dtype
    if isinstance(indices, np.ndarray) and not isinstance(size, Dim):
        inside = (indices >= 0) & (indices < size)
        return np.where(inside, indices, number(0, dtype)), None if inside.all() else inside
    if isinstance(size, Dim):
        last = xp.value(size - 1, dtype)
    else:
        last = number(min(size - 1, np.iinfo(dtype).max), dtype)
    fitting = xp.node("Clip", [indices, number(0, dtype), last], dtype, indices.shape)
    return fitting, xp.equal(fitting, indices)


def gather(xp: Writing, params: Array, indices: Array, *, axis: int, batch_dims: int) -> Any:
    """GatherV2: 0 where an index lies outside."""
    shape = (*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1 :])
    if is_known(params.shape) and not params.shape[axis]:
        return xp.zeros(shape, params.dtype)
    clipped, inside = bounded(xp, indices, params.shape[axis], wide=batch_dims > 0)
    if not batch_dims:
        slices = xp.node("Gather", [params, clipped], params.dtype, shape, axis=axis)
    else:
        slices = _batched(xp, params, clipped, axis, batch_dims)
    if inside is None:
        return slices
    inside = along(xp, inside, axis, len(shape), batch_dims)
    return xp.where(inside, slices, number(0, params.dtype))


def _batched(xp: Writing, params: Array, indices: Array, axis: int, batch_dims: int) -> Any:
    x = moved(xp, params, axis, batch_dims)
    indices = xp.expand_dims(indices, indices.ndim)
    shape = (*indices.shape[:-1], *x.shape[batch_dims + 1 :])
    slices = xp.node("GatherND", [x, indices], x.dtype, shape, batch_dims=batch_dims)
    return transposed(xp, slices, gather_perm(len(shape), indices.ndim - 1 - batch_dims, axis, batch_dims))


def _take_along_axis(xp: Writing, x: Array, indices: Array, *, axis: int) -> Any:
    if is_known(x.shape) and not x.shape[axis]:
        return xp.zeros(indices.shape, x.dtype)
    clipped, inside = bounded(xp, indices, x.shape[axis])
    elements = xp.node("GatherElements", [x, clipped], x.dtype, indices.shape, axis=axis)
    return elements if inside is None else xp.where(inside, elements, number(0, x.dtype))


def _ravel(xp: Writing, *indices: Array, sizes: tuple[Any, ...], dtype: DType) -> Any:
    """Flat positions of multi-indices, which may count from the end; -1 for those outside."""
    target = np.dtype(dtype.numpy)
    wide = target.itemsize == 8 or not is_known(sizes)
    total = inside = None
    for index, size in zip(indices, sizes, strict=True):
        front = _as_index(xp, index, wide)
        count = xp.asarray(size, front.dtype)
        if np.dtype(index.dtype).kind == "i":
            front = xp.where(xp.less(front, number(0, front.dtype)), xp.add(front, count), front)
        fitting, within = bounded(xp, xp.value(front), size)
        within = xp.equal(fitting, front) if within is None else within
        front, count = xp.astype(front, target), xp.astype(count, target)
        total = front if total is None else xp.add(xp.multiply(total, count), front)
        inside = within if inside is None else xp.logical_and(inside, within)
    return xp.where(inside, total, number(-1, target))


# ------------------------------------------------------------------------------------------- scatters


def _rows(
    xp: Writing, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int
) -> tuple[Any, Any]:
    """Indices and updates reshaped, so that indices have one axis behind the batch axes."""
    count = product(indices.shape[batch_dims:])
    indices = reshaped(xp, indices, (*indices.shape[:batch_dims], count))
    return indices, reshaped(xp, updates, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _joined(
    xp: Writing, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int, reduction: str
) -> Any:
    """Scatters updates into *x* along an axis. All indices lie inside."""
    if axis == 0:
        indices = xp.expand_dims(xp.astype(indices, np.int64), 1)
        return xp.node("ScatterND", [x, indices, updates], x.dtype, x.shape, reduction=reduction)
    indices = xp.broadcast_to(along(xp, indices, axis, x.ndim, batch_dims), updates.shape)
    return xp.node("ScatterElements", [x, indices, updates], x.dtype, x.shape, axis=axis, reduction=reduction)


def _scatter(reduction: str, neutral: Callable[[Any], Any]) -> Callable[..., Any]:
    """The form of a scatter whose order does not matter; *neutral* gives its neutral element for a dtype."""

    def form(xp: Writing, x: Array, indices: Array, updates: Array, *, axis: int, batch_dims: int) -> Any:
        if is_known(x.shape) and not x.shape[axis]:
            return x
        indices, updates = _rows(xp, x, indices, updates, axis, batch_dims)
        clipped, inside = bounded(xp, indices, x.shape[axis])
        if inside is not None:
            inside = along(xp, inside, axis, x.ndim, batch_dims)
            updates = xp.where(inside, updates, number(neutral(x.dtype), x.dtype))
        return _joined(xp, x, clipped, updates, axis, batch_dims, reduction)

    return form


def _scatter_update(
    xp: Writing, x: Array, indices: Array, updates: Array, *, axis: int, batch_dims: int
) -> Any:
    """Each row becomes its last update.

    ONNX leaves open which update wins, so another scatter first finds the position of the last one.
    """
    if is_known(x.shape) and not x.shape[axis]:
        return x
    indices, updates = _rows(xp, x, indices, updates, axis, batch_dims)
    clipped, inside = bounded(xp, indices, x.shape[axis])
    if (
        isinstance(clipped, np.ndarray)
        and inside is None
        and not batch_dims
        and len(set(clipped.tolist())) == clipped.size
    ):
        return _joined(xp, x, clipped, updates, axis, 0, "none")
    order = xp.broadcast_to(xp.arange(clipped.shape[-1], dtype=np.int64), clipped.shape)
    order = order if inside is None else xp.where(inside, order, number(-1, np.int64))
    none = xp.full((*x.shape[:batch_dims], x.shape[axis]), -1, np.int64)
    last = _joined(xp, none, clipped, order, batch_dims, batch_dims, "max")
    changed = along(xp, xp.greater_equal(last, number(0, np.int64)), axis, x.ndim, batch_dims)
    return xp.where(changed, gather(xp, updates, last, axis=axis, batch_dims=batch_dims), x)


def _scatter_add_along_axis(xp: Writing, x: Array, indices: Array, updates: Array, *, axis: int) -> Any:
    if is_known(x.shape) and not x.shape[axis]:
        return x
    clipped, inside = bounded(xp, indices, x.shape[axis])
    if inside is not None:
        updates = xp.where(inside, updates, number(0, x.dtype))
    return xp.node("ScatterElements", [x, clipped, updates], x.dtype, x.shape, axis=axis, reduction="add")


# ---------------------------------------------------------------------------------------- comparisons


def _one_hot(
    xp: Writing, indices: Array, on_value: Array, off_value: Array, *, depth: Size, axis: int
) -> Any:
    """By comparison: ONNX's OneHot counts negative indices from the end."""
    indices = _as_index(xp, indices, isinstance(depth, Dim))
    places = reshaped(xp, xp.arange(depth, dtype=indices.dtype), (depth, *(1,) * (indices.ndim - axis)))
    hit = xp.equal(xp.expand_dims(indices, axis), places)
    if not has_value([on_value, off_value]) and on_value == 1 and off_value == 0:
        return xp.astype(hit, on_value.dtype)
    return xp.where(hit, on_value, off_value)


def _search_sorted(xp: Writing, sequence: Array, x: Array, *, right: bool, dtype: DType) -> Any:
    """Counts the elements of the sequence that come before each x; NaN comes last."""
    many, one = xp.expand_dims(sequence, sequence.ndim - 1), xp.expand_dims(x, x.ndim)
    before = xp.less_equal(many, one) if right else xp.less(many, one)
    if np.dtype(x.dtype).kind not in "iub":
        unknown = xp.isnan(one)
        last = unknown if right else xp.logical_and(unknown, xp.equal(many, many))
        before = xp.logical_or(before, last)
    return xp.sum(xp.astype(before, dtype.numpy), axis=x.ndim, dtype=dtype.numpy)


INDEXING: Mapping[type[Op], Callable[..., Any]] = {
    GatherV2: gather,
    RavelMultiIndex: _ravel,
    TakeAlongAxis: _take_along_axis,
    TensorScatterAdd: _scatter("add", lambda dtype: 0),
    TensorScatterMul: _scatter("mul", lambda dtype: 1),
    TensorScatterMax: _scatter("max", lowest),
    TensorScatterMin: _scatter("min", highest),
    TensorScatterUpdate: _scatter_update,
    ScatterAddAlongAxis: _scatter_add_along_axis,
    OneHot: _one_hot,
    SearchSorted: _search_sorted,
}
