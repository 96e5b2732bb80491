"""What brackets mean: NumPy's indexing, by integers, slices, None, Ellipsis, index arrays and masks.

An index is read once, into a :class:`Choice`: a slice, followed by a gather. The axes that index arrays
choose from are merged into one for the gather. Updates use the same choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArrayLike,
    Dim,
    DTypeError,
    NumpyArray,
    Op,
    Operation,
    Output,
    Shape,
    ShapeError,
    Size,
    Spans,
    Tensor,
    TensorType,
)
from stopgrad.ops.indexing.gather import GatherV2
from stopgrad.ops.indexing.positions import from_front, raveled
from stopgrad.ops.indexing.scatters import TensorStridedSliceUpdate
from stopgrad.ops.indexing.slices import StridedSlice, position_in, span_of
from stopgrad.ops.shapes.reshape import broadcast_to, reshape, transpose

__all__: list[str] = []


_Index: TypeAlias = "EllipsisType | slice | int | Dim | Output | NumpyArray | None"
"""A part of an index as it was given."""


class _Part(NamedTuple):
    """One part of an index: what it is, the axes that it takes, and the indices, slice or position."""

    kind: str
    axes: tuple[int, ...]
    value: Any = None


NEW, SLICE, NUMBER, ARRAY, DOTS = "a new axis", "a slice", "a number", "an array", "an Ellipsis for no axis"


class Choice(NamedTuple):
    """What an index chooses of a tensor.

    Attributes:
        spans: for each axis of the tensor, what slices and numbers take of it.
        sizes: the tensor's sizes.
        taken: the sizes of what the spans take.
        axes: the axes of it that index arrays choose from.
        numbers: the elements that they choose of these axes, numbered in row-major order; None without index
            arrays.
        remaining: the axes of the gathered tensor without those that numbers took.
        order: these axes, in the order of the result.
        shape: of the result.
    """

    spans: Spans
    sizes: Shape
    taken: Shape
    axes: tuple[int, ...]
    numbers: Output | NumpyArray | None
    remaining: tuple[int, ...]
    order: tuple[int, ...]
    shape: Shape

    @property
    def is_all(self) -> bool:
        """Whether the spans take the whole tensor."""
        return all(s[0] == 0 and s[1] == n and s[2] == 1 for s, n in zip(self.spans, self.sizes, strict=True))

    @property
    def place(self) -> int:
        """The position of the merged axis: that of its first axis if they are neighbours, otherwise 0."""
        return self.axes[0] if self._together else 0

    @property
    def _together(self) -> bool:
        return bool(self.axes) and self.axes == tuple(range(self.axes[0], self.axes[0] + len(self.axes)))

    @property
    def _front(self) -> tuple[int, ...]:
        """The permutation that makes neighbours of the axes to choose from."""
        others = tuple(i for i in range(len(self.taken)) if i not in self.axes)
        return tuple(range(len(self.taken))) if self._together else (*self.axes, *others)

    def _rows(self, x: ArrayLike) -> Tensor:
        """What the spans take, with the axes to choose from merged into one."""
        first = transposed(x, self._front)
        sizes, at, count = d.type_of(first).shape, self.place, len(self.axes)
        return reshaped(first, (*sizes[:at], d.product(sizes[at : at + count]), *sizes[at + count :]))

    def _from_rows(self, rows: ArrayLike) -> Tensor:
        """The inverse of :meth:`_rows`."""
        front = self._front
        back = tuple(np.argsort(front).tolist())
        return transposed(reshaped(rows, tuple(self.taken[i] for i in front)), back)

    def take(self, x: ArrayLike, name: str | None = None) -> Tensor:
        """The chosen elements of *x*."""
        y = x if self.is_all else d.apply(StridedSlice, (x,), (self.spans,), name)
        if self.numbers is None:
            return reshaped(y, self.shape, name)
        gathered = d.apply(GatherV2, (self._rows(y), self.numbers), (self.place, 0), name)
        sizes = d.type_of(gathered).shape
        gathered = reshaped(gathered, tuple(sizes[i] for i in self.remaining))
        return reshaped(transposed(gathered, self.order), self.shape, name)

    def join(self, definition: type[Op], x: ArrayLike, updates: ArrayLike, name: str | None = None) -> Tensor:
        """*x* with updates, which have the shape of the choice, scattered into it by *definition*."""
        y = x if self.is_all else d.apply(StridedSlice, (x,), (self.spans,))
        block = d.type_of(self.numbers).shape
        others = [self.taken[i] for i in self._front if i not in self.axes]
        gathered = (*others[: self.place], *block, *others[self.place :])
        remaining = tuple(gathered[i] for i in self.remaining)
        updates = reshaped(updates, tuple(remaining[i] for i in self.order))
        updates = transposed(updates, tuple(np.argsort(self.order).tolist()))
        updates = reshaped(updates, gathered)
        y = self._from_rows(
            d.apply(definition, (self._rows(y), self.numbers, updates), (self.place, 0), name)
        )
        return y if self.is_all else self.put(x, y, name)

    def put(self, x: ArrayLike, updates: ArrayLike, name: str | None = None) -> Tensor:
        """*x* with the elements that the spans take replaced by *updates*."""
        return d.apply(TensorStridedSliceUpdate, (x, reshaped(updates, self.taken)), (self.spans,), name)


def reshaped(x: ArrayLike, shape: Shape, name: str | None = None) -> Tensor:
    return x if d.type_of(x).shape == shape else reshape(x, shape, name)


def transposed(x: ArrayLike, order: tuple[int, ...]) -> Tensor:
    return x if order == tuple(range(len(order))) else transpose(x, order)


# ---------------------------------------------------------------------------------------------- in brackets


@d.guarded("x[...]", alike=True)
def take_index(x: ArrayLike, index: object, name: str | None = None) -> Tensor:
    """``x[index]``, with NumPy's meaning."""
    return choice_of(x, index).take(x, name)


def choice_of(x: ArrayLike, index: object) -> Choice:
    """What an index chooses of a tensor."""
    kind = d.type_of(x)
    with d.about(StridedSlice, x):
        return _choice(_parts(index, kind), kind)


@d.reads_arguments
def _parts(index: object, x: TensorType) -> list[_Part]:
    """The parts of an index, with the axes of *x* that they take."""
    entries = list(index) if isinstance(index, tuple) else [index]
    parts = [_read(part) for part in entries]
    used = sum(_axes_of(part) for part in parts)
    dots = [i for i, part in enumerate(parts) if isinstance(part, EllipsisType)]
    if len(dots) > 1:
        raise ShapeError("(C1) only one Ellipsis can stand for the axes that are not named")
    if used > x.ndim:
        raise ShapeError(f"(C1) {len(entries)} indices for {x.ndim} axes")
    rest: list[Any] = [slice(None)] * (x.ndim - used)
    place = dots[0] if dots else len(parts)
    if rest or not dots:
        parts[place : place + len(dots)] = rest
    typed: list[_Part] = []
    axis = 0
    for part in parts:
        axes = tuple(range(axis, axis + _axes_of(part)))
        axis += len(axes)
        typed += _typed(part, axes, x.shape)
    return typed


def _read(part: Any) -> Any:
    """A part of an index: None, Ellipsis, a slice, a number, a size, an output, or an array."""
    if part is None or isinstance(part, (EllipsisType, slice, Dim, Output)):
        return part
    if isinstance(part, Operation):
        return part.as_output()
    if d.is_whole(part):
        return int(part)
    if isinstance(part, (str, bytes)) or not (
        hasattr(part, "__array__") or isinstance(part, (bool, np.bool_, list, tuple))
    ):
        raise ShapeError(
            f"(C3) {d.shorten(part)} is no index; take integers, slices, None, Ellipsis, and arrays or "
            "tensors of integers"
        )
    array = d.as_array(part)
    return array.astype(np.int32) if not array.size and isinstance(part, (list, tuple)) else array


def _axes_of(part: object) -> int:
    """How many axes a part of an index takes."""
    if part is None or isinstance(part, EllipsisType):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == np.bool_ else 1


def _typed(part: Any, axes: tuple[int, ...], sizes: Shape) -> list[_Part]:
    """A part of an index together with its axes; a mask becomes an index array for each of them."""
    if part is None:
        return [_Part(NEW, ())]
    if isinstance(part, EllipsisType):  # Even for no axis, it separates index arrays.
        return [_Part(DOTS, ())]
    if isinstance(part, slice):
        return [_Part(SLICE, axes, span_of(part, sizes[axes[0]]))]
    if isinstance(part, (int, Dim)):
        return [_Part(NUMBER, axes, position_in(part, sizes[axes[0]]))]
    if isinstance(part, np.ndarray) and part.dtype == np.bool_:
        return _mask(part, axes, sizes)
    dtype = d.type_of(part).dtype
    if dtype.is_bool:
        raise ShapeError(
            f"(C3) {d.describe(part)} is a mask that is known only when the graph runs, so that the size of "
            "what it "
            "chooses depends on data; take sg.where(mask, x, 0), or sg.boolean_mask(x, mask, size=n)"
        )
    if not dtype.is_integer:
        raise DTypeError(
            f"(C3) an index holds integers or booleans, not {d.type_of(part)!r}; convert with sg.cast"
        )
    return [_Part(ARRAY, axes, _within(part, sizes[axes[0]], axes[0]))]


def _mask(mask: NumpyArray, axes: tuple[int, ...], sizes: Shape) -> list[_Part]:
    for n, axis in zip(mask.shape, axes, strict=True):
        if not d.same_size(n, sizes[axis]):
            raise ShapeError(
                f"(C2) a mask of shape {d.show_shape(mask.shape)} does not fit axis {axis}, of size "
                f"{sizes[axis]}"
            )
    if not mask.ndim:  # It takes no axis, and makes one, of size 1 or 0.
        return [_Part(ARRAY, (), np.zeros(int(mask), np.int32))]
    return [
        _Part(ARRAY, (axis,), at.astype(np.int32)) for axis, at in zip(axes, np.nonzero(mask), strict=True)
    ]


def _within(at: Output | NumpyArray, size: Size, axis: int) -> Output | NumpyArray:
    """Indices along an axis. Arrays are checked and counted from the front; outputs are left alone."""
    if isinstance(at, Output) or not isinstance(size, int):
        return at
    at = np.asarray(at)
    wrong = (at >= size) | (at < -size) if at.dtype.kind == "i" else at >= size
    if wrong.any():
        raise ShapeError(f"(C2) index {at[wrong].flat[0]} is out of range for axis {axis}, of size {size}")
    front = np.where(at < 0, at.astype(np.int64) + size, at.astype(np.int64)) if at.dtype.kind == "i" else at
    return front.astype(np.int32 if size < 2**31 else np.int64)


# -------------------------------------------------------------------------------------------------- choices


def _choice(parts: list[_Part], x: TensorType) -> Choice:
    spans: list[Any] = []
    for part in parts:
        if part.kind == SLICE:
            spans.append(part.value)
        elif part.kind == NUMBER:
            spans.append((part.value, 1, 1))
        elif part.kind == ARRAY:
            spans += [(0, x.shape[axis], 1) for axis in part.axes]
    taken = tuple(size for _, size, _ in spans)
    arrays = [part for part in parts if part.kind == ARRAY]
    if not arrays:
        shape = tuple(1 if p.kind == NEW else p.value[1] for p in parts if p.kind in (NEW, SLICE))
        return Choice(tuple(spans), x.shape, taken, (), None, (), (), shape)
    axes = tuple(axis for part in arrays for axis in part.axes)
    chosen, block = _numbers(arrays, tuple(taken[axis] for axis in axes))
    return _arranged(parts, Choice(tuple(spans), x.shape, taken, axes, chosen, (), (), block))


def _numbers(arrays: Sequence[_Part], sizes: Shape) -> tuple[Any, Shape]:
    """The row-major numbers of the elements that index arrays choose of their axes, and their shape."""
    try:
        block = d.broadcast_shapes(*[d.type_of(part.value).shape for part in arrays])
    except ShapeError as error:
        raise ShapeError(f"(C2) of index arrays, {error.message}") from None
    indices = [part.value for part in arrays if part.axes]
    if not indices:
        return np.zeros(block, np.int32), block
    if len(indices) == 1:
        numbers = from_front(indices[0], sizes[0])
    elif all(isinstance(at, np.ndarray) for at in indices) and all(isinstance(n, int) for n in sizes):
        count = d.product(sizes)
        numbers = np.zeros((), np.int64)
        for at, size in zip(indices, sizes, strict=True):
            numbers = numbers * size + at.astype(np.int64)
        numbers = numbers.astype(np.int32 if count < 2**31 else np.int64)
    else:
        numbers = raveled(indices, sizes)
    return (numbers if d.type_of(numbers).shape == block else broadcast_to(numbers, block)), block


def _arranged(parts: list[_Part], choice: Choice) -> Choice:
    """The choice with the order of its result's axes.

    If all index arrays and numbers are neighbours in the index, the axes of the arrays take their place;
    otherwise they come first.
    """
    block, place = choice.shape, choice.place
    fancy = [i for i, part in enumerate(parts) if part.kind in (ARRAY, NUMBER)]
    beside = fancy == list(range(fancy[0], fancy[0] + len(fancy)))
    # The gathered tensor has the axes that arrays do not choose from, and the block's axes between them.
    others = [axis for axis in range(len(choice.taken)) if axis not in choice.axes]
    middle = [("block", i) for i in range(len(block))]
    labels: list[Any] = [*others[:place], *middle, *others[place:]]
    dropped = {part.axes[0] for part in parts if part.kind == NUMBER}
    remaining = tuple(i for i, label in enumerate(labels) if label not in dropped)
    present = [labels[i] for i in remaining]
    wanted: list[Any] = [] if beside else [*middle]
    shape: list[Any] = [] if beside else list(block)
    for i, part in enumerate(parts):
        if beside and i == fancy[0]:
            wanted += middle
            shape += block
        if part.kind == NEW:
            shape.append(1)
        elif part.kind == SLICE:
            wanted.append(part.axes[0])
            shape.append(part.value[1])
    order = tuple(present.index(label) for label in wanted)
    return Choice(
        choice.spans, choice.sizes, choice.taken, choice.axes, choice.numbers, remaining, order, tuple(shape)
    )
