"""Elements chosen by integer tensors, and what follows from them: one-hot, sorting, ranges.

An index outside of an axis chooses nothing, on every engine: :func:`gather` gives 0 there, :func:`scatter_add` drops
the update, :func:`one_hot` has no hit. Negative indices do not count from the end. So gather is always the product
with a one-hot matrix, and scatter-add the product with its transpose.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.batch_rules import ALONG, GATHER, ONE_HOT, SCATTER
from stopgrad.build import apply, emit, evaluate, raise_for
from stopgrad.builder import default_graph
from stopgrad.errors import ArgumentError, DTypeError, ShapeError
from stopgrad.graph import Output
from stopgrad.op import Axis, Op, Sizes, not_differentiable
from stopgrad.operands import Tensor, as_array, show_shape, type_of
from stopgrad.ops.convert import where
from stopgrad.ops.data import zeros_like
from stopgrad.ops.inference import check_dtype, check_same_dtype, is_integer, is_number, is_real, normal_axis
from stopgrad.ops.shape import broadcast_to
from stopgrad.public import builds
from stopgrad.samples import floats, ints, sample
from stopgrad.types import (
    Dim,
    DType,
    DTypeLike,
    Shape,
    Size,
    TensorType,
    at_least,
    dtype_of,
    float64,
    int32,
    same_size,
    shape_of,
    tensor_type,
)

__all__ = [
    "argsort",
    "gather",
    "one_hot",
    "range",
    "scatter_add",
    "sort",
    "take_along_axis",
    "top_k",
]

_WHERE = not_differentiable("an index has no derivative")


def _inside(xp: Any, indices: Any, size: int) -> Any:
    return (indices >= 0) & (indices < size)


def _outside_to_end(xp: Any, indices: Any, size: int) -> Any:
    """Indices with all that lie outside mapped to *size*, so that JAX counts none from the end."""
    signed = indices.astype(np.int64 if indices.dtype.itemsize == 8 else np.int32)
    return xp.where(_inside(xp, indices, size), signed, size)


def _take(xp: Any, x: Any, at: tuple[Any, ...], axis: int, inside: Any) -> Any:
    """``x[at]``, and 0 where the index along *axis* is outside. NumPy."""
    if x.shape[axis] == 0:
        return xp.zeros(np.broadcast_shapes(*(np.shape(i) for i in at)) + x.shape[len(at) :], x.dtype)
    found = x[at]
    if inside.all():
        return found
    return xp.where(
        inside.reshape(inside.shape + (1,) * (found.ndim - inside.ndim)), found, xp.zeros((), x.dtype)
    )


def _get(xp: Any, x: Any, at: tuple[Any, ...], axis: int) -> Any:
    """``x[at]``, and 0 where the index along *axis* is outside. JAX, which does not index an axis without elements."""
    if x.shape[axis] == 0:
        return xp.zeros(np.broadcast_shapes(*(i.shape for i in at)) + x.shape[len(at) :], x.dtype)
    return x.at[at].get(mode="fill", fill_value=0)


def _add(x: Any, at: tuple[Any, ...], updates: Any, axis: int) -> Any:
    return x.at[at].add(updates, mode="drop") if x.shape[axis] else x


# --------------------------------------------------------------------------------------------- gather


def _gathered_shape(params: TensorType, indices: TensorType, axis: int, batch_dims: int) -> Shape:
    check_dtype(indices, is_integer, "integers as indices")
    normal_axis(axis, params.ndim)
    if not 0 <= batch_dims <= min(axis, indices.ndim):
        raise ShapeError(
            f"(C3) batch_dims={batch_dims} must lie between 0 and the axis {axis}, and indices have {indices.ndim} axes"
        )
    if not all(
        same_size(a, b) for a, b in zip(params.shape[:batch_dims], indices.shape[:batch_dims], strict=True)
    ):
        raise ShapeError(f"(C3) the first {batch_dims} sizes of {params!r} and {indices!r} differ")
    return (*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1 :])


def _batched(xp: Any, indices: Any, batch_dims: int) -> tuple[Any, ...]:
    """Positions along the batch axes that broadcast with the indices, and then the indices."""
    grid = [
        xp.arange(n).reshape((1,) * i + (n,) + (1,) * (indices.ndim - i - 1))
        for i, n in enumerate(indices.shape[:batch_dims])
    ]
    return (*grid, indices)


def _gather_perm(ndim: int, count: int, axis: int, batch_dims: int) -> list[int]:
    """From [batch, chosen, before, after] to [batch, before, chosen, after]; *count* axes are chosen."""
    chosen = list(builtins.range(batch_dims, batch_dims + count))
    before = list(builtins.range(batch_dims + count, count + axis))
    return [*builtins.range(batch_dims), *before, *chosen, *builtins.range(count + axis, ndim)]


class GatherV2(Op):
    """Slices of a tensor along an axis, chosen by indices.

    Args:
        params: any tensor; indices: integers (C1).
        axis: along which to choose (C2); batch_dims: how many leading axes the two share (C3), at most axis.

    Returns:
        a tensor of shape params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis + 1:]. Indices outside
        of the axis, negative ones too, give 0 and take no gradient.

    Examples:
        >>> sg.gather(np.array([10.0, 20.0, 30.0]), np.array([2, 0, 3]))
        array([30., 10.,  0.])
    """

    @staticmethod
    def infer(params: TensorType, indices: TensorType, *, axis: Axis, batch_dims: int) -> TensorType:
        return tensor_type(params.dtype, _gathered_shape(params, indices, axis, batch_dims))

    gradient = {
        "params": lambda g, op: scatter_add(zeros_like(op.params), op.indices, g, op.axis, op.batch_dims),
        "indices": _WHERE,
    }

    batch = GATHER

    @staticmethod
    def lower(xp: Any, params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
        x, inside = xp.moveaxis(params, axis, batch_dims), _inside(xp, indices, params.shape[axis])
        found = _take(xp, x, _batched(xp, xp.where(inside, indices, 0), batch_dims), batch_dims, inside)
        return found.transpose(_gather_perm(found.ndim, indices.ndim - batch_dims, axis, batch_dims))

    @staticmethod
    def xla(xp: Any, params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
        x = xp.moveaxis(params, axis, batch_dims)
        at = _batched(xp, _outside_to_end(xp, indices, params.shape[axis]), batch_dims)
        found = _get(xp, x, at, batch_dims)
        return found.transpose(_gather_perm(found.ndim, indices.ndim - batch_dims, axis, batch_dims))

    samples = [
        sample(floats(4, 3), ints(5, low=-1, high=5), axis=0, batch_dims=0),
        sample(floats(2, 3, "n"), ints(2, 2, low=0, high=3), axis=1, batch_dims=0),
        sample(floats(2, 3, 4, 2), ints(2, 5, low=0, high=4), axis=2, batch_dims=1),
        sample(floats("n", 3), ints(low=0, high=3), axis=1, batch_dims=0),
        sample(floats(0, 2), ints(3, low=0, high=1), axis=0, batch_dims=0),
    ]


@builds(GatherV2)
def gather(
    params: Any, indices: Any, axis: int | None = None, batch_dims: int = 0, name: str | None = None
) -> Tensor:
    ndim, indices = type_of(params).ndim, _as_indices(indices)
    batch = batch_dims + type_of(indices).ndim if batch_dims < 0 else batch_dims
    return apply(
        GatherV2,
        (params, indices),
        (batch if axis is None else _axis(GatherV2, axis, ndim, (params, indices)), batch),
        name,
    )


def _axis(definition: type[Op], axis: Any, ndim: int, operands: Sequence[Any]) -> int:
    try:
        return normal_axis(axis, ndim)
    except ShapeError as error:
        raise_for(definition, error, operands)


def _as_indices(indices: Any) -> Any:
    """Python numbers and lists as int32, whatever the tensor that they index holds."""
    return indices if hasattr(indices, "dtype") or hasattr(indices, "as_output") else as_array(indices)


class TensorScatterAdd(Op):
    """A tensor with updates added to slices along an axis, chosen by indices: the transpose of :func:`gather`.

    Args:
        x: numbers; indices: integers (C1).
        updates: of x's dtype (C4), of the shape that gathering from x with these indices has (C5).
        axis: along which to choose (C2); batch_dims: how many leading axes x and the indices share (C3).

    Returns:
        the sum. Indices that occur more than once add up; those outside of the axis, negative ones too, are dropped.

    Examples:
        >>> sg.scatter_add(np.zeros(3), np.array([2, 0, 2, 3]), np.array([1.0, 2.0, 4.0, 8.0]))
        array([2., 0., 5.])
    """

    @staticmethod
    def infer(
        x: TensorType, indices: TensorType, updates: TensorType, *, axis: Axis, batch_dims: int
    ) -> TensorType:
        check_same_dtype(x, updates, constraint="C4")
        check_dtype(x, is_number, "numbers", "C4")
        expected = _gathered_shape(x, indices, axis, batch_dims)
        if len(expected) != updates.ndim or not all(map(same_size, expected, updates.shape)):
            raise ShapeError(f"(C5) the updates must have the shape {show_shape(expected)}, not {updates!r}")
        return x

    gradient = {
        "x": lambda g, op: g,
        "indices": _WHERE,
        "updates": lambda g, op: gather(g, op.indices, op.axis, op.batch_dims),
    }

    batch = SCATTER

    @staticmethod
    def lower(xp: Any, x: Any, indices: Any, updates: Any, axis: int, batch_dims: int) -> Any:
        order = _gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        moved = xp.moveaxis(xp.array(x), axis, batch_dims)
        inside = _inside(xp, indices, x.shape[axis])
        at = tuple(xp.broadcast_to(i, indices.shape)[inside] for i in _batched(xp, indices, batch_dims))
        xp.add.at(moved, at, updates.transpose(xp.argsort(order))[inside])
        return xp.moveaxis(moved, batch_dims, axis)

    @staticmethod
    def xla(xp: Any, x: Any, indices: Any, updates: Any, axis: int, batch_dims: int) -> Any:
        order = _gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        moved = xp.moveaxis(x, axis, batch_dims)
        at = _batched(xp, _outside_to_end(xp, indices, x.shape[axis]), batch_dims)
        moved = _add(moved, at, updates.transpose(np.argsort(order)), batch_dims)
        return xp.moveaxis(moved, batch_dims, axis)

    samples = [
        sample(floats(4, 3), ints(5, low=-1, high=5), floats(5, 3), axis=0, batch_dims=0),
        sample(floats(2, 3, "n"), ints(2, 2, low=0, high=3), floats(2, 2, 2, "n"), axis=1, batch_dims=0),
        sample(floats(2, 3, 4, 2), ints(2, 5, low=0, high=4), floats(2, 3, 5, 2), axis=2, batch_dims=1),
        sample(ints(4), ints(3, low=0, high=4), ints(3), axis=0, batch_dims=0),
        sample(floats(0, 2), ints(3, low=0, high=1), floats(3, 2), axis=0, batch_dims=0),
    ]


@builds(TensorScatterAdd)
def scatter_add(
    x: Any, indices: Any, updates: Any, axis: int = 0, batch_dims: int = 0, name: str | None = None
) -> Tensor:
    indices = _as_indices(indices)
    return apply(
        TensorScatterAdd,
        (x, indices, updates),
        (_axis(TensorScatterAdd, axis, type_of(x).ndim, (x, indices, updates)), batch_dims),
        name,
    )


# ------------------------------------------------------------------------------------ along one axis


def _grid(xp: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """For each axis the positions of the indices' elements, the indices themselves along *axis*."""
    ndim = indices.ndim
    return tuple(
        indices if i == axis else xp.arange(n).reshape((1,) * i + (n,) + (1,) * (ndim - i - 1))
        for i, n in enumerate(indices.shape)
    )


def _check_along(x: TensorType, indices: TensorType, axis: int) -> None:
    check_dtype(indices, is_integer, "integers as indices")
    normal_axis(axis, x.ndim)
    if x.ndim != indices.ndim or not all(
        i == axis or same_size(a, b) for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))
    ):
        raise ShapeError(f"(C3) the sizes of {x!r} and {indices!r} differ in more than axis {axis}")


class TakeAlongAxis(Op):
    """One element per index, from the same row: ``result[i, j] = x[i, indices[i, j]]`` for axis 1.

    Args:
        x: any tensor; indices: integers (C1), with x's sizes except along the axis (C3).
        axis: along which to choose (C2). The function also repeats axes of size 1.

    Returns:
        a tensor of the indices' shape. Indices outside of the axis, negative ones too, give 0 and take no gradient.

    Examples:
        >>> sg.take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), axis=1)
        array([[2.],
               [3.]])
    """

    @staticmethod
    def infer(x: TensorType, indices: TensorType, *, axis: Axis) -> TensorType:
        _check_along(x, indices, axis)
        return tensor_type(x.dtype, indices.shape)

    gradient = {
        "x": lambda g, op: scatter_add_along_axis(zeros_like(op.x), op.indices, g, op.axis),
        "indices": _WHERE,
    }

    batch = ALONG

    @staticmethod
    def lower(xp: Any, x: Any, indices: Any, axis: int) -> Any:
        inside = _inside(xp, indices, x.shape[axis])
        return _take(xp, x, _grid(xp, xp.where(inside, indices, 0), axis), axis, inside)

    @staticmethod
    def xla(xp: Any, x: Any, indices: Any, axis: int) -> Any:
        return _get(xp, x, _grid(xp, _outside_to_end(xp, indices, x.shape[axis]), axis), axis)

    samples = [
        sample(floats(2, 3), ints(2, 4, low=-1, high=4), axis=1),
        sample(floats("n", 3), ints(2, 3, low=0, high=3), axis=0),
        sample(floats(2, 3), ints(2, 0, low=0, high=3), axis=1),
        sample(floats(2, 0), ints(2, 1, low=0, high=3), axis=1),
    ]


@builds(TakeAlongAxis)
def take_along_axis(x: Any, indices: Any, axis: int = -1, name: str | None = None) -> Tensor:
    indices = _as_indices(indices)
    kind, chosen = type_of(x), type_of(indices)
    position = _axis(TakeAlongAxis, axis, kind.ndim, (x, indices))
    if kind.ndim == chosen.ndim:
        x = _repeated(x, kind.shape, chosen.shape, position)
        indices = _repeated(indices, chosen.shape, kind.shape, position)
    return apply(TakeAlongAxis, (x, indices), (position,), name)


def _repeated(x: Any, shape: Shape, other: Shape, axis: int) -> Any:
    """*x* repeated where it has size 1 and *other* has not, except along *axis*."""
    wanted = tuple(a if i == axis or a != 1 else b for i, (a, b) in enumerate(zip(shape, other, strict=True)))
    return x if wanted == shape else broadcast_to(x, wanted)


class ScatterAddAlongAxis(Op):
    """A tensor with an update added per index, in the same row: the transpose of :func:`take_along_axis`.

    Args:
        x: numbers; indices: integers (C1), with x's sizes except along the axis (C3).
        updates: of x's dtype (C4) and the indices' shape (C5).
        axis: along which to choose (C2).

    Returns:
        the sum. Indices that occur more than once add up; those outside of the axis, negative ones too, are dropped.

    Examples:
        >>> sg.ops.ScatterAddAlongAxis.function(np.zeros((1, 3)), np.array([[2, 2]]), np.ones((1, 2)), axis=1)
        array([[0., 0., 2.]])
    """

    @staticmethod
    def infer(x: TensorType, indices: TensorType, updates: TensorType, *, axis: Axis) -> TensorType:
        check_same_dtype(x, updates, constraint="C4")
        check_dtype(x, is_number, "numbers", "C4")
        _check_along(x, indices, axis)
        if updates.ndim != indices.ndim or not all(map(same_size, updates.shape, indices.shape)):
            raise ShapeError(
                f"(C5) the updates must have the shape {show_shape(indices.shape)}, not {updates!r}"
            )
        return x

    gradient = {
        "x": lambda g, op: g,
        "indices": _WHERE,
        "updates": lambda g, op: take_along_axis(g, op.indices, op.axis),
    }

    batch = ALONG

    @staticmethod
    def lower(xp: Any, x: Any, indices: Any, updates: Any, axis: int) -> Any:
        total, inside = xp.array(x), _inside(xp, indices, x.shape[axis])
        xp.add.at(
            total,
            tuple(xp.broadcast_to(i, indices.shape)[inside] for i in _grid(xp, indices, axis)),
            updates[inside],
        )
        return total

    @staticmethod
    def xla(xp: Any, x: Any, indices: Any, updates: Any, axis: int) -> Any:
        return _add(x, _grid(xp, _outside_to_end(xp, indices, x.shape[axis]), axis), updates, axis)

    samples = [
        sample(floats(2, 3), ints(2, 4, low=-1, high=4), floats(2, 4), axis=1),
        sample(floats("n", 3), ints(2, 3, low=0, high=3), floats(2, 3), axis=0),
        sample(floats(2, 0), ints(2, 1, low=0, high=3), floats(2, 1), axis=1),
    ]


@builds(ScatterAddAlongAxis)
def scatter_add_along_axis(
    x: Any, indices: Any, updates: Any, axis: int = -1, name: str | None = None
) -> Tensor:
    indices = _as_indices(indices)
    return apply(
        ScatterAddAlongAxis,
        (x, indices, updates),
        (_axis(ScatterAddAlongAxis, axis, type_of(x).ndim, (x, indices, updates)),),
        name,
    )


# -------------------------------------------------------------------------------------------- one-hot


class OneHot(Op):
    """A new axis that holds one value where its position is the index, and another elsewhere.

    Args:
        indices: integers (C1).
        on_value, off_value: scalars of one dtype (C2); numbers, by default 1 and 0 of *dtype* (float32).
        depth: the size of the new axis, which may be symbolic; axis: its position in the result (C3), by default last.

    Returns:
        the one-hot tensor; an index outside of [0, depth) has no hit.

    Examples:
        >>> sg.one_hot(np.array([1, 0, 3]), 3)
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """

    @staticmethod
    def infer(
        indices: TensorType, on_value: TensorType, off_value: TensorType, *, depth: Size, axis: Axis
    ) -> TensorType:
        check_dtype(indices, is_integer, "integers as indices")
        dtype = check_same_dtype(on_value, off_value, constraint="C2")
        if on_value.ndim or off_value.ndim:
            raise ShapeError(f"(C2) the values must be scalars, not {on_value!r} and {off_value!r}")
        normal_axis(axis, indices.ndim + 1, "C3")
        return tensor_type(dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))

    gradient = {
        "indices": _WHERE,
        "on_value": lambda g, op: where(_hits(op), g, 0),
        "off_value": lambda g, op: where(_hits(op), 0, g),
    }

    batch = ONE_HOT

    @staticmethod
    def lower(xp: Any, indices: Any, on_value: Any, off_value: Any, depth: int, axis: int) -> Any:
        positions = xp.arange(depth, dtype=indices.dtype).reshape((depth,) + (1,) * (indices.ndim - axis))
        return xp.where(xp.expand_dims(indices, axis) == positions, on_value, off_value)

    samples = [
        sample(ints(4, low=-1, high=4), floats(), floats(), depth=3, axis=1),
        sample(ints("n", 2, low=0, high=3), floats(), floats(), depth=3, axis=0),
        sample(ints(low=0, high=3), floats(), floats(), depth=2, axis=0),
    ]


def _hits(op: Any) -> Tensor:
    return apply(OneHot, (op.indices, np.array(True), np.array(False)), (op.depth, op.axis))


@builds(OneHot)
def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    indices = _as_indices(indices)
    typed = next(
        (type_of(v).dtype for v in (on_value, off_value) if hasattr(v, "dtype") or hasattr(v, "as_output")),
        None,
    )
    wanted = dtype_of(dtype) if dtype is not None else typed or dtype_of("float32")
    on_value, off_value = (
        v if hasattr(v, "dtype") or hasattr(v, "as_output") else as_array(v, wanted)
        for v in (on_value, off_value)
    )
    if dtype is not None and typed is not None and typed is not wanted:
        raise_for(
            OneHot,
            DTypeError(f"(C2) the values are {typed}, but dtype={wanted} was asked"),
            (indices, on_value, off_value),
        )
    operands = (indices, on_value, off_value)
    position = _axis(OneHot, axis, type_of(indices).ndim + 1, operands)
    return apply(OneHot, operands, (shape_of(depth)[0], position), name)


# -------------------------------------------------------------------------------------------- sorting


def _order(xp: Any, x: Any, axis: int, descending: bool) -> Any:
    """Positions in sorted order; equal elements keep theirs, in both directions."""
    if not descending:
        return xp.argsort(x, axis=axis, stable=True)
    return xp.flip(x.shape[axis] - 1 - xp.argsort(xp.flip(x, axis), axis=axis, stable=True), axis)


def _along(x: TensorType, axis: int) -> None:
    check_dtype(x, is_real, "real numbers")
    normal_axis(axis, x.ndim)


class Argsort(Op):
    """The positions of the elements in sorted order, along an axis. Equal elements keep their order.

    Args:
        x: real numbers (C1); NaN counts as larger than all others.
        axis: along which (C2); direction: "ASCENDING" or "DESCENDING".

    Returns:
        int32 positions, of x's shape.

    Examples:
        >>> sg.argsort(np.array([3.0, 1.0, 3.0, 2.0]), direction="DESCENDING")
        array([0, 2, 3, 1], dtype=int32)
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, descending: bool) -> TensorType:
        _along(x, axis)
        return tensor_type(int32, x.shape)

    gradient = not_differentiable("a position has no derivative")
    batch = ALONG
    lower = lambda xp, x, axis, descending: _order(xp, x, axis, descending).astype(np.int32)
    samples = [
        sample(floats(2, 4), axis=1, descending=False),
        sample(ints("n", 3, low=0, high=3), axis=0, descending=True),
        sample(floats(0), axis=0, descending=True),
    ]
    extremes = (([[1.0, math.nan, -math.inf, math.inf]],),)


class Sort(Op):
    """The elements in sorted order, along an axis.

    Args:
        x: real numbers (C1); NaN counts as larger than all others.
        axis: along which (C2); direction: "ASCENDING" or "DESCENDING".

    Returns:
        x sorted. The gradient goes back to where each element came from; equal elements count as sorted in their
        order, so that each has its own part.

    Examples:
        >>> sg.sort(np.array([3.0, 1.0, 2.0]))
        array([1., 2., 3.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, descending: bool) -> TensorType:
        _along(x, axis)
        return x

    # The inverse of a permutation is the order that sorts it: no scatter.
    gradient = {
        "x": lambda g, op: take_along_axis(
            g, _argsort(_argsort(op.x, op.axis, op.descending), op.axis, False), op.axis
        )
    }

    batch = ALONG

    @staticmethod
    def lower(xp: Any, x: Any, axis: int, descending: bool) -> Any:
        ordered = xp.sort(x, axis=axis)
        return xp.flip(ordered, axis) if descending else ordered

    samples = [
        sample(floats(2, 4, distinct=True), axis=1, descending=False),
        sample(floats("n", 3, distinct=True), axis=0, descending=True),
        sample(floats(0), axis=0, descending=False),
    ]
    extremes = (([[1.0, math.nan, -math.inf, math.inf]],),)


def _argsort(x: Any, axis: int, descending: bool) -> Tensor:
    return apply(Argsort, (x,), (axis, descending))


def _descending(direction: str) -> bool:
    if direction.upper() not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(f"{direction!r} is no direction; take 'ASCENDING' or 'DESCENDING'")
    return direction.upper() == "DESCENDING"


@builds(Argsort)
def argsort(x: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    return apply(Argsort, (x,), (_axis(Argsort, axis, type_of(x).ndim, (x,)), _descending(direction)), name)


@builds(Sort)
def sort(x: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    return apply(Sort, (x,), (_axis(Sort, axis, type_of(x).ndim, (x,)), _descending(direction)), name)


class TopKV2(Op):
    """The k largest elements along the last axis, largest first, and where they stand.

    Args:
        x: real numbers (C1), with at least one axis (C2) and k elements along the last (C3); NaN counts as larger
        than all others.
        k: how many.

    Returns:
        the values and their int32 positions. Of equal elements the first come first; they alone take the gradient.

    Examples:
        >>> sg.top_k(np.array([3.0, 1.0, 4.0, 1.0]), 2)
        (array([4., 3.]), array([2, 0], dtype=int32))
    """

    @staticmethod
    def infer(x: TensorType, *, k: Size) -> tuple[TensorType, TensorType]:
        _along(x, -1)
        if isinstance(k, int) and isinstance(x.shape[-1], int) and k > x.shape[-1]:
            raise ShapeError(f"(C3) the last axis of {x!r} has fewer than {k} elements")
        shape = (*x.shape[:-1], k)
        return tensor_type(x.dtype, shape), tensor_type(int32, shape)

    gradient = {"x": lambda g, op: scatter_add_along_axis(zeros_like(op.x), op.outputs[1], g[0], -1)}

    batch = ALONG

    @staticmethod
    def lower(xp: Any, x: Any, k: int) -> Any:
        order = _order(xp, x, x.ndim - 1, True)[..., :k]
        return xp.take_along_axis(x, order, -1), order.astype(np.int32)

    samples = [
        sample(floats(2, 4, distinct=True), k=2),
        sample(floats("n", 3, distinct=True), k=3),
        sample(floats(3), k=0),
    ]
    extremes = (([1.0, math.nan, -math.inf, math.inf],),)


@builds(TopKV2)
def top_k(x: Any, k: Any = 1, name: str | None = None) -> tuple[Tensor, Tensor]:
    values, indices = apply(TopKV2, (x,), (shape_of(k)[0],), name)
    return values, indices


# --------------------------------------------------------------------------------------------- ranges


class Range(Op):
    """Numbers at equal distances.

    Args:
        start, limit, delta: numbers or sizes, which may be symbolic; with one argument it is the limit, and start is 0.
            delta is not 0 (C1) and not symbolic.
        dtype: of the result; by default int32, or float32 if one of them is a float.

    Returns:
        start, start + delta, …, as far as it lies before limit.

    Examples:
        >>> sg.range(2, 8, 3)
        array([2, 5], dtype=int32)
    """

    @staticmethod
    def infer(*, start: Sizes, size: Size, delta: Sizes, dtype: DType) -> TensorType:
        check_dtype(tensor_type(dtype, ()), is_number, "numbers")
        return tensor_type(dtype, (size,))

    gradient = {}

    @staticmethod
    def lower(xp: Any, start: Any, size: int, delta: Any, dtype: DType) -> Any:
        return xp.arange(size).astype(dtype.numpy) * xp.asarray(delta, dtype.numpy) + xp.asarray(
            start, dtype.numpy
        )

    samples = [
        sample(start=2, size=3, delta=-3, dtype=int32),
        sample(start=0.5, size=3, delta=0.25, dtype=float64),
        sample(start=0, size=0, delta=1, dtype=int32),
    ]


@builds(Range)
def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    if limit is None:
        start, limit = 0, start
    numbers = [
        n if isinstance(n, (Dim, float)) else n.item() if isinstance(n, (np.generic, np.ndarray)) else n
        for n in (start, limit, delta)
    ]
    for number in numbers:
        if isinstance(number, Output) or not isinstance(number, (int, float, Dim)):
            raise ShapeError(
                f"takes numbers and sizes, not {number!r}: the result's size must be known when the graph is built"
            )
    start, limit, delta = numbers
    if isinstance(delta, Dim) or delta == 0:
        raise ShapeError(f"(C1) delta must be a number other than 0, not {delta!r}")
    symbolic = isinstance(start, Dim) or isinstance(limit, Dim)
    if any(isinstance(n, float) for n in numbers):
        if symbolic:
            raise ShapeError("with a symbolic size, start, limit and delta must be whole numbers")
        kind, size = "float32", max(math.ceil((limit - start) / delta), 0)
    elif symbolic:
        reach = (limit - start) if delta > 0 else (start - limit)
        kind, size = (
            "int32",
            limit
            if start == 0 and delta == 1
            else at_least((reach + (builtins.abs(delta) - 1)) // builtins.abs(delta), 0),
        )
    else:
        kind, size = "int32", len(builtins.range(start, limit, delta))
    values = (start, size, delta, dtype_of(dtype if dtype is not None else kind))
    graph = default_graph()
    return evaluate(Range, (), values) if graph is None else emit(Range, (), values, name, graph).outputs[0]
