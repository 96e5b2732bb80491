"""Runs a graph with NumPy and follows each NaN and infinity from the operation that makes it.

An array that holds some is accompanied by an array of marks: for each element the event that made it
(:class:`Event`), and 0 for finite ones. An array without marks is all finite, so that healthy parts cost only
a check of each result. Of two marks, the smaller belongs to the event whose story began earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stopgrad.base.garbage import without_gc
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import NumPyBackend, Observer, Run, Step, program, quietly
from stopgrad.graph.traits import Unsound
from stopgrad.ops.structural.sources import Const
from stopgrad.transforms.control.loops import While
from stopgrad.transforms.control.scans import Scan

NumpyArray: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class Event:
    """An event: an operation made NaNs or infinities, in one output, from operands without any.

    Attributes:
        operation: the operation; a placeholder, parameter or constant if the value itself holds them.
        kind: ``"nan"`` or ``"inf"``.
        output: the position of the output.
        index: the index of the first element.
        count: the number of elements.
        parent: the number of the event whose infinity was turned into a NaN here; 0 for none.
        around: the operations in whose bodies it ran, the outermost first, each with the step of its loop, or
            None if it is no loop.
    """

    operation: Operation
    kind: str
    output: int
    index: tuple[int, ...]
    count: int
    parent: int
    around: tuple[tuple[Operation, int | None], ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the loops around."""
        return tuple([step for _, step in self.around if step is not None])


class Marked:
    """An array with NaNs or infinities, and the numbers of the events that made them."""

    __slots__ = ("marks", "value")

    value: NumpyArray
    marks: NumpyArray

    def __init__(self, value: NumpyArray, marks: NumpyArray) -> None:
        self.value, self.marks = value, marks

    def __getitem__(self, i: int) -> Any:
        """A part of it, as loops take in each step."""
        marks = self.marks[i]
        return Marked(np.asarray(self.value[i]), marks) if np.any(marks) else self.value[i]


class _Backend(NumPyBackend):
    """NumPy, for arrays with and without marks."""

    def array(self, value: Any, dtype: np.dtype[Any]) -> Any:
        return value if type(value) is Marked else np.asarray(value, dtype)


_BACKEND = _Backend()
_NONE = np.iinfo(np.int64).max
"""Stands for no mark."""

_BITS = 31
"""A mark is the number of the event with which its story began, shifted by this, plus the event's own."""
_DELIBERATE = (1 << _BITS) - 1
"""The first number for the story of a constant's infinity, which comes after all others."""


def number(mark: int) -> int:
    """The number of a mark's event, from 1 on."""
    return mark & (1 << _BITS) - 1


class _Loop:
    """A running loop: its step, and the marks of what it stacks, by output."""

    def __init__(self, length: int, backwards: bool) -> None:
        self._length = length
        self.index, self.by = (length - 1, -1) if backwards else (0, 1)
        self.stacked: dict[int, NumpyArray] = {}

    def stack(self, outputs: list[Any], first: int) -> None:
        """Keep the marks of what a step stacks, which are its outputs from *first* on.

        The loop gets the plain arrays, and stacks them.
        """
        for k in range(first, len(outputs)):
            if type(outputs[k]) is Marked:
                value, marks = outputs[k].value, outputs[k].marks
                if k not in self.stacked:
                    self.stacked[k] = np.zeros((self._length, *marks.shape), np.int64)
                self.stacked[k][self.index], outputs[k] = marks, value


class Follower(Observer):
    """Runs graphs and follows what is not finite.

    Attributes:
        made: the events; the first has the number 1.
        beside: for the number of an event, those of others that went into results marked with it, in groups
            that events share.
        unsound: operations that returned a finite number where there is no right one, how, and at which
            element.
        seen: the operands and results of watched operations.

    Args:
        binding: the sizes, by name.
        watched: operations whose values are kept, in these steps of loops.
        steps: the steps of the loops around them.
    """

    def __init__(
        self,
        binding: Mapping[str, int],
        watched: frozenset[Operation] = frozenset(),
        steps: tuple[int, ...] = (),
    ) -> None:
        self.events: list[Event] = []
        self.beside: dict[int, list[frozenset[int]]] = {}
        self.unsound: dict[Operation, tuple[str, tuple[int, ...]]] = {}
        self.seen: dict[Operation, tuple[list[Any], list[Any]]] = {}
        self.sizes = binding
        self._watched, self._steps = watched, steps
        self._around: list[tuple[Operation, int | None]] = []
        self._loops: dict[Operation, _Loop] = {}

    def run(
        self, outputs: Sequence[Output], feeds: Mapping[Output, NumpyArray]
    ) -> list[tuple[NumpyArray, NumpyArray | None]]:
        """The outputs' values, and their marks if they are not finite."""
        return without_gc(quietly, self._run, outputs, feeds)

    def _run(
        self, outputs: Sequence[Output], feeds: Mapping[Output, NumpyArray]
    ) -> list[tuple[NumpyArray, NumpyArray | None]]:
        arguments = []
        for x, array in feeds.items():
            arguments.append(self._checked(x, array))
            if x.op in self._watched:
                self.seen.setdefault(x.op, ([], [array]))
        results = program(list(feeds), outputs, _BACKEND, observer=self)(arguments)
        return [(y.value, y.marks) if type(y) is Marked else (y, None) for y in results]

    def _checked(self, x: Output, array: NumpyArray) -> NumpyArray | Marked:
        if not _may_hold(x) or np.isfinite(array).all():
            return array
        return Marked(array, self._marks(x, array, _NONE, _NONE))

    # ------------------------------------------------------------------------------------- a step

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step:
        """The operation on arrays with or without marks."""
        runs_bodies = op.definition.has_bodies and not op.definition.moves
        step = (self._with_bodies if runs_bodies else self._followed)(op, plain())
        return self._recorded(op, step) if op in self._watched else step

    def _followed(self, op: Operation, function: Step) -> Step:
        dtypes = [y.dtype.numpy for y in op.outputs]
        single, dtype, floating = (
            len(dtypes) == 1,
            dtypes[0] if dtypes else None,
            [*map(_may_hold, op.outputs)],
        )
        looks = single and floating[0]
        unsound = op.definition.unsound
        isfinite, asarray = np.isfinite, np.asarray

        def step(*operands: object) -> Sequence[Any]:
            arrays: Sequence[Any] = operands
            marked = False
            for x in operands:
                if type(x) is Marked:
                    arrays = [x.value if type(x) is Marked else x for x in operands]
                    marked = True
                    break
            results = function(*arrays)
            if unsound is not None:
                self._note(op, unsound, arrays)
            if single:
                y = asarray(results[0], dtype)
                if not looks or isfinite(y).all():
                    return (y,)
                ys = [y]
            else:
                ys = [asarray(y, dtype) for y, dtype in zip(results, dtypes, strict=True)]
            checked: list[Any] = []
            moved = None
            for y, output, may in zip(ys, op.outputs, floating, strict=True):
                if not may or isfinite(y).all():
                    checked.append(y)
                    continue
                if marked and moved is None:
                    moved = _moved(op, function, operands) if op.definition.moves else ()
                sources = _sources(op, output, y, operands, arrays, moved) if marked else (_NONE, _NONE)
                marks = self._marks(output, y, *sources)
                if marked and not moved:
                    self._join(op, operands, marks)
                checked.append(Marked(y, marks))
            return checked

        return step

    def _marks(
        self, output: Output, y: NumpyArray, from_nan: NumpyArray | int, from_inf: NumpyArray | int
    ) -> NumpyArray:
        """The marks of a result, from those of the NaNs and infinities that each element is made of."""
        nan = np.isnan(y)
        inf = np.isinf(y) & ~nan
        marks = np.zeros(y.shape, np.int64)
        if from_nan is not _NONE or from_inf is not _NONE:
            nans, infs = (np.broadcast_to(np.asarray(m, np.int64), y.shape) for m in (from_nan, from_inf))
            # A NaN comes from NaNs, if there are any; an infinity from infinities.
            self._hand_on(marks, nan, nans)
            self._mark_turned(output, nan & (marks == 0) & (infs != _NONE), marks, infs)
            self._hand_on(marks, inf, infs)
            self._hand_on(marks, inf, nans)
        self._mark_new(output, "nan", nan & (marks == 0), marks)
        self._mark_new(output, "inf", inf & (marks == 0), marks)
        return marks

    @staticmethod
    def _hand_on(marks: NumpyArray, where: NumpyArray, sources: NumpyArray) -> None:
        """Give elements without a mark those of the elements from which they were computed."""
        unmarked = where & (marks == 0) & (sources != _NONE)
        marks[unmarked] = sources[unmarked]

    def _mark_turned(self, output: Output, where: NumpyArray, marks: NumpyArray, sources: NumpyArray) -> None:
        """Events that turned infinities into NaNs: one for each event that made the infinities."""
        if where.any():
            places = np.flatnonzero(where)
            parents, firsts, which, counts = np.unique(
                sources[where], return_index=True, return_inverse=True, return_counts=True
            )
            turned = zip(parents.tolist(), places[firsts].tolist(), counts.tolist(), strict=True)
            new_marks = [self._mark(output, "nan", i, where.shape, n, number(mark)) for mark, i, n in turned]
            marks[where] = np.array(new_marks, np.int64)[which.reshape(-1)]

    def _mark_new(self, output: Output, kind: str, where: NumpyArray, marks: NumpyArray) -> None:
        """An event that made NaNs or infinities from finite numbers."""
        if where.any():
            first, count = int(np.argmax(where)), int(np.count_nonzero(where))
            marks[where] = self._mark(output, kind, first, where.shape, count, 0)

    def _mark(
        self, output: Output, kind: str, first: int, shape: tuple[int, ...], count: int, parent: int
    ) -> int:
        """The mark of a new event, whose first element is at this position."""
        index = tuple([int(i) for i in np.unravel_index(first, shape)])
        self.events.append(Event(output.op, kind, output.index, index, count, parent, tuple(self._around)))
        n = begins = len(self.events)
        if output.op.definition is Const and kind == "inf":
            begins = _DELIBERATE
        elif parent and self.events[parent - 1].operation.definition is not Const:
            begins = parent
        return begins << _BITS | n

    def _join(self, op: Operation, operands: Sequence[Any], marks: NumpyArray) -> None:
        """Record the events that went into a result besides those of its marks."""
        bad = marks != 0
        causes: set[int] = set()
        for x in operands:
            if type(x) is Marked:
                aligned = op.definition.elementwise
                causes.update(
                    np.unique(np.broadcast_to(x.marks, bad.shape)[bad] if aligned else x.marks).tolist()
                )
        own = np.unique(marks[bad]).tolist()
        causes.difference_update(own, (0,))
        if causes:
            group = frozenset(map(number, causes))
            for n in own:
                self.beside.setdefault(number(n), []).append(group)

    def _note(self, op: Operation, unsound: Unsound, arrays: Sequence[Any]) -> None:
        """Record where an operation returned a number although there is no right one."""
        where = unsound.where(op.outputs[0].dtype, *map(np.asarray, arrays))
        if where is not None and np.any(where):
            first = np.unravel_index(int(np.argmax(where)), np.shape(where))
            self.unsound.setdefault(op, (unsound.says, tuple([int(i) for i in first])))

    # ------------------------------------------------------------------------------------- bodies

    def _with_bodies(self, op: Operation, function: Step) -> Step:
        """A loop or branch, whose bodies run step by step."""
        attributes = dict(
            zip(op.definition.attributes, op.definition.sized(op.values, self.sizes), strict=True)
        )
        length, backwards = attributes.get("length", 0), attributes.get("reverse", False)

        def step(*operands: object) -> Sequence[Any]:
            loop = self._loops[op] = _Loop(length, backwards)
            results = list(function(*operands))
            for k, marks in loop.stacked.items():
                results[k] = Marked(np.asarray(results[k]), marks)
            return results

        return step

    def inside(self, op: Operation, body: Body, run: Run) -> Run:
        """Runs a body of a loop or branch, and keeps track of the step."""
        definition = op.definition
        is_loop = definition in (Scan, While)
        is_step = is_loop and body is op.body
        first = op.carries if definition is Scan else None

        def entered(arrays: Sequence[Any]) -> list[Any]:
            loop = self._loops[op]
            self._around.append((op, loop.index if is_loop else None))
            results = run(arrays)
            self._around.pop()
            if first is not None:
                loop.stack(results, first)
            if is_step:
                loop.index += loop.by
            return results

        return entered

    def _recorded(self, op: Operation, step: Step) -> Step:
        """The same step, which also keeps its operands and results in the watched steps of loops."""

        def recorded(*operands: object) -> Sequence[Any]:
            results = step(*operands)
            steps = tuple([n for _, n in self._around if n is not None])
            if steps == self._steps[: len(steps)] and op not in self.seen:
                self.seen[op] = [_value(x) for x in operands], [_value(y) for y in results]
            return results

        return recorded


def _may_hold(x: Output) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _value(x: object) -> NumpyArray:
    return x.value if type(x) is Marked else np.asarray(x)


# -------------------------------------------------------------------------------- where marks come from


def _marks_of(x: object, array: NumpyArray) -> NumpyArray:
    marks: NumpyArray = x.marks if type(x) is Marked else np.zeros(np.shape(array), np.int64)
    return marks


def _moved(op: Operation, function: Step, operands: Sequence[Any]) -> Sequence[Any]:
    """The marks, moved by an operation that moves elements."""
    arrays = [
        _marks_of(x, _value(x)) if _may_hold(operand) else x
        for x, operand in zip(operands, op.inputs, strict=True)
    ]
    return list(function(*arrays))


def _sources(
    op: Operation,
    output: Output,
    y: NumpyArray,
    operands: Sequence[Any],
    arrays: Sequence[Any],
    moved: Sequence[Any] | None,
) -> tuple[Any, Any]:
    """For each element of a result, the first mark of the NaNs and of the infinities in its operands."""
    if moved:
        marks = np.asarray(moved[output.index])
        if marks.shape == y.shape and marks.dtype.kind == "i":
            first = np.where(marks == 0, _NONE, marks)
            return first, first
    nans: Any = _NONE
    infs: Any = _NONE
    for x, array in zip(operands, arrays, strict=True):
        if type(x) is Marked:
            nan = np.isnan(array)
            here = np.where(nan, x.marks, _NONE), np.where(~nan & (x.marks != 0), x.marks, _NONE)
            n, i = (_brought(op, marks, y.shape) for marks in here)
            nans, infs = np.minimum(nans, n), np.minimum(infs, i)
    return nans, infs


def _brought(op: Operation, marks: NumpyArray, shape: tuple[int, ...]) -> Any:
    """The marks of an operand as seen from each element of a result."""
    if op.definition.elementwise:
        return np.broadcast_to(marks, shape)
    axis = dict(zip(op.definition.attributes, op.values, strict=True)).get("axis")
    if isinstance(axis, (int, tuple)) and axis != ():
        reduced = marks.min(axis=axis, keepdims=True, initial=_NONE)
        if marks.shape == shape:
            return np.broadcast_to(reduced, shape)
        if reduced.size == np.prod(shape):
            return reduced.reshape(shape)
    return marks.min(initial=_NONE)
