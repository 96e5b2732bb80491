"""Elements chosen by integer tensors.

In the functions that choose along an axis, negative indices count from its end, as in NumPy. An index outside
of the axis chooses nothing, on every engine: :func:`gather` gives 0 there, :func:`scatter_add` drops the
update. The operations themselves count from the front only: to them a negative index lies outside, as it does
for :func:`one_hot`. So a gather is always the product with a one-hot matrix, and a scatter-add the product
with its transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Axis,
    DType,
    DTypeError,
    DTypeLike,
    Namespace,
    NumpyArray,
    Op,
    Operation,
    Promotion,
    Shape,
    ShapeError,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.indexing.positions import as_indices, from_front
from stopgrad.ops.shapes.reshape import broadcast_to
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "gather",
    "one_hot",
    "scatter_add",
    "take_along_axis",
]

_WHERE = d.not_differentiable("an index has no derivative")


def lies_inside(xp: Namespace, indices: Array, size: int) -> Any:
    """Which indices lie in an axis of this size."""
    # JAX would wrap a size that the indices' dtype cannot hold.
    fits = size <= np.iinfo(indices.dtype).max
    return (indices >= 0) & (indices < size) if fits else indices >= 0


def outside_to_end(xp: Namespace, indices: Array, size: int) -> Any:
    """Indices with all that lie outside mapped to *size*, so that JAX counts none from the end."""
    signed = indices.astype(np.int64 if indices.dtype.itemsize == 8 else np.int32)
    return xp.where(lies_inside(xp, indices, size), signed, size)


def _take(xp: Namespace, x: Array, index: tuple[Any, ...], axis: int, inside: NumpyArray) -> Any:
    """``x[at]``, and 0 where the index along *axis* is outside, with NumPy."""
    if x.shape[axis] == 0:
        return xp.zeros(np.broadcast_shapes(*(np.shape(i) for i in index)) + x.shape[len(index) :], x.dtype)
    taken = x[index]
    if inside.all():
        return taken
    return xp.where(
        inside.reshape(inside.shape + (1,) * (taken.ndim - inside.ndim)), taken, xp.zeros((), x.dtype)
    )


def _get(xp: Namespace, x: Array, indices: Array, batch_dims: int) -> Any:
    """``x[..., indices]`` along the axis *batch_dims*, and 0 where the index is outside, with JAX."""
    if x.shape[batch_dims] == 0:  # JAX does not index an axis without elements.
        return xp.zeros(indices.shape + x.shape[batch_dims + 1 :], x.dtype)
    return _batched(xp, lambda x, i: x.at[i].get(mode="fill", fill_value=0), batch_dims)(x, indices)


def _add(xp: Namespace, x: Array, indices: Array, updates: Array, batch_dims: int) -> Array:
    add = _batched(xp, lambda x, i, u: x.at[i].add(u, mode="drop"), batch_dims)
    return add(x, indices, updates) if x.shape[batch_dims] else x


def _batched(xp: Namespace, function: Callable[..., Array], batch_dims: int) -> Callable[..., Array]:
    """*function* mapped over leading axes by ``jax.vmap``, so that XLA can divide the batch over devices."""
    for _ in range(batch_dims):
        function = xp.jax.vmap(function)
    return function


# --------------------------------------------------------------------------------------------- gather


def gathered_shape(params: TensorType, indices: TensorType, axis: int, batch_dims: int) -> Shape:
    d.check_dtype(indices, d.is_integer, "integers as indices")
    d.normal_axis(axis, params.ndim)
    if not 0 <= batch_dims <= min(axis, indices.ndim):
        raise ShapeError(
            f"(C3) batch_dims={batch_dims} must lie between 0 and the axis {axis}, and indices have "
            f"{indices.ndim} axes"
        )
    if not d.same_shape(params.shape[:batch_dims], indices.shape[:batch_dims]):
        raise ShapeError(f"(C3) the first {batch_dims} sizes of {params!r} and {indices!r} differ")
    return (*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1 :])


def batched_positions(xp: Namespace, indices: Array, batch_dims: int) -> tuple[Any, ...]:
    """Positions along the batch axes, shaped to broadcast with the indices, followed by the indices."""
    grid = [
        xp.arange(n).reshape((1,) * i + (n,) + (1,) * (indices.ndim - i - 1))
        for i, n in enumerate(indices.shape[:batch_dims])
    ]
    return (*grid, indices)


def gather_perm(ndim: int, count: int, axis: int, batch_dims: int) -> list[int]:
    """The permutation from [batch, *count* chosen, before, after] to [batch, before, chosen, after]."""
    chosen = list(range(batch_dims, batch_dims + count))
    before = list(range(batch_dims + count, count + axis))
    return [*range(batch_dims), *before, *chosen, *range(count + axis, ndim)]


class GatherV2(Op):
    """Slices of a tensor along an axis, chosen by indices.

    Args:
        params: any tensor.
        indices: where along the axis; the function counts negative ones from its end, and takes Python
            integers as int32.
        axis: along which to choose; the function counts it from the end if negative, and takes batch_dims by
            default.
        batch_dims: how many leading axes the two share.

    Returns:
        A tensor of shape params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis + 1:]. Indices
        outside of the axis give 0 and take no gradient.

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in params.
        (C3) batch_dims is at most axis and the number of the indices' axes, and params and indices agree in
            the sizes of that many leading axes.

    Examples:
        >>> sg.gather(np.array([10.0, 20.0, 30.0]), np.array([2, 0, -1, 3]))
        array([30., 10., 30.,  0.])
    """

    @staticmethod
    def infer(params: TensorType, indices: TensorType, *, axis: Axis, batch_dims: int) -> TensorType:
        return d.tensor_type(params.dtype, gathered_shape(params, indices, axis, batch_dims))

    gradient: d.Gradient = {
        "params": lambda g, op: d.apply(
            TensorScatterAdd, (zeros_like(op.params), op.indices, g), (op.axis, op.batch_dims)
        ),
        "indices": _WHERE,
    }

    batch = d.GATHER
    pads = True
    moves = ("params",)

    @staticmethod
    def lower(xp: Namespace, params: Array, indices: Array, axis: int, batch_dims: int) -> Array:
        x, inside = xp.moveaxis(params, axis, batch_dims), lies_inside(xp, indices, params.shape[axis])
        gathered = _take(
            xp, x, batched_positions(xp, xp.where(inside, indices, 0), batch_dims), batch_dims, inside
        )
        return gathered.transpose(gather_perm(gathered.ndim, indices.ndim - batch_dims, axis, batch_dims))

    @staticmethod
    def xla(xp: Namespace, params: Array, indices: Array, axis: int, batch_dims: int) -> Array:
        x = xp.moveaxis(params, axis, batch_dims)
        gathered = _get(xp, x, outside_to_end(xp, indices, params.shape[axis]), batch_dims)
        return gathered.transpose(gather_perm(gathered.ndim, indices.ndim - batch_dims, axis, batch_dims))

    samples: d.Samples = [
        d.sample(d.floats(4, 3), d.ints(5, low=-1, high=5), axis=0, batch_dims=0),
        d.sample(d.floats(2, 3, "n"), d.ints(2, 2, low=0, high=3), axis=1, batch_dims=0),
        d.sample(d.floats(2, 3, 4, 2), d.ints(2, 5, low=0, high=4), axis=2, batch_dims=1),
        d.sample(d.floats("n", 3), d.ints(low=0, high=3), axis=1, batch_dims=0),
        d.sample(d.floats(0, 2), d.ints(3, low=0, high=1), axis=0, batch_dims=0),
    ]


@d.builds(GatherV2)
def gather(
    params: ArrayLike,
    indices: ArrayLike,
    validate_indices: None = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    if validate_indices is not None:
        raise ArgumentError(
            f"validate_indices={validate_indices!r}: indices outside of the axis always give 0; leave it "
            "out, and write axis= by its name"
        )
    indices = as_indices(indices)
    params_type, batch = d.type_of(params), d.whole(batch_dims)
    batch = batch + d.type_of(indices).ndim if batch < 0 else batch
    with d.about(GatherV2, params, indices):
        position = batch if axis is None else d.normal_axis(axis, params_type.ndim)
        gathered_shape(params_type, d.type_of(indices), position, batch)
    indices = from_front(indices, params_type.shape[position])
    return d.apply(GatherV2, (params, indices), (position, batch), name)


class TensorScatterAdd(Op):
    """A tensor with updates added to slices that indices choose: the transpose of :func:`gather`.

    Args:
        x: the tensor to add to.
        indices: where along the axis; the function counts negative ones from its end, and takes Python
            integers as int32.
        updates: what to add.
        axis: along which to choose.
        batch_dims: how many leading axes x and the indices share.

    Returns:
        The sum. Indices that occur more than once add up; those outside of the axis are dropped.

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in x.
        (C3) batch_dims is at most axis and the number of the indices' axes, and x and the indices agree in
            the sizes of that many leading axes.
        (C4) x and the updates are numbers of one dtype.
        (C5) The updates have the shape that gathering from x with these indices has.

    Examples:
        >>> sg.scatter_add(np.zeros(3), np.array([2, 0, 2, 3]), np.array([1.0, 2.0, 4.0, 8.0]))
        array([2., 0., 5.])
    """

    @staticmethod
    def infer(
        x: TensorType, indices: TensorType, updates: TensorType, *, axis: Axis, batch_dims: int
    ) -> TensorType:
        d.check_same_dtype(x, updates, constraint="C4")
        d.check_dtype(x, d.is_number, "numbers", "C4")
        expected = gathered_shape(x, indices, axis, batch_dims)
        d.check_shape(updates, expected, "the updates", "C5")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: g,
        "indices": _WHERE,
        "updates": lambda g, op: d.apply(GatherV2, (g, op.indices), (op.axis, op.batch_dims)),
    }

    promotes = Promotion(d.is_number, ("x", "updates"))
    batch = d.SCATTER
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int) -> Array:
        order = gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        moved = xp.moveaxis(xp.array(x), axis, batch_dims)
        inside = lies_inside(xp, indices, x.shape[axis])
        at = tuple(
            xp.broadcast_to(i, indices.shape)[inside] for i in batched_positions(xp, indices, batch_dims)
        )
        xp.add.at(moved, at, xp.transpose(updates, xp.argsort(order))[inside])
        return xp.moveaxis(moved, batch_dims, axis)

    @staticmethod
    def xla(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, batch_dims: int) -> Array:
        order = gather_perm(updates.ndim, indices.ndim - batch_dims, axis, batch_dims)
        moved = xp.moveaxis(x, axis, batch_dims)
        at = outside_to_end(xp, indices, x.shape[axis])
        moved = _add(xp, moved, at, xp.transpose(updates, np.argsort(order)), batch_dims)
        return xp.moveaxis(moved, batch_dims, axis)

    samples: d.Samples = [
        d.sample(d.floats(4, 3), d.ints(5, low=-1, high=5), d.floats(5, 3), axis=0, batch_dims=0),
        d.sample(
            d.floats(2, 3, "n"), d.ints(2, 2, low=0, high=3), d.floats(2, 2, 2, "n"), axis=1, batch_dims=0
        ),
        d.sample(
            d.floats(2, 3, 4, 2), d.ints(2, 5, low=0, high=4), d.floats(2, 3, 5, 2), axis=2, batch_dims=1
        ),
        d.sample(d.ints(4), d.ints(3, low=0, high=4), d.ints(3), axis=0, batch_dims=0),
        d.sample(d.floats(0, 2), d.ints(3, low=0, high=1), d.floats(3, 2), axis=0, batch_dims=0),
    ]


@d.builds(TensorScatterAdd)
def scatter_add(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    axis: int = 0,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    indices = as_indices(indices)
    with d.about(TensorScatterAdd, x, indices, updates):
        position = d.normal_axis(axis, d.type_of(x).ndim)
        d.check_dtype(d.type_of(indices), d.is_integer, "integers as indices")
    indices = from_front(indices, d.type_of(x).shape[position])
    return d.apply(TensorScatterAdd, (x, indices, updates), (position, d.whole(batch_dims)), name)


# ------------------------------------------------------------------------------------ along one axis


def _grid(xp: Namespace, indices: Array, axis: int) -> tuple[Any, ...]:
    """For each axis the positions of the indices' elements; along *axis* these are the indices themselves."""
    ndim = indices.ndim
    return tuple(
        indices if i == axis else xp.arange(n).reshape((1,) * i + (n,) + (1,) * (ndim - i - 1))
        for i, n in enumerate(indices.shape)
    )


def _check_along(x: TensorType, indices: TensorType, axis: int) -> None:
    d.check_dtype(indices, d.is_integer, "integers as indices")
    d.normal_axis(axis, x.ndim)
    if not d.same_shape(x.shape, indices.shape, besides=axis):
        raise ShapeError(f"(C3) the sizes of {x!r} and {indices!r} differ in more than axis {axis}")


class TakeAlongAxis(Op):
    """One element per index, from the same row: ``result[i, j] = x[i, indices[i, j]]`` for axis 1.

    Args:
        x: any tensor.
        indices: where along the axis; the function counts negative ones from its end, and takes Python
            integers as int32.
        axis: along which to choose.

    Returns:
        A tensor of the indices' shape. Indices outside of the axis give 0 and take no gradient.

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in x.
        (C3) x and the indices have the same sizes except along the axis; the function repeats axes of size 1.

    Examples:
        >>> sg.take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), axis=1)
        array([[2.],
               [3.]])
    """

    @staticmethod
    def infer(x: TensorType, indices: TensorType, *, axis: Axis) -> TensorType:
        _check_along(x, indices, axis)
        return d.tensor_type(x.dtype, indices.shape)

    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(ScatterAddAlongAxis, (zeros_like(op.x), op.indices, g), (op.axis,)),
        "indices": _WHERE,
    }

    batch = d.ALONG
    pads = True
    moves = ("x",)

    @staticmethod
    def lower(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
        inside = lies_inside(xp, indices, x.shape[axis])
        return _take(xp, x, _grid(xp, xp.where(inside, indices, 0), axis), axis, inside)

    @staticmethod
    def xla(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
        at = outside_to_end(xp, indices, x.shape[axis])
        return xp.take_along_axis(x, at, axis=axis, mode="fill", fill_value=0)

    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.ints(2, 4, low=-1, high=4), axis=1),
        d.sample(d.floats("n", 3), d.ints(2, 3, low=0, high=3), axis=0),
        d.sample(d.floats(2, 3), d.ints(2, 0, low=0, high=3), axis=1),
        d.sample(d.floats(2, 0), d.ints(2, 1, low=0, high=3), axis=1),
    ]


@d.builds(TakeAlongAxis)
def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    indices = as_indices(indices)
    kind, chosen = d.type_of(x), d.type_of(indices)
    with d.about(TakeAlongAxis, x, indices):
        position = d.normal_axis(axis, kind.ndim)
        d.check_dtype(chosen, d.is_integer, "integers as indices")
    indices = from_front(indices, kind.shape[position])
    if kind.ndim == chosen.ndim:
        x = _repeated(x, kind.shape, chosen.shape, position)
        indices = _repeated(indices, chosen.shape, kind.shape, position)
    return d.apply(TakeAlongAxis, (x, indices), (position,), name)


def _repeated(x: ArrayLike, shape: Shape, other: Shape, axis: int) -> Tensor:
    """*x* repeated along the axes where it has size 1 and *other* has another size, except *axis*."""
    whole = tuple(a if i == axis or a != 1 else b for i, (a, b) in enumerate(zip(shape, other, strict=True)))
    return x if whole == shape else broadcast_to(x, whole)


class ScatterAddAlongAxis(Op):
    """A tensor with an update added per index, in the same row: the transpose of :func:`take_along_axis`.

    Args:
        x: the tensor to add to.
        indices: where along the axis; the function counts negative ones from its end, and takes Python
            integers as int32.
        updates: what to add.
        axis: along which to choose.

    Returns:
        The sum. Indices that occur more than once add up; those outside of the axis are dropped.

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in x.
        (C3) x and the indices have the same sizes except along the axis.
        (C4) x and the updates are numbers of one dtype.
        (C5) The updates have the indices' shape.

    Examples:
        >>> sg.ops.ScatterAddAlongAxis.function(np.zeros((1, 3)), np.array([[2, 2]]), np.ones((1, 2)), axis=1)
        array([[0., 0., 2.]])
    """

    @staticmethod
    def infer(x: TensorType, indices: TensorType, updates: TensorType, *, axis: Axis) -> TensorType:
        d.check_same_dtype(x, updates, constraint="C4")
        d.check_dtype(x, d.is_number, "numbers", "C4")
        _check_along(x, indices, axis)
        d.check_shape(updates, indices.shape, "the updates", "C5", of="the indices")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: g,
        "indices": _WHERE,
        "updates": lambda g, op: d.apply(TakeAlongAxis, (g, op.indices), (op.axis,)),
    }

    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int) -> Array:
        total, inside = xp.array(x), lies_inside(xp, indices, x.shape[axis])
        xp.add.at(
            total,
            tuple(xp.broadcast_to(i, indices.shape)[inside] for i in _grid(xp, indices, axis)),
            updates[inside],
        )
        return total

    @staticmethod
    def xla(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int) -> Array:
        others = tuple([i for i in range(x.ndim) if i != axis])
        where = xp.lax.ScatterDimensionNumbers((), (axis,), (axis,), others, others)
        at = xp.expand_dims(outside_to_end(xp, indices, x.shape[axis]), -1)
        return xp.lax.scatter_add(x, at, updates, where, mode="drop") if x.shape[axis] else x

    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.ints(2, 4, low=-1, high=4), d.floats(2, 4), axis=1),
        d.sample(d.floats("n", 3), d.ints(2, 3, low=0, high=3), d.floats(2, 3), axis=0),
        d.sample(d.floats(2, 0), d.ints(2, 1, low=0, high=3), d.floats(2, 1), axis=1),
    ]


@d.builds(ScatterAddAlongAxis)
def scatter_add_along_axis(
    x: ArrayLike, indices: ArrayLike, updates: ArrayLike, axis: int = -1, name: str | None = None
) -> Tensor:
    indices = as_indices(indices)
    with d.about(ScatterAddAlongAxis, x, indices, updates):
        position = d.normal_axis(axis, d.type_of(x).ndim)
        d.check_dtype(d.type_of(indices), d.is_integer, "integers as indices")
    indices = from_front(indices, d.type_of(x).shape[position])
    return d.apply(ScatterAddAlongAxis, (x, indices, updates), (position,), name)


# -------------------------------------------------------------------------------------------- one-hot


class OneHot(Op):
    """A new axis that holds one value where its position is the index, and another elsewhere.

    Args:
        indices: at which position each hit is.
        on_value: the value at the hit.
        off_value: the value elsewhere.
        depth: the size of the new axis, which may be symbolic.
        axis: the position of the new axis in the result.

    Returns:
        The one-hot tensor; an index outside of [0, depth) has no hit.

    Constraints:
        (C1) The indices are integers.
        (C2) The values are scalars of one dtype.
        (C3) The axis exists in the result.
    """

    @staticmethod
    def infer(
        indices: TensorType, on_value: TensorType, off_value: TensorType, *, depth: Size, axis: Axis
    ) -> TensorType:
        d.check_dtype(indices, d.is_integer, "integers as indices")
        dtype = d.check_same_dtype(on_value, off_value, constraint="C2")
        if on_value.ndim or off_value.ndim:
            raise ShapeError(f"(C2) the values must be scalars, not {on_value!r} and {off_value!r}")
        d.normal_axis(axis, indices.ndim + 1, "C3")
        return d.tensor_type(dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))

    gradient: d.Gradient = {
        "indices": _WHERE,
        "on_value": lambda g, op: where(_hits(op), g, 0),
        "off_value": lambda g, op: where(_hits(op), 0, g),
    }

    batch = d.ONE_HOT
    moves = ("on_value", "off_value")

    @staticmethod
    def lower(
        xp: Namespace, indices: Array, on_value: Array, off_value: Array, depth: int, axis: int
    ) -> Array:
        kind = indices.dtype if depth <= np.iinfo(indices.dtype).max else np.int32
        positions = xp.arange(depth, dtype=kind).reshape((depth,) + (1,) * (indices.ndim - axis))
        return xp.where(xp.expand_dims(indices, axis) == positions, on_value, off_value)

    samples: d.Samples = [
        d.sample(d.ints(4, low=-1, high=4), d.floats(), d.floats(), depth=3, axis=1),
        d.sample(d.ints("n", 2, low=0, high=3), d.floats(), d.floats(), depth=3, axis=0),
        d.sample(d.ints(low=0, high=3), d.floats(), d.floats(), depth=2, axis=0),
    ]


def _hits(op: Operation) -> Tensor:
    return d.apply(OneHot, (op.indices, np.array(True), np.array(False)), (op.depth, op.axis))


def _of_numbers(*numbers: object) -> DType:
    """The common dtype of Python numbers, or float32 if all are None."""
    weak = [d.python_dtype(n) or d.float32 for n in numbers if n is not None]
    return Promotion(d.is_any).common((), weak)


@d.builds(OneHot)
def one_hot(
    indices: ArrayLike,
    depth: Size,
    on_value: ArrayLike | None = None,
    off_value: ArrayLike | None = None,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A new axis that holds one value where its position is the index, and another elsewhere.

    Args:
        indices: at which position each hit is; Python integers are int32.
        depth: the size of the new axis, which may be symbolic.
        on_value: the value at the hit: a number or a scalar tensor; 1 by default.
        off_value: the value elsewhere: a number or a scalar tensor; 0 by default.
        axis: the position of the new axis in the result; the last by default.
        dtype: of the result; by default that of the values (of Python's numbers bool, int32, float32 or
            complex64), and float32 if there are none.

    Returns:
        The one-hot tensor; an index outside of [0, depth) has no hit.

    Constraints:
        (C1) The indices are integers.
        (C2) The values are scalars of one dtype, and of the dtype asked for.
        (C3) The axis exists in the result.

    Examples:
        >>> sg.one_hot(np.array([1, 0, 3]), 3)
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """
    indices = as_indices(indices)
    values = [1 if on_value is None else on_value, 0 if off_value is None else off_value]
    typed = next((d.type_of(v).dtype for v in values if hasattr(v, "dtype") or hasattr(v, "as_output")), None)
    target = d.dtype_of(dtype) if dtype is not None else typed or _of_numbers(on_value, off_value)
    operands = (
        indices,
        *(v if hasattr(v, "dtype") or hasattr(v, "as_output") else d.as_array(v, target) for v in values),
    )
    with d.about(OneHot, *operands):
        if dtype is not None and typed is not None and typed is not target:
            raise DTypeError(f"(C2) the values are {typed}, but dtype={target} was asked")
        position = d.normal_axis(-1 if axis is None else axis, d.type_of(indices).ndim + 1, "C3")
    return d.apply(OneHot, operands, (d.shape_of(depth)[0], position), name)
