"""What the losses of a training compare: columns of predictions with rows of targets, by mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stopgrad.flow.comparisons import may_compare
from stopgrad.interop.tensorflow.recording.record import Asking, Symbol, Value, above


def may_be_compared(asking: Asking) -> bool:
    """Whether losses may compare each prediction with every target; their report says whether they do."""
    eager = [loss for loss in asking.losses if isinstance(loss, Value)]
    for event in above(eager):
        if may_compare(event.call, [tuple(x.event.results[x.number][1:]) for x in event.inputs]):
            return True
    traced = [loss.tensor for loss in asking.losses if isinstance(loss, Symbol)]
    for op in _operations(traced):
        is_known = all(x.shape.rank is not None for x in op.inputs)
        if is_known and may_compare(op.type, [tuple(x.shape.as_list()) for x in op.inputs]):
            return True
    return False


def _operations(losses: Sequence[Any]) -> Iterator[Any]:
    """The operations of a graph that led to losses."""
    stack = [loss.op for loss in losses]
    seen = {op.name for op in stack}
    while stack:
        op = stack.pop()
        yield op
        for x in op.inputs:
            if x.op.name not in seen:
                seen.add(x.op.name)
                stack.append(x.op)
