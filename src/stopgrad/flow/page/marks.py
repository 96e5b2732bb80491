"""What each operation of a page is to the gradient, also in bodies, which decides its colour."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.flow.page.collected import Collected
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.survey import Survey, best_of
from stopgrad.flow.walls import OPEN
from stopgrad.flow.ways import passes_all, ways_of
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation
from stopgrad.graph.selective import NOBODY

LIVE, PARTLY, CUT, SEVERED, HIDDEN, IDLE, ASIDE, GRADIENT = "lpcshiag"
LETTERS = {"live": LIVE, "cut": CUT, "severed": SEVERED, "hidden": HIDDEN, "idle": IDLE, "aside": ASIDE}
PASSED = LIVE + PARTLY
"""The marks of operations that a gradient passes."""


def marks_of(report: Reaches, collected: Collected) -> list[str]:
    """A letter for each operation.

    They are those of ``report.marks()``; ``p`` for an operation in which paths end and that gradients also
    pass; and ``g`` for one that was made for a gradient.
    """
    named = report.marks()
    marks = [LETTERS[named.get(op, "aside")] for op in collected.operations[: collected.forward]]
    marks += [GRADIENT] * (len(collected.operations) - collected.forward)
    idle = {gate.operation for gate in report.idle}
    for i in collected.top:
        if marks[i] == CUT:
            marks[i] = _partly(collected, i, marks)
    for holder, _, operations, body in collected.bodies:
        if marks[holder] in (LIVE, PARTLY, CUT):
            _mark_body(body, operations, collected, marks, idle)
        else:
            for i in operations:
                marks[i] = marks[holder]
    return marks


def _partly(collected: Collected, i: int, marks: Sequence[str]) -> str:
    """The mark of an operation in which paths end, depending on whether others continue."""
    op = collected.operations[i]
    goes_on = any(marks[collected.number[op.inputs[k].op]] in PASSED for k in _open_inputs(op))
    return PARTLY if goes_on else CUT


def _mark_body(
    body: Body, operations: Sequence[int], collected: Collected, marks: list[str], idle: set[Operation]
) -> None:
    """Mark the operations of a body, by the paths from its results to its parameters."""
    inputs = [x for x in body.inputs if x.type.differentiable]
    survey = Survey(body.results, inputs, (), body.graph.subgraph_to(body.results), NOBODY)
    cutting = {ending.wall.operation for ending in survey.endings}
    for i in operations:
        op = collected.operations[i]
        mark = survey.mark(op)
        if op in cutting:
            marks[i] = CUT
            marks[i] = _partly(collected, i, marks)
        else:
            marks[i] = IDLE if op in idle and not mark.passes else LETTERS[best_of([mark])]


def _open_inputs(op: Operation) -> set[int]:
    """The positions of the inputs to which a gradient passes from some output."""
    if passes_all(op.definition):
        differentiable = any(y.type.differentiable for y in op.outputs)
        return {i for i, x in enumerate(op.inputs) if differentiable and x.type.differentiable}
    return {i for way in ways_of(op) for i, level in way.inputs if level == OPEN}


def closed_operands(collected: Collected, marks: Sequence[str]) -> list[int]:
    """Operands with gradients to which none passes, though one comes to the operation.

    They are positions among all operands, in the order of operations.
    """
    closed, position = [], 0
    for op, mark in zip(collected.operations[: collected.forward], marks, strict=False):
        if mark in (*PASSED, CUT):
            passed = [i for i, x in enumerate(op.inputs) if marks[collected.number[x.op]] in PASSED]
            if passed:
                passing = _open_inputs(op)
                closed += [position + i for i in passed if i not in passing]
        position += len(op.inputs)
    return closed
