"""Tells the weights of a frozen graph from its other constants.

A frozen graph says nowhere which of its constants were variables. Freezing leaves traces, though: in place of
the operation that read a variable stands an ``Identity`` of its name (``.../read`` in TensorFlow 1,
``.../ReadVariableOp`` in TensorFlow 2). Besides, what convolutions, matrix products, biases, normalisations
and embeddings are given in the place of a weight is one, also through identities and calls of functions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from stopgrad.interop.tensorflow.functions import Library
from stopgrad.interop.tensorflow.nodes import Body, Node
from stopgrad.interop.tensorflow.reading import dtype_of_number

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
    **dict.fromkeys(("Gather", "GatherV2", "GatherNd"), frozenset({0})),
    "Einsum": frozenset(range(8)),
}
"""Where operations take weights."""

_READ = re.compile(r"(.*/)?(read|ReadVariableOp(_\d+)?)")
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
    return frozenset(one for one in readers.constants if readers.is_weight(one))


Place = tuple[str, str]
"""A node, or an argument of a function, with the name of its function or graph."""


class _Readers:
    """Which nodes read which."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._read_by: dict[Place, list[tuple[str, Node, int]]] = defaultdict(list)
        self._bodies: set[str] = set()
        self.constants: list[Place] = []

    def add(self, body: Body, nodes: Iterable[Node]) -> None:
        """The nodes of a graph, and of the functions that they call."""
        waiting: list[tuple[Body, Iterable[Node]]] = [(body, nodes)]
        while waiting:
            here, inner = waiting.pop()
            for node in inner:
                for i, (x, _) in enumerate(node.inputs):
                    self._read_by[here.name, x].append((here.name, node, i))
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
            held = [attribute.func] if kind == "func" else attribute.list.func if kind == "list" else ()
            yield from ((one.name, first) for one in held if one.name in self._library)
        if node.op in self._library:
            yield node.op, 0

    def is_weight(self, constant: Place) -> bool:
        """Whether a constant is used as weights are."""
        waiting, seen = [constant], {constant}
        while waiting:
            for where, node, i in self._read_by[waiting.pop()]:
                if i in _PLACES.get(node.op, ()) or (node.op == "Identity" and _READ.fullmatch(node.name)):
                    return True
                further = [(where, node.name)] if node.op in _PASSES and i == 0 else []
                for name, first in self._calls(node):
                    arguments = self._library.body(name).arguments
                    if 0 <= i - first < len(arguments):
                        further.append((name, arguments[i - first].name))
                waiting += [one for one in further if one not in seen]
                seen.update(further)
        return False


def _is_float(node: Node) -> bool:
    value = node.attributes.get("value")
    if value is None or value.WhichOneof("value") != "tensor" or not len(value.tensor.tensor_shape.dim):
        return False
    dtype = dtype_of_number(value.tensor.dtype)
    return dtype is not None and dtype.is_differentiable
