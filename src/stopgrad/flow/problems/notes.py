"""Findings as notes on the exceptions that they explain."""

from __future__ import annotations

from stopgrad.flow.problems.problem import Problem
from stopgrad.flow.problems.problem_parts import text_of_problem

PROBLEM = "__stopgrad__"
"""The attribute of an exception that holds its explanation."""
CAUSES = 50
"""The most exceptions that are looked at along a chain of causes."""


def note(error: BaseException, problem: Problem) -> None:
    """Add an explanation to an exception as a note, which Python shows below its message."""
    setattr(error, PROBLEM, problem)
    error.add_note(text_of_problem(problem))


def problem_of(error: BaseException | None) -> Problem | None:
    """The explanation that was added to an exception, or to one that caused it."""
    seen = 0
    while error is not None and seen < CAUSES:
        problem: Problem | None = getattr(error, PROBLEM, None)
        if problem is not None:
            return problem
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None
