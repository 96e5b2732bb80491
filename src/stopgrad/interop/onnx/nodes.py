"""Walks over the nodes of a model, the graphs inside of them, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx


def text(x: str | bytes) -> str:
    """A string of a file, which may not be valid UTF-8."""
    return x if isinstance(x, str) else bytes(x).decode(errors="replace")


def domain_of(x: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain of a node, function or opset; ``ai.onnx`` becomes the empty string."""
    domain = text(x.domain)
    return "" if domain == "ai.onnx" else domain


def shown(node: onnx.NodeProto) -> str:
    """A node as messages name it."""
    return f"{text(node.op_type)} {called(node)!r}"


def called(node: onnx.NodeProto) -> str:
    """The name of a node, or else of its first result."""
    return text(node.name) or next((text(x) for x in node.output if x), "") or text(node.op_type)


def graphs_in(node: onnx.NodeProto, deep: bool = True) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes; with *deep*, those inside of these, too."""
    waiting = [node]
    while waiting:
        for a in waiting.pop().attribute:
            for graph in ([a.g] if a.type == onnx.AttributeProto.GRAPH else []) + list(a.graphs):
                yield graph
                if deep:
                    waiting += graph.node


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a model, of its functions and of their inner graphs."""
    waiting = [*model.graph.node, *[node for f in model.functions for node in f.node]]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for graph in graphs_in(node, deep=False) for inner in graph.node]


def read_in(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that the nodes of a graph read."""
    return (text(x) for node in graph.node for x in node.input)


def spoken_of(node: onnx.NodeProto) -> Iterator[str]:
    """The names of tensors among a node's attributes; only ``Gradient`` has such."""
    if node.op_type == "Gradient" and node.domain == "ai.onnx.preview.training":
        for a in node.attribute:
            yield from map(text, [*a.strings, *([a.s] if a.name == "y" else [])])


def live(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the results depend on, in order."""
    needed, chosen = set(outputs), []
    for node in reversed(nodes):
        if any(text(y) in needed for y in node.output if y):
            chosen.append(node)
            needed.update(map(text, node.input))
            needed.update(spoken_of(node))
            for graph in graphs_in(node):
                needed.update(text(y.name) for y in graph.output)
                needed.update(read_in(graph))
    chosen.reverse()
    return chosen
