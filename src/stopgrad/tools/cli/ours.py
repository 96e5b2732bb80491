"""Functions written with stopgrad."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from stopgrad.base.errors import ArgumentError, ShapeError, StopgradError
from stopgrad.flow import explain
from stopgrad.graph.builder import Placed
from stopgrad.interop.value_worlds import OURS
from stopgrad.tools.cli.call_arguments import Call, call_of
from stopgrad.tools.cli.common import users_frames
from stopgrad.tools.cli.function_questions import Answer, Question
from stopgrad.tools.cli.inputs import defined, line_of

T = TypeVar("T")


class Ours:
    """The world of this library: the function is traced, or builds a graph."""

    name = OURS

    def explain(self, question: Question) -> Answer:
        """The report of :func:`stopgrad.explain`."""
        if question.wanted.trained_with:
            raise ArgumentError(
                f"{line_of(question.program)}--optimizer and --grad are for PyTorch, JAX and TensorFlow; of "
                "a graph of ours, assignments are what moves parameters"
            )
        call = self.call(question, "explain")
        return Answer(asked(question, call, lambda: explain(*call.args, **call.options)))

    def call(self, question: Question, command: str) -> Call:
        """The function with its arguments, or ys and xs."""
        return call_of(question.program, question.wanted, question.arguments)


def asked(question: Question, call: Call, ask: Callable[[], T]) -> T:
    """The answer of a library function to a call; errors get the user's line and a cure."""
    program = question.program
    try:
        with Placed(defined(program)):  # The placeholders are built by no line of the user's.
            return ask()
    except StopgradError as error:
        place = "" if users_frames(error) else line_of(program)
        error.args = (f"{place}{error.message}{_cure(error, call)}",)
        raise


def _cure(error: StopgradError, call: Call) -> str:
    """A cure to add to an error about an open size."""
    if isinstance(error, ShapeError):
        for size, path in call.open.items():
            if re.search(rf"\b{size}\b", error.message):
                return f"; or give numbers: --shape {path}=4,3"
    return ""
