"""Losses that compare each prediction with every target, as findings about a training."""

from __future__ import annotations

from stopgrad.flow.comparisons import KIND
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.problem import Problem, Site


def comparing(flow: Flow) -> list[Problem]:
    """The comparisons of predictions with all targets in a report."""
    problems = []
    for comparison in flow.comparisons:
        location = flow.location(comparison.operation)
        sites = [] if location is None else [Site("made", "compared here", location.own)]
        shapes = [_sizes(shape) for shape in comparison.shapes]
        evidence = {"shapes": shapes, "result": _sizes(comparison.result)}
        problems.append(Problem(KIND, comparison.message, sites, [], evidence, comparison.cure))
    return problems


def _sizes(shape: tuple[object, ...]) -> list[object]:
    """A shape as data; None where a size is not known."""
    return [size if isinstance(size, int) else None for size in shape]
