"""The record of a watch: what ran eagerly, the values that it made, the tapes, the gradients asked for.

The record holds no tensor. An event refers to the values that it took and a value to its event, but nothing
to later ones, so what no tensor leads to is freed by itself. What graphs of functions hold is not recorded,
but read from them when somebody asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from stopgrad.base.source import RawLocation
from stopgrad.flow.magnitudes.magnitude import Magnitude

Shape = tuple[Any, ...]
"""The name of a dtype, and sizes; only the name where these are not known."""
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
"""The operations that read a variable, whose first input is its handle."""


class Kind(Enum):
    """The kinds of events."""

    OPERATION = "operation"  # It ran eagerly.
    CALL = "call"  # A function of TensorFlow was called.
    CUSTOM = "custom"  # Recorded on tapes with a gradient function of its own.
    READ = "read"  # A stop read a variable: as if what takes the stop's result had done so.
    VARIABLE = "variable"
    CONSTANT = "constant"  # A tensor that nothing recorded made.
    ASSIGNED = "assigned"  # What was written into a variable.


_serials = itertools.count(1)


def now() -> int:
    """A number between those of the events before and after."""
    return next(_serials)


@dataclass(eq=False)
class Tape:
    """A tape, from its beginning or its last reset on.

    Attributes:
        place: where it was opened.
        opened, closed: when it first began to record, and last ceased to; 0 while it records.
        reads: whether it watches variables that are read.
        watched: when it was told to watch tensors and variables, by their numbers.
        pauses: the times in which it did not record, each with where it went on.
    """

    place: RawLocation | None
    reads: bool
    opened: int = field(default_factory=now)
    closed: int = 0
    watched: dict[int, int] = field(default_factory=dict)
    pauses: list[tuple[int, int, RawLocation | None]] = field(default_factory=list)


class Event:
    """Something that ran.

    Attributes:
        serial: a number by which events are in order.
        call: TensorFlow's name for it.
        place: the line.
        inputs: the values it took; for a variable that was read, also what was written into it.
        results: dtype and sizes of each result.
        attrs: of an operation, its attributes as tapes have them.
        tapes: the tapes that recorded then.
        graph: for a call, the graph of the function; None if it is not known.
        beside: for what has its own gradient function, the call that it stands for.
        closes: for what has its own gradient function, how many of its inputs, the last ones, are only
            closed over.
        scope: the layers of Keras' in which it ran: ``"model/dense"``.
        passes: for what has its own gradient function, to which inputs it gave a gradient when it ran.
    """

    __slots__ = (
        "attrs", "beside", "call", "closes", "graph", "inputs", "kind", "passes", "place", "results",
        "scope", "serial", "tapes",
    )  # fmt: skip

    serial: int
    kind: Kind
    call: str
    place: RawLocation | None
    inputs: tuple[Value, ...]
    results: tuple[Shape, ...]
    tapes: tuple[Tape, ...]
    attrs: tuple[Any, ...]
    scope: str
    closes: int

    def __init__(
        self,
        kind: Kind,
        call: str,
        place: RawLocation | None,
        inputs: tuple[Value, ...] = (),
        results: tuple[Shape, ...] = (),
        tapes: tuple[Tape, ...] = (),
        attrs: tuple[Any, ...] = (),
    ) -> None:
        self.serial = next(_serials)
        self.kind, self.call, self.place, self.inputs = kind, call, place, inputs
        self.results, self.tapes, self.attrs = results, tapes, attrs
        self.graph: Any = None
        self.scope = ""
        self.closes = 0
        self.beside: Event | None = None
        self.passes: Sequence[bool] | None = None


class Value(NamedTuple):
    """A tensor that ran, or a variable: one result of an event."""

    event: Event
    number: int


@dataclass(frozen=True)
class Symbol:
    """A tensor of a graph: *graph* keeps it, and *name* and *index* say which it is."""

    graph: Any
    name: str
    index: int

    @property
    def tensor(self) -> Any:
        """The tensor."""
        return self.graph.get_operation_by_name(self.name).outputs[self.index]


class Source(NamedTuple):
    """What a gradient was asked for.

    Attributes:
        name: the variable's, or its place among the sources.
        value: what it is.
        some: whether TensorFlow gave a gradient; None where it gave zeros in place of none.
        held: whether it was a variable that is not trainable.
        variable: the variable; None for a tensor.
    """

    name: str
    value: Value | Symbol
    some: bool | None
    held: bool = False
    variable: Any = None


@dataclass(eq=False)
class Asking:
    """A gradient that was asked for.

    Attributes:
        kind: ``"tape.gradient"`` or ``"tf.gradients"``.
        losses: what was differentiated.
        sources: what for.
        place: the line.
        tape: the tape; None for ``tf.gradients``.
        sizes: how large the gradients are, by source; None if that was not measured.
        serial: when.
    """

    kind: str
    losses: tuple[Value | Symbol, ...]
    sources: tuple[Source, ...]
    place: RawLocation | None
    tape: Tape | None
    sizes: Sequence[Magnitude | None] | None = None
    serial: int = field(default_factory=now)


class Departure(NamedTuple):
    """A value that left for Python, by *call*."""

    value: Value
    call: str
    place: RawLocation
    serial: int


def above(values: Sequence[Value], without: Collection[Event] = ()) -> list[Event]:
    """The events that led to values, in order, but those in *without* and what led to these."""
    events = dict.fromkeys([value.event for value in values if value.event not in without])
    stack = list(events)
    while stack:
        event = stack.pop()
        for value in event.inputs:
            if value.event not in events and value.event not in without:
                events[value.event] = None
                stack.append(value.event)
    return sorted(events, key=lambda event: event.serial)
