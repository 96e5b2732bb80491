"""Follows NaNs and infinities of other frameworks from the operations that make them, and reports on them.

Each value has marks, if any of its elements is NaN or infinite: integers of its shape, 0 where an element is
finite, and else the number of the event from which it came. A NaN comes from NaNs among an operation's
operands, if there are any; else from infinities, which the operation turns into a NaN; else the operation
makes it. An infinity comes from infinities, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stopgrad.base.dtypes import dtype_of
from stopgrad.base.errors import DTypeError
from stopgrad.base.source import RawLocation, decode
from stopgrad.base.types import tensor_type
from stopgrad.flow.nans.nan_trace import NanInput, NanSite, NanTrace
from stopgrad.graph.graph import Graph, Operation
from stopgrad.ops.structural.foreign import Foreign

Array = Any
MOST = 200
"""The most events of which operands and places are kept."""
FOLLOWED = 3
"""The most later operations, and the most others, that a report names."""
_LAST = np.iinfo(np.int32).max


@dataclass(eq=False)
class Made:
    """An event: an operation made NaNs or infinities, or a value holds some itself.

    Attributes:
        key: tells operations apart; the same in each step of a loop.
        call: what the operation is called in its framework; for a value, its name.
        kind: ``"nan"`` or ``"inf"``.
        index, count: the first of the elements that it made, and how many.
        place: the user's line.
        parent: the number of the event whose infinity was turned into a NaN; 0 if there is none.
        labels: names of the operands.
        operands, result: their values, where they were kept.
        source: what holds it itself, as of :class:`NanSite`.
        gradient: whether only a gradient is computed from it.
        forward: of an operation of a gradient: what it differentiates.
        around: the loops and branches around, the outermost first: what they are called, line and step.
        more: whatever else the framework knows.
    """

    key: Any
    call: str
    kind: str
    index: tuple[int, ...]
    count: int
    place: RawLocation | None
    parent: int = 0
    labels: Sequence[str] = ()
    operands: Sequence[Array] = ()
    result: Array = None
    source: str | None = None
    gradient: bool = False
    forward: Forward | None = None
    around: tuple[tuple[str, RawLocation | None, int | None], ...] = ()
    more: Any = None

    @property
    def deliberate(self) -> bool:
        """Whether it is a constant's infinity."""
        return self.source == "constant" and self.kind == "inf"


@dataclass(frozen=True, eq=False)
class Forward:
    """An operation that is differentiated.

    Attributes:
        key: tells such operations apart.
        call: what it is called in its framework.
        place: the user's line.
        operands: the values that it took, as far as they were kept.
        more: whatever else the framework knows.
    """

    key: Any
    call: str
    place: RawLocation | None
    operands: Sequence[Array] = ()
    more: Any = None


@dataclass
class Events:
    """All events of a run, by their numbers, which begin with 1.

    Attributes:
        made: the events.
        beside: for an event, those whose elements went into the same element of a result as its own.
    """

    made: list[Made] = field(default_factory=list)
    beside: dict[int, set[int]] = field(default_factory=dict)

    def __getitem__(self, number: int) -> Made:
        return self.made[number - 1]

    def add(self, event: Made) -> int:
        """The number of a new event."""
        self.made.append(event)
        return len(self.made)

    def settled(
        self,
        result: Array,
        nans: Array,
        infs: Array,
        new: Callable[[str, Array, int], Made],
    ) -> Array | None:
        """The marks of a result; None if all its elements are finite.

        Args:
            result: its values.
            nans: the marks of NaNs that go into its elements, broadcastable to its shape; 0 for none.
            infs: the same of infinities.
            new: makes an event of its kind, the elements that it made, and its parent.
        """
        bad = is_bad(result)
        if not bad.any():
            return None
        nan = np.isnan(result)
        nans, infs = np.broadcast_to(nans, result.shape), np.broadcast_to(infs, result.shape)
        marks = np.where(nan, nans, np.where(infs != 0, infs, nans)).astype(np.int32)
        marks = np.where(bad, marks, 0).astype(np.int32)
        turned = nan & (nans == 0) & (infs != 0)
        for parent in np.unique(infs[turned]).tolist():
            some = turned & (infs == parent)
            marks[some] = self.add(new("nan", some, int(parent)))
        fresh = bad & (marks == 0)
        for kind, some in (("nan", fresh & nan), ("inf", fresh & ~nan)):
            if some.any():
                marks[some] = self.add(new(kind, some, 0))
        both = bad & (nans != 0) & (infs != 0)
        self.together(marks[both], infs[both])
        return marks

    def together(self, taken: Array, others: Array) -> None:
        """Note that events went into what others are named for."""
        arriving = {int(n) for n in np.unique(taken).tolist() if n}
        for n in arriving:
            self.beside.setdefault(n, set()).update(int(k) for k in np.unique(others).tolist() if k)


def is_bad(x: Array) -> Array:
    """Which elements are NaN or infinite."""
    if x.dtype.kind not in "fcV":
        return np.zeros(x.shape, bool)
    return ~np.isfinite(x)


def least(marks: Array, axes: tuple[int, ...] | None = None) -> Array:
    """The smallest mark along axes, of those that are no 0."""
    if not marks.size:
        return np.zeros((), np.int32)
    lowest = np.where(marks == 0, _LAST, marks).min(axis=axes)
    return np.where(lowest == _LAST, 0, lowest).astype(np.int32)


def first_of(marks: Sequence[Array]) -> Array:
    """Of marks of several operands, those of the first that has any, element by element."""
    first: Array = np.zeros((), np.int32)
    for row in marks:
        first = np.where(first != 0, first, row)
    return first


def apart(value: Array, marks: Array) -> tuple[Array, Array]:
    """The marks of NaNs, and those of infinities."""
    nan = np.isnan(value)
    return np.where(nan, marks, 0), np.where(nan, 0, marks)


# ------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class Result:
    """A result of which NaNs and infinities are told.

    Attributes:
        name: what it is called.
        marks: its marks; None if it is finite.
        gradient: whether it is a gradient.
    """

    name: str
    marks: Array | None
    gradient: bool


Cure = Callable[[Made], tuple[str, str] | None]
"""Finds the name of the pattern that an event matches, and its cure."""


def reported(events: Events, results: Sequence[Result], cure: Cure, operations: int) -> NanTrace:
    """The report on a run."""
    ends = {r.name: _marks(r.marks) for r in results}
    harmful = {events[n].key for n in _involved(events, ends.values())}
    harmless = len({event.key for event in events.made if event.source is None} - harmful)
    arriving = {n for some in ends.values() for mark in some for n in _line(events, mark)}
    if not arriving:
        return NanTrace(None, harmless=harmless, operations=operations)
    begun = {_root(events, n) for some in ends.values() for n in some}
    roots = sorted(begun, key=lambda n: (events[n].deliberate, n))
    first = roots[0]
    then = [n for n in sorted(arriving) if n != first and first in _line(events, n)]
    own = [n for n in then if _same_derivative(events[first], events[n])]
    start = own[0] if own else first  # One derivative's infinity, times its 0: told as one.
    then = _one_each(events, [n for n in then if n not in own], {events[start].key})
    covered = {_subject(events[n]) for n in (first, *own, *then)} | {
        events[n].key for n in (first, *own, *then)
    }
    rest = [n for n in roots[1:] if _subject(events[n]) not in covered and not events[n].deliberate]
    others = _one_each(events, rest, covered)
    graph = Graph()
    sites = {n: _site(graph, events, n, cure) for n in (start, *then, *others)}
    return NanTrace(
        sites[start],
        tuple([sites[n] for n in then]),
        tuple([sites[n] for n in others]),
        tuple([name for name, some in ends.items() if some]),
        harmless,
        (),
        operations,
    )


def _marks(marks: Array | None) -> list[int]:
    return [] if marks is None else [int(n) for n in np.unique(marks).tolist() if n]


def _line(events: Events, n: int) -> list[int]:
    """An event, and those from which its infinity came."""
    line = [n]
    while parent := events[line[-1]].parent:
        line.append(parent)
    return line


def _root(events: Events, n: int) -> int:
    """The event where the line of an event begins; for a constant's infinity, the one that turned it."""
    line = _line(events, n)
    return line[-2] if len(line) > 1 and events[line[-1]].deliberate else line[-1]


def _involved(events: Events, ends: Iterable[Sequence[int]]) -> set[int]:
    """All events of which something may have gone into what arrives."""
    involved: set[int] = set()
    stack = [mark for some in ends for mark in some]
    while stack:
        for n in _line(events, stack.pop()):
            if n not in involved:
                involved.add(n)
                stack += events.beside.get(n, ())
    return involved


def _subject(event: Made) -> object:
    """The user's operation: itself, or what it differentiates."""
    return event.key if event.forward is None else event.forward.key


def _same_derivative(a: Made, b: Made) -> bool:
    return a.forward is not None and b.forward is not None and a.forward.key == b.forward.key


def _one_each(events: Events, numbers: Iterable[int], covered: set[Any]) -> list[int]:
    """The first event of each operation that is not told yet; not too many."""
    first: dict[Any, int] = {}
    for n in numbers:
        if events[n].key not in covered:
            first.setdefault(_subject(events[n]), n)
    return list(first.values())[:FOLLOWED]


def _site(graph: Graph, events: Events, n: int, cure: Cure) -> NanSite:
    event = events[n]
    match = cure(event)
    place = event.place if event.forward is None or event.forward.place is None else event.forward.place
    origin = None if event.forward is None else operation(graph, event.forward.call, event.forward.place)
    cause = events[event.parent] if event.parent and events[event.parent].deliberate else None
    steps = [step for _, _, step in event.around if step is not None]
    return NanSite(
        operation=operation(graph, event.call, event.place, event.result),
        name=event.call,
        where="gradient" if event.gradient else "forward",
        kind=event.kind,
        index=event.index,
        count=event.count,
        inputs=tuple(operand_inputs(event)),
        location=None if place is None else decode(place),
        origin=origin,
        origin_name=None if event.forward is None else event.forward.call,
        origin_location=None if event.forward is None or place is None else decode(place),
        order=1 if event.gradient else 0,
        iteration=steps[-1] if steps else None,
        around=tuple([(operation(graph, call, at), step) for call, at, step in event.around]),
        source=event.source,
        cause=None if cause is None else _site(graph, events, event.parent, lambda _: None),
        pattern=match[0] if match else None,
        cure=match[1] if match else None,
    )


def operation(graph: Graph, call: str, place: RawLocation | None, result: Array = None) -> Operation:
    """An operation that stands for another framework's."""
    name, shape = ("float32", ()) if result is None else (_dtype(result), result.shape)
    kinds = (tensor_type(dtype_of(name), tuple(shape)),)
    return Operation(graph, Foreign, (), (call, ((name, *shape),), (), (), ""), kinds, "", place)


def _dtype(x: Array) -> str:
    try:
        return dtype_of(x.dtype).name
    except DTypeError:
        return "float32"


def operand_inputs(event: Made) -> Iterable[NanInput]:
    """What is said of an event's operands."""
    for i, x in enumerate(event.operands):
        label = event.labels[i] if i < len(event.labels) else ""
        yield input_of(f"x{i}", label, x, event.index, None if event.result is None else event.result.shape)


def input_of(
    operand: str, label: str, x: Array, index: tuple[int, ...], shape: tuple[int, ...] | None
) -> NanInput:
    """What is said of an operand, and of its element that belongs to a result's."""
    sizes = np.abs(x) if x.dtype.kind == "c" else x
    if sizes.dtype.kind in "Vbf":
        sizes = sizes.astype(np.float64)
    floats = sizes.dtype.kind == "f"
    nan = np.isnan(sizes) if floats else np.zeros(sizes.shape, bool)
    not_nan = sizes[~nan] if sizes.ndim else sizes.reshape(1)[~nan.reshape(1)]
    numbers = not_nan.size and sizes.dtype.kind in "fiu"
    low, high = (not_nan.min().item(), not_nan.max().item()) if numbers else (None, None)
    has_inf = floats and bool(np.isinf(sizes).any())
    return NanInput(
        operand,
        label,
        str(x.dtype),
        tuple(x.shape),
        low,
        high,
        bool(nan.any()),
        has_inf,
        element(sizes, index, shape),
    )


def element(x: Array, index: tuple[int, ...], shape: tuple[int, ...] | None) -> float | None:
    """The element of an operand that belongs to an element of a result; None if shapes do not agree."""
    try:
        value = np.broadcast_to(x, x.shape if shape is None else shape)[index]
    except (ValueError, IndexError):
        return None
    return value.item() if np.ndim(value) == 0 else None


def first_index(some: Array) -> tuple[int, ...]:
    """The index of the first element that is true."""
    if not some.ndim:
        return ()
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(some)), some.shape))
