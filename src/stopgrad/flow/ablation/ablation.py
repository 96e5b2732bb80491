"""The report of ablation, as objects, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.json_form import fields_of
from stopgrad.flow.reports.notices import Notice
from stopgrad.flow.reports.sections import STRONG, Excerpt, Paragraph, Part, Section, Table
from stopgrad.flow.source_lines import place
from stopgrad.flow.words import counted, names
from stopgrad.graph.graph import Operation, describe

CHANGES = "changes the gradient"
SAVES = "changes nothing, and saves {} operation{}"
IDLE = "idle"
NOTHING = "changes nothing and saves nothing"
UNCHANGED = "changes nothing"
ERROR = "without it, the gradient is an error"


ROWS = 12
"""The most inputs that the text shows one by one: those with the largest difference."""


@dataclass(frozen=True)
class Change:
    """What a stop does to the gradient of one input.

    Attributes:
        difference: the norm of the difference with and without, relative to the larger of the two norms.
        cosine: the cosine of the angle between the two; None if one of them is zero.
        arrives_with, arrives_without: whether any gradient arrives. If none does, it counts as zero.
    """

    difference: float
    cosine: float | None
    arrives_with: bool
    arrives_without: bool


@dataclass(frozen=True)
class Stop:
    """The stops of one line of source, with what they do to the gradient and what they save.

    Attributes:
        operations: the gates, those in bodies of loops and branches included.
        kind: how it is written: ``"stop_gradient"``, ``"no_gradient"``, ...
        location: the line; None if it is not known.
        difference: the norm of the difference of the gradients with and without, all inputs together, on the
            given data, relative to the larger of the two norms; None if there is no gradient without.
        cosine: the cosine of the angle between them; None also if one of them is zero.
        inputs: the same for each input.
        operations_with, operations_without: the number of operations that compute ys and their gradient; None
            where another framework computes them, whose operations are not counted.
        seconds_with, seconds_without: the time that this takes; None if it was not measured.
        verdict: the verdict in words.
        evidence: the evidence for the verdict.
        error: why there is no gradient without the stops; None if there is one.
    """

    operations: tuple[Operation, ...]
    kind: str
    location: Location | None
    difference: float | None
    cosine: float | None
    inputs: Mapping[str, Change]
    operations_with: int | None
    operations_without: int | None
    seconds_with: float | None
    seconds_without: float | None
    verdict: str
    evidence: str
    error: str | None = None


@dataclass(frozen=True)
class Suggestion:
    """A place where a stop would save operations and change no gradient, as far as the data show.

    Attributes:
        operations: the operations whose results would be stopped; several if one line built them.
        location: the line; None if it is not known.
        operations_with, operations_without: the number of operations that compute ys and their gradient with
            the stop, and without.
        seconds_with, seconds_without: the time that this takes; None if it was not measured.
        disconnects: the inputs whose gradient is zero now, and would then be absent.
        within: whether it is an inner value of one call, where users cannot write a stop.
        points: the number of data points, at all of which the arriving gradient was zero.
    """

    operations: tuple[Operation, ...]
    location: Location | None
    operations_with: int
    operations_without: int
    seconds_with: float | None
    seconds_without: float | None
    disconnects: tuple[str, ...]
    within: bool
    points: int

    @property
    def operation(self) -> Operation:
        """The first of the operations."""
        return self.operations[0]

    @property
    def operations_saved(self) -> int:
        """The number of operations that it would save."""
        return self.operations_without - self.operations_with

    def to_dict(self) -> dict[str, Any]:
        """The entry as dicts, lists, strings, numbers and None, for JSON."""
        return {**fields_of(self), "operations_saved": self.operations_saved}


@dataclass(frozen=True, repr=False)
class Ablation(FlowReport):
    """What each stop does to a gradient, and where one more would cost nothing.

    Attributes:
        stops: an entry for each line with stops.
        suggestions: places where a stop would save operations and change neither a gradient nor whether one
            arrives.
        zeros: places where only zeros arrive and a stop would save operations, but some input's gradient
            would then be absent instead of zero.
        inputs: the labels of the inputs.
        points: the number of data points: the given one, and copies of it with noise.
        engine: the name of the engine, or of the framework, on which times were measured; None if none were.
    """

    _format = "stopgrad.ablate"
    _version = 2

    stops: tuple[Stop, ...]
    suggestions: tuple[Suggestion, ...]
    zeros: tuple[Suggestion, ...]
    inputs: tuple[str, ...]
    points: int
    engine: str | None

    def _parts(self, width: int) -> Iterator[Part]:
        count = len(self.stops)
        head = f"{counted(count, 'line')} with stops" if count else "no stops"
        yield Paragraph(f"{head}; gradients of {names(self.inputs, self.inputs) or 'nothing'}")
        for stop in self.stops:
            yield _headed(stop.kind, stop, _stop_parts(stop, self.engine))
        for title, suggestions in (
            ("a stop here would change no gradient and save work", self.suggestions),
            ("all that arrives here is zero", self.zeros),
        ):
            for suggestion in suggestions:
                yield _headed(title, suggestion, _suggestion_parts(suggestion, self.engine))

    def _data(self) -> dict[str, Any]:
        return fields_of(self)

    def _notices(self) -> Iterator[Notice]:
        for stop in self.stops:
            yield Notice("note", stop.kind, f"this {stop.kind}: {stop.verdict}", stop.location)
        for suggestion in self.suggestions:
            saved = counted(suggestion.operations_saved, "operation")
            text = f"a stop here would change no gradient and save {saved}"
            yield Notice("note", "a stop would save work", text, suggestion.location)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{_place(stop)}: {stop.verdict}" for stop in self.stops)
        return f"<Ablation {verdicts or 'no stops'}; {len(self.suggestions)} suggestions>"


# --------------------------------------------------------------------------------------------- parts


def _headed(title: str, entry: Stop | Suggestion, parts: Iterator[Part]) -> Section:
    """The title of an entry, its source line with the expressions underlined, and its text."""
    if entry.location is None:
        return Section(Paragraph(f"{describe(entry.operations[0])}: {title}"), list(parts))
    lines = Excerpt([op.location for op in entry.operations])
    return Section(Paragraph((entry.location, STRONG), f": {title}"), [lines, *parts])


def _stop_parts(stop: Stop, engine: str | None) -> Iterator[Part]:
    yield Paragraph((stop.verdict, STRONG), indent=2)
    if stop.error is not None:
        yield Paragraph(stop.error, indent=4)
        return
    if stop.evidence:
        yield Paragraph(stop.evidence, indent=4)
    if stop.verdict == CHANGES:
        yield from _table(stop)
    if stop.operations_with is not None:
        text = f"operations: {stop.operations_with} with, {stop.operations_without} without"
        yield Paragraph(text, indent=4)
    yield from _times(stop, "{with} with, {without} without", engine)


def _table(stop: Stop) -> Iterator[Part]:
    """A table of the difference and cosine for all inputs together, and for those that change most."""
    changed = {name: change for name, change in stop.inputs.items() if change.difference}
    shown = sorted(changed, key=lambda name: changed[name].difference, reverse=True)[:ROWS]
    rows = [["", "difference", "cosine", ""], ["all", *_figures(stop), ""]]
    rows += [[name, *_figures(change), _arrival(change)] for name, change in changed.items() if name in shown]
    yield Table(rows, "<>><", shrinks=0, indent=4)
    if len(changed) > len(shown):
        left = counted(len(changed) - len(shown), "input")
        yield Paragraph(f"and {left} with less difference", indent=4)
    if len(changed) < len(stop.inputs):
        left = counted(len(stop.inputs) - len(changed), "input")
        yield Paragraph(f"the same with and without: {left}", indent=4)


def _arrival(change: Change) -> str:
    if change.arrives_with == change.arrives_without:
        return ""
    return "none with it" if change.arrives_without else "none without"


def _suggestion_parts(suggestion: Suggestion, engine: str | None) -> Iterator[Part]:
    if suggestion.within:
        yield Paragraph("at an inner value of this call: to be mended there", indent=4)
    yield Paragraph(zero_at("what arrives", suggestion.points), indent=4)
    if suggestion.disconnects:
        text = f"with a stop here, the gradient of {names(suggestion.disconnects)} is none instead of zero"
        yield Paragraph(text, indent=4)
    saved = f"{suggestion.operations_saved} of {suggestion.operations_without} operations"
    yield Paragraph(f"a stop saves {saved}", indent=4)
    yield from _times(suggestion, "{without} as it is, {with} with a stop", engine)


def _times(entry: Stop | Suggestion, form: str, engine: str | None) -> Iterator[Part]:
    if entry.seconds_with is not None and entry.seconds_without is not None:
        took = form.format_map(
            {"with": _seconds(entry.seconds_with), "without": _seconds(entry.seconds_without)}
        )
        yield Paragraph(f"time: {took} ({engine})", indent=4)


def zero_at(what: str, points: int) -> str:
    """The text that something is zero, with the evidence."""
    more = f", the given one and {points - 1} with noise on its floats" if points > 1 else ""
    return f"{what} is zero up to rounding at {counted(points, 'data point')}{more}: evidence, no proof"


def _place(stop: Stop) -> str:
    return "?" if stop.location is None else place(stop.location)


def _figures(entry: Stop | Change) -> tuple[str, str]:
    """The difference and the cosine as text."""
    difference = "-" if entry.difference is None else f"{entry.difference:.4g}"
    return difference, "-" if entry.cosine is None else f"{entry.cosine:.4f}"


def _seconds(x: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if x * factor >= 1.0:
            return f"{x * factor:.3g} {unit}"
    return f"{x * 1e6:.3g} µs"
