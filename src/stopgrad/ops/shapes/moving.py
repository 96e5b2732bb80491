"""Functions that move, repeat or choose elements, move axes, or take differences of neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    Promotion,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
)
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.elementwise.arithmetic import floor_div, floormod, minimum, subtract
from stopgrad.ops.elementwise.compare import not_equal
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.indexing.gather import gather
from stopgrad.ops.indexing.positions import as_indices
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.order.bins import searchsorted
from stopgrad.ops.order.sorting import argsort
from stopgrad.ops.reductions.cumulative import cumsum
from stopgrad.ops.shapes.join import concat, reverse, stack
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import broadcast_to, reshape, transpose
from stopgrad.ops.structural.sources import size_as

__all__ = [
    "broadcast_static_shape",
    "broadcast_tensors",
    "diff",
    "flip",
    "invert_permutation",
    "moveaxis",
    "repeat",
    "roll",
    "rot90",
    "swapaxes",
    "take",
    "unravel_index",
]


@d.reads_arguments
def _ints(value: object, what: str) -> list[Any]:
    """One whole number or several, as a list."""
    if d.is_whole(value):
        return [d.whole(value)]
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(f"{what} is an integer or a list of them, not {value!r:.60}")
    return [n if is_traced(n) else d.whole(n) for n in value]


@d.guarded("roll")
def roll(
    input: ArrayLike, shift: ArrayLike, axis: int | Sequence[int] | None, name: str | None = None
) -> Tensor:
    """A tensor with its elements shifted cyclically along axes.

    Args:
        input: any tensor.
        shift: the number of positions to move by, towards higher indices: an integer, which may be a tensor,
            or one for each axis.
        axis: the axis or axes along which to shift; None to shift the flattened tensor.

    Returns:
        The rolled tensor.

    Constraints:
        (C1) There is a shift for each axis, or one for all.
        (C2) The axes exist.

    Examples:
        >>> sg.roll(np.array([1.0, 2.0, 3.0]), 1, axis=0)
        array([3., 1., 2.])
    """
    kind = d.type_of(input)
    if axis is None:
        flat = roll(reshape(input, (d.product(kind.shape),)), shift, 0)
        return reshape(flat, kind.shape, name)
    axes = [d.normal_axis(a, kind.ndim) for a in _ints(axis, "axis")]
    shifts = [shift] if is_traced(shift) and not d.type_of(shift).ndim else None
    if shifts is None and is_traced(shift):
        shifts = [reshape(part_of(shift, 0, i, 1), ()) for i, _ in enumerate(axes)]
    shifts = shifts or _ints(shift, "shift")
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"(C1) {len(shifts)} shifts for {len(axes)} axes; give one for each, or one for all")
    for amount, position in zip(shifts, axes, strict=True):
        input = _rolled(input, amount, position)
    return named(input, name)


def _rolled(x: ArrayLike, shift: ArrayLike, axis: int) -> Tensor:
    size = d.type_of(x).shape[axis]
    if isinstance(shift, int) and isinstance(size, int):
        low = -shift % max(size, 1)
        return (
            concat([part_of(x, axis, low, size - low), part_of(x, axis, 0, low)], axis) if low else tensor(x)
        )
    number = size_as(size, d.int32, x)
    shift = cast(shift, d.int32) if is_traced(shift) else shift
    return gather(x, floormod(subtract(numbers(size), shift), number), axis=axis)


@d.guarded("repeat")
def repeat(
    input: ArrayLike,
    repeats: ArrayLike,
    axis: int | None = None,
    name: str | None = None,
    *,
    total_repeat_length: Size | str | None = None,
) -> Tensor:
    """A tensor with each element repeated along an axis.

    Args:
        input: any tensor.
        repeats: the number of repetitions: one integer, or one for each element along the axis.
        axis: the axis along which to repeat; None to repeat the elements of the flattened tensor.
        total_repeat_length: the size of the axis in the result. It is needed if repeats are known only when
            the graph runs; elements beyond it are cut off, and the last element fills a rest.

    Returns:
        The repeated tensor.

    Constraints:
        (C1) The axis exists.
        (C2) repeats are not negative; there is one, or one for each element along the axis.
        (C3) The size of the axis in the result is known when the graph is built.

    Examples:
        >>> sg.repeat(np.array([1.0, 2.0]), 2)
        array([1., 1., 2., 2.])
        >>> sg.repeat(np.array([[1.0], [2.0]]), [1, 2], axis=0)
        array([[1.],
               [2.],
               [2.]])
    """
    if axis is None:
        input, axis = reshape(input, (d.product(d.type_of(input).shape),)), 0
    kind = d.type_of(input)
    axis = d.normal_axis(axis, kind.ndim, "C1")
    size = kind.shape[axis]
    if is_traced(repeats):
        return _repeated_by(input, repeats, axis, total_repeat_length, name)
    counts = np.asarray(as_indices(repeats))
    d.check_dtype(d.type_of(counts), d.is_integer, "integers as repeats", "C2")
    if (
        counts.ndim > 1
        or (counts < 0).any()
        or (counts.size != 1 and isinstance(size, int) and counts.size != size)
    ):
        raise ShapeError(
            f"(C2) repeats {counts.tolist()!r:.60} for an axis of size {size}; give one number, or one for "
            "each"
        )
    if counts.size == 1:
        y = _repeated(input, int(counts.reshape(())), axis)
    else:
        y = gather(input, np.repeat(np.arange(counts.size, dtype=np.int32), counts), axis=axis)
    if total_repeat_length is not None:
        length, actual = d.shape_of(total_repeat_length)[0], d.type_of(y).shape[axis]
        if length != actual:
            y = gather(y, minimum(numbers(length), size_as(actual - 1, d.int32, y)), axis=axis)
    return named(y, name)


def _repeated(x: ArrayLike, count: int, axis: int) -> Tensor:
    shape = d.type_of(x).shape
    apart = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    spread = broadcast_to(apart, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return reshape(spread, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


def _repeated_by(
    x: ArrayLike, repeats: ArrayLike, axis: int, length: Size | str | None, name: str | None
) -> Tensor:
    """Repetition by a tensor: each position holds the first element whose repetitions end beyond it."""
    d.check_dtype(d.type_of(repeats), d.is_integer, "integers as repeats", "C2")
    if length is None:
        raise needs_size("(C3) the size of the repeated axis", "total_repeat_length=")
    size, count = d.type_of(x).shape[axis], d.shape_of(length)[0]
    counts = broadcast_to(cast(repeats, d.int32), (size,))
    sources = searchsorted(cumsum(counts), numbers(count), "right")
    return gather(x, minimum(sources, size_as(size - 1, d.int32, x)), axis=axis, name=name)


@d.guarded("flip")
def flip(x: ArrayLike, axis: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """A tensor with the order of its elements reversed along axes.

    Args:
        x: any tensor.
        axis: the axis or axes; None for all.

    Returns:
        The flipped tensor.

    Constraints:
        (C1) The axes exist in x, and none is named twice.

    Examples:
        >>> sg.flip(np.array([1.0, 2.0]))
        array([2., 1.])
    """
    axes = axis if axis is None else tuple(_ints(axis, "axis"))
    return reverse(x, d.normal_axes(axes, d.type_of(x).ndim, "C1"), name)


@d.guarded("moveaxis")
def moveaxis(
    x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], name: str | None = None
) -> Tensor:
    """A tensor with some axes at other positions; the others keep their order.

    Args:
        x: any tensor.
        source: the axis or axes to move.
        destination: the new position of each.

    Returns:
        The tensor with its axes moved.

    Constraints:
        (C1) The axes exist, none is named twice, and there is one destination for each source.

    Examples:
        >>> sg.moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    ndim = d.type_of(x).ndim
    here, there = ([d.normal_axis(a, ndim, "C1") for a in _ints(g, "an axis")] for g in (source, destination))
    if len(here) != len(there) or len({*here}) != len(here) or len({*there}) != len(there):
        raise ShapeError(f"(C1) axes {d.show_shape(here)} cannot go to {d.show_shape(there)}")
    order = [a for a in np.arange(ndim).tolist() if a not in here]
    for to, a in sorted(zip(there, here, strict=True)):
        order.insert(to, a)
    return transpose(x, order, name=name)


@d.guarded("swapaxes")
def swapaxes(x: ArrayLike, axis1: int, axis2: int, name: str | None = None) -> Tensor:
    """A tensor with two axes exchanged.

    Args:
        x: any tensor.
        axis1: one axis.
        axis2: the other axis.

    Returns:
        The tensor with the two axes exchanged.

    Constraints:
        (C1) The axes exist.

    Examples:
        >>> sg.swapaxes(np.zeros((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    ndim = d.type_of(x).ndim
    first, second = d.normal_axis(axis1, ndim, "C1"), d.normal_axis(axis2, ndim, "C1")
    order = np.arange(ndim).tolist()
    order[first], order[second] = second, first
    return transpose(x, order, name=name)


@d.guarded("rot90")
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1), name: str | None = None) -> Tensor:
    """A tensor rotated by right angles in the plane of two axes, from the first towards the second.

    Args:
        m: any tensor.
        k: the number of right angles.
        axes: the two axes.

    Returns:
        The rotated tensor.

    Constraints:
        (C1) There are two different axes, and they exist.

    Examples:
        >>> sg.rot90(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([[2., 4.],
               [1., 3.]])
    """
    ndim = d.type_of(m).ndim
    both = [d.normal_axis(a, ndim, "C1") for a in _ints(axes, "axes")]
    if len(both) != 2 or both[0] == both[1]:
        raise ShapeError(f"(C1) axes {d.show_shape(both)} are no two axes of a tensor with {ndim}")
    first, second = both
    turns = d.whole(k) % 4
    if turns == 0:
        return named(tensor(m), name)
    if turns == 2:
        return reverse(m, tuple(sorted(both)), name)
    if turns == 1:
        return swapaxes(reverse(m, [second]), first, second, name)
    return reverse(swapaxes(m, first, second), [second], name)


@d.guarded("take")
def take(x: ArrayLike, indices: ArrayLike, axis: int | None = None, name: str | None = None) -> Tensor:
    """Slices of a tensor along an axis, chosen by indices: :func:`gather` with NumPy's arguments.

    Args:
        x: any tensor.
        indices: positions along the axis; negative ones count from its end. Those out of range give 0 and
            get no gradient.
        axis: the axis along which to choose; None to choose from the flattened tensor.

    Returns:
        A tensor of shape x.shape[:axis] + indices.shape + x.shape[axis + 1:].

    Constraints:
        (C1) The indices are integers.
        (C2) The axis exists in x.

    Examples:
        >>> sg.take(np.array([10.0, 20.0, 30.0]), [0, -1])
        array([10., 30.])
    """
    if axis is None:
        x, axis = reshape(x, (d.product(d.type_of(x).shape),)), 0
    return gather(x, indices, axis=axis, name=name)


@d.guarded("diff")
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The differences of neighbours along an axis.

    Args:
        a: any tensor; for booleans, the result says whether neighbours differ.
        n: the number of times to take differences.
        axis: the axis along which to take them.
        prepend: a number or a tensor to put before a along the axis first.
        append: a number or a tensor to put after it.

    Returns:
        The differences, n fewer along the axis.

    Constraints:
        (C1) The axis exists.
        (C2) n is not negative.

    Examples:
        >>> sg.diff(np.array([1.0, 2.0, 4.0, 7.0]))
        array([1., 2., 3.])
    """
    times = d.whole(n)
    if times < 0:
        raise ArgumentError(f"(C2) n must not be negative, not {times}")
    kind = d.type_of(a)
    axis = d.normal_axis(axis, kind.ndim, "C1")
    parts = [part for part in (prepend, a, append) if part is not None]
    if len(parts) > 1:
        parts = list(d.together(*parts, promotes=Promotion(d.is_any)))
        slice_shape = (*kind.shape[:axis], 1, *kind.shape[axis + 1 :])
        a = concat(
            [broadcast_to(part, slice_shape) if not d.type_of(part).ndim else part for part in parts], axis
        )
    a = tensor(a)
    for _ in np.arange(times):
        size = d.type_of(a).shape[axis]
        rest = max(size - 1, 0) if isinstance(size, int) else size - 1
        low, high = part_of(a, axis, 0, rest), part_of(a, axis, 1 if rest != 0 else 0, rest)
        a = not_equal(high, low) if d.type_of(a).dtype.is_bool else subtract(high, low)
    return named(a, name)


@d.guarded("invert_permutation")
def invert_permutation(x: ArrayLike, name: str | None = None) -> Tensor:
    """The inverse of a permutation.

    Args:
        x: a vector that holds each of the numbers 0 … n - 1 once.

    Returns:
        The position of each number, of x's type.

    Constraints:
        (C1) x holds integers.
        (C2) It is a vector and, if its values are known when the graph is built, a permutation.

    Examples:
        >>> sg.invert_permutation(np.array([3, 0, 1, 2]))
        array([1, 2, 3, 0])
    """
    places = as_indices(x)
    kind = d.type_of(places)
    d.check_dtype(kind, d.is_integer, "integers")
    if kind.ndim != 1:
        raise ShapeError(f"(C2) a permutation is a vector, not {kind!r}")
    if not is_traced(places) and sorted(places.tolist()) != list(np.arange(places.size)):
        raise ArgumentError(
            f"(C2) {places.tolist()!r:.60} does not hold each of the numbers 0 to {places.size - 1} once"
        )
    return cast(argsort(places), kind.dtype, name)


@d.guarded("unravel_index")
def unravel_index(indices: ArrayLike, dims: Sequence[int], name: str | None = None) -> Tensor:
    """The indices along several axes of elements that are given by their positions in row-major order.

    Args:
        indices: the positions, integers in a tensor of at most one axis.
        dims: the sizes of the axes.

    Returns:
        A tensor of shape [len(dims), *indices.shape], of the indices' dtype: its first row holds the
        indices along the first axis, and so on.

    Constraints:
        (C1) The indices are integers.

    Examples:
        >>> sg.unravel_index(np.array([2, 3, 5]), [2, 3])
        array([[0, 1, 1],
               [2, 0, 2]])
    """
    indices = as_indices(indices)
    d.check_dtype(d.type_of(indices), d.is_integer, "integers as indices")
    sizes = tuple(map(d.whole, dims))
    parts = []
    for i, size in enumerate(sizes):
        stride = math.prod(sizes[i + 1 :])
        parts.append(floormod(floor_div(indices, max(stride, 1)), max(size, 1)))
    return stack(parts, 0, name)


@d.guarded("broadcast_static_shape")
def broadcast_static_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> Shape:
    """The shape that two shapes broadcast to.

    Args:
        shape_x: sizes, which may be symbolic.
        shape_y: the sizes to broadcast them with.

    Returns:
        The shape as a tuple.

    Constraints:
        (C1) The shapes broadcast.

    Examples:
        >>> sg.broadcast_static_shape([2, 1], [3])
        (2, 3)
    """
    try:
        return d.broadcast_shapes(d.shape_of(shape_x), d.shape_of(shape_y))
    except ShapeError as error:
        raise ShapeError(f"(C1) {error.message}") from None


@d.guarded("broadcast_tensors")
def broadcast_tensors(xs: Sequence[ArrayLike], name: str | None = None) -> list[Tensor]:
    """Tensors broadcast to one shape.

    Args:
        xs: a list of tensors, which may differ in dtype.

    Returns:
        A list of the tensors in the shape to which their shapes broadcast.

    Constraints:
        (C1) The shapes broadcast.

    Examples:
        >>> [x.shape for x in sg.broadcast_tensors([np.ones((2, 1)), np.ones(3)])]
        [(2, 3), (2, 3)]
    """
    tensors = [tensor(x) for x in d.as_list(xs)]
    try:
        shape = d.broadcast_shapes(*[d.type_of(x).shape for x in tensors])
    except ShapeError as error:
        raise ShapeError(f"(C1) {error.message}") from None
    return [broadcast_to(x, shape, name) for x in tensors]
