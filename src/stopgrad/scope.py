"""Scopes: a graph and a prefix of names, as a context and as the first argument of ``create``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stopgrad.builder import Block, Pending, current, default_graph
from stopgrad.errors import GraphError
from stopgrad.graph import Graph, check_name, whole


class Scope(Block):
    """A graph and a prefix of names, as TensorFlow's Scope. As a context manager it is the default.

    Examples:
        >>> scope = Scope(Graph())
        >>> with scope.with_sub_scope("layer"):
        ...     sg.constant(1.0, name="one").name
        'layer/one:0'
    """

    __slots__ = ("graph", "name", "prefix")
    scoped = True

    def __init__(self, graph: Graph, prefix: str = "", name: str | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.prefix = prefix
        self.name = name

    def with_sub_scope(self, name: str) -> Scope:
        """A scope below this one; its name is made unique."""
        check_name(name)
        return whole(self.graph, self._below, name)

    def _below(self, name: str) -> Scope:
        return Scope(self.graph, self.graph.new_prefix(self.prefix + name))

    def with_name(self, name: str) -> Scope:
        """This scope, with a name for the next operation built in it."""
        check_name(name)
        return Scope(self.graph, self.prefix, name)

    def changes(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "prefix": self.prefix,
            "pending": None if self.name is None else Pending(self.name),
        }

    if TYPE_CHECKING:

        def __enter__(self) -> Scope: ...


def as_scope(x: Any, what: str) -> Scope:
    """The scope that *what* was given first; a graph stands for the scope that is all of it."""
    if isinstance(x, Graph):
        return Scope(x)
    if not isinstance(x, Scope):
        raise GraphError(f"{what} takes a Scope first, not {x!r}")
    return x


def require_graph(what: str) -> Graph:
    """The default graph, or an error that says how to get one."""
    graph = default_graph()
    if graph is None:
        raise GraphError(f"{what}: needs a graph; build it inside 'with graph.as_default():'")
    return graph


def name_scope(name: str) -> Scope:
    """A scope below the default graph's current one."""
    graph = require_graph(f"name_scope({name!r})")
    return whole(graph, Scope(graph, current().prefix).with_sub_scope, name)
