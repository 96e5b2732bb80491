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
import os
import sys
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeAlias

from stopgrad.source import RawLocation, capture

# The graph stands above this module, which holds its parts without looking into them.
Graph: TypeAlias = Any
Operation: TypeAlias = Any
Output: TypeAlias = Any

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


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
    """

    __slots__ = (
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
        "suspends",
        "tracing",
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
        self, outer: Builder | None, owner: object, changes: dict[str, Any], frame: FrameType | None
    ) -> None:
        self.outer = outer
        self.owner = owner
        self.changes = changes
        self.frame = frame
        self.suspends = frame is not None or (outer is not None and outer.suspends)
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
    link = Builder(CURRENT.get(), owner, changes, None)
    CURRENT.set(link)
    return link


def enter_scope(owner: object, **changes: Any) -> Builder:
    """:func:`enter`, for a block that holds only while the frame that entered it is running."""
    link = Builder(CURRENT.get(), owner, changes, _suspending_frame())
    CURRENT.set(link)
    return link


def leave(owner: object) -> None:
    """End the innermost block of *owner*, wherever it stands in the chain of this thread or task."""
    link = CURRENT.get()
    if link.owner is owner and link.outer is not None:
        CURRENT.set(link.outer)
        return
    above = []
    while link.outer is not None and link.owner is not owner:
        above.append(link)
        link = link.outer
    if link.outer is not None:
        CURRENT.set(_rebuilt(link.outer, above))


def _rebuilt(base: Builder, above: list[Builder]) -> Builder:
    for link in reversed(above):
        base = Builder(base, link.owner, link.changes, link.frame)
        if "shared" in link.changes:
            base.origin = link.origin  # The one thing that changes inside a block.
    return base


def _running(link: Builder) -> Builder:
    """The chain without the blocks whose generator or coroutine is suspended."""
    frames = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    base, above = link, []
    while base.outer is not None:
        above.append(base)
        base = base.outer
    if all(one.frame is None or one.frame in frames for one in above):
        return link
    return _rebuilt(base, [one for one in above if one.frame is None or one.frame in frames])


def _suspending_frame() -> FrameType | None:
    """The frame that enters a block, if it is one that can be suspended inside it.

    A generator that makes a context manager is driven by contextlib: its block is that of whoever uses it.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    while (
        frame is not None
        and frame.f_back is not None
        and frame.f_back.f_code.co_filename == contextlib.__file__
    ):
        while frame is not None and (
            frame.f_code.co_filename == contextlib.__file__ or _driven_by_contextlib(frame)
        ):
            frame = frame.f_back
    return frame if frame is not None and frame.f_code.co_flags & _SUSPENDS else None


def _driven_by_contextlib(frame: FrameType) -> bool:
    return frame.f_back is not None and frame.f_back.f_code.co_filename == contextlib.__file__


class NoGradientBlock:
    """The context manager that :func:`no_gradient` returns."""

    def __enter__(self) -> None:
        enter_scope(self, region=Region(current().region, capture()))

    def __exit__(self, *_: object) -> None:
        leave(self)
