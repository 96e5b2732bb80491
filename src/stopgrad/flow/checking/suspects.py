"""Finds the operation whose rule is wrong: checks each one on the way by itself, on its own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stopgrad.base.errors import StopgradError
from stopgrad.flow.checking.frozen import Posed, evaluate, moving
from stopgrad.flow.checking.generated import compared
from stopgrad.flow.checking.numeric import Settings
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph, Operation
from stopgrad.graph.operands import NumpyArray
from stopgrad.ops.gates.custom import CustomGradient
from stopgrad.ops.structural.sources import Placeholder

MOST = 256
"""The most operations that are examined."""

_EACH = 2
"""The most of one kind, with the same attributes and types."""


def suspects(posed: Posed, settings: Settings, last: int) -> list[Operation]:
    """The operations on the way from xs to ys whose own derivatives differ from differences.

    A custom gradient is compared with its function. Operations with bodies, and gates, are skipped.
    """
    kinds: dict[Any, int] = {}
    chosen: list[Operation] = []
    way = moving(posed.ys, posed.xs)
    sources = {*way, *(x.op for x in posed.xs)}
    for op in way:
        definition = op.definition
        if definition.gate or definition.has_bodies or not definition.differentiable:
            continue
        kind = (definition, op.values, tuple([x.type for x in op.inputs]))
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= _EACH:
            chosen.append(op)
    chosen = chosen[:MOST]
    inputs = list(dict.fromkeys([x for op in chosen for x in op.inputs]))
    values = dict(zip(inputs, evaluate(inputs, posed.feeds), strict=True))
    alone = [
        _alone(op, [values[x] for x in op.inputs], [x.op in sources for x in op.inputs]) for op in chosen
    ]
    custom = [op for op in way if op.definition is CustomGradient][:MOST]
    alone += [_function_of(op, posed) for op in custom]
    return [
        op
        for op, posed in zip([*chosen, *custom], alone, strict=True)
        if posed and _differs(posed, settings, last)
    ]


def _function_of(op: Operation, posed: Posed) -> Posed | None:
    """A custom gradient's function, from its arguments to its results, posed in the same graph."""
    arguments = op.inputs[op.count : op.count + len(op.kept)]
    xs = [x for x in dict.fromkeys(arguments) if x.type.differentiable]
    ys = [y for y in op.outputs if y.type.differentiable]
    return Posed(posed.graph, ys, xs, list(xs), dict(posed.feeds), []) if xs and ys else None


def _alone(op: Operation, arrays: Sequence[NumpyArray], moves: Sequence[bool]) -> Posed | None:
    """An operation in a graph of its own, with derivatives with respect to what moves."""
    graph = Graph()
    inputs = [emit(Placeholder, (), (x.dtype, x.shape, ()), "", graph).outputs[0] for x in op.inputs]
    outputs = emit(op.definition, tuple(inputs), op.values, None, graph).outputs
    xs = [x for x, moving in zip(inputs, moves, strict=True) if moving and x.type.differentiable]
    ys = [y for y in outputs if y.type.differentiable]
    if not xs or not ys:
        return None
    return Posed(graph, ys, xs, list(xs), dict(zip(inputs, arrays, strict=True)), [])


def _differs(posed: Posed, settings: Settings, last: int) -> bool:
    """Whether the generated derivatives differ from differences."""
    try:
        by_input = compared(posed, replace(settings, directions=None), last).by_input
    except StopgradError:
        return False  # Its derivatives cannot be computed.
    return any(comparison.contradicted for comparisons in by_input for comparison in comparisons)
