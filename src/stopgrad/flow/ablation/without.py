"""Copies of a graph in which some stops are opened, others are added, or loops are unrolled.

These rules differ from those of :mod:`stopgrad.rewrite.passes`, which leave gates alone until the last
differentiation. Copies made here *are* differentiated, because the question is about another program: the one
that the user would have written without that stop, or with it. Only :mod:`ablate` uses the copies, and they
never run in the place of the user's own graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.gates.stopping import Named, StopGradient
from stopgrad.ops.shapes.join import stack
from stopgrad.rewrite import Rule
from stopgrad.rewrite.engine import Copying
from stopgrad.transforms.control.recompute import Checkpoint
from stopgrad.transforms.control.scans import Scan


def opening(gates: Collection[Operation]) -> Rule:
    """A rule that opens these gates for gradients, as if they had not been written.

    Of a straight-through estimator, the gradient then goes to the hard value, and not to the soft one.
    """
    chosen = frozenset(gates)

    def opened(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in chosen:
            return None
        # It must be a new tensor, since it may be asked about, but no identity: naming one of those in wrt=
        # means naming its operand.
        return copying.add(Named, (inputs[op.definition.passes or 0],), (), op)

    return opened


def stopping(tensors: Collection[Output]) -> Rule:
    """A rule that puts a stop behind each of these tensors, for all its uses."""
    places: dict[Operation, list[int]] = {}
    for x in tensors:
        places.setdefault(x.op, []).append(x.index)

    def stopped(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in places:
            return None
        outputs = list(copying.add(op.definition, inputs, values, op))
        for i in places[op]:
            outputs[i] = copying.add(StopGradient, (outputs[i],), (), op)[0]
        return outputs

    return stopped


MOST = 20_000
"""The most operations that unrolling may make."""


def written_out(copies: dict[Output, list[Output]]) -> Rule:
    """A rule that unrolls loops with a known number of steps, and bodies that are computed again.

    Then every tensor inside is one of the graph. Exact, except for the order of sums of gradients of what all
    steps share. Loops that would become too long stay as they are.

    Args:
        copies: filled with the copies of tensors in bodies, one for each step.
    """
    budget = MOST

    def run(copying: Copying, body: Body, arguments: Sequence[Output]) -> list[Output]:
        tensors = [y for op in body.operations() for y in op.outputs]
        copied = copying.inline([*tensors, *body.results], dict(zip(body.inputs, arguments, strict=True)))
        for x, new in zip(tensors, copied, strict=False):
            copies.setdefault(x, []).append(new)
        return copied[len(tensors) :]

    def rule(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        nonlocal budget
        if op.definition not in (Checkpoint, Scan):
            return None
        steps = 1 if op.definition is Checkpoint else values[3]
        size = steps * len(op.body.operations()) if isinstance(steps, int) else 0
        if not 0 < size <= budget:
            return None
        budget -= size
        if op.definition is Checkpoint:
            return run(copying, op.body, inputs)
        carry, rest = list(inputs[: op.carries]), inputs[op.carries + op.sequences :]
        sequences = inputs[op.carries : op.carries + op.sequences]
        results: list[list[Output]] = []
        for i in reversed(range(steps)) if op.reverse else range(steps):
            returned = run(copying, op.body, [*carry, *(x[i] for x in sequences), *rest])
            carry = returned[: op.carries]
            results.append(returned[op.carries :])
        ordered = results[::-1] if op.reverse else results
        return [*carry, *(stack(list(parts)) for parts in zip(*ordered, strict=True))]

    return rule
