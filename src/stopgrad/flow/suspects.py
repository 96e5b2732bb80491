"""Which operation's rule is wrong? Each on the way is checked alone, on the values that it got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stopgrad.build import emit
from stopgrad.errors import StopgradError
from stopgrad.flow.compared import compared
from stopgrad.flow.frozen import Posed, evaluate, moving
from stopgrad.flow.numeric import Settings
from stopgrad.graph import Graph, Operation
from stopgrad.operands import Array
from stopgrad.ops.data import Placeholder

MOST = 256
"""So many operations at most are looked at."""

_EACH = 2
"""So many at most of one kind, with the same attributes and types."""


def suspects(posed: Posed, settings: Settings, last: int) -> list[Operation]:
    """The operations on the way from xs to ys whose own derivatives differ from those of differences.

    Operations with bodies, gates and custom gradients are passed over.
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
    return [
        op
        for op in chosen
        if _differs(op, [values[x] for x in op.inputs], [x.op in sources for x in op.inputs], settings, last)
    ]


def _differs(
    op: Operation, arrays: Sequence[Array], moves: Sequence[bool], settings: Settings, last: int
) -> bool:
    """Whether an operation alone has other derivatives, towards what moves, than differences say."""
    graph = Graph()
    inputs = [emit(Placeholder, (), (x.dtype, x.shape), "", graph).outputs[0] for x in op.inputs]
    made = emit(op.definition, tuple(inputs), op.values, None, graph).outputs
    xs = [x for x, moving in zip(inputs, moves, strict=True) if moving and x.type.differentiable]
    ys = [y for y in made if y.type.differentiable]
    if not xs or not ys:
        return False
    alone = Posed(graph, ys, xs, list(xs), dict(zip(inputs, arrays, strict=True)), [])
    try:
        found, _ = compared(alone, replace(settings, directions=None), last)
    except StopgradError:
        return False  # It cannot be asked for its derivatives.
    return any(comparison.contradicted for comparisons in found for comparison in comparisons)
