"""The functions of a graph, and in which order nodes run: those that results need, and those with effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stopgrad.base.errors import FileError
from stopgrad.interop.tensorflow.frames import functional
from stopgrad.interop.tensorflow.nodes import Body, Node, Source, function_body, ordered
from stopgrad.interop.tensorflow.objects import Objects

_WRITES = frozenset(
    {
        "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
        "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterNdUpdate",
        "ResourceScatterNdAdd", "ScatterUpdate", "ScatterAdd",
    }
)  # fmt: skip
_WRITERS = ("ResourceApply", "ResourceSparseApply", "Apply")
"""How the names of optimisers' steps begin."""


def writes(node: Node) -> bool:
    """Whether a node writes a variable."""
    return node.op in _WRITES or node.op.startswith(_WRITERS)


def functions_in(node: Node) -> Iterator[str]:
    """The names of the functions among a node's attributes; a call by an operation's name counts, too."""
    yield node.op
    for attribute in node.attributes.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            yield attribute.func.name
        elif kind == "list":
            yield from (called.name for called in attribute.list.func)


class Library:
    """The functions of a graph.

    Attributes:
        gradients: for functions with one, the name of the function that computes their gradient.
        registered: for operations of custom gradients, by ``_gradient_op_type``, the same.
        objects: the tree of objects around the functions, of a SavedModel.
    """

    gradients: dict[Any, Any]
    registered: dict[Any, Any]

    def __init__(self, graph: Any, objects: Objects) -> None:
        self.objects = objects
        self._raw: dict[str, Any] = {}
        for function in graph.library.function:
            name = str(function.signature.name)
            if name in self._raw:
                raise FileError(f"the graph has two functions called {name!r}")
            self._raw[name] = function
        self._bodies: dict[str, Body] = {}
        self._orders: dict[tuple[int, Any], list[Node]] = {}
        self._effects: dict[str, bool] = {}
        self.gradients = {
            gradient.function_name: gradient.gradient_func for gradient in graph.library.gradient
        }
        self.registered = {
            one.registered_op_type: one.gradient_func for one in graph.library.registered_gradients
        }

    def __contains__(self, name: str) -> bool:
        return name in self._raw or name in self._bodies

    def body(self, name: str) -> Body:
        """A function.

        Raises:
            FileError: there is none of that name, or it is damaged.
        """
        if name not in self._bodies:
            if name not in self._raw:
                raise FileError(f"the graph calls the function {name!r}, which is not there")
            self.add(function_body(self._raw[name]))
        return self._bodies[name]

    def add(self, body: Body) -> Body:
        """Add a function; its control flow of TensorFlow 1 becomes functions, too. What it is then."""
        self._bodies[body.name] = functional(body, self)
        return self._bodies[body.name]

    def order(self, body: Body, wanted: Sequence[Source] | None = None) -> list[Node]:
        """The nodes that results need, and those that write variables before, in the order in which they run.

        Args:
            body: a graph or a function.
            wanted: the results; by default those of the function.
        """
        outputs = body.outputs if wanted is None else wanted
        key = id(body), tuple(outputs)
        if key not in self._orders:
            controls = body.controls if wanted is None else []
            names = [name for name, _ in outputs]
            everything = ordered(body, names, controls)
            acting = [node.name for node in everything if self._acts(node)]
            needed = _needed(body, [*names, *acting])
            self._orders[key] = [node for node in everything if node.name in needed]
        return self._orders[key]

    def _acts(self, node: Node) -> bool:
        return writes(node) or any(self.has_effects(name) for name in functions_in(node))

    def has_effects(self, name: str) -> bool:
        """Whether a function writes variables."""
        waiting, seen = [name], {name}
        while waiting and name not in self._effects:
            here = waiting.pop()
            if here not in self:
                continue
            for node in self.body(here).nodes.values():
                if writes(node):
                    self._effects[name] = True
                    break
                waiting += [called for called in functions_in(node) if called not in seen]
                seen.update(functions_in(node))
        return self._effects.setdefault(name, False)


def _needed(body: Body, names: Iterable[str]) -> set[str]:
    """The nodes whose results others read, in the end for these."""
    arguments = {argument.name for argument in body.arguments}
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed and name not in arguments:
            needed.add(name)
            waiting += [x for x, _ in body.nodes[name].inputs]
    return needed
