"""Scatters: elements of a tensor replaced by updates, multiplied by them, or joined by a maximum or minimum.

The scatter that adds, the transpose of gathering, is in ``gather.py``. Indices outside of the axis choose
nothing: the update is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Axis,
    DType,
    Namespace,
    NumpyArray,
    Op,
    Operation,
    Output,
    Promotion,
    Spans,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import divide, multiply
from stopgrad.ops.elementwise.compare import equal, not_equal
from stopgrad.ops.elementwise.convert import cast, conj, where, wide
from stopgrad.ops.indexing.gather import (
    GatherV2,
    TensorScatterAdd,
    batched_positions,
    gather_perm,
    gathered_shape,
    lies_inside,
    outside_to_end,
)
from stopgrad.ops.indexing.positions import as_indices, from_front
from stopgrad.ops.indexing.slices import StridedSlice, check_spans, part_of, slices_of
from stopgrad.ops.order.sorting import argsort
from stopgrad.ops.reductions.recurrence import linear_recurrence, shifted
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import broadcast_to, reshape, transpose
from stopgrad.ops.structural.sources import fill, ones_like, zeros_like

__all__ = [
    "scatter_max",
    "scatter_min",
    "scatter_multiply",
    "scatter_update",
]


_DOCUMENT = """\
Constraints:
    (C4) x and the updates {hold}.
"""


def _typed(allowed: Callable[[DType], bool]) -> Any:
    """The inference rule of a scatter that allows these dtypes."""

    def infer(
        x: TensorType, indices: TensorType, updates: TensorType, *, axis: Axis, batch_dims: int
    ) -> TensorType:
        d.check_same_dtype(x, updates, constraint="C4")
        d.check_dtype(x, allowed, d.DESCRIPTIONS[allowed], "C4")
        d.check_shape(updates, gathered_shape(x, indices, axis, batch_dims), "the updates", "C5")
        return x

    return staticmethod(d.documented(infer, _DOCUMENT, allowed))


def _by_numpy(join: Callable[[Any, Any, Any], None]) -> Any:
    """A lowering for NumPy: *join* is called with an array to change, indices, and updates."""

    def lower(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int) -> Array:
        order = gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        moved = xp.moveaxis(xp.array(x), axis, batch_dims)
        inside = lies_inside(xp, indices, x.shape[axis])
        at = tuple(
            xp.broadcast_to(i, indices.shape)[inside] for i in batched_positions(xp, indices, batch_dims)
        )
        join(moved, at, xp.transpose(updates, xp.argsort(order))[inside])
        return xp.moveaxis(moved, batch_dims, axis)

    return staticmethod(lower)


def _by_jax(method: str) -> Any:
    """A lowering for JAX, through a method of ``x.at[indices]``."""

    def xla(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int) -> Array:
        if not x.shape[axis]:  # JAX does not index an axis without elements.
            return x
        order = gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        at = batched_positions(xp, outside_to_end(xp, indices, x.shape[axis]), batch_dims)
        chosen = xp.moveaxis(x, axis, batch_dims).at[at]
        moved = getattr(chosen, method)(xp.transpose(updates, np.argsort(order)), mode="drop")
        return xp.moveaxis(moved, batch_dims, axis)

    return staticmethod(xla)


class Scatter(Op, abstract=True):
    """Updates joined with the elements of a tensor that indices choose along an axis.

    Args:
        x: the tensor to begin with.
        indices: where along the axis; the function counts negative ones from its end.
        axis: along which to choose.
        batch_dims: how many leading axes x and the indices share.

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in x.
        (C3) batch_dims is at most axis and the number of the indices' axes, and x and the indices agree in
            the sizes of that many leading axes.
        (C5) The updates have the shape that gathering from x with these indices has.
    """

    batch = d.SCATTER
    samples: d.Samples = [
        d.sample(
            d.floats(4, 3, distinct=True),
            np.array([3, -1, 3, 7, 1], np.int32),
            d.floats(5, 3, distinct=True, low=-2.1, high=2.0),
            axis=0,
            batch_dims=0,
        ),
        d.sample(
            d.floats(2, 3, "n", distinct=True),
            np.array([[0, 2]], np.int32),
            d.floats(2, 1, 2, "n", distinct=True, low=-2.1, high=2.0),
            axis=1,
            batch_dims=0,
        ),
        d.sample(
            d.floats(2, 3, 4, 2, distinct=True),
            np.array([[3, 3, 1], [2, 0, 2]], np.int32),
            d.floats(2, 3, 3, 2, distinct=True, low=-2.1, high=2.0),
            axis=2,
            batch_dims=1,
        ),
        d.sample(d.floats(3, distinct=True), d.ints(low=0, high=3), d.floats(), axis=0, batch_dims=0),
        d.sample(d.floats(0, 2), d.ints(3, low=0, high=1), d.floats(3, 2), axis=0, batch_dims=0),
        d.sample(d.ints(4), np.array([3, -1, 3, 7, 1], np.int32), d.ints(5), axis=0, batch_dims=0),
    ]


_NO_SLOPE = d.not_differentiable("an index has no derivative")


def _take(op: Operation, x: Output) -> Tensor:
    """The elements of *x* that the operation's indices choose."""
    return d.apply(GatherV2, (x, op.indices), (op.axis, op.batch_dims))


def _scatter(definition: type[Op], op: Operation, x: Output, updates: Output) -> Tensor:
    """Another scatter with the operation's indices."""
    return d.apply(definition, (x, op.indices, updates), (op.axis, op.batch_dims))


# ----------------------------------------------------------------------------------------------- the last


def _set(x: NumpyArray, at: tuple[NumpyArray, ...], updates: NumpyArray) -> None:
    x[at] = updates


class TensorScatterUpdate(Scatter):
    """A tensor with the slices that indices choose replaced.

    Args:
        updates: the new slices.

    Returns:
        The tensor. Of several updates to one place the last remains, and only that one gets a gradient;
        updates outside of the axis are dropped.

    Examples:
        >>> sg.scatter_update(np.zeros(3), np.array([2, 0, 2]), np.array([1.0, 2.0, 4.0]))
        array([2., 0., 4.])
    """

    infer = _typed(d.is_any)
    promotes = Promotion(d.is_any, ("x", "updates"))
    gradient: d.Gradient = {
        "x": lambda g, op: _scatter(TensorScatterUpdate, op, g, zeros_like(op.updates)),
        "indices": _NO_SLOPE,
        "updates": lambda g, op: _of_the_last(_take(op, g), op),
    }
    moves = ("x", "updates")
    lower: d.Lowering = _by_numpy(_set)
    xla: d.Lowering = _by_jax("set")


def _of_the_last(g: Output, op: Operation) -> Tensor:
    """*g*, with 0 for the updates that a later one replaced."""
    indices, axes = op.indices, op.batch_dims
    chosen = indices.shape[axes:]
    if all(isinstance(n, int) and n == 1 for n in chosen):
        return g
    count = d.product(chosen)
    places = broadcast_to(reshape(numbers(count), chosen), indices.shape)
    nobody = fill((*op.x.shape[:axes], op.x.shape[op.axis]), np.int32(-1))
    last = d.apply(TensorScatterMax, (nobody, indices, places), (axes, axes))
    remains = equal(d.apply(GatherV2, (last, indices), (axes, axes)), places)
    spread = (*indices.shape[:axes], *(1,) * (op.axis - axes), *chosen, *(1,) * (op.x.ndim - op.axis - 1))
    return where(reshape(remains, spread), g, 0)


# ------------------------------------------------------------------------------------------------ extremes


class ScatterExtremum(Scatter, abstract=True):
    """The largest or the smallest of each element and its updates.

    Args:
        updates: what to compare with the elements there.
    """

    infer: ClassVar[d.Infer] = _typed(d.is_real)
    gradient: d.Gradient = {
        "x": lambda g, op: where(equal(op.x, op.result), _shares(g, op), 0),
        "indices": _NO_SLOPE,
        "updates": lambda g, op: where(equal(op.updates, _take(op, op.result)), _take(op, _shares(g, op)), 0),
    }


def _shares(g: Output, op: Operation) -> Tensor:
    """The cotangent divided by how many values tie for the extreme."""
    g = wide(g)
    ones = cast(equal(op.x, op.result), g.dtype)
    count = _scatter(TensorScatterAdd, op, ones, cast(equal(op.updates, _take(op, op.result)), g.dtype))
    return divide(g, count)


class TensorScatterMax(ScatterExtremum):
    """A tensor with each element that indices choose replaced by the largest of it and its updates.

    Returns:
        The largest values; NaN where one of them is NaN. Updates outside of the axis are dropped. Values that
        tie share the gradient evenly, and a NaN makes the gradient of all of them NaN, as in reduce_max.

    Examples:
        >>> sg.scatter_max(np.zeros(3), np.array([2, 0, 2]), np.array([1.0, -2.0, 4.0]))
        array([0., 0., 4.])
    """

    promotes = Promotion(d.is_real, ("x", "updates"))
    lower: d.Lowering = _by_numpy(np.maximum.at)
    xla: d.Lowering = _by_jax("max")


class TensorScatterMin(ScatterExtremum):
    """A tensor with each element that indices choose replaced by the smallest of it and its updates.

    Returns:
        The smallest values; NaN where one of them is NaN. Updates outside of the axis are dropped. Values
        that tie share the gradient evenly, and a NaN makes the gradient of all of them NaN, as in reduce_min.

    Examples:
        >>> sg.scatter_min(np.zeros(3), np.array([2, 0, 2]), np.array([1.0, -2.0, -4.0]))
        array([-2.,  0., -4.])
    """

    promotes = Promotion(d.is_real, ("x", "updates"))
    lower: d.Lowering = _by_numpy(np.minimum.at)
    xla: d.Lowering = _by_jax("min")


# ------------------------------------------------------------------------------------------------ products


class TensorScatterMul(Scatter):
    """A tensor with the slices that indices choose multiplied by updates.

    Args:
        updates: the factors.

    Returns:
        The products. Indices that occur more than once multiply more than once; those outside of the axis are
        dropped. The gradient is right even where a factor is 0, since it multiplies the other factors instead
        of dividing by this one.

    Examples:
        >>> sg.scatter_multiply(np.ones(3), np.array([2, 0, 2]), np.array([2.0, 3.0, 4.0]))
        array([3., 1., 8.])
    """

    infer = _typed(d.is_number)
    promotes = Promotion(d.is_number, ("x", "updates"))
    gradient: d.Gradient = {
        "x": lambda g, op: multiply(g, conj(_scatter(TensorScatterMul, op, ones_like(op.x), op.updates))),
        "indices": _NO_SLOPE,
        "updates": lambda g, op: multiply(
            wide(_take(op, multiply(g, conj(op.x)))), conj(_products_of_others(wide(op.updates), op))
        ),
    }
    rounds_once = True
    lower: d.Lowering = _by_numpy(np.multiply.at)
    xla: d.Lowering = _by_jax("multiply")
    samples: d.Samples = [
        *Scatter.samples,
        d.sample(
            d.floats(2),
            np.array([1, 1, 0, 1], np.int32),
            np.array([0.0, 2.0, 3.0, 0.0]),
            axis=0,
            batch_dims=0,
        ),
        d.sample(d.complexes(2), np.array([1, 1], np.int32), d.complexes(2), axis=0, batch_dims=0),
    ]


def _products_of_others(updates: Output, op: Operation) -> Tensor:
    """For each update, the product of all other updates to the same place.

    With the updates sorted by place, that is the product of those before it times that of those after it.
    """
    axes, chosen = op.batch_dims, op.indices.shape[op.batch_dims :]
    if all(isinstance(n, int) and n == 1 for n in chosen):
        return ones_like(updates)
    order = gather_perm(updates.ndim, len(chosen), op.axis, axes)
    first = transpose(updates, tuple(np.argsort(order).tolist()))  # [batch, chosen, before, after]
    shape = (*first.shape[:axes], d.product(chosen), *first.shape[axes + len(chosen) :])
    places = reshape(op.indices, shape[: axes + 1])
    by_place = argsort(places, axes)
    places = d.apply(GatherV2, (places, by_place), (axes, axes))
    rows = d.apply(GatherV2, (reshape(first, shape), by_place), (axes, axes))
    before = _running_product(rows, begins(places, axes, False), axes, False)
    after = _running_product(rows, begins(places, axes, True), axes, True)
    back = argsort(by_place, axes)
    others = d.apply(GatherV2, (multiply(before, after), back), (axes, axes))
    return transpose(reshape(others, first.shape), order)


def begins(places: Output, axis: int, reverse: bool) -> Tensor:
    """Where, in a sorted list of places, a new place begins; in reverse, where one ends."""
    size = places.shape[axis]
    if isinstance(size, int) and not size:
        return equal(places, places)
    one, rest = part_of(places, axis, size - 1 if reverse else 0, 1), size - 1
    new = not_equal(part_of(places, axis, 1, rest), part_of(places, axis, 0, rest))
    yes = ones_like(one, "bool")
    return concat([new, yes] if reverse else [yes, new], axis)


def _running_product(rows: Output, begins: Output, axis: int, reverse: bool) -> Tensor:
    """For each row, the product of the rows before it since the last beginning."""
    begins = reshape(begins, (*begins.shape, *(1,) * (rows.ndim - begins.ndim)))
    one = where(begins, ones_like(rows), 0)
    return linear_recurrence(
        where(begins, zeros_like(rows), shifted(rows, axis, reverse)), one, axis, reverse
    )


# -------------------------------------------------------------------------------------------------- slices


class TensorStridedSliceUpdate(Op):
    """A tensor with elements at regular distances along each axis replaced; behind ``x.at[a:b:c].set``.

    Args:
        x: the tensor to begin with.
        updates: what to put there.
        spans: for each axis the first element, the number of elements and the step.

    Returns:
        The tensor.

    Constraints:
        (C1) There is one span for each axis of x.
        (C2) All the elements lie in x.
        (C3) x and the updates have one dtype.
        (C4) The updates have the slice's shape.

    Examples:
        >>> sg.ops.TensorStridedSliceUpdate.function(np.zeros(4), np.ones(2), ((1, 2, 2),))
        array([0., 1., 0., 1.])
    """

    @staticmethod
    def infer(x: TensorType, updates: TensorType, *, spans: Spans) -> TensorType:
        check_spans(spans, x)
        d.check_same_dtype(x, updates, constraint="C3")
        d.check_shape(updates, tuple(size for _, size, _ in spans), "the updates", "C4", of="the slice")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(TensorStridedSliceUpdate, (g, zeros_like(op.updates)), (op.spans,)),
        "updates": lambda g, op: d.apply(StridedSlice, (g,), (op.spans,)),
    }
    batch = d.along(spans=lambda size: (0, size, 1))
    moves = ("x", "updates")

    @staticmethod
    def lower(xp: Namespace, x: Array, updates: Array, spans: Spans) -> Array:
        full = xp.array(x)
        full[slices_of(spans)] = updates
        return full

    @staticmethod
    def xla(xp: Namespace, x: Any, updates: Array, spans: Spans) -> Array:
        if all(step == 1 for _, _, step in spans):
            return xp.lax.dynamic_update_slice(x, updates, [start for start, _, _ in spans])
        return x.at[slices_of(spans)].set(updates)

    samples: d.Samples = [
        d.sample(d.floats(5, 3), d.floats(2, 3), spans=((1, 2, 2), (2, 3, -1))),
        d.sample(d.floats(5, 3), d.floats(2, 2), spans=((1, 2, 1), (0, 2, 1))),
        d.sample(d.floats(4), d.floats(0), spans=((0, 0, 1),)),
        d.sample(d.ints(4), d.ints(2), spans=((0, 2, 1),)),
    ]


@d.builds(TensorStridedSliceUpdate)
def strided_slice_update(x: ArrayLike, updates: ArrayLike, spans: Spans, name: str | None = None) -> Tensor:
    return d.apply(TensorStridedSliceUpdate, (x, updates), (spans,), name)


def _public(definition: type[Op], function_name: str) -> Callable[..., Tensor]:
    def function(
        x: ArrayLike,
        indices: ArrayLike,
        updates: ArrayLike,
        axis: int = 0,
        batch_dims: int = 0,
        name: str | None = None,
    ) -> Tensor:
        indices, kind = as_indices(indices), d.type_of(x)
        position = d.axis_in(definition, axis, x)
        return d.apply(
            definition,
            (x, from_front(indices, kind.shape[position]), updates),
            (position, d.whole(batch_dims)),
            name,
        )

    function.__name__ = function.__qualname__ = function_name
    return d.builds(definition)(function)


scatter_update: Callable[..., Tensor] = _public(TensorScatterUpdate, "scatter_update")
scatter_max: Callable[..., Tensor] = _public(TensorScatterMax, "scatter_max")
scatter_min: Callable[..., Tensor] = _public(TensorScatterMin, "scatter_min")
scatter_multiply: Callable[..., Tensor] = _public(TensorScatterMul, "scatter_multiply")


def put(x: ArrayLike, places: ArrayLike, updates: ArrayLike) -> Tensor:
    """*x* with rows replaced by updates; those with a negative place are dropped."""
    return d.apply(TensorScatterUpdate, (x, places, updates), (0, 0))
