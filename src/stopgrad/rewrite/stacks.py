"""Stacks: values of several segments as one tensor, and the place of each old value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.kinds import Spans
from stopgrad.graph.operands import Literal
from stopgrad.ops.indexing.slices import StridedSlice
from stopgrad.ops.shapes.join import ConcatV2, Pack, ReverseV2
from stopgrad.ops.shapes.reshape import Reshape, Transpose
from stopgrad.ops.structural.sources import Const
from stopgrad.rewrite.engine import Copying

_FEW = 8
"""The most parts of other stacks of which a stack is made; else the values are stacked one by one."""


class Together(NamedTuple):
    """Adjacent slices as a single one.

    Attributes:
        spans: the spans of the single slice.
        axis: the axis along which they differ.
        times: the number of slices.
        backwards: whether they are in reverse order.
    """

    spans: Spans
    axis: int
    times: int
    backwards: bool


def spans_together(each: Sequence[Spans]) -> Together | None:
    """Unite slices that follow each other along one axis without gaps; None if they do not."""
    first, second = each[0], each[1]
    differing = [axis for axis, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(differing) != 1:
        return None
    (axis,) = differing
    start, size, step = first[axis]
    distance = second[axis][0] - start
    expected = [
        (*first[:axis], (start + k * distance, size, step), *first[axis + 1 :]) for k in range(len(each))
    ]
    if size == 1:
        span, backwards = (start, len(each), distance), False
    elif step == 1 and abs(distance) == size:
        backwards = distance < 0
        span = (each[-1][axis][0] if backwards else start, size * len(each), 1)
    else:
        return None
    if list(each) != expected:
        return None
    return Together((*first[:axis], span, *first[axis + 1 :]), axis, len(each), backwards)


def arranged(copying: Copying, parts: Output, together: Together, like: Operation) -> Output:
    """The single slice, made of slices that are stacked along a new first axis."""
    if together.backwards:
        parts = copying.add(ReverseV2, (parts,), ((0,),), like)[0]
    axis, ndim = together.axis, parts.ndim
    order = (*range(1, axis + 1), 0, *range(axis + 1, ndim))
    if axis:
        parts = copying.add(Transpose, (parts,), (order,), like)[0]
    shape = tuple([size for _, size, _ in together.spans])
    return copying.add(Reshape, (parts,), (shape,), like)[0]


def taken_apart(copying: Copying, whole: Output, together: Together, like: Operation) -> Output:
    """The slices, stacked along a new first axis, made of the single one."""
    axis, count = together.axis, together.times
    shape = whole.shape
    size = shape[axis] // count
    apart = (*shape[:axis], count, size, *shape[axis + 1 :])
    whole = copying.add(Reshape, (whole,), (apart,), like)[0]
    if axis:
        order = (axis, *[i for i in range(len(apart)) if i != axis])
        whole = copying.add(Transpose, (whole,), (order,), like)[0]
    return copying.add(ReverseV2, (whole,), ((0,),), like)[0] if together.backwards else whole


class _Piece(NamedTuple):
    """Rows of a stack at equal distances; without a stack, separate values."""

    stack: Output | None
    first: int
    step: int
    values: list[Output]


class Stacks:
    """Where the outputs of an old graph are in the new one: as tensors, or as rows of stacks.

    Attributes:
        copying: the new graph.
        mapping: the new tensors of old outputs.
        rows: for outputs that are rows, the stack and the position.
        packed: for outputs that have a tensor, the stack into which they were copied.
    """

    def __init__(self, copying: Copying) -> None:
        self.copying = copying
        self.mapping: dict[Output, Output] = {}
        self.rows: dict[Output, tuple[Output, int]] = {}
        self.packed: dict[Output, tuple[Output, int]] = {}
        self._stacked: dict[tuple[Output, ...], Output] = {}

    def hold(self, stack: Output, values: Iterable[Output]) -> None:
        """Record values as the rows of a stack."""
        for i, y in enumerate(values):
            self.rows[y] = stack, i

    def value(self, y: Output) -> Output:
        """The tensor of an old output, which is computed now if that was postponed."""
        tensor = self.mapping.get(y)
        if tensor is None:
            row = self.rows.get(y)
            if row is None:
                self.copy(y.op)
                return self.mapping[y]
            stack, i = row
            spans = ((i, 1, 1), *[(0, size, 1) for size in stack.shape[1:]])
            part = self.copying.add(StridedSlice, (stack,), (spans,), y.op)
            tensor = self.mapping[y] = self.copying.add(Reshape, part, (stack.shape[1:],), y.op)[0]
        return tensor

    def copy(self, op: Operation) -> None:
        """Copy an operation, with its new operands. What stacks rows of a few stacks is made of these."""
        if op.definition is Pack and len(op.inputs) > _FEW >= len(self._pieces(op.inputs)):
            whole, (axis,) = self.stack(op.inputs, op), op.values
            order = (*range(1, axis + 1), 0, *range(axis + 1, whole.ndim))
            placed = self.copying.add(Transpose, (whole,), (order,), op)[0] if axis else whole
            self.mapping[op.outputs[0]] = placed
            return
        inputs = tuple([self.value(x) for x in op.inputs])
        self.mapping.update(
            zip(op.outputs, self.copying.add(op.definition, inputs, op.values, op), strict=True)
        )

    def run_backwards(self, own: Iterable[Sequence[Output]]) -> bool:
        """Whether more of these read stacks from the last row to the first."""
        votes = 0
        for values in own:
            one, other = (self._row(values[k]) for k in (len(values) // 2, len(values) // 2 + 1))
            if one and other and one[0] is other[0]:
                votes += other[1] - one[1] if abs(other[1] - one[1]) == 1 else 0
        return votes < 0

    def _row(self, y: Output) -> tuple[Output, int] | None:
        return self.rows.get(y) or self.packed.get(y)

    def stack(self, values: Sequence[Output], like: Operation) -> Output:
        """Old outputs stacked along a new first axis."""
        key = tuple(values)
        stacked = self._stacked.get(key)
        if stacked is None:
            for way in (self._stacked_constants, self._stacked_slices, self._put_together):
                stacked = way(values, like)
                if stacked is not None:
                    break
            assert stacked is not None
            self._stacked[key] = stacked
        return stacked

    def _stacked_constants(self, values: Sequence[Output], like: Operation) -> Output | None:
        if any(x.op.definition is not Const for x in values):
            return None
        literal = Literal(np.stack([x.op.values[0].array for x in values]))
        return self.copying.add(Const, (), (literal,), like)[0]

    def _stacked_slices(self, values: Sequence[Output], like: Operation) -> Output | None:
        """Slices of one tensor as a single slice of it, stacked."""
        source = values[0].op.inputs[0] if values[0].op.definition is StridedSlice else None
        if any(x.op.definition is not StridedSlice or x.op.inputs[0] is not source for x in values):
            return None
        together = spans_together([x.op.values[0] for x in values])
        if source is None or together is None:
            return None
        whole = self.copying.add(StridedSlice, (self.value(source),), (together.spans,), like)[0]
        return taken_apart(self.copying, whole, together, like)

    def _put_together(self, values: Sequence[Output], like: Operation) -> Output | None:
        pieces = self._pieces(values)
        if len(pieces) > _FEW:
            pieces = [_Piece(None, 0, 0, list(values))]
        parts = [self._piece(piece, like) for piece in pieces]
        return parts[0] if len(parts) == 1 else self.copying.add(ConcatV2, tuple(parts), (0,), like)[0]

    def _pieces(self, values: Sequence[Output]) -> list[_Piece]:
        pieces: list[_Piece] = []
        for x in values:
            stack, i = self._row(x) or (None, 0)
            last = pieces[-1] if pieces else None
            if last is not None and last.stack is stack:
                if stack is None:
                    last.values.append(x)
                    continue
                step = i - last.first - last.step * (len(last.values) - 1)
                if abs(step) == 1 and (len(last.values) == 1 or step == last.step):
                    pieces[-1] = last._replace(step=step, values=[*last.values, x])
                    continue
            pieces.append(_Piece(stack, i, 0, [x]))
        return pieces

    def _piece(self, piece: _Piece, like: Operation) -> Output:
        stack, first, step, values = piece
        if stack is None:
            pack = self.copying.add(Pack, tuple([self.value(x) for x in values]), (0,), like)[0]
            for i, x in enumerate(values):
                self.packed.setdefault(x, (pack, i))
            return pack
        if first == 0 and step == 1 and len(values) == stack.shape[0]:
            return stack
        spans = ((first, len(values), step or 1), *[(0, size, 1) for size in stack.shape[1:]])
        return self.copying.add(StridedSlice, (stack,), (spans,), like)[0]
