"""Scopes: a graph and a prefix of names, as a context and as the first argument of ``create``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stopgrad.base.errors import GraphError
from stopgrad.graph.builder import Block, Claim, Pending, current, default_graph
from stopgrad.graph.graph import Graph
from stopgrad.graph.names import check_name


class Scope(Block):
    """A graph and a prefix of names, like TensorFlow's Scope. As a context manager it becomes the default.

    Examples:
        >>> scope = Scope(Graph())
        >>> with scope.with_sub_scope("layer"):
        ...     sg.constant(1.0, name="one").name
        'layer/one:0'
    """

    __slots__ = ("_claim", "graph", "name", "prefix")
    scoped = True

    graph: Graph
    prefix: str
    name: str | None

    def __init__(self, graph: Graph, prefix: str = "", name: str | None = None) -> None:
        self.graph = graph
        self.prefix = prefix
        self.name = name
        self._claim: Claim | None = None

    def with_sub_scope(self, name: str) -> Scope:
        """A scope below this one; its name is made unique."""
        return _below(self.graph, self.prefix, self._claim, name)

    def with_name(self, name: str) -> Scope:
        """This scope, with a name for the next operation built in it."""
        check_name(name)
        return Scope(self.graph, self.prefix, name)._with(self._claim)

    def _with(self, claim: Claim | None) -> Scope:
        self._claim = claim
        return self

    def changes(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "prefix": self.prefix,
            "claim": self._claim,
            "pending": None if self.name is None else Pending(self.name),
        }

    if TYPE_CHECKING:

        def __enter__(self) -> Scope: ...


def as_scope(x: object, what: str) -> Scope:
    """The scope that *what* got as its first argument; a graph stands for its outermost scope."""
    if isinstance(x, Graph):
        return Scope(x)
    if not isinstance(x, Scope):
        raise GraphError(f"{what} takes a Scope first, not {x!r}")
    return x


def require_graph(what: str) -> Graph:
    """The default graph; raises an error that says how to get one."""
    graph = default_graph()
    if graph is None:
        raise GraphError(f"{what}: needs a graph; build it inside 'with graph.as_default():'")
    return graph


def name_scope(name: str) -> Scope:
    """A scope below the default graph's current one."""
    builder = current()
    graph = builder.graph
    if graph is None:
        graph = require_graph(f"name_scope({name!r})")
    return _below(graph, builder.prefix, builder.claim, name)


def _below(graph: Graph, prefix: str, outer: Claim | None, name: str) -> Scope:
    """A new scope below a prefix, which *outer* reserves."""
    claim = Claim(outer)
    return Scope(graph, graph.names.claim(prefix, name, claim))._with(claim)
