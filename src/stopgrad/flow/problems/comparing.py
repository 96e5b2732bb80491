"""Losses that compare each prediction with every target, as findings about a training."""

from __future__ import annotations

from stopgrad.flow.comparisons import KIND
from stopgrad.flow.flow import Flow
from stopgrad.flow.problems.problem import Problem, Site


def comparing(flow: Flow) -> list[Problem]:
    """The comparisons of predictions with all targets in a report."""
    problems = []
    for one in flow.comparisons:
        at = flow.location(one.operation)
        sites = [] if at is None else [Site("made", "compared here", at.own)]
        shapes = [_sizes(shape) for shape in one.shapes]
        evidence = {"shapes": shapes, "result": _sizes(one.result)}
        problems.append(Problem(KIND, one.message, sites, [], evidence, one.cure))
    return problems


def _sizes(shape: tuple[object, ...]) -> list[object]:
    """A shape as data; None where a size is not known."""
    return [size if isinstance(size, int) else None for size in shape]
