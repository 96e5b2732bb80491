"""What is known of values while they are written: those that depend on constants and stored arrays alone.

Most known operands are NumPy's arrays, with which NumPy computes at once. Others become values all the same:
large ones, parameters, what gates hand on. These are computed when a form asks for them, by the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.types import map_sizes
from stopgrad.engines.onnxruntime.nodes.node_writing import has_value
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Nodes
from stopgrad.engines.onnxruntime.nodes.values import Value
from stopgrad.graph.graph import Operation
from stopgrad.graph.interpreter import NUMPY_BACKEND, Observer, observed, quietly


class Origin(NamedTuple):
    """Where a value comes from: a result of an operation on known operands."""

    op: Operation
    operands: Sequence[Any]
    which: int


def note(nodes: Nodes, op: Operation, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """Record where results come from, if their operands are known."""
    definition = op.definition
    if definition.fed or definition.stateful or op.acts:
        return
    if not all(_are_known(nodes, operands)) or not any(isinstance(y, Value) for y in results):
        return
    sizes: list[Any] = []
    map_sizes(op.values, sizes.append)
    if not sizes:
        for i, y in enumerate(results):
            if isinstance(y, Value):
                nodes.origins.setdefault(y.name, Origin(op, operands, i))


def _are_known(nodes: Nodes, operands: Sequence[Any]) -> list[bool]:
    """For each operand, whether it is known."""
    return [
        x.name in nodes.constants or x.name in nodes.origins if isinstance(x, Value) else not has_value(x)
        for x in operands
    ]


def content(nodes: Nodes, x: Any) -> np.ndarray[Any, Any] | None:
    """The content of an operand; None if it is known only when the model runs."""
    if not all(_are_known(nodes, [x])):
        return None
    contents: dict[str, np.ndarray[Any, Any]] = {}
    waiting = [x]
    while waiting:
        value = waiting[-1]
        lacking = [y for y in _operands(nodes, value) if isinstance(y, Value) and y.name not in contents]
        if lacking:
            waiting += lacking
            continue
        waiting.pop()
        if isinstance(value, Value) and value.name not in contents:
            contents[value.name] = _computed(nodes, value, contents)
    return contents[x.name] if isinstance(x, Value) else np.asarray(x)


def _operands(nodes: Nodes, x: Any) -> Sequence[Any]:
    origin = nodes.origins.get(x.name) if isinstance(x, Value) else None
    return origin.operands if isinstance(origin, Origin) else ()


def _computed(nodes: Nodes, x: Value, contents: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    origin = nodes.origins[x.name] if x.name in nodes.origins else nodes.constants[x.name]
    if isinstance(origin, np.ndarray):
        return origin
    op, operands, which = origin
    arrays = [
        contents[y.name] if isinstance(y, Value) else np.asarray(y, declared.dtype.numpy)
        for y, declared in zip(operands, op.inputs, strict=True)
    ]
    results = quietly(observed(op, NUMPY_BACKEND, Observer()), *arrays)
    result = results if len(op.outputs) == 1 else results[which]
    return np.asarray(result, op.outputs[which].dtype.numpy)
