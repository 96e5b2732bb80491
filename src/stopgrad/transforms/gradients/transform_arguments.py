"""The arguments of a transform: outputs of a graph, or arrays that placeholders stand in for."""

from __future__ import annotations

from typing import Any

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.errors import GraphError
from stopgrad.base.structure import flatten, paths, unflatten
from stopgrad.base.types import dtype_of, float32
from stopgrad.graph import rowwise
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.build import as_output, emit, graph_for
from stopgrad.graph.builder import default_graph
from stopgrad.graph.graph import DefaultGraph, Graph, Operation, Output
from stopgrad.graph.immediate import owned
from stopgrad.graph.interpreter import interpret
from stopgrad.graph.operands import NumpyArray, as_array, is_tensor
from stopgrad.ops.structural.sources import Placeholder, identity


class ArgumentGraph(Graph):
    """A graph that a function is traced in, whose placeholders have the names of the function's arguments."""


class Tracing:
    """A graph in which functions are called on stand-ins for their arguments.

    That is the graph of an argument that is an output, or else the default graph. If there is neither, it is
    a new graph, arrays become placeholders, and :meth:`results` computes.
    """

    graph: ArgumentGraph | Graph | Any
    computes: bool
    acted: int

    def __init__(self, *trees: Any) -> None:
        leaves = [leaf for tree in trees for leaf in flatten(tree)[0]]
        symbolic = next((x.as_output() for x in leaves if isinstance(x, (Output, Operation))), None)
        outer = graph_for(symbolic) if symbolic is not None else default_graph()
        self.graph = ArgumentGraph() if outer is None else outer
        self._named = isinstance(self.graph, ArgumentGraph)
        self.computes = outer is None
        self.feeds: dict[Output, NumpyArray] = {}
        self.acted = 0
        tensors = (x for x in leaves if is_tensor(x) and hasattr(x, "dtype"))
        arrays = (dtype_of(x.dtype) for x in tensors if not isinstance(x, Output))
        self._company = next((d for d in arrays if d.is_floating), float32)

    def building(self) -> DefaultGraph:
        """A context in which to call functions on stand-ins. Only ``guarded`` functions enter it."""
        return self.graph.as_default()

    def stand_in(self, x: ArrayLike, name: str = "") -> Any:
        """A new output with the value of x, distinct from x where the function uses that itself."""
        if isinstance(x, Operation):
            x = x.as_output()
        if isinstance(x, Output):
            return identity(x, name or None)
        array = as_array(x, self._company if isinstance(x, float) else None)
        if not self.computes:
            return identity(as_output(array, self.graph), name or None)
        placeholder = emit(
            Placeholder, (), (dtype_of(array.dtype), array.shape, ()), name, self.graph
        ).outputs[0]
        self.feeds[placeholder] = array
        return placeholder

    def names(self, tree: Any, first: str) -> list[str]:
        """Names for the leaves of an argument called *first*; empty in a graph of the user's."""
        leaf_paths = paths(tree)
        if not self._named:
            return [""] * len(leaf_paths)
        return [operation_name(".".join(part for part in (first, path) if part)) for path in leaf_paths]

    def enter(self, tree: Any, first: str = "") -> Any:
        """*tree* with stand-ins for its tensors; all other leaves are unchanged."""
        leaves, spec = flatten(tree)
        named = zip(leaves, self.names(tree, first), strict=True)
        return unflatten(spec, [self.stand_in(x, name) if is_tensor(x) else x for x, name in named])

    def results(self, tree: Any) -> Any:
        """*tree* itself, or with the values of its outputs if this tracing computes."""
        if not self.computes:
            return tree
        leaves, spec = flatten(tree)
        outputs = [x for x in leaves if isinstance(x, Output)]
        acting = self.graph.acting[self.acted :]
        self.acted += len(acting)
        ends = [op.outputs[0] for op in acting]  # What prints, prints once, and in order.
        values = iter(interpret([*outputs, *ends], self.feeds, None if ends else rowwise.regions))
        return unflatten(spec, [owned(next(values)) if isinstance(x, Output) else x for x in leaves])


def outputs_in(tree: Any, what: str, cure: str = "") -> list[Output]:
    """The leaves of a nested structure, all of which must be outputs of a graph; no leaves for None.

    Errors say that *what* takes outputs, and end with the *cure*.
    """
    if tree is None or type(tree) is Output:  # The usual case.
        return [] if tree is None else [tree]
    leaves = flatten(tree)[0]
    for leaf in leaves:
        if not isinstance(leaf, (Output, Operation)):
            raise GraphError(f"{what} takes outputs of a graph, not {leaf!r}{cure}")
    return [leaf.as_output() for leaf in leaves]
