"""A question that is asked again and again, of other values: while a model is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stopgrad.base.garbage import without_gc
from stopgrad.flow.asked import Asked
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Measured
from stopgrad.flow.magnitudes.norm_program import Measuring
from stopgrad.flow.parts import Finding
from stopgrad.flow.survey import surveys
from stopgrad.graph.graph import Output
from stopgrad.run.feeds import sizes_of


class Repeated:
    """The report on a question with values; what does not depend on them is found out once.

    Args:
        question: what is differentiated with respect to what.
        findings: further findings.
        engine: the engine that computes the gradients; see :class:`Measuring`.
    """

    def __init__(self, question: Asked, findings: Sequence[Finding] = (), engine: str | None = None) -> None:
        self._question, self._findings, self._engine = question, findings, engine
        xs = list(question.xs.values())
        self._surveys = without_gc(surveys, question.graph, question.ys, xs)
        self._programs: dict[Any, Measuring] = {}

    def __call__(
        self, feeds: Mapping[Output, Any], corrected: Callable[[Measured], Measured] | None = None
    ) -> Flow:
        """The report for values of the placeholders and parameters; *corrected* knows measurements better."""
        shapes = tuple([(x, tuple(value.shape)) for x, value in feeds.items()])
        program = self._programs.get(shapes)
        if program is None:
            binding = sizes_of(list(feeds), [shape for _, shape in shapes])
            program = Measuring(self._question, list(feeds), binding, engine=self._engine)
            self._programs = {shapes: program}  # Those of earlier shapes are not kept.
        measured = program(list(feeds.values()))
        return Flow(
            self._question, self._surveys, self._findings, corrected(measured) if corrected else measured
        )
