"""Gates as functions of the domain ``stopgrad``. Their body is the identity, which every runtime can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stopgrad.base.arrays import Array
from stopgrad.engines.onnxruntime.nodes.writing import Writing
from stopgrad.graph.graph import Operation
from stopgrad.ops.gates.stopping import Named

DOMAIN = "stopgrad"
"""The domain of the gates' functions."""


def gate(xp: Writing, op: Operation) -> Callable[..., Any]:
    """The form of a gate: a call of its type's function with its attributes. ``Named`` writes nothing."""
    definition = op.definition
    if definition is Named:
        return lambda x: xp.value(x)
    attributes = dict(zip(definition.attributes, map(_written, op.values), strict=True))

    def form(x: Array, *others: Array) -> Any:
        x = xp.value(x)
        most, _ = xp.nodes.functions.get(op.type, (0, []))
        xp.nodes.functions[op.type] = max(most, 1 + len(others)), sorted(attributes)
        return xp.write(op.type, [x, *others], [(x.dtype, x.shape)], DOMAIN, **attributes)[0]

    return form


def _written(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else repr(value)
