"""The report on a training."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.problems.catalogue import KINDS, NOTE, page_of
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.problems.problem_parts import parts_of
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.notices import Notice
from stopgrad.flow.reports.sections import Paragraph, Part
from stopgrad.flow.source_lines import relative_file
from stopgrad.flow.words import counted

_ORDER = list(KINDS)


class Diagnosis(FlowReport):
    """What is wrong with a training, the worst first.

    Attributes:
        problems: the findings.
        steps: how many steps of the training were seen.
        recorded: how many of them were recorded wholly.
        unknown: what could not be found out, in a sentence each.
        noted: the findings that a note on an exception has told already, which the text leaves out.
        norms: for each layer, the norms of its gradients at recorded steps.
    """

    _format = "stopgrad.training"

    problems: list[Problem]
    steps: int
    recorded: int
    unknown: tuple[str, ...]

    def __init__(
        self, problems: Iterable[Problem], steps: int = 0, recorded: int = 0, unknown: Sequence[str] = ()
    ) -> None:
        unlike = {_identity(problem): problem for problem in problems}
        self.problems = sorted(unlike.values(), key=lambda problem: _ORDER.index(problem.kind))
        self.steps, self.recorded, self.unknown = steps, recorded, tuple(unknown)
        self.noted: list[Problem] = []
        self.norms: dict[str, list[tuple[int, float]]] = {}

    def __bool__(self) -> bool:
        return bool(self.problems)

    @property
    def summary(self) -> str:
        """The findings in a line."""
        seen = (
            f"{counted(self.steps, 'step')}, {self.recorded} recorded" if self.steps else "no step was seen"
        )
        above = ", told above" if self.problems and len(self.noted) == len(self.problems) else ""
        return (
            f"{counted(len(self.problems), 'finding') if self.problems else 'nothing found'}{above} ({seen})"
        )

    def only(self, kinds: Sequence[str]) -> Diagnosis:
        """The findings of some kinds or severities; all of them for none."""
        chosen = self.is_met(kinds) if kinds else self.problems
        return self._with(chosen)

    def _with(self, problems: Sequence[Problem]) -> Diagnosis:
        diagnosis = Diagnosis(problems, self.steps, self.recorded, self.unknown)
        diagnosis.norms = self.norms
        diagnosis.noted = [problem for problem in self.noted if problem in problems]
        return diagnosis

    def identities(self) -> list[str]:
        """What the findings are known by in other runs."""
        return ["|".join(_identity(problem)) for problem in self.problems]

    def without(self, known: Collection[str]) -> Diagnosis:
        """The findings but those with these identities."""
        rest = [problem for problem in self.problems if "|".join(_identity(problem)) not in known]
        return self._with(rest)

    def since(self, old: Mapping[str, str]) -> tuple[Diagnosis, list[str]]:
        """What is new since another run, whose findings are given by identity, and what is gone."""
        present = set(self.identities())
        return self.without(old), [message for identity, message in old.items() if identity not in present]

    def _parts(self, width: int) -> Iterable[Part]:
        yield from parts_of([problem for problem in self.problems if problem not in self.noted])
        for what in self.unknown:
            yield Paragraph(f"not known: {what}")

    def _data(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "recorded": self.recorded,
            "findings": [_finding(problem) for problem in self.problems],
            "unknown": list(self.unknown),
        }

    def _notices(self) -> Iterable[Notice]:
        for problem in self.problems:
            location = problem.location
            cure = f"; cure: {problem.cure}" if problem.cure else ""
            yield Notice(
                KINDS[problem.kind].severity,
                problem.kind,
                problem.message + cure,
                None if location is None else location.own,
            )

    def is_met(self, conditions: Sequence[str]) -> list[Problem]:
        """The findings whose kind or severity is among some words; for none, all but notes."""
        if not conditions:
            return [problem for problem in self.problems if KINDS[problem.kind].severity != NOTE]
        return [
            problem
            for problem in self.problems
            if {problem.kind, KINDS[problem.kind].severity} & set(conditions)
        ]


def _finding(problem: Problem) -> dict[str, Any]:
    return {
        "id": "|".join(_identity(problem)),
        "kind": problem.kind,
        "severity": KINDS[problem.kind].severity,
        "message": problem.message,
        "names": list(problem.names),
        "places": [_site(site) for site in problem.sites],
        "evidence": dict(problem.evidence),
        "cure": problem.cure,
        "step": problem.step,
        "page": page_of(problem.kind),
    }


def _site(site: Site) -> dict[str, Any]:
    location: Location = site.location.own
    return {
        "role": site.role,
        "told": site.told,
        "file": relative_file(location.file),
        "line": location.line,
        "source": location.source,
    }


def _identity(problem: Problem) -> tuple[str, ...]:
    """What a finding is known by in another run: its kind, names and source, and no line's number."""
    location = None if problem.location is None else problem.location.own
    where = () if location is None else (relative_file(location.file), location.source)
    return (problem.kind, *where, *sorted(problem.names))
