"""Tells the weights of a frozen graph from its other constants.

A frozen graph says nowhere which of its constants were variables. Freezing leaves traces, though: in place
of the operation that read a variable stands an ``Identity`` of its name (``.../read`` in TensorFlow 1,
``.../ReadVariableOp`` in TensorFlow 2), or, where a later pass removed it, a constant of that name. Where
there are traces, these are the weights; only tables leave none, which a gather reads without an ``Identity``.
Where there are none, what convolutions, matrix products, biases, normalisations and embeddings are given in
the place of a weight is one, also through identities and calls of functions. In a graph with variables that
were not frozen, constants are none.

Numbers that the program itself held, such as data that a loss closes over, are no weights: TensorFlow names
them after the operation for which it converted them (``MatMul/a``), or ``Const``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from stopgrad.base.errors import ArgumentError
from stopgrad.graph.operands import shorten
from stopgrad.interop.tensorflow.function_library import Library
from stopgrad.interop.tensorflow.nodes import Body, Node
from stopgrad.interop.tensorflow.reading import dtype_of_number

_GATHERS = frozenset({"Gather", "GatherV2", "GatherNd"})
_PLACES: dict[str, frozenset[int]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), frozenset({0, 1})),
    **dict.fromkeys(("_FusedMatMul", "_FusedConv2D", "_FusedDepthwiseConv2dNative"), frozenset(range(1, 8))),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), frozenset({1})),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), frozenset({1})),
    **dict.fromkeys(("BiasAdd", "BiasAddV1"), frozenset({1})),
    **dict.fromkeys(
        ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"),
        frozenset({1, 2, 3, 4}),
    ),
    **dict.fromkeys(_GATHERS, frozenset({0})),
    "Einsum": frozenset(range(8)),
}
"""Where operations take weights."""

_READ = re.compile(r"(.*/)?(read|ReadVariableOp(_\d+)?)(_tfg_inlined_.*)?")
_NUMBERS = re.compile(r"(.*/)?Const(_\d+)?")
_HANDLE = re.compile(r"resource|\d+|ReadVariableOp(_\d+)?")
"""What freezing calls a constant after the operation that reads it: by the handle of the variable."""
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_PASSES = frozenset({"Identity", "Snapshot", "Enter", "Switch", "StopGradient"})
"""Operations that hand their first operand on."""


def weights_of(body: Body, nodes: Iterable[Node], library: Library) -> frozenset[tuple[str, str]]:
    """The constants that are weights, each with the name of its function or graph.

    Args:
        body: the graph.
        nodes: those of its nodes that run.
        library: the functions that they may call.
    """
    readers = _Readers(library)
    readers.add(body, nodes)
    traced = frozenset(constant for constant in readers.constants if readers.was_read(constant))
    if readers.has_variables:
        return traced  # What was never frozen says itself what it trains.
    places = dict.fromkeys(_GATHERS, _PLACES["Gather"]) if traced else _PLACES
    return traced.union(constant for constant in readers.constants if readers.stands_in(constant, places))


class Weights:
    """Which variables and constants of a graph are parameters.

    Args:
        traced: the constants that are by their traces, each with the name of its function or graph.
        asked: the names that the user gave instead, with ``*`` for any characters; None if there are none.
    """

    def __init__(self, traced: frozenset[tuple[str, str]], asked: Sequence[str] | None = None) -> None:
        self._traced, self._asked = traced, asked
        self._met: list[str] = []

    def constant(self, place: tuple[str, str], name: str) -> bool:
        """Whether a constant is one, of this name where it runs."""
        return place in self._traced if self._asked is None else self._is_asked(name)

    def variable(self, name: str, is_trained: bool = True) -> bool:
        """Whether a variable is one; unless names are given, those that are trained are."""
        return is_trained if self._asked is None else self._is_asked(name)

    def _is_asked(self, name: str) -> bool:
        self._met.append(name)
        return any(fnmatchcase(name, pattern) for pattern in self._asked or ())

    def check(self, graph: str) -> None:
        """Refuse names that nothing has.

        Raises:
            ArgumentError: there are such names.
        """
        for pattern in self._asked or ():
            if not any(fnmatchcase(name, pattern) for name in self._met):
                raise ArgumentError(
                    f"parameters names {pattern!r}, but no floating-point variable or constant outside of "
                    f"loops and branches that the results of {graph} need is called so; there are "
                    f"{shorten(self._met)}"
                )


Place = tuple[str, str]
"""A node, or an argument of a function, with the name of its function or graph."""


class _Readers:
    """Which nodes read which."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._read_by: dict[Place, list[tuple[str, Node, int]]] = defaultdict(list)
        self._bodies: set[str] = set()
        self.constants: list[Place] = []
        self.has_variables = False

    def add(self, body: Body, nodes: Iterable[Node]) -> None:
        """The nodes of a graph, and of the functions that they call."""
        waiting: list[tuple[Body, Iterable[Node]]] = [(body, nodes)]
        while waiting:
            here, inner = waiting.pop()
            for node in inner:
                for i, (x, _) in enumerate(node.inputs):
                    self._read_by[here.name, x].append((here.name, node, i))
                self.has_variables |= node.op in _VARIABLES
                if node.op == "Const" and _is_float(node):
                    self.constants.append((here.name, node.name))
                for name, _ in self._calls(node):
                    if name not in self._bodies:
                        self._bodies.add(name)
                        called = self._library.body(name)
                        waiting.append((called, self._library.order(called)))

    def _calls(self, node: Node) -> Iterable[tuple[str, int]]:
        """The functions that a node calls, each with the operand that is its first argument."""
        first = 1 if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else 0
        for attribute in node.attributes.values():
            kind = attribute.WhichOneof("value")
            functions = [attribute.func] if kind == "func" else attribute.list.func if kind == "list" else ()
            yield from ((function.name, first) for function in functions if function.name in self._library)
        if node.op in self._library:
            yield node.op, 0

    def _uses(self, constant: Place) -> Iterator[tuple[Node, int]]:
        """The nodes that read a constant, and as which operand."""
        waiting, seen = [constant], {constant}
        while waiting:
            name = waiting.pop()
            for where, node, i in self._read_by[name]:
                yield node, i
                further = [(where, node.name)] if node.op in _PASSES and i == 0 else []
                for called, first in self._calls(node):
                    arguments = self._library.body(called).arguments
                    if 0 <= i - first < len(arguments):
                        further.append((called, arguments[i - first].name))
                waiting += [place for place in further if place not in seen]
                seen.update(further)

    def was_read(self, constant: Place) -> bool:
        """Whether what read a variable reads a constant now, or has become it."""
        return _READ.fullmatch(constant[1]) is not None or any(
            node.op == "Identity" and _READ.fullmatch(node.name) for node, _ in self._uses(constant)
        )

    def stands_in(self, constant: Place, places: Mapping[str, frozenset[int]]) -> bool:
        """Whether a constant, which was no number of the program, is used in such a place."""
        if _NUMBERS.fullmatch(constant[1]):
            return False
        uses = list(self._uses(constant))
        if any(_converted(constant[1], node) for node, _ in uses if not any(self._calls(node))):
            return False
        return any(i in places.get(node.op, ()) for node, i in uses)


def _converted(name: str, reader: Node) -> bool:
    """Whether TensorFlow made a constant of what the program gave to an operation."""
    around, _, last = name.rpartition("/")
    return around == reader.name and not _HANDLE.fullmatch(last)


def _is_float(node: Node) -> bool:
    value = node.attributes.get("value")
    if value is None or value.WhichOneof("value") != "tensor" or not len(value.tensor.tensor_shape.dim):
        return False
    dtype = dtype_of_number(value.tensor.dtype)
    return dtype is not None and dtype.is_differentiable
