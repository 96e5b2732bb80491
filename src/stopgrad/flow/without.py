"""Copies of a graph in which some stops are open, or in which there are more.

The rules here are no others of :mod:`stopgrad.rewrite.passes`: those leave gates alone until the last
differentiation. What these make *is* differentiated, since the gradient of another program is what is asked
for: the one that the user would have written without that stop, or with it. Nobody but :mod:`ablate` sees the
copies, and what he reports of them is never run in the place of the user's own graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from stopgrad.graph import Operation, Output
from stopgrad.ops.gates import (
    Named,
    StopGradient,
    StopGradientTowards,
    StopGradientWhen,
    StraightThrough,
)
from stopgrad.rewrite import Rule
from stopgrad.rewrite.engine import Copying

STOPS = frozenset({StopGradient, StopGradientTowards, StopGradientWhen, StraightThrough})
"""What hides something from the gradient because somebody wrote it so."""


def opening(gates: Collection[Operation]) -> Rule:
    """The rule that lets gradients pass these gates to their first operand, as if they had not been written.

    Of a straight-through estimator that is the hard value: without it, the gradient goes there, and not to
    the soft one.
    """
    chosen = frozenset(gates)

    def opened(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in chosen:
            return None
        # A tensor of its own, since it may be asked about. No identity: to name one of those in wrt= is to
        # name its operand.
        return copying.add(Named, inputs[:1], (), op)

    return opened


def stopping(tensors: Collection[Output]) -> Rule:
    """The rule that puts a stop behind each of these tensors, for all its uses."""
    places: dict[Operation, list[int]] = {}
    for x in tensors:
        places.setdefault(x.op, []).append(x.index)

    def stopped(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in places:
            return None
        made = list(copying.add(op.definition, inputs, values, op))
        for i in places[op]:
            made[i] = copying.add(StopGradient, (made[i],), (), op)[0]
        return made

    return stopped


def inside(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and those in the bodies that they run forward: each body once, and no pullback."""
    seen: set[Operation] = set()
    todo = [list(operations)]
    for some in todo:  # Which grows by the bodies that are met. Several may share their operations.
        for op in some:
            if op not in seen:
                seen.add(op)
                yield op
                if op.definition.has_bodies:
                    todo.extend([wire.body.operations() for wire in op.definition.wires(op)])
