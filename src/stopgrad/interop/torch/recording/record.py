"""The record of a watch: events, the values that they made, and the regions without gradients.

The record holds no tensor and no autograd node. An event refers to the values that it took, and a value to
the event that made it, but nothing refers to later events, except perhaps to leaves. So what no tensor and no
node leads to any more is freed by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from stopgrad.base.source import Calls, RawLocation
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.interop.torch.recording.places import with_caller


class Kind(Enum):
    """The kinds of events."""

    OPERATION = "operation"
    STOP = "stop"  # Passes its one input on, without gradient.
    LEAF = "leaf"  # A tensor at which gradients arrive, or data; with an input if it was made from another.
    FROZEN = "frozen"  # A leaf at a time when it requires no gradient.
    WRITTEN = "written"  # A value of autograd's, and what was written into its memory without autograd.


FREEZES, REQUIRES = "requires_grad_", "requires_grad"
"""The calls of frozen leaves: at the line that froze it, and at the first use of one that is found frozen."""
WRITES = "writes"
"""The reason of an operation that wrote into its first input."""
ALIAS = "alias"
"""The call of a stop before what shares memory with a value, but not its history."""
INSIDE = "inside "
"""The beginning of the name of a region in the forward of an ``autograd.Function``."""

_OPERATION = Kind.OPERATION  # Reading it from its class takes longer.
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"})
"""The dtypes that carry gradients."""
Shape = tuple[Any, ...]
"""The name of a dtype, and sizes; those of nested tensors need not be numbers."""


def elements_of(sizes: Shape) -> int:
    """The number of elements of a result; of a nested tensor's, 1."""
    try:
        return math.prod(sizes[1:])
    except TypeError:
        return 1


_serials = itertools.count(1)


def now() -> int:
    """A serial number between those of the events before and after."""
    return next(_serials)


class Event:
    """Something that happened to tensors.

    Attributes:
        serial: a number by which events are in order.
        kind: what it is.
        call: its name in PyTorch.
        why: for a stop, why no gradient passes; for a leaf made from another tensor, why none ever would; of
            operations, what some are.
        place: the line; where it ends paths, with the user's line that led there.
        inputs: the values it took.
        walls: the inputs that get no gradient: position, status, reason.
        results: dtype and sizes of each result, as PyTorch has them.
        region: the region without gradients in which it happened, or None.
        hooks: the lines of hooks through which the gradient of a result goes.
        calls: the calls of the user's functions around its place, outermost first, where they were noted.
    """

    __slots__ = (
        "call",
        "calls",
        "hooks",
        "inputs",
        "kind",
        "place",
        "region",
        "results",
        "serial",
        "walls",
        "why",
    )

    serial: int
    kind: Kind
    call: str
    inputs: tuple[Value, ...]
    walls: tuple[tuple[int, str, str], ...]
    region: Region | None
    why: str

    def __init__(
        self,
        kind: Kind,
        call: str,
        place: RawLocation | None,
        inputs: tuple[Value, ...] = (),
        walls: tuple[tuple[int, str, str], ...] = (),
        region: Region | None = None,
        why: str = "",
    ) -> None:
        self.serial = next(_serials)
        self.kind = kind
        self.call = call
        self.place = place
        self.inputs = inputs
        self.walls = walls
        self.region = region
        self.why = why
        self.results: tuple[Shape, ...] = ()
        self.hooks: tuple[RawLocation, ...] = ()
        self.calls: Calls | None = None

    def result(self, sizes: Shape, open: bool) -> Value:
        """Add a result; its value."""
        value = Value(self, len(self.results), open)
        self.results += (sizes,)
        if (self.kind is not _OPERATION or self.walls or sizes[0] not in FLOATS) and self._may_end_paths():
            self.place = with_caller(self.place)
        region = self.region
        if region is not None and not open:
            value.open_outside = any(
                x.open or (x.open_outside and _stopping(x) is region.stopping) for x in self.inputs
            )
        return value

    def _may_end_paths(self) -> bool:
        """Whether it may be told as a cut, if it is no operation that only makes floating-point numbers."""
        if self.kind is Kind.STOP or self.kind is Kind.FROZEN:
            return True
        return bool(self.walls) or any(x.sizes[0] in FLOATS for x in self.inputs)


def is_written(stop: Event) -> bool:
    """Whether somebody wrote a stop, who may take it out where it does nothing."""
    return stop.kind is Kind.STOP and stop.call != ALIAS and not stop.call.startswith(INSIDE)


class Value:
    """A tensor at one moment.

    Attributes:
        event: what made it.
        index: which of its results.
        open: whether, according to the record, a gradient passes through it to a leaf that requires one.
        open_outside: whether it would be open without the region in which it was made.
        left: the value that stands for it outside of that region, once there is one.
        written: its new value, if its memory was written into without autograd's knowledge.
    """

    __slots__ = ("event", "index", "left", "open", "open_outside", "written")

    event: Event
    index: int
    open: bool
    open_outside: bool

    def __init__(self, event: Event, index: int, open: bool) -> None:
        self.event = event
        self.index = index
        self.open = self.open_outside = open
        self.left: Value | None = None
        self.written: Value | None = None

    @property
    def sizes(self) -> Shape:
        """Its dtype's name and its sizes."""
        return self.event.results[self.index]


class Target(NamedTuple):
    """A subject of a question.

    Attributes:
        value: what is asked about.
        needs: whether its tensor requires a gradient.
        argument: whether ``torch.func`` differentiates with respect to it, whatever it requires.
        hooks: where the hooks of its tensor are written.
    """

    value: Value
    needs: bool
    argument: bool = False
    hooks: tuple[RawLocation, ...] = ()


class Arrived(Protocol):
    """A gradient that arrived at a leaf."""

    def magnitude(self) -> Magnitude:
        """How large it is, as far as it is known or can still be found out."""


class Sizes:
    """How large the gradients of a backward pass are.

    Attributes:
        at: their norms, at values that operations made and at leaves.
        of: more about them, at leaves.
    """

    __slots__ = ("at", "of")

    def __init__(self) -> None:
        self.at: dict[Value, float] = {}
        self.of: dict[Value, Arrived] = {}


class Backward(NamedTuple):
    """A backward pass.

    Attributes:
        kind: ``"backward"`` or ``"grad"``.
        losses: what is differentiated.
        place: the line.
        sizes: how large the gradients are; filled while it runs.
        arguments: for one of ``torch.func``, the arguments, each with whether it got a gradient.
        number: that of the first node which is made after it began.
    """

    kind: str
    losses: tuple[Value, ...]
    place: RawLocation | None
    sizes: Sizes
    arguments: tuple[tuple[Value, bool], ...] = ()
    number: int = 0


class Observer(Protocol):
    """Told what happens while a recorder runs, beyond what it records. What it raises is not passed on."""

    def called(self, module: Any) -> None:
        """A module is called."""

    def begins(self, call: Backward, losses: Sequence[Any]) -> None:
        """A backward pass from these tensors begins."""

    def ended(self, call: Backward) -> None:
        """It has ended without an error."""

    def made(self, optimizer: Any, place: RawLocation | None) -> None:
        """An optimizer was made."""

    def name_of(self, tensor: Any) -> str:
        """The user's name for a parameter; empty if none is known."""

    def gradient(self, tensor: Any, sets: bool, place: RawLocation | None) -> None:
        """The ``grad`` of a tensor is read, or set."""

    def classified(self, name: str, args: Sequence[Any], place: RawLocation | None) -> None:
        """A loss that leaves classes out was computed."""


class Region:
    """A part of a run in which autograd records nothing.

    Attributes:
        outer: the region around it.
        why: its cause, such as ``"torch.no_grad()"``.
        place: where it was entered.
        ignored: whether nothing that happens inside is recorded.
        runs: for the forward of an ``autograd.Function``, the function.
        began: a serial number, by which later events are known; of a forward, those of its last run.
        ended: whether the last run of a forward has come to its end.
        stopping: the region that ends the gradients of what is made here. That is not a forward where
            gradients are off anyway.
    """

    __slots__ = ("began", "ended", "ignored", "outer", "place", "runs", "stopping", "why")

    outer: Region | None
    why: str
    place: RawLocation | None
    ignored: bool
    runs: type | None
    began: int
    ended: bool

    def __init__(
        self,
        outer: Region | None,
        why: str,
        place: RawLocation | None,
        ignored: bool = False,
        runs: type | None = None,
    ) -> None:
        self.outer, self.why, self.place, self.ignored, self.runs = outer, why, place, ignored, runs
        self.stopping: Region = self if runs is None or outer is None else outer.stopping
        self.began = now()
        self.ended = False

    def holds(self, inner: Region | None) -> bool:
        """Whether *inner* is this region or lies in it."""
        while inner is not None and inner is not self:
            inner = inner.outer
        return inner is self


def seen_from(value: Value, here: Region | None) -> Value:
    """A value as seen from a region: behind a stop if it left the region in which it was made."""
    region = _stopping(value)
    while region is not None and value.open_outside and not region.holds(here):
        if value.left is None:
            value.left = stop(value, region.why, region.why, region.place, region.outer)
        value = value.left
        region = _stopping(value)
    return value


def _stopping(value: Value) -> Region | None:
    """The region that a value leaves only without its gradient."""
    region = value.event.region
    return None if region is None else region.stopping


def stop(value: Value, call: str, why: str, place: RawLocation | None, region: Region | None = None) -> Value:
    """A value behind a stop."""
    return Event(Kind.STOP, call, place, (value,), region=region, why=why).result(value.sizes, False)


def transformed_loss(call: Backward) -> Value:
    """The loss of a backward pass of ``torch.func``, made of its arguments in one operation."""
    walls = [
        (i, "not differentiable", "torch.func found no gradient for it")
        for i, (_, has_gradient) in enumerate(call.arguments)
        if not has_gradient
    ]
    event = Event(
        Kind.OPERATION, "torch.func", call.place, tuple([x for x, _ in call.arguments]), tuple(walls)
    )
    return event.result(call.losses[0].sizes, True)


def forward_around(region: Region | None) -> Region | None:
    """The innermost forward of an ``autograd.Function`` that a region is or lies in."""
    while region is not None and region.runs is None:
        region = region.outer
    return region


def not_open(value: Value, began: int) -> list[Value]:
    """The values without gradients of which a value was made by events since a serial number."""
    closed: dict[Value, None] = {}
    stack, seen = [value.event], {value.event}
    while stack:
        for operand in stack.pop().inputs:
            if not operand.open:
                closed[operand] = None
            elif operand.event.serial > began and operand.event not in seen:
                seen.add(operand.event)
                stack.append(operand.event)
    return list(closed)


def entering(inner: Value, forward: Region, edges: Collection[Value]) -> list[Value]:
    """The outside values from which a value inside a forward of an ``autograd.Function`` was made.

    Args:
        inner: a result of the forward, as it was in there.
        forward: the forward.
        edges: the values that the function's node leads to, which are left out.
    """
    outside: dict[Value, None] = {}
    stack, seen = [inner.event], {inner.event}
    while stack:
        for value in stack.pop().inputs:
            if value in edges or _detached_in(forward, value) in edges:
                continue
            if not _made_in(forward, value.event):
                outside[value] = None
            elif value.event not in seen:
                seen.add(value.event)
                stack.append(value.event)
    return list(outside)


def _detached_in(forward: Region, value: Value) -> Value:
    """The value that a forward detached to get this one."""
    while value.event.kind is Kind.STOP and value.event.serial > forward.began:
        value = value.event.inputs[0]
    return value


def _made_in(forward: Region, event: Event) -> bool:
    """Whether an event happened in a forward, or is what is seen outside of something that did.

    A forward may switch gradients on. What happens then is in no region, but later than its beginning.
    """
    while event.kind is Kind.STOP or event.kind is Kind.WRITTEN:
        if forward.holds(event.region):
            return True
        event = event.inputs[-1].event
    later = event.serial > forward.began and event.kind is not Kind.FROZEN and bool(event.inputs)
    return later or forward.holds(event.region)


def above(values: Sequence[Value], excluded: Collection[Event] = ()) -> list[Event]:
    """The events that led to values, in order, without *excluded* ones and what led to these."""
    events = dict.fromkeys([value.event for value in values if value.event not in excluded])
    stack = list(events)
    while stack:
        for value in stack.pop().inputs:
            if value.event not in events and value.event not in excluded:
                events[value.event] = None
                stack.append(value.event)
    # A function may be found to lead to a leaf that was met later, and data to be an alias of one.
    return sorted(
        events, key=lambda event: (event.serial if event.inputs else 0, event.kind is not Kind.STOP)
    )


def is_open(inputs: Sequence[Value], walls: Sequence[tuple[int, str, str]]) -> bool:
    """Whether a gradient passes to any input."""
    blocked = [i for i, _, _ in walls] if walls else ()
    for i, value in enumerate(inputs):  # noqa: SIM110 (a generator would take several times as long)
        if value.open and i not in blocked:
            return True
    return False
