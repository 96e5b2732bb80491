"""Removes unused nodes from a written graph, and fuses several nodes into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import Size
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Body, Node, Nodes


def tidied(nodes: Nodes, wanted: Sequence[str]) -> list[Node]:
    """The nodes that compute what is wanted, with some of them fused.

    Args:
        nodes: as they were written.
        wanted: the names of the results.
    """
    needed, _ = _needed(nodes.written, wanted)
    return _needed(_Fusing(nodes, needed, wanted).fused(needed), wanted)[0]


def _needed(written: Sequence[Node], wanted: Sequence[str]) -> tuple[list[Node], set[str]]:
    """The nodes that are needed, also in bodies, and all names that they read."""
    read, needed = set(wanted), []
    for node in reversed(written):
        if read.isdisjoint(node.outputs):
            continue
        attributes = dict(node.attributes)
        for key, value in attributes.items():
            if isinstance(value, Body):
                inner, names = _needed(value.nodes, [y.name for y in value.outputs])
                attributes[key] = value._replace(nodes=inner)
                read |= names
        read.update(node.inputs)
        needed.append(node._replace(attributes=attributes))
    return needed[::-1], read


def reads(nodes: Sequence[Node]) -> Iterator[str]:
    """The names that nodes read, also in bodies, and the names that bodies return."""
    for node in nodes:
        yield from node.inputs
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from reads(value.nodes)
                yield from (y.name for y in value.outputs)


class _Fusing:
    """Fuses nodes where each is used by the next alone."""

    def __init__(self, nodes: Nodes, written: Sequence[Node], wanted: Sequence[str]) -> None:
        self._nodes = nodes
        self._uses = Counter([*reads(written), *wanted])
        self._producers: dict[str, tuple[Node, list[Node]]] = {}
        self._graphs: list[list[Node]] = []
        self._names: dict[str, str] = {}

    def fused(self, written: Sequence[Node]) -> list[Node]:
        done: list[Node] = []
        self._graphs.append(done)
        for node in written:
            attributes = {
                key: value._replace(nodes=self.fused(value.nodes)) if isinstance(value, Body) else value
                for key, value in node.attributes.items()
            }
            inputs = tuple(self._names.get(name, name) for name in node.inputs)
            node = node._replace(inputs=inputs, attributes=attributes)
            node = _FUSED.get(node.op_type, _as_it_is)(self, node)
            self._producers.update(dict.fromkeys(node.outputs, (node, done)))
            done.append(node)
        self._graphs.pop()
        return done

    def own(self, name: str, op_type: str) -> Node | None:
        """The node that makes a value, if it is of this type, used once, and in the same graph or body."""
        node, graph = self._producers.get(name, (None, None))
        if node is None or graph is not self._graphs[-1] or node.op_type != op_type or self._uses[name] != 1:
            return None
        return node

    def shape(self, name: str) -> Any:
        return self._nodes.types[name][1]

    def vector(self, name: str, channels: Size) -> str | None:
        """The name of the vector that a value of shape [1, channels, 1, ...] was reshaped from."""
        *ahead, count = [size for size in self.shape(name) if size != 1] or [0]
        if ahead or count != channels:
            return None
        if name in self._nodes.constants:
            return self._nodes.constant(self._nodes.constants[name].reshape(-1))
        node, _ = self._producers.get(name, (None, None))
        if node is not None and node.op_type == "Reshape" and self.shape(node.inputs[0]) == (count,):
            return node.inputs[0]
        return None


def _as_it_is(fusing: _Fusing, node: Node) -> Node:
    return node


def _scaled(fusing: _Fusing, node: Node) -> Node:
    """LayerNormalization times a scale."""
    for x, scale in (node.inputs, node.inputs[::-1]):
        norm = fusing.own(x, "LayerNormalization")
        if norm is not None and len(norm.inputs) == 2 and fusing.shape(scale) == fusing.shape(norm.inputs[1]):
            ones = fusing._nodes.constants.get(norm.inputs[1])
            if ones is not None and np.all(ones == 1):
                return norm._replace(inputs=(norm.inputs[0], scale), outputs=node.outputs)
    return node


def _biased(fusing: _Fusing, node: Node) -> Node:
    """LayerNormalization plus an offset; Conv or ConvTranspose plus a bias."""
    for x, bias in (node.inputs, node.inputs[::-1]):
        norm = fusing.own(x, "LayerNormalization")
        if norm is not None and len(norm.inputs) == 2 and fusing.shape(bias) == fusing.shape(norm.inputs[1]):
            return norm._replace(inputs=(*norm.inputs, bias), outputs=node.outputs)
        conv = fusing.own(x, "Conv") or fusing.own(x, "ConvTranspose")
        if conv is not None and len(conv.inputs) == 2:
            shape, bias_shape = fusing.shape(x), fusing.shape(bias)
            if len(bias_shape) == len(shape) - 1 or (len(bias_shape) == len(shape) and bias_shape[0] == 1):
                vector = fusing.vector(bias, shape[1]) if bias_shape[1 - len(shape)] == shape[1] else None
                if vector is not None:
                    return conv._replace(inputs=(*conv.inputs, vector), outputs=node.outputs)
    return node


_FUSED: Mapping[str, Callable[[_Fusing, Node], Node]] = {"Mul": _scaled, "Add": _biased}
