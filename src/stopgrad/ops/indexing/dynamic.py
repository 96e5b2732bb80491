"""Blocks of a tensor, at bounds that are known when the graph is built or that tensors hold."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Dim,
    Flags,
    Namespace,
    Op,
    Operation,
    Output,
    Outputs,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import add, maximum, minimum, subtract
from stopgrad.ops.elementwise.compare import greater_equal, less, logical_and
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.indexing.brackets import take_index
from stopgrad.ops.indexing.gather import GatherV2
from stopgrad.ops.indexing.indexed_updates import like
from stopgrad.ops.indexing.positions import as_indices
from stopgrad.ops.indexing.slices import StridedSlice, part_of
from stopgrad.ops.shapes.join import concat, stack
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import size_as, zeros_like

__all__ = [
    "dynamic_slice",
    "dynamic_update_slice",
    "slice",
    "strided_slice",
]


@d.builds(StridedSlice)
def strided_slice(
    input_: ArrayLike,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[int] | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: None = None,
    name: str | None = None,
) -> Tensor:
    """Elements at regular distances along each axis: ``x[begin:end:strides]``.

    In each mask, bit i is about the i-th slice.

    Args:
        input_: any tensor.
        begin: for each axis the first element; negative numbers count from the end.
        end: for each axis the end, which is not taken.
        strides: for each axis the step; 1 by default.
        begin_mask: which slices begin where their axis does.
        end_mask: which slices end where their axis does.
        ellipsis_mask: which slice, at most one, stands for all axes that are not named.
        new_axis_mask: which slices stand for a new axis of size 1.
        shrink_axis_mask: which slices take only the element at begin, and drop the axis.
        var: None; tensors are never changed in place.

    Returns:
        These elements.

    Constraints:
        (C1) There are at most as many slices as x has axes.
        (C2) The elements asked for lie in x.
        (C3) The bounds are whole numbers or sizes, and the steps are numbers other than 0.

    Examples:
        >>> sg.strided_slice(np.arange(6.0), [1], [6], [2])
        array([1., 3., 5.])
        >>> sg.strided_slice(np.arange(6.0), [1], [0], end_mask=1)
        array([1., 2., 3., 4., 5.])
    """
    if var is not None:
        raise ArgumentError(
            f"var={var!r}: a tensor is never changed in place; use sg.assign with x.at[...].set(v)"
        )
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    steps = [1] * len(begin) if strides is None else list(strides)
    return take_index(input_, _index_of([list(begin), list(end), steps], masks), name)


@d.reads_arguments
def _index_of(bounds: Sequence[Sequence[Any]], masks: Sequence[int]) -> tuple[Any, ...]:
    """The index in brackets that begins, ends, steps and TensorFlow's masks mean."""
    lengths = [len(numbers) for numbers in bounds]
    if len(set(lengths)) > 1:
        raise ArgumentError(
            f"begin, end and strides are of the lengths {d.show_shape(lengths)}; give one number "
            "for each slice in each of them"
        )
    for n in (*bounds[0], *bounds[1], *bounds[2]):
        # Bounds that a mask hides must be numbers, too.
        if not isinstance(n, (Dim, Output, Operation)):
            d.whole(n)
    bits = [d.whole(mask) for mask in masks]
    index: list[Any] = []
    for i, (low, high, step) in enumerate(zip(*bounds, strict=True)):
        no_low, no_high, dots, new, one = (bool(mask >> i & 1) for mask in bits)
        if dots:
            index.append(Ellipsis)
        elif new:
            index.append(None)
        elif one:
            index.append(low)
        else:
            index.append(builtins.slice(None if no_low else low, None if no_high else high, step))
    return tuple(index)


@d.guarded("slice")
def slice(
    input_: ArrayLike,
    begin: ArrayLike,
    size: ArrayLike,
    name: str | None = None,
) -> Tensor:
    """A block of a tensor.

    Args:
        input_: any tensor.
        begin: for each axis the first element. It may be a tensor, which is clipped so that the block fits,
            as in :func:`dynamic_slice`.
        size: for each axis how many elements; -1 for all from begin on.

    Returns:
        The block, of shape size.

    Constraints:
        (C1) begin and size have a number for each axis, and the sizes are known when the graph is built.
        (C2) The block lies in the tensor.

    Examples:
        >>> sg.slice(np.arange(6.0).reshape(2, 3), [0, 1], [2, -1])
        array([[1., 2.],
               [4., 5.]])
    """
    kind = d.type_of(input_)
    sizes = _numbers(size, kind, "size")
    if _is_traced(begin):
        if any(isinstance(n, int) and n < 0 for n in sizes):
            raise ShapeError(
                "(C1) a size of -1 from where a tensor says depends on data; give the number of elements"
            )
        return dynamic_slice(input_, begin, sizes, name)
    starts = _numbers(begin, kind, "begin")
    index = []
    for axis, (low, count, whole_axis) in enumerate(zip(starts, sizes, kind.shape, strict=True)):
        high = whole_axis if isinstance(count, int) and count == -1 else low + count
        is_known = all(isinstance(n, int) for n in (low, high, whole_axis))
        if (isinstance(low, int) and low < 0) or (is_known and not low <= high <= whole_axis):
            raise ShapeError(
                f"(C2) {count} elements from {low} do not lie in axis {axis} of {kind!r}; x[...] counts "
                "from the end"
            )
        index.append(builtins.slice(low, high))
    return take_index(input_, tuple(index), name)


@d.reads_arguments
def _numbers(values: Any, x: TensorType, what: str) -> list[Any]:
    """A number or size for each axis of a tensor."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    sizes = [n if isinstance(n, Dim) else d.whole(n) for n in ([values] if d.is_whole(values) else values)]
    if len(sizes) != x.ndim:
        raise ShapeError(f"(C1) {what} has {len(sizes)} numbers, and {x!r} {x.ndim} axes; give one for each")
    return sizes


def _is_traced(values: object) -> bool:
    """Whether any of the numbers is a tensor of a graph."""
    if isinstance(values, (Output, Operation)):
        return True
    return isinstance(values, (list, tuple)) and any(isinstance(n, (Output, Operation)) for n in values)


# --------------------------------------------------------------------------------- at starts in tensors


def _starts(xp: Namespace, starts: Array, shape: Shape, sizes: Shape) -> list[Any]:
    """Where the block begins along each axis, counted from the front and clipped so that it fits."""
    clipped = []
    for i, (size, count) in enumerate(zip(shape, sizes, strict=True)):
        start = starts[i].astype(np.int64 if starts.dtype.itemsize == 8 else np.int32)
        if starts.dtype.kind == "u":
            start = xp.where(start < 0, size, start)
        else:
            start = xp.where(start < 0, start + xp.asarray(size, start.dtype), start)
        clipped.append(xp.clip(start, 0, size - count))
    return clipped


def _check_starts(x: TensorType, starts: TensorType, sizes: Shape) -> None:
    d.check_dtype(starts, d.is_integer, "integers as starts")
    if starts.ndim != 1 or starts.shape[0] != x.ndim or len(sizes) != x.ndim:
        raise ShapeError(
            f"(C2) {starts!r} for starts, and sizes {d.show_shape(sizes)}: give one for each axis of {x!r}"
        )
    for axis, (size, count) in enumerate(zip(x.shape, sizes, strict=True)):
        if isinstance(size, int) and isinstance(count, int) and count > size:
            raise ShapeError(f"(C3) {count} elements do not fit into axis {axis}, of size {size}")


_NO_SLOPE = d.not_differentiable("a position has no derivative")


class DynamicSlice(Op):
    """A block of a tensor that begins at an index held by a tensor; the graph fixes its size.

    Args:
        x: any tensor.
        starts: for each axis the first element of the block; negative numbers count from the end. A start is
            clipped so that the block lies in the tensor.
        sizes: of the block, which may be symbolic.

    Returns:
        The block.

    Constraints:
        (C1) The starts are integers.
        (C2) There are one start and one size for each axis of x.
        (C3) The block is no larger than x.
    """

    @staticmethod
    def infer(x: TensorType, starts: TensorType, *, sizes: Shape) -> TensorType:
        _check_starts(x, starts, sizes)
        return d.tensor_type(x.dtype, sizes)

    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(DynamicUpdateSlice, (zeros_like(op.x), g, op.starts)),
        "starts": _NO_SLOPE,
    }
    batch = lambda op, operands, batched, size: _batched_slice(op, operands, batched, size)
    moves = ("x",)

    @staticmethod
    def lower(xp: Namespace, x: Array, starts: Array, sizes: Shape) -> Array:
        at = _starts(xp, starts, x.shape, sizes)
        return x[tuple(builtins.slice(int(a), int(a) + int(n)) for a, n in zip(at, sizes, strict=True))]

    xla: d.Lowering = lambda xp, x, starts, sizes: xp.lax.dynamic_slice(
        x, _starts(xp, starts, x.shape, sizes), sizes
    )
    samples: d.Samples = [
        d.sample(d.floats(4, 3), np.array([1, -2], np.int32), sizes=(2, 2)),
        d.sample(d.floats(4, 3), np.array([3, 0], np.int32), sizes=(2, 3)),
        d.sample(d.floats("n", 3), np.array([0, 9], np.int64), sizes=(1, 2)),
        d.sample(d.floats(4), np.array([200], np.uint8), sizes=(0,)),
        d.sample(d.floats(), np.zeros(0, np.int32), sizes=()),
    ]


@d.builds(DynamicSlice)
def dynamic_slice(
    operand: ArrayLike, start_indices: ArrayLike, slice_sizes: ShapeLike, name: str | None = None
) -> Tensor:
    """A block of a tensor that begins at an index held by tensors; the graph fixes its size.

    Args:
        operand: any tensor.
        start_indices: for each axis the first element of the block: a list of numbers and scalar tensors, or
            one tensor. Negative numbers count from the end. A start is clipped so that the block lies in the
            tensor.
        slice_sizes: of the block.

    Returns:
        The block. The gradient is zero elsewhere.

    Constraints:
        (C1) The starts are integers.
        (C2) There are one start and one size for each axis of the operand.
        (C3) The block is no larger than the operand.

    Examples:
        >>> sg.dynamic_slice(np.arange(6.0), [np.int32(4)], [3])
        array([3., 4., 5.])
    """
    return d.apply(DynamicSlice, (operand, _vector(start_indices)), (d.shape_of(slice_sizes),), name)


def _vector(starts: Any) -> Any:
    """The starts as one tensor."""
    if not _is_traced(starts) or isinstance(starts, (Output, Operation)):
        return as_indices(starts)
    return stack([as_indices(start) for start in starts])


class DynamicUpdateSlice(Op):
    """A tensor with a block replaced that begins at an index held by a tensor.

    Args:
        x: any tensor.
        updates: the new block.
        starts: for each axis the first element of the block; negative numbers count from the end. A start is
            clipped so that the block lies in the tensor.

    Returns:
        The tensor.

    Constraints:
        (C1) The starts are integers.
        (C2) There is one start for each axis of x, and the block has as many axes.
        (C3) The block is no larger than x.
        (C4) The block has x's dtype.
    """

    @staticmethod
    def infer(x: TensorType, updates: TensorType, starts: TensorType) -> TensorType:
        _check_starts(x, starts, updates.shape)
        d.check_same_dtype(x, updates, constraint="C4")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(DynamicUpdateSlice, (g, zeros_like(op.updates), op.starts)),
        "updates": lambda g, op: d.apply(DynamicSlice, (g, op.starts), (op.updates.shape,)),
        "starts": _NO_SLOPE,
    }
    batch = lambda op, operands, batched, size: _batched_update(op, operands, batched, size)
    moves = ("x", "updates")

    @staticmethod
    def lower(xp: Namespace, x: Array, updates: Array, starts: Array) -> Array:
        full, at = xp.array(x), _starts(xp, starts, x.shape, updates.shape)
        full[tuple(builtins.slice(int(a), int(a) + n) for a, n in zip(at, updates.shape, strict=True))] = (
            updates
        )
        return full

    xla: d.Lowering = lambda xp, x, updates, starts: xp.lax.dynamic_update_slice(
        x, updates, _starts(xp, starts, x.shape, updates.shape)
    )
    samples: d.Samples = [
        d.sample(d.floats(4, 3), d.floats(2, 2), np.array([1, -2], np.int32)),
        d.sample(d.floats(4, 3), d.floats(2, 3), np.array([3, 0], np.int32)),
        d.sample(d.floats("n", 3), d.floats("n", 2), np.array([0, 9], np.int64)),
        d.sample(d.floats(4), d.floats(0), np.array([200], np.uint8)),
        d.sample(d.floats(), d.floats(), np.zeros(0, np.int32)),
    ]


@d.builds(DynamicUpdateSlice)
def dynamic_update_slice(
    operand: ArrayLike, update: ArrayLike, start_indices: ArrayLike, name: str | None = None
) -> Tensor:
    """A tensor with a block replaced that begins at an index held by tensors.

    Args:
        operand: any tensor.
        update: the new block, which is converted to the operand's dtype.
        start_indices: for each axis the first element of the block: a list of numbers and scalar tensors, or
            one tensor. Negative numbers count from the end. A start is clipped so that the block lies in the
            tensor.

    Returns:
        The tensor. The gradient of the operand is zero in the block; that of the update is the result's
        gradient in the block.

    Constraints:
        (C1) The starts are integers.
        (C2) There is one start for each axis of the operand, and the block has as many axes.
        (C3) The block is no larger than the operand.
        (C4) The block can have the operand's dtype: it is of no higher kind.

    Examples:
        >>> sg.dynamic_update_slice(np.zeros(4), np.ones(2), [np.int32(1)])
        array([0., 1., 1., 0.])
    """
    with d.about(DynamicUpdateSlice, operand):
        update = like(update, operand, "C4")
    return d.apply(DynamicUpdateSlice, (operand, update, _vector(start_indices)), (), name)


def _batched_slice(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:
    """A block of the whole batch if the examples share starts; otherwise a gather along each cut axis."""
    x, starts = operands
    if not batched[1]:
        return d.again(op, (x, _with_first(starts)), ((size, *op.sizes),))
    (x, starts), shape = d.everywhere(operands, batched, size), op.inputs[0].shape
    for axis, (n, count) in enumerate(zip(shape, op.sizes, strict=True)):
        if n != count:
            at = add(_begin(starts, axis, n, count), reshape(numbers(count), (1, count)))
            x = d.apply(GatherV2, (x, at), (axis + 1, 1))
    return [x]


def _batched_update(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:
    """One block update if the examples share starts; otherwise each element is looked up in its block."""
    x, updates, starts = operands
    if not batched[2]:
        x, updates = d.everywhere((x, updates), batched[:2], size)
        return d.again(op, (x, updates, _with_first(starts)))
    (x, updates, starts), shape = d.everywhere(operands, batched, size), op.inputs[0].shape
    inside: Any = None
    for axis, (n, count) in enumerate(zip(shape, op.inputs[1].shape, strict=True)):
        if n != count:
            at = subtract(reshape(numbers(n), (1, n)), _begin(starts, axis, n, count))
            updates = d.apply(GatherV2, (updates, at), (axis + 1, 1))
            here = logical_and(greater_equal(at, 0), less(at, size_as(count, d.int32, at)))
            here = reshape(here, (size, *(n if i == axis else 1 for i, _ in enumerate(shape))))
            inside = here if inside is None else logical_and(inside, here)
    return [updates if inside is None else where(inside, updates, x)]


def _with_first(starts: Output) -> Tensor:
    """The starts with a 0 for the batch axis in front."""
    return concat([cast(d.constant_in(d.graph_for(starts), np.zeros(1, np.int32)), starts.dtype), starts], 0)


def _begin(starts: Output, axis: int, size: Size, count: Size) -> Tensor:
    """For each example, where its block begins along an axis, clipped so that it fits: [examples, 1]."""
    at = cast(part_of(starts, 1, axis, 1), d.int32)
    front = where(less(at, 0), add(at, size_as(size, d.int32, at)), at)
    return maximum(minimum(front, size_as(size - count, d.int32, at)), 0)
