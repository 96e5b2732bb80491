"""Slices, padding and indexing, as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, Size, product
from stopgrad.engines.onnxruntime.nodes.node_writing import INT64, Writing, has_value, writes
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value
from stopgrad.graph.type_rules import broadcast_shapes
from stopgrad.ops.indexing.slices import position_in, span_of

LAST = 2**63 - 1
"""As the end of a slice, the end of the axis; its negative stands for what lies before the first element."""


class Slicing(Writing):
    """Functions that take parts of arrays."""

    def ints(self, numbers: Sequence[Any]) -> Any:
        """Integers and sizes as a vector of int64: a NumPy array if all are known, else a value."""
        return np.array(numbers, np.int64).reshape(-1) if is_known(numbers) else self.shape(numbers)

    def cut(self, x: Array, spans: Sequence[tuple[Any, Any, int]]) -> Any:
        """One Slice. *spans* are the first element, the number of elements and the step along each axis."""
        spans = [tuple(span) for span in spans]
        axes = [a for a, (size, span) in enumerate(zip(x.shape, spans, strict=True)) if span != (0, size, 1)]
        if not axes:
            return x
        bounds = [_bounds(x.shape[a], *spans[a]) for a in axes]
        parts = [self.ints([first for first, _ in bounds]), self.ints([last for _, last in bounds])]
        parts.append(self.ints(axes))
        if any(spans[a][2] != 1 for a in axes):
            parts.append(self.ints([spans[a][2] for a in axes]))
        return self.node("Slice", [x, *parts], x.dtype, [count for _, count, _ in spans])

    def part(self, x: Array, axis: int, start: Size, count: Size, step: int = 1) -> Any:
        """A slice along one axis."""
        return self.cut(x, [(start, count, step) if a == axis else (0, n, 1) for a, n in enumerate(x.shape)])

    def padded(self, x: Array, around: Sequence[Sequence[Any]], value: Any = None) -> Any:
        """*x* padded before and after each axis; negative numbers remove elements."""
        axes = [a for a, pair in enumerate(around) if any(isinstance(n, Dim) or n for n in pair)]
        if not axes:
            return x
        shape = [low + n + high for n, (low, high) in zip(x.shape, around, strict=True)]
        pads = self.ints([low for low, _ in around] + [high for _, high in around])
        fill = [] if value is None or (not has_value(value) and not np.any(value)) else [value]
        return self.node("Pad", [x, pads, *fill], x.dtype, shape)

    @writes
    def pad(self, x: Operand, pad_width: Sequence[Sequence[Size]], constant_values: Operand = 0) -> Any:
        x = self.value(x)
        return self.padded(x, pad_width, self.astype(constant_values, x.dtype))

    @writes
    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Any:
        chosen = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        axes = [int(a) % x.ndim for a in chosen]
        return self.cut(x, [(n - 1, n, -1) if a in axes else (0, n, 1) for a, n in enumerate(x.shape)])

    @writes
    def split(self, x: Array, places: int | Sequence[Size], axis: int = 0) -> Any:
        """Splits into a number of equal parts, or at positions, as NumPy does."""
        axis %= x.ndim
        total = x.shape[axis]
        if isinstance(places, int):
            places = [total // places * i for i in range(1, places)]
        ends = [*places, total]
        return self.parts(x, [b - a for a, b in zip([0, *places], ends, strict=True)], axis)

    def parts(self, x: Array, sizes: Sequence[Any], axis: int) -> list[Any]:
        """Splits an axis into parts of these sizes."""
        if len(sizes) < 2:
            return [x]
        types = [(x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes]
        return self.write("Split", [x, self.ints(sizes)], types, axis=axis)

    @writes
    def tile(self, x: Operand, reps: Size | Sequence[Size]) -> Any:
        x, reps = self.value(x), [reps] if isinstance(reps, (int, Dim)) else list(reps)
        if len(reps) < x.ndim:
            reps = [1] * (x.ndim - len(reps)) + reps
        x = self.expand_dims(x, range(len(reps) - x.ndim)) if len(reps) > x.ndim else x
        shape = [m * n for m, n in zip(reps, x.shape, strict=True)]
        return x if reps == [1] * len(reps) else self.node("Tile", [x, self.ints(reps)], x.dtype, shape)

    # ----------------------------------------------------------------------------------------- indexed

    def getitem(self, x: Value, index: Any) -> Any:
        """Basic indexing by integers, slices, None and an ellipsis; or by one array along one axis."""
        index = index if isinstance(index, tuple) else (index,)
        ellipsis = next((n for n, i in enumerate(index) if i is Ellipsis), len(index))
        used = sum(i is not None and i is not Ellipsis for i in index)
        whole = (*index[:ellipsis], *[slice(None)] * (x.ndim - used), *index[ellipsis + 1 :])
        if any(isinstance(i, (Value, np.ndarray, list)) for i in whole):
            return self._indexed_by_array(x, whole)
        spans: list[Any] = []
        dropped: list[int] = []
        added: list[int] = []
        for i in whole:
            axis = len(spans)
            if i is None:
                added.append(axis - len(dropped) + len(added))
            elif isinstance(i, slice):
                spans.append(span_of(i, x.shape[axis]))
            else:
                position = position_in(i if isinstance(i, Dim) else int(i), x.shape[axis])
                spans.append((position, 1, 1))
                dropped.append(axis)
        x = self.cut(x, spans)
        x = self.squeeze(x, dropped) if dropped else x
        return self.expand_dims(x, added) if added else x

    def _indexed_by_array(self, x: Value, index: Sequence[Any]) -> Any:
        arrays = [a for a, i in enumerate(index) if isinstance(i, (Value, np.ndarray, list))]
        others = [i for a, i in enumerate(index) if a not in arrays]
        if len(arrays) != 1 or any(i != slice(None) for i in others):
            raise self.missing("indexing by several arrays")
        return self.take(x, index[arrays[0]], arrays[0])

    @writes
    def take(self, x: Array, indices: Operand, axis: int | None = None) -> Any:
        """NumPy's ``take``, for indices that all lie in the axis."""
        if axis is None:
            x, axis = self.reshape(x, (product(x.shape),)), 0
        x, positions = self.value(x), self._index(indices)
        axis %= x.ndim
        return self.node(
            "Gather",
            [x, positions],
            x.dtype,
            (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]),
            axis=axis,
        )

    @writes
    def take_along_axis(self, x: Array, indices: Operand, axis: int = -1) -> Any:
        """NumPy's ``take_along_axis``, for indices that all lie in the axis; other axes broadcast."""
        x, positions = self.value(x), self._index(indices)
        axis %= x.ndim
        shape = broadcast_shapes(
            x.shape[:axis] + x.shape[axis + 1 :], positions.shape[:axis] + positions.shape[axis + 1 :]
        )
        x = self.broadcast_to(x, (*shape[:axis], x.shape[axis], *shape[axis:]))
        positions = self.broadcast_to(positions, (*shape[:axis], positions.shape[axis], *shape[axis:]))
        return self.node("GatherElements", [x, positions], x.dtype, positions.shape, axis=axis)

    def _index(self, indices: Operand) -> Value:
        positions = self.value(indices)
        if positions.dtype in (np.int32, np.int64):
            return positions
        return self.cast(positions, np.int32 if positions.dtype.itemsize < 4 else INT64)


def _bounds(size: Size, start: Size, count: Size, step: int) -> tuple[Any, Any]:
    """The bounds of a Slice along an axis of this size."""
    if not isinstance(count, Dim) and count == 0:
        return 0, 0
    beyond = start + count * step
    if step > 0:
        if is_known([beyond, size]):
            return start, min(beyond, size)
        return start, LAST if step == 1 and beyond == size else beyond
    # Counted from the end, an end before the first element is less than all positions.
    if is_known([beyond, start]):
        return start, beyond if beyond >= 0 else -LAST
    first = start - size
    # The end is at most one step before the first element.
    last = start + (count - 1) * step
    return first, -LAST if not isinstance(last, Dim) and last == 0 else first + count * step
