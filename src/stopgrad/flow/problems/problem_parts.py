"""A finding about a training as parts of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stopgrad.flow.problems.catalogue import KINDS, page_of
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.reports.sections import DIM, IDLE, STRONG, Excerpt, Paragraph, Part, Section
from stopgrad.flow.reports.terminal import text_of
from stopgrad.flow.words import some
from stopgrad.graph.op import Status

WIDTH = 80
"""The columns of findings in messages."""
MOST = 40
"""The most findings that are shown; to_json() has all."""


def parts_of(problems: Sequence[Problem]) -> Iterator[Part]:
    """The findings, each below its title."""
    for i, problem in enumerate(problems[:MOST]):
        yield part_of(problem, apart=i > 0)
    if len(problems) > MOST:
        yield Paragraph(f"and {len(problems) - MOST} more; --json has all")


def part_of(problem: Problem, apart: bool = True) -> Section:
    """One finding: the fact, the lines that explain it, and what helps."""
    severity = KINDS[problem.kind].severity
    style = {"error": Status.STOPPED, "warning": Status.PARTLY_STOPPED}.get(severity, IDLE)
    title = Paragraph((f"{problem.kind}: ", style), (problem.message, STRONG))
    below: list[Part] = []
    if not all(name in problem.message for name in problem.names):
        below.append(Paragraph(some(list(problem.names)), indent=2))
    for sites in _by_line(problem.sites):
        location = sites[0].location.own
        text = "; ".join(dict.fromkeys([site.told for site in sites]))
        below.append(Paragraph((location, STRONG), f"  {text}", indent=2))
        below.append(Excerpt([site.location.own for site in sites], style))
    if problem.cure:
        below.append(Paragraph(("cure: ", DIM), problem.cure, indent=2, hang=6))
    below.append(Paragraph((page_of(problem.kind), DIM), indent=2))
    return Section(title, below, apart)


def _by_line(sites: Sequence[Site]) -> list[list[Site]]:
    """The sites that are told together, because they are neighbours at one line."""
    groups: list[list[Site]] = []
    for site in sites:
        own = site.location.own
        if groups:
            last = groups[-1][-1].location.own
            if (own.file, own.line) == (last.file, last.line):
                groups[-1].append(site)
                continue
        groups.append([site])
    return groups


def text_of_problem(problem: Problem) -> str:
    """A finding as the text of a note on an exception."""
    section = part_of(problem, apart=False)
    section.title.pieces = ("stopgrad: ", *section.title.pieces)
    return text_of([section], WIDTH)
