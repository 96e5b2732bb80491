"""The builder: in which graph, in which scope and for which forward operation is being built.

This is a chain of ``with`` blocks for the running thread or task, not part of any graph. Each link holds what
its block sets and what the blocks around it set, so that :func:`current` is a single look-up.

**A block ends when its ``with`` statement drops it.** The statement holds the bound method that it will call
at the end; the chain refers weakly to just that. So no code of ours has to run at the end of a block, where
an interrupt could prevent it, and blocks may end in any order: a generator may be closed late, or in another
thread, or be forgotten. The next look at the chain drops what has ended, for everybody, also for a task or
thread with a copy of the context. Blocks that are entered by hand, or by an ``ExitStack``, hold themselves
until their ``__exit__`` is called.

A scope that a generator or coroutine entered is active only while that frame is running: code that runs while
the generator is suspended builds outside of the scope.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from stopgrad.base.locks import exclusive
from stopgrad.base.source import BETWEEN, Calls, Location, RawLocation, calls_around, capture, kind_of

# Graphs are defined above this module, which only holds them.
Graph: TypeAlias = Any
Operation: TypeAlias = Any
Output: TypeAlias = Any

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
NOBODY: frozenset[FrameType] = frozenset()
"""No frames that are asleep."""


class Region:
    """A ``no_gradient`` block: tensors that are built inside are stopped when they are used outside."""

    __slots__ = ("location", "outer")

    def __init__(self, outer: Region | None, location: RawLocation | None) -> None:
        self.outer: Region | None = outer
        self.location: RawLocation | None = location

    def holds(self, inner: Region | None) -> bool:
        """Whether *inner* is this block or inside it."""
        while inner is not None and inner is not self:
            inner = inner.outer
        return inner is self


class Trace:
    """The body of a construct (a loop, a branch) while the user's function for it is being traced.

    Attributes:
        graph: the body.
        outer_graph: the graph around it, in which the construct itself is built; None while it is unknown.
        outer: the body around it that is being traced, too.
        what: the construct, as messages name it.
        remakes: whether ``remade`` operations are built again inside if their results are used.
        captures: the tensors of enclosing graphs that it uses, each with its parameter.
    """

    __slots__ = ("captures", "graph", "outer", "outer_graph", "remakes", "what")

    graph: Graph
    outer_graph: Graph | None
    outer: Trace | None
    what: str
    remakes: bool

    def __init__(
        self,
        graph: Graph,
        outer_graph: Graph | None,
        outer: Trace | None,
        what: str,
        remakes: bool = False,
    ) -> None:
        self.graph = graph
        self.outer_graph = outer_graph
        if outer_graph is not None:
            outer_graph.careful = True
        self.outer = outer
        self.what = what
        self.remakes = remakes
        self.captures: dict[Output, Output] = {}

    def forget_undone(self) -> None:
        """Drop captures whose parameters were taken back after a failed build."""
        for x in [x for x, parameter in self.captures.items() if not self.graph.holds(parameter.op)]:
            del self.captures[x]

    def encloses(self, graph: Graph) -> bool:
        """Whether *graph* is this body or one that encloses it."""
        trace: Trace | None = self
        while trace is not None:
            if graph is trace.graph or graph is trace.outer_graph:
                return True
            trace = trace.outer
        return False

    def adopts(self, graph: Graph) -> bool:
        """:meth:`encloses`; and if the graph of the outermost construct is unknown, it is now *graph*.

        Not if a block inside the body has made another graph the default, nor in the body of a finished
        construct.
        """
        if self.encloses(graph):
            return True
        outermost = self
        while outermost.outer is not None:
            outermost = outermost.outer
        if outermost.outer_graph is not None or graph._body_of or not self.encloses(current().graph):
            return False
        outermost.outer_graph = graph
        graph.careful = True
        return True


class CallNotes:
    """For each operation, the calls that led to it, outermost first.

    Args:
        until: the code beyond whose frame nothing is noted.
    """

    __slots__ = ("_until", "of")

    def __init__(self, until: CodeType) -> None:
        self.of: dict[Operation, Calls] = {}
        self._until = until

    def note(self, op: Operation) -> Operation:
        """Note what is building an operation, and return it."""
        self.of[op] = calls_around(sys._getframe(1), self._until)
        return op


class Builder:
    """One link of the chain, with the settings inside its block.

    Attributes:
        graph: the graph for operations without operands; None outside of any graph.
        prefix: the prefix of names in that graph.
        claim: reserves the prefix for the current scope.
        pending: a name for the next operation, or None.
        origin: the forward operation whose gradient is being built, or None.
        shared: the operations of a gradient by what they compute, so that equal ones are built once; or None.
        region: the innermost ``no_gradient`` block.
        tracing: the innermost body being traced.
        mesh: the current mesh of devices, or None.
        place: the location of the next operations, if they are built again for others; None for the user's.
        calls: where the calls are noted that led to each operation; None if nobody asks for them.
        special: whether more is set than a graph, a prefix and an origin, which is rare.
        loose: whether a block of the chain may end before one inside it.
        suspends: whether a block of the chain is active only while a generator or coroutine is running.
    """

    __slots__ = (
        "asleep",
        "block",
        "calls",
        "changes",
        "claim",
        "frame",
        "graph",
        "loose",
        "mesh",
        "origin",
        "outer",
        "pending",
        "place",
        "prefix",
        "region",
        "shared",
        "special",
        "suspends",
        "tracing",
        "view",
    )

    outer: Builder | None
    graph: Any
    prefix: str
    claim: Claim | None
    pending: Pending | None
    origin: Operation | None
    shared: dict[Any, Operation] | None
    region: Region | None
    tracing: Trace | None
    mesh: Any
    place: Any
    calls: CallNotes | None
    changes: dict[str, Any]
    frame: FrameType | None
    asleep: frozenset[FrameType]
    loose: bool
    suspends: bool
    special: bool
    view: tuple[Sequence[Builder | None], Builder] | None

    def __init__(self, block: Block | None = None) -> None:
        self.block = block  # Until it begins.

    def begin(
        self,
        outer: Builder | None,
        changes: dict[str, Any],
        frame: FrameType | None = None,
        asleep: frozenset[FrameType] = NOBODY,
        loose: bool = False,
    ) -> Builder:
        """Copy the settings of the links around, and change some."""
        self.outer = outer
        self.block = None
        self.changes = changes
        self.frame = frame
        self.asleep = asleep
        self.view = None
        if outer is None:
            self.graph = self.pending = self.origin = self.shared = self.region = self.tracing = None
            self.place = self.claim = self.mesh = self.calls = None
            self.prefix = ""
            self.loose = self.suspends = self.special = False
            return self
        self.suspends = frame is not None or outer.suspends
        self.loose = loose or self.suspends or outer.loose
        self.graph, self.region, self.tracing = outer.graph, outer.region, outer.tracing
        self.place, self.mesh, self.calls = outer.place, outer.mesh, outer.calls
        graph = changes.get("graph", self.graph)
        if graph is self.graph:
            self.prefix, self.pending, self.claim = outer.prefix, outer.pending, outer.claim
            self.origin, self.shared = outer.origin, outer.shared
        else:
            self.prefix = outer.prefix_in(graph)
            self.pending = self.origin = self.shared = self.claim = None
        for name, value in changes.items():
            setattr(self, name, value)
        self.special = (
            self.loose
            or self.pending is not None
            or self.region is not None
            or self.tracing is not None
            or self.place is not None
            or self.calls is not None
            or "place" in changes  # It is said inside.
        )
        return self

    def rare(self, unnamed: bool) -> tuple[Any, ...]:
        """What ``special`` builders may set: tracing, region, place, calls; a name for *unnamed* ones."""
        pending = self.pending if unnamed else None
        free = pending is not None and pending.is_free()
        calls = self.calls if self.place is None else None
        return self.tracing, self.region, self.place, calls, pending if free else None

    def leave(self, *_: object) -> None:
        """The method that a ``with`` statement calls at its end; holding it keeps the block alive.

        It does nothing then. If the block was entered by hand, it ends the block.
        """
        if self.block is not None:
            _leave_by_hand(self.block)

    def prefix_in(self, graph: Graph) -> str:
        """The prefix of names in *graph*, which need not be the default graph."""
        link: Builder | None = self
        while link is not None:
            if link.graph is graph:
                return link.prefix
            link = link.outer
        return ""


class Pending:
    """A name for the next operation. It is free again if that operation is taken back."""

    __slots__ = ("name", "taken_by")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.taken_by: Operation | None = None

    def is_free(self) -> bool:
        op = self.taken_by
        return op is None or not op.graph.holds(op)


class Claim:
    """Reserves the prefix of a scope that can still be built in, and those of the scopes around it."""

    __slots__ = ("__weakref__", "outer")

    def __init__(self, outer: Claim | None) -> None:
        self.outer: Claim | None = outer


class Entry(weakref.ref[Any]):
    """A block's place in the chain: a weak reference to the method that its ``with`` statement will call.

    It is a method of the link. No function of this module may keep it in a variable, which a traceback would
    hold; ``entry().__self__`` is the link, or raises an AttributeError if the block has ended.
    """

    __slots__ = ("outer",)
    outer: Entry

    def begin(self, changes: dict[str, Any], frame: FrameType | None = None, loose: bool = False) -> None:
        """Make it the innermost, with these changes of the settings around it."""
        around = CURRENT.get()
        while (outer := getattr(around(), "__self__", None)) is None:
            around = around.outer
        self.outer = around
        asleep = _asleep(outer) if outer.suspends else NOBODY
        self().__self__.begin(outer, changes, frame, asleep, loose)  # type: ignore[union-attr]
        CURRENT.set(self)


_ROOT = Builder().begin(None, {})
_ALWAYS = _ROOT.leave
CURRENT: ContextVar[Entry] = ContextVar("builder", default=(_OUTSIDE := Entry(_ALWAYS)))


def current() -> Builder:
    """The current builder."""
    link = getattr(CURRENT.get()(), "__self__", None) or _innermost()
    return _holding(link) if link.loose else link


def default_graph() -> Graph | None:
    """The graph in which operations without operands are built; None outside of any graph."""
    return None if CURRENT.get() is _OUTSIDE else current().graph  # The usual case, in half the time.


def _innermost() -> Builder:
    """The link of the innermost block that has not ended; ended ones inside it are dropped."""
    entry = CURRENT.get()
    while (link := getattr(entry(), "__self__", None)) is None:
        entry = entry.outer
    CURRENT.set(entry)
    return cast("Builder", link)


def _link(entry: Entry) -> Builder | None:
    """The link of a block; None if it has ended."""
    return getattr(entry(), "__self__", None)


# --------------------------------------------------------------------------------------------- blocks


class _Asked(threading.local):
    """The block whose ``__exit__`` was read last: a ``with`` statement reads it before it enters."""

    entry = _OUTSIDE


_ASKED = _Asked()


class _End:
    """``__exit__`` of blocks, which is a separate object for each ``with`` statement."""

    def __get__(self, block: Block | None, kind: type[Block]) -> Callable[..., None]:
        if block is None:  # ExitStack reads it from the class.
            return _leave_by_hand
        held = [Builder(block).leave]
        _ASKED.entry = Entry(held[0])
        return held.pop()  # A profiler or a traceback may keep this frame, so nothing is left in it.


class Block:
    """Settings of the builder for the duration of a ``with`` statement. Subclasses say which.

    One object may be entered several times, also at the same time by several threads or generators.
    """

    __slots__ = ("_by_hand",)
    scoped: ClassVar[bool] = False  # Whether it is active only while the frame that entered it is running.
    _by_hand: list[Any]  # Unset until it is entered by hand.

    def changes(self) -> dict[str, Any]:
        """The settings inside, by the names of the attributes of :class:`Builder`."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._begin()
        return self

    def _begin(self) -> None:
        """What ``__enter__`` does, and calls itself: frames are counted from here."""
        entry = _ASKED.entry
        link = _link(entry)
        by_hand = link is None or link.block is not self
        if by_hand:
            held = _held_by_hand(self)
            held.append(Builder(self).leave)
            entry = Entry(held[-1])
        frame = _suspending_frame()
        entry.begin(self.changes(), frame if self.scoped else None, by_hand or frame is not None)

    if TYPE_CHECKING:

        def __exit__(self, *_: object) -> None: ...

    else:
        __exit__ = _End()


@exclusive
def _held_by_hand(block: Block) -> list[Any]:
    """What keeps a block alive that was entered by hand, once for each time."""
    if not hasattr(block, "_by_hand"):
        block._by_hand = []
    return block._by_hand


def _leave_by_hand(block: Block, *_: object) -> None:
    """End a block that was entered by hand; if it was entered several times, the innermost of this frame."""
    ends = _held_by_hand(block)
    if ends:
        del ends[_position(block, ends)]


def _position(block: Block, ends: Sequence[Any]) -> int:
    frame = _suspending_frame() if block.scoped else None
    held = [end.__self__ for end in ends]
    places = [held.index(link) for link in _links() if link in held]  # Innermost first.
    return next((i for i in places if held[i].frame is frame), places[0] if places else -1)


class Inside:
    """A block for our own functions, entered once, by a ``with`` statement outside of generators."""

    __slots__ = ("__exit__", "_changes", "_value")
    __exit__: Callable[..., None]

    def __init__(self, value: object = None, **changes: object) -> None:
        self._value = value
        self._changes = changes
        self.__exit__ = Builder().leave

    def named(self, graph: Graph, prefix: str, name: str) -> Inside:
        """The same block with its own prefix of names, below another."""
        self._changes["prefix"] = graph.names.claim(prefix, name, self.__exit__)
        return self

    def __enter__(self) -> Any:
        entry = Entry(self.__exit__)
        del self.__exit__  # Now only the statement holds it.
        entry.begin(self._changes)
        return self._value


class NoGradientBlock(Block, contextlib.ContextDecorator):
    """The context manager that :func:`no_gradient` returns; also a decorator."""

    scoped = True

    def changes(self) -> dict[str, Any]:
        return {"region": Region(current().region, capture(2))}

    def __enter__(self) -> None:
        self._begin()


class NotedCalls(Block):
    """A context in which the calls of the user's functions that lead to each operation are noted."""

    __slots__ = ("notes",)

    def __init__(self, notes: CallNotes) -> None:
        self.notes: CallNotes = notes

    def changes(self) -> dict[str, Any]:
        return {"calls": self.notes}


class Placed(Block):
    """A context in which operations get this location; for None, that of the user's line."""

    __slots__ = ("place",)

    def __init__(self, place: Location | RawLocation | None) -> None:
        self.place: tuple[Any, int] | None = (place, 0) if isinstance(place, Location) else place

    def changes(self) -> dict[str, Any]:
        return {"place": self.place}


# --------------------------------------------------------------------------- chains that are not as they were


def _holding(link: Builder) -> Builder:
    """The chain without blocks that have ended, or whose generator or coroutine is suspended.

    It is the same object each time. A block that was entered while a generator was suspended is outside of
    that generator's blocks when the generator resumes.
    """
    if not link.suspends and _intact(link):
        return link
    frames = _frames() if link.suspends else set()
    held: list[Builder] = []  # Innermost first.
    for block in reversed(_links()):
        if block.frame is None or block.frame in frames:
            inside = [i for i, other in enumerate(held) if other.frame in block.asleep]
            held.insert(inside[-1] + 1 if inside else 0, block)
    if held == list(_around(link)):
        return link
    # Without the link itself: if it held itself, its names would be reserved until a collection.
    made_of = [None if block is link else block for block in held]
    if link.view is None or link.view[0] != made_of:
        view = _ROOT
        for block in reversed(held):
            view = Builder().begin(view, block.changes, block.frame, block.asleep, block.loose)
            if "shared" in block.changes:
                view.origin = block.origin  # The only setting that changes inside a block.
        link.view = made_of, view
    return link.view[1]


def _intact(link: Builder) -> bool:
    """Whether all blocks of the chain are still active since the innermost began."""
    entry = CURRENT.get()
    while link is not _ROOT:
        if _link(entry) is not link:
            return False
        assert link.outer is not None
        entry, link = entry.outer, link.outer
    return True


def _links() -> list[Builder]:
    """The links of the blocks that have not ended, the innermost first."""
    links = []
    entry = CURRENT.get()
    while (link := _link(entry)) is not _ROOT:
        if link is not None:
            links.append(link)
        entry = entry.outer
    return links


def _around(link: Builder) -> Iterator[Builder]:
    """A link, and those that were around it when it began."""
    while link.outer is not None:
        yield link
        link = link.outer


def _asleep(link: Builder) -> frozenset[FrameType]:
    """The suspended generators and coroutines that entered blocks of the chain."""
    frames = _frames()
    entered = [entry.frame for entry in _links()]
    return frozenset(frame for frame in entered if frame is not None and frame not in frames)


def _frames() -> set[FrameType]:
    """The frames of generators and coroutines that are running.

    Others are left out: a set that holds the frame that holds it would keep all variables until a collection.
    """
    frames = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_flags & _SUSPENDS:
            frames.add(frame)
        frame = frame.f_back
    return frames


def _suspending_frame() -> FrameType | None:
    """The frame that enters or leaves a block, if it can be suspended inside the block.

    Frames that do so for others are skipped: a context manager's ``__enter__``, contextlib, and a generator
    that contextlib runs as a context manager.
    """
    frame = sys._getframe(2).f_back
    while frame is not None:
        code = frame.f_code
        # Ours, contextlib's, or an array library's; or it enters for its caller.
        if code.co_name not in _ENTERS and kind_of(code.co_filename) < BETWEEN:
            if not code.co_flags & _SUSPENDS:
                return None
            caller = frame.f_back
            if caller is None or caller.f_code.co_filename != contextlib.__file__:
                return frame
        frame = frame.f_back
    return None


_ENTERS = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
