"""Puts the nodes of a model in an order in which each comes after those whose results it reads.

The standard asks for such an order, and runtimes do not: ONNX Runtime sorts what it loads, so that converters
which append nodes go unnoticed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import onnx

from stopgrad.base.errors import FileError
from stopgrad.interop.onnx.nodes import graphs_in, shown, spoken_of, text
from stopgrad.interop.shared.inlining import DEEPEST

_SHOWN = 8
"""The most nodes of a cycle that an error names."""


def ordered(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A model whose nodes are in order: the same if they are already, else a copy.

    Nodes that are in order keep their places, also among those that are not. Graphs inside of nodes and
    functions are put in order, too.

    Args:
        model: it is not changed.
        name: the file, for messages.

    Raises:
        FileError: nodes form a cycle, or graphs are nested too deep.
    """
    if not _unordered(model, name):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for nodes, order in _unordered(copy, name):
        sorted_nodes = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
        del nodes[:]
        nodes.extend(sorted_nodes)
    return copy


def _unordered(model: onnx.ModelProto, name: str) -> list[tuple[Any, list[int]]]:
    """The lists of nodes that are not in order, inner ones first, each with the order to put it in."""
    unordered: list[tuple[Any, list[int]]] = []
    _look(model.graph.node, _defined_by(model.graph), name, unordered, 0)
    for function in model.functions:
        _look(function.node, set(map(text, function.input)), name, unordered, 0)
    return unordered


def _look(
    nodes: Sequence[Any], defined: set[str], name: str, unordered: list[tuple[Any, list[int]]], depth: int
) -> set[str]:
    """Look through nodes, besides which names are defined; the names that they read from around."""
    if depth > DEEPEST:
        raise FileError(f"{name}: graphs stand in one another more than {DEEPEST} deep")
    reads = []
    for node in nodes:
        read = {*map(text, node.input), *spoken_of(node)} - {""}
        for graph in graphs_in(node, deep=False):
            own = _defined_by(graph)
            read |= _look(graph.node, own, name, unordered, depth + 1)
            computed = {text(y) for inner in graph.node for y in inner.output}
            read |= {text(y.name) for y in graph.output} - own - computed
        reads.append(read)
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for y in node.output:
            if text(y) not in defined:  # A name that is defined twice is refused later.
                makers.setdefault(text(y), i)
    needs = [{makers[x] for x in read if x in makers} for read in reads]
    if any(max(some, default=-1) >= i for i, some in enumerate(needs)):
        unordered.append((nodes, _order(nodes, needs, name)))
    return {x for read in reads for x in read if x not in makers} - defined


def _order(nodes: Sequence[Any], needs: Sequence[set[int]], name: str) -> list[int]:
    """The order that is nearest to the present one: of the nodes that can come next, always the first."""
    readers: list[list[int]] = [[] for _ in needs]
    missing = [len(some) for some in needs]
    for i, some in enumerate(needs):
        for k in some:
            readers[k].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for k in readers[i]:
            missing[k] -= 1
            if not missing[k]:
                heapq.heappush(ready, k)
    if len(order) < len(needs):
        raise FileError(f"{name}: nodes form a cycle: {_cycle(nodes, needs, missing)}")
    return order


def _cycle(nodes: Sequence[Any], needs: Sequence[set[int]], missing: Sequence[int]) -> str:
    """One cycle among the nodes that wait for others, in words."""
    current = next(i for i, count in enumerate(missing) if count)
    path: list[int] = []
    while current not in path:
        path.append(current)
        current = min(k for k in needs[current] if missing[k])
    cycle = path[path.index(current) :]
    words = [shown(nodes[i]) for i in [*cycle[:_SHOWN], cycle[0]]]
    more = f" (and {len(cycle) - _SHOWN} more)" if len(cycle) > _SHOWN else ""
    return " reads from ".join(words) + more


def _defined_by(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph that no node computes."""
    names = {text(x.name) for x in (*graph.input, *graph.initializer)}
    return names | {text(t.values.name) for t in graph.sparse_initializer}
