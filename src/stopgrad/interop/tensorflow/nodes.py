"""Graphs and functions of TensorFlow in one form: nodes by name, which read numbered results of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import FileError

_RESULTS = """
ConcatOffset: offset*N
CTCLoss: loss gradient
CTCLossV2: loss gradient
BlockLSTM: i cs f o ci co h
BlockLSTMV2: i cs f o ci co h
BroadcastGradientArgs: r0 r1
DynamicPartition: outputs*num_partitions
Eig: e v
FakeQuantWithMinMaxVarsGradient: backprops_wrt_input backprop_wrt_min backprop_wrt_max
FusedBatchNorm: y batch_mean batch_variance reserve_space_1 reserve_space_2
FusedBatchNormGrad: x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4
FusedBatchNormGradV2: x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4
FusedBatchNormGradV3: x_backprop scale_backprop offset_backprop reserve_space_4 reserve_space_5
FusedBatchNormV2: y batch_mean batch_variance reserve_space_1 reserve_space_2
FusedBatchNormV3: y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3
GRUBlockCell: r u c h
IdentityN: output*T
If: output*Tout
ListDiff: out idx
LogMatrixDeterminant: sign log_abs_determinant
LSTMBlockCell: i cs f o ci co h
Lu: lu p
MaxPoolWithArgmax: output argmax
Merge: output value_index
Case: output*Tout
PartitionedCall: output*Tout
Qr: q r
RefMerge: output value_index
RefSwitch: output_false output_true
RestoreV2: tensors*dtypes
SelfAdjointEigV2: e v
ShapeN: output*N
SoftmaxCrossEntropyWithLogits: loss backprop
SparseSoftmaxCrossEntropyWithLogits: loss backprop
Split: output*num_split
SplitV: output*num_split
StatefulPartitionedCall: output*Tout
StatelessCase: output*Tout
StatelessIf: output*Tout
StatelessRandomGetKeyCounter: key counter
StatelessWhile: output*T
Svd: s u v
Switch: output_false output_true
TensorArrayConcatV3: value lengths
TensorArrayGradV3: grad_handle flow_out
TensorArrayV3: handle flow
TensorListConcat: tensor lengths
TensorListConcatV2: tensor lengths
TensorListPopBack: output_handle tensor
TopK: values indices
TopKV2: values indices
Unique: y idx
UniqueV2: y idx
UniqueWithCounts: y idx count
UniqueWithCountsV2: y idx count
Unpack: output*num
While: output*T
"""
"""The results of operations that have not exactly one; ``*`` marks as many as an attribute says or lists."""

RESULTS: dict[str, list[str]] = {
    op: results.split() for op, results in (line.split(": ") for line in _RESULTS.strip().splitlines())
}

Source = tuple[str, int]
"""A result: the name of its node, and which of the node's results it is."""


class Function(NamedTuple):
    """A function of the graph's library, as an attribute names it.

    Attributes:
        name: the function.
        attributes: values for the attributes that its body leaves open, as ``AttrValue``.
    """

    name: str
    attributes: Mapping[str, Any]


class Node:
    """A node.

    Attributes:
        name, op: its name and its operation.
        inputs: the results that it reads.
        controls: the names of the nodes that run before it.
        attributes: ``AttrValue`` by name.
    """

    __slots__ = ("attributes", "controls", "inputs", "name", "op")

    name: str
    op: str
    inputs: list[Source]
    controls: list[str]
    attributes: Mapping[str, Any]

    def __init__(
        self,
        name: str,
        op: str,
        inputs: Sequence[Source],
        controls: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.op = name, op
        self.inputs, self.controls = list(inputs), list(controls)
        self.attributes = attributes if attributes is not None else {}

    @property
    def outputs(self) -> int:
        """How many results it has."""
        return sum(
            _count(self.attributes.get(attribute)) if attribute else 1
            for _, _, attribute in (result.partition("*") for result in RESULTS.get(self.op, ("output",)))
        )

    def __repr__(self) -> str:
        return f"{self.op} {self.name!r}"


def _count(attribute: Any) -> int:
    """How many results an attribute stands for: a number, or a list of types."""
    if attribute is None:
        return 0
    return len(attribute.list.type) if attribute.HasField("list") else max(int(attribute.i), 0)


class Argument(NamedTuple):
    """An argument of a function.

    Attributes:
        name: its name, which nodes read as they read other nodes'.
        dtype: the number of its element type, or 0.
    """

    name: str
    dtype: int


class Body:
    """A graph, or a function.

    Attributes:
        name: of the function, or of the file.
        arguments: of a function.
        nodes: by name.
        outputs: the results of a function, in order.
        controls: the nodes that run in any case.
    """

    __slots__ = ("_read", "arguments", "controls", "name", "nodes", "outputs")

    name: str
    arguments: list[Argument]
    nodes: dict[str, Node]
    outputs: list[Source]
    controls: list[str]

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        nodes: Mapping[str, Node],
        outputs: Sequence[Source] = (),
        controls: Sequence[str] = (),
    ) -> None:
        self.name, self.arguments, self.nodes = name, list(arguments), dict(nodes)
        self.outputs, self.controls = list(outputs), list(controls)
        self._read: dict[str, int] | None = None

    def read_results(self, name: str) -> int:
        """How many results of a node others read, the last one that is read and all before it."""
        if self._read is None:
            self._read = {}
            for x, i in (*(x for node in self.nodes.values() for x in node.inputs), *self.outputs):
                self._read[x] = max(self._read.get(x, 0), i + 1)
        return self._read.get(name, 0)


# ------------------------------------------------------------------------------------------------ reading


_LEAST = {
    **dict.fromkeys(("Identity", "Snapshot", "Enter", "RefEnter", "Exit", "RefExit"), 1),
    **dict.fromkeys(("NextIteration", "RefNextIteration", "LoopCond", "Merge", "RefMerge"), 1),
    **dict.fromkeys(("Switch", "RefSwitch", "_SwitchN", "LogicalAnd"), 2),
    **dict.fromkeys(("Less", "LessEqual", "Greater", "GreaterEqual", "Add", "AddV2"), 2),
}
"""How many operands operations have at least whose structure is read before they are translated."""


def _node(node: Any, inputs: Sequence[Source], where: str) -> Node:
    if len(inputs) < _LEAST.get(node.op, 0):
        raise FileError(f"{where}: {node.op} {node.name!r} lacks an operand")
    return Node(node.name, node.op, inputs, _controls(node), node.attr)


def graph_body(graph: Any, name: str) -> Body:
    """A ``GraphDef``.

    Raises:
        FileError: two nodes have one name.
    """
    nodes: dict[str, Node] = {}
    for node in graph.node:
        if not node.name or node.name in nodes:
            raise FileError(f"{name} has {'two nodes' if node.name else 'a node'} called {node.name!r}")
        inputs = [reference(text, name) for text in node.input if not text.startswith("^")]
        nodes[node.name] = _node(node, inputs, name)
    return Body(name, [], nodes)


def _controls(node: Any) -> list[str]:
    return [text[1:] for text in node.input if text.startswith("^")]


def reference(text: str, where: str) -> Source:
    """A result as graphs name it: ``node`` or ``node:1``."""
    name, colon, index = text.rpartition(":")
    if not colon:
        return text, 0
    if not re.fullmatch(r"\d{1,6}", index):
        raise FileError(f"{where} speaks of {text!r}, which is no result of a node")
    return name, int(index)


def function_body(function: Any) -> Body:
    """A ``FunctionDef``.

    Raises:
        FileError: names are given twice, or references are none.
    """
    name = str(function.signature.name)
    where = f"the function {name!r}"
    arguments = [Argument(argument.name, argument.type) for argument in function.signature.input_arg]
    argument_names = {argument.name for argument in arguments}
    if len(argument_names) < len(arguments):
        raise FileError(f"two arguments of {where} have one name")
    raw: dict[str, Any] = {}
    for node in function.node_def:
        if not node.name or node.name in raw or node.name in argument_names:
            raise FileError(f"{where} has two nodes or arguments called {node.name!r}")
        raw[node.name] = node
    nodes = {
        node.name: _node(
            node,
            [_inner(text, argument_names, raw, where) for text in node.input if not text.startswith("^")],
            where,
        )
        for node in raw.values()
    }
    outputs = []
    for result in function.signature.output_arg:
        if result.name not in function.ret:
            raise FileError(f"{where} does not say what its result {result.name!r} is")
        outputs.append(_inner(function.ret[result.name], argument_names, raw, where))
    controls = [control for control in function.control_ret.values() if control in raw]
    return Body(name, arguments, nodes, outputs, controls)


def _inner(text: str, arguments: Iterable[str], nodes: Mapping[str, Any], where: str) -> Source:
    """A result as functions name it: an argument, or ``node:result:index``."""
    name, *more = text.split(":")
    if name in arguments and (not more or more == ["0"]):
        return name, 0
    if name not in nodes or len(more) > 2 or not all(re.fullmatch(r"\w{1,200}", part) for part in more):
        raise FileError(f"{where} speaks of {text!r}, which is no result of a node")
    if len(more) < 2:
        return reference(text, where)
    result, index = more
    if not re.fullmatch(r"\d{1,6}", index):
        raise FileError(f"{where} speaks of {text!r}, which is no result of a node")
    start = 0
    for declared in RESULTS.get(nodes[name].op, ()):
        called, _, attribute = declared.partition("*")
        if called == result:
            break
        start += _count(nodes[name].attr.get(attribute)) if attribute else 1
    else:
        start = 0  # An operation with one result, whatever its name, or one that is unknown here.
    return name, start + int(index)


# ------------------------------------------------------------------------------------------------- order


def ordered(body: Body, wanted: Iterable[str], controls: Iterable[str] = ()) -> list[Node]:
    """The nodes that these need, or that must run before them, each after those that it reads.

    Raises:
        FileError: a node reads what is not there, or they form a cycle.
    """
    arguments = {argument.name for argument in body.arguments}
    nodes: list[Node] = []
    done: set[str] = set(arguments)
    open_: set[str] = set()
    for first in (*wanted, *controls):
        stack: list[tuple[str, Iterator[str]]] = []
        _enter(body, first, "", done, open_, stack)
        while stack:
            name, needs = stack[-1]
            need = next(needs, None)
            if need is not None:
                _enter(body, need, name, done, open_, stack)
                continue
            stack.pop()
            open_.discard(name)
            done.add(name)
            nodes.append(body.nodes[name])
    return nodes


def _enter(
    body: Body,
    name: str,
    reader: str,
    done: set[str],
    open_: set[str],
    stack: list[tuple[str, Iterator[str]]],
) -> None:
    if name in done:
        return
    if name in open_:
        raise FileError(f"{body.name}: the nodes {name!r} and {reader!r} need one another")
    node = body.nodes.get(name)
    if node is None:
        what = f"the node {reader!r} reads {name!r}" if reader else f"its result is {name!r}"
        raise FileError(f"{body.name}: {what}, which is not there")
    open_.add(name)
    stack.append((name, iter([*(x for x, _ in node.inputs), *node.controls])))
