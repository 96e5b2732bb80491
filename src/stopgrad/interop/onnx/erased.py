"""Gates that other tools have erased from a model, and how they are put back.

To a tool that knows only ONNX, a gate is a function that returns its operand: inliners and optimisers replace
it by nothing. So a saved model lists its gates in its metadata: where each stands, by names of tensors and
nodes, who reads its result, and who else reads its operand. When a model is loaded from which a gate is gone,
it is put back if all of these are still there and nobody has joined them; else the user is warned.

That nobody is missing matters. Without a gate, a reader of its result and a reader of its operand may compute
the same, and a tool makes one node of the two: what is put back then is wrong. Such a merger always
begins at a gate whose readers are no longer complete. So where one of them cannot be put back, none is.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import onnx

from stopgrad.interop.onnx.checking import GATES, gate_of, is_custom
from stopgrad.interop.onnx.nodes import all_nodes, domain_of, graphs_in, read_in, text

if TYPE_CHECKING:
    from google.protobuf.message import Message

P = TypeVar("P", bound="Message")

LISTED = "stopgrad.gates"
"""The key of a model's metadata under which its gates are listed, as JSON."""

OUTPUT = ("", "", 0)
"""Stands for a graph's own outputs among the readers of a tensor."""

MOST = 100_000
"""The most gates that are read from a list."""

Reader = tuple[str, str, int]
"""The name and the operator of a node, and the position of the operand."""

Where = tuple[tuple[str, str], ...]
"""The nodes and attributes that hold a graph, from outside."""


class Listed(NamedTuple):
    """A gate as a list has it.

    Attributes:
        node: the call, as the model had it.
        where: the graph that it stands in.
        pairs: for each result, the operand that it is, the readers of the result, and the other readers of
            the operand.
        settings: operands that are constant numbers, by name.
    """

    node: onnx.NodeProto
    where: Where
    pairs: tuple[Pair, ...]
    settings: Mapping[str, Any]


class Pair(NamedTuple):
    """A result of a gate, and the operand that it hands on."""

    operand: str
    result: str
    readers: frozenset[Reader]
    others: frozenset[Reader]


# ---------------------------------------------------------------------------------------------- writing


def list_gates(model: onnx.ModelProto) -> None:
    """Write the list of a model's gates into its metadata, and their gradient functions, if it has any."""
    constants = {text(node.output[0]): node.attribute[0].t for node in model.graph.node if _is_constant(node)}
    constants |= {text(t.name): t for t in model.graph.initializer if t.data_location != t.EXTERNAL}
    gates = [
        _entry(node, where, graph, constants)
        for graph, where in _graphs(model)
        for node in graph.node
        if is_gate(node)
    ]
    if gates:
        own = [f for f in model.functions if f.domain == GATES and gate_of(GATES, text(f.name)) is None]
        listing = json.dumps({"gates": gates, "functions": [_packed(f) for f in own]})
        model.metadata_props.append(onnx.StringStringEntryProto(key=LISTED, value=listing))


def is_gate(node: onnx.NodeProto) -> bool:
    """Whether a node is a gate or a custom gradient."""
    return gate_of(domain_of(node), text(node.op_type)) is not None or is_custom(node)


def _is_constant(node: onnx.NodeProto) -> bool:
    return text(node.op_type) == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t")


def _packed(proto: Message) -> str:
    return base64.b64encode(proto.SerializeToString()).decode()


def _graphs(model: onnx.ModelProto) -> Iterator[tuple[Any, Where]]:
    """The graph of a model and all graphs inside of it."""
    waiting: list[tuple[Any, Where]] = [(model.graph, ())]
    while waiting:
        graph, where = waiting.pop()
        yield graph, where
        for node in graph.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    waiting.append((a.g, (*where, (text(node.name), text(a.name)))))


def _readers(graph: onnx.GraphProto, name: str) -> set[Reader]:
    """Who reads a tensor in a graph, and in those inside of it."""
    inner = [g for node in graph.node for g in graphs_in(node)]
    readers = {
        (text(node.name), text(node.op_type), i)
        for g in (graph, *inner)
        for node in g.node
        for i, x in enumerate(node.input)
        if text(x) == name
    }
    returned = any(text(y.name) == name for g in (graph, *inner) for y in g.output)
    return readers | ({OUTPUT} if returned else set())


def _entry(
    node: onnx.NodeProto, where: Where, graph: onnx.GraphProto, constants: Mapping[str, Any]
) -> dict[str, Any]:
    pairs = []
    for x, y in zip(node.input, node.output, strict=False):
        others = [reader for reader in _readers(graph, text(x)) if reader[0] != text(node.name)]
        pairs.append([sorted(_readers(graph, text(y))), sorted(others)])
    # Nobody but the gate may read the numbers that it is set to, so a tool may drop them, too.
    settings = {text(x): constants[text(x)] for x in node.input[len(node.output) :] if text(x) in constants}
    small = {name: _packed(tensor) for name, tensor in settings.items() if math.prod(tensor.dims) == 1}
    return {
        "node": _packed(node),
        "where": [list(level) for level in where],
        "pairs": pairs,
        "settings": small,
    }


# ---------------------------------------------------------------------------------------------- reading


def listed(model: onnx.ModelProto) -> tuple[list[Listed], list[Any]]:
    """The gates that a model's metadata list, and their functions; nothing if there is no list to be read."""
    listing = next((text(e.value) for e in model.metadata_props if e.key == LISTED), "")
    try:
        read = json.loads(listing) if listing else {}
        gates = [_listed(entry) for entry in read.get("gates", [])[:MOST]]
        functions = [_unpacked(onnx.FunctionProto, packed) for packed in read.get("functions", [])[:MOST]]
    except Exception:  # Someone else's, or damaged in any way: it says nothing.
        return [], []
    sound = [gate for gate in gates if is_gate(gate.node) and 0 < len(gate.pairs) == len(gate.node.output)]
    return sound, [f for f in functions if domain_of(f) == GATES]


def _unpacked(kind: type[P], encoded: str) -> P:
    return kind.FromString(base64.b64decode(encoded))


def _listed(entry: Mapping[str, Any]) -> Listed:
    node = _unpacked(onnx.NodeProto, entry["node"])
    pairs = [
        Pair(text(x), text(y), _frozen(readers), _frozen(others))
        for x, y, (readers, others) in zip(node.input, node.output, entry["pairs"], strict=False)
    ]
    where = tuple((str(name), str(attribute)) for name, attribute in entry["where"])
    settings = {str(name): _unpacked(onnx.TensorProto, packed) for name, packed in entry["settings"].items()}
    return Listed(node, where, tuple(pairs), settings)


def _frozen(readers: list[Any]) -> frozenset[Reader]:
    return frozenset((str(name), str(kind), int(i)) for name, kind, i in readers)


class Restored(NamedTuple):
    """A model after its gates were put back.

    Attributes:
        model: itself, if nothing was missing; else a copy.
        back: the names of the gates that were put back.
        lost: those that could not be.
    """

    model: onnx.ModelProto
    back: list[str]
    lost: list[str]


def restored(model: onnx.ModelProto) -> Restored:
    """A model with the gates and gradient functions that its metadata list and tools have erased."""
    gates, functions = listed(model)
    there = {text(y) for node in all_nodes(model) if is_gate(node) for y in node.output} if gates else set()
    missing = [gate for gate in gates if text(gate.node.output[0]) not in there]
    present = {text(f.name) for f in model.functions if domain_of(f) == GATES}
    functions = [f for f in functions if text(f.name) not in present]
    if not missing and not functions:
        return Restored(model, [], [])
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.functions.extend(functions)
    _settle(copy.graph, missing)
    graphs = {where: graph for graph, where in _graphs(copy)}
    unplaced = [gate for gate in missing if gate.where not in graphs or not _in_place(gate, graphs)]
    trial = onnx.ModelProto()
    trial.CopyFrom(copy)
    if unplaced and _Putting(trial, unplaced).all_back():
        copy, unplaced = trial, []
    for graph, _ in _graphs(copy):
        _sort(graph)
    lost = [text(gate.node.output[0]) for gate in unplaced]
    return Restored(copy, [y for gate in missing if (y := text(gate.node.output[0])) not in lost], lost)


def _settle(graph: onnx.GraphProto, gates: list[Listed]) -> None:
    """Put back the numbers that gates are set to, where these are gone."""
    names = _named(graph)
    for name, tensor in {key: t for gate in gates for key, t in gate.settings.items()}.items():
        if name not in names:
            node = onnx.helper.make_node("Constant", [], [name], name, value=tensor)
            graph.node.insert(0, node)


def _in_place(listed_gate: Listed, graphs: Mapping[Where, Any]) -> bool:
    """Put a gate in the place of the identities that an inliner has left, if they are there."""
    graph = graphs[listed_gate.where]
    makers = {text(y): node for node in graph.node for y in node.output}
    copies = [makers.get(pair.result) for pair in listed_gate.pairs]
    gate = onnx.NodeProto()
    gate.CopyFrom(listed_gate.node)
    for i, node in enumerate(copies):
        if node is None or text(node.op_type) != "Identity" or domain_of(node):
            return False
        gate.input[i] = node.input[0]
    if not _visible(gate.input, listed_gate.where, graphs):
        return False
    places = sorted(i for i, node in enumerate(graph.node) if text(node.output[0]) in gate.output)
    graph.node[places[0]].CopyFrom(gate)
    for i in places[:0:-1]:
        del graph.node[i]
    return True


def _named(graph: onnx.GraphProto) -> set[str]:
    """The names of the tensors of a graph."""
    names = {text(y) for node in graph.node for y in node.output} | {text(x.name) for x in graph.input}
    return names | {text(t.name) for t in graph.initializer}


def _visible(names: Iterable[str], where: Where, graphs: Mapping[Where, Any]) -> bool:
    """Whether a graph, or one around it, has all of these tensors."""
    around = set[str]().union(*[_named(graphs[where[:i]]) for i in range(len(where) + 1)])
    return all(not x or text(x) in around for x in names)


class _Putting:
    """Gates of which no trace is left but the names of those who read their operands and results."""

    def __init__(self, model: onnx.ModelProto, gates: list[Listed]) -> None:
        self.graphs = {where: graph for graph, where in _graphs(model)}
        self.gates = gates
        self._by_name = {text(gate.node.name): gate for gate in gates}

    def all_back(self) -> bool:
        """Put all of them back, in order; whether it could be done."""
        return all(self._put(gate) for gate in self.gates)

    def _put(self, gate: Listed) -> bool:
        graph = self.graphs.get(gate.where)
        alone = self._by_name.get(text(gate.node.name)) is gate and len({p.operand for p in gate.pairs})
        if graph is None or alone != len(gate.pairs):  # Else it is not clear whose readers are whose.
            return False
        if not all(self._now(pair, graph) for pair in gate.pairs):
            return False
        if not _visible(gate.node.input, gate.where, self.graphs):
            return False
        graph.node.add().CopyFrom(gate.node)
        del self._by_name[text(gate.node.name)]
        return True

    def _now(self, pair: Pair, graph: onnx.GraphProto) -> bool:
        """Let the readers of a result read it again; whether all of them are there, and nobody else."""
        readers, others = self._real(pair.readers), self._real(pair.others)
        makers = {text(y): node for node in graph.node for y in node.output}
        if pair.result in makers:  # What makes the operand was renamed, since the gate alone read it.
            if others or _readers(graph, pair.result) != readers or pair.operand in makers:
                return False
            node = makers[pair.result]
            node.output[:] = [pair.operand if text(y) == pair.result else y for y in node.output]
            return True
        present = _readers(graph, pair.operand)
        if readers & others or OUTPUT in readers or not readers or present != readers | others:
            return False
        inner = [node for outer in graph.node for g in graphs_in(outer) for node in g.node]
        for node in [*graph.node, *inner]:
            for i, x in enumerate(node.input):
                if text(x) == pair.operand and (text(node.name), text(node.op_type), i) in readers:
                    node.input[i] = pair.result
        return True

    def _real(self, readers: frozenset[Reader]) -> set[Reader]:
        """Readers that are no gates which are gone, too: in place of these, the readers of their results."""
        real: set[Reader] = set()
        waiting, seen = list(readers), set(readers)
        while waiting:
            name, kind, i = waiting.pop()
            gone = self._by_name.get(name)
            if gone is None or text(gone.node.op_type) != kind:
                real.add((name, kind, i))
            elif i < len(gone.pairs):
                new = gone.pairs[i].readers - seen
                seen |= new
                waiting += new
        return real


def _sort(graph: onnx.GraphProto) -> None:
    """Put the nodes of a graph into an order in which each comes after those that it reads."""
    makers = {text(y): i for i, node in enumerate(graph.node) for y in node.output}
    needs: dict[int, list[int]] = {}
    for i, node in enumerate(graph.node):
        read = [*map(text, node.input), *[x for g in graphs_in(node) for x in read_in(g)]]
        read += [text(y.name) for g in graphs_in(node) for y in g.output]
        needs[i] = [makers[x] for x in read if x in makers and makers[x] != i]
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:  # The check of the model says so.
        return
    if order != sorted(order):
        nodes = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
        del graph.node[:]
        graph.node.extend(nodes)
