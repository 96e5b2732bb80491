"""Who builds: into which graph operations go, under which scope, for which forward operation.

That is one chain of ``with`` blocks for the running thread or task, and no part of any graph. Each link holds
what its block says and, resolved, what those around it say too, so that :func:`current` is one look-up.

A block may end out of order (a generator is closed late, a task outlives its parent): its link is then taken
out of the chain wherever it stands. And a scope that a generator or coroutine entered holds only while that
frame is running: whoever runs while the generator is suspended builds outside of it.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeAlias

from stopgrad.source import RawLocation, capture, is_internal

# The graph stands above this module, which holds its parts without looking into them.
Graph: TypeAlias = Any
Operation: TypeAlias = Any
Output: TypeAlias = Any

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Region:
    """A ``no_gradient`` block: what is built inside is stopped where it is used outside."""

    __slots__ = ("location", "outer")

    def __init__(self, outer: Region | None, location: RawLocation | None) -> None:
        self.outer = outer
        self.location = location

    def holds(self, inner: Region | None) -> bool:
        """Whether *inner* is this block or stands inside it."""
        while inner is not None and inner is not self:
            inner = inner.outer
        return inner is self


class Trace:
    """The body of a construct (a loop, a branch) while the function that says what it does is being traced.

    Attributes:
        graph: the body.
        outer_graph: the graph around it, in which the construct itself is built; None where nothing said so
            far.
        outer: the body around it that is being traced, too.
        what: the construct, as messages name it.
        remade: the types of operations that are built again inside where their results are used inside.
        captures: the tensors of enclosing graphs that it uses, each with the parameter that stands for it.
    """

    __slots__ = ("captures", "graph", "outer", "outer_graph", "remade", "what")

    def __init__(
        self,
        graph: Graph,
        outer_graph: Graph | None,
        outer: Trace | None,
        what: str,
        remade: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.outer_graph = outer_graph
        self.outer = outer
        self.what = what
        self.remade = remade
        self.captures: dict[Output, Output] = {}

    def encloses(self, graph: Graph) -> bool:
        """Whether *graph* is this body or one that encloses it."""
        trace: Trace | None = self
        while trace is not None:
            if graph is trace.graph or graph is trace.outer_graph:
                return True
            trace = trace.outer
        return False

    def adopts(self, graph: Graph) -> bool:
        """:meth:`encloses`; and if nothing said so far where the outermost construct is built, it is there.

        Not where a block inside of the body has made another graph the default, and not in the body of a
        construct that is finished.
        """
        if self.encloses(graph):
            return True
        outermost = self
        while outermost.outer is not None:
            outermost = outermost.outer
        if outermost.outer_graph is not None or graph._body_of or not self.encloses(current().graph):
            return False
        outermost.outer_graph = graph
        return True


class Builder:
    """One link of the chain, with what holds inside its block.

    Attributes:
        graph: where operations without operands go; None outside of any graph.
        prefix: what names begin with in that graph.
        pending: a name for the next operation, alone in a list from which it is taken; None.
        origin: the forward operation for whose gradient is being built; None.
        shared: the operations of this generation by what they compute, equal ones being built once; None.
        region: the innermost ``no_gradient`` block.
        tracing: the innermost body being traced.
        place: the location of the next operations, where they are built again for others; None: the user's.
        special: whether there is more to heed than a graph, a prefix and an origin, which is rare.
    """

    __slots__ = (
        "asleep",
        "changes",
        "frame",
        "graph",
        "origin",
        "outer",
        "owner",
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

    graph: Any
    prefix: str
    pending: list[str] | None
    origin: Operation | None
    shared: dict[Any, Operation] | None
    region: Region | None
    tracing: Trace | None
    place: Any

    def __init__(
        self,
        outer: Builder | None,
        owner: object,
        changes: dict[str, Any],
        frame: FrameType | None,
        asleep: frozenset[FrameType] = frozenset(),
    ) -> None:
        self.outer = outer
        self.owner = owner
        self.changes = changes
        self.frame = frame
        self.asleep = asleep
        self.suspends = frame is not None or (outer is not None and outer.suspends)
        self.view: tuple[Sequence[Builder], Builder] | None = None
        self.special = False
        if outer is None:
            self.graph = self.pending = self.origin = self.shared = self.region = self.tracing = None
            self.place = None
            self.prefix = ""
            return
        self.graph, self.prefix, self.pending = outer.graph, outer.prefix, outer.pending
        self.origin, self.shared = outer.origin, outer.shared
        self.region, self.tracing, self.place = outer.region, outer.tracing, outer.place
        graph = changes.get("graph")
        if graph is not None and graph is not outer.graph:
            self.prefix, self.pending = outer.prefix_in(graph), None
            self.origin = self.shared = None
        for name, value in changes.items():
            setattr(self, name, value)
        self.special = (
            self.suspends
            or self.pending is not None
            or self.region is not None
            or self.tracing is not None
            or self.place is not None
        )

    def prefix_in(self, graph: Graph) -> str:
        """The prefix of names in *graph*, which need not be the default one."""
        link: Builder | None = self
        while link is not None:
            if link.graph is graph:
                return link.prefix
            link = link.outer
        return ""


_ROOT = Builder(None, None, {}, None)
CURRENT: ContextVar[Builder] = ContextVar("builder", default=_ROOT)


def current() -> Builder:
    """Who builds here and now."""
    link = CURRENT.get()
    return _running(link) if link.suspends else link


def default_graph() -> Graph | None:
    """The graph in which operations without operands are built, or None outside of any."""
    return current().graph


def enter(owner: object, **changes: Any) -> Builder:
    """Begin a block; :func:`leave` with the same *owner* ends it."""
    outer = CURRENT.get()
    link = Builder(outer, owner, changes, None, _asleep(outer))
    CURRENT.set(link)
    return link


def enter_scope(owner: object, **changes: Any) -> Builder:
    """:func:`enter`, for a block that holds only while the frame that entered it is running."""
    outer = CURRENT.get()
    link = Builder(outer, owner, changes, _suspending_frame(), _asleep(outer))
    CURRENT.set(link)
    return link


def leave(owner: object, frame: FrameType | None = None) -> None:
    """End the innermost block of *owner*, wherever it stands in the chain of this thread or task."""
    link = CURRENT.get()
    if link.owner is owner and link.frame is frame and link.outer is not None:
        CURRENT.set(link.outer)
        return
    above: list[Builder] = []
    while link.outer is not None and not (link.owner is owner and link.frame is frame):
        above.append(link)
        link = link.outer
    if link.outer is not None:
        CURRENT.set(_rebuilt(link.outer, above))
    elif any(link.owner is owner for link in above):  # It was entered in another frame.
        leave(owner, next(link.frame for link in above if link.owner is owner))


def leave_scope(owner: object) -> None:
    """:func:`leave`, for a block of :func:`enter_scope`; of several of one *owner*, the running frame's."""
    leave(owner, _suspending_frame())


def _rebuilt(base: Builder, above: list[Builder]) -> Builder:
    for link in reversed(above):
        base = Builder(base, link.owner, link.changes, link.frame, link.asleep)
        if "shared" in link.changes:
            base.origin = link.origin  # The one thing that changes inside a block.
    return base


def _running(link: Builder) -> Builder:
    """The chain without the blocks whose generator or coroutine is suspended; the same one each time.

    A block that was entered while a generator was suspended is outside of that generator's blocks when the
    generator runs again.
    """
    frames = _frames()
    links = _links(link)
    held: list[Builder] = []  # The innermost first.
    for one in reversed(links):
        if one.frame is None or one.frame in frames:
            inside = [i for i, other in enumerate(held) if other.frame in one.asleep]
            held.insert(inside[-1] + 1 if inside else 0, one)
    if held == links:
        return link
    if link.view is None or link.view[0] != held:
        link.view = held, _rebuilt(_ROOT, held)
    return link.view[1]


def _asleep(link: Builder) -> frozenset[FrameType]:
    """The generators and coroutines that entered blocks of the chain and are suspended."""
    if not link.suspends:
        return frozenset()
    frames = _frames()
    return frozenset(one.frame for one in _links(link) if one.frame is not None and one.frame not in frames)


def _links(link: Builder) -> list[Builder]:
    """The links of a chain, the innermost first."""
    found = []
    while link.outer is not None:
        found.append(link)
        link = link.outer
    return found


def _frames() -> set[FrameType]:
    """The frames that are running."""
    found = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.add(frame)
        frame = frame.f_back
    return found


def _suspending_frame() -> FrameType | None:
    """The frame that enters or leaves a block, if it is one that can be suspended inside it.

    Whoever enters it for somebody else is passed over: a context manager's ``__enter__``, contextlib, and a
    generator that makes a context manager, which contextlib drives.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _stands_for_another(frame):
        frame = frame.f_back
    return frame if frame is not None and frame.f_code.co_flags & _SUSPENDS else None


def _stands_for_another(frame: FrameType) -> bool:
    code, caller = frame.f_code, frame.f_back
    if is_internal(code.co_filename):  # Ours, contextlib's, or an array library's that calls back.
        return True
    if code.co_name in _ENTERS:
        return True
    driven = caller is not None and caller.f_code.co_filename == contextlib.__file__
    return driven and bool(code.co_flags & _SUSPENDS)


_ENTERS = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})


class NoGradientBlock(contextlib.ContextDecorator):
    """The context manager that :func:`no_gradient` returns; also a decorator."""

    def __enter__(self) -> None:
        enter_scope(self, region=Region(current().region, capture()))

    def __exit__(self, *_: object) -> None:
        leave_scope(self)
