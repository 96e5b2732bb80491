"""Finds what loops of Python have written out in a graph that is about to be compiled as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from stopgrad.graph.graph import Operation

TIMES = 50
"""How often a loop must have built an operation to be told."""
MANY = 1500
"""How many operations all loops must have built. Fewer are compiled in a second or two."""


def written_out(operations: Iterable[Operation]) -> str:
    """Says which line loops of Python have built again and again; empty if that costs no time worth telling.

    Counted are operations of one type, with results of one type, that one expression has built. Those that
    were made for their gradients count with them.
    """
    listed = [op for op in operations if op.inputs]
    if len(listed) < MANY:
        return ""
    built = [_expression(op) for op in listed]
    times: Counter[Any] = Counter()
    for key, op in zip(built, listed, strict=True):
        if op.origin is None and key is not None:
            times[key, op.definition, op.outputs[0].type] += 1
    repeated: dict[Any, int] = {}
    for (key, _, _), count in times.items():
        if count >= TIMES:
            repeated[key] = max(count, repeated.get(key, 0))
    counts = Counter([key for key in built if key in repeated])
    if counts.total() < MANY:
        return ""
    key = max(counts, key=lambda expression: (counts[expression], repeated[expression]))
    first = next(op for expression, op in zip(built, listed, strict=True) if expression == key)
    location = first.location
    place = location.describe() if location is not None else "an unknown line"
    return (
        f"{place} repeats {repeated[key]:,} times: of {len(listed):,} operations, {counts.total():,} were "
        "written out by loops of Python, and each is compiled; as sg.scan, a loop is compiled once"
    )


def _expression(op: Operation) -> tuple[Any, int] | None:
    """The user's expression that built an operation, or the one for whose gradient it was made."""
    ancestor: Operation | None = op
    while ancestor is not None:
        if ancestor._place is not None:
            return ancestor._place, ancestor._instruction
        ancestor = ancestor.origin
    return None
