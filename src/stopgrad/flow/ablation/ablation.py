"""What ablation finds, as objects, text and JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.document import place_of
from stopgrad.flow.documented import Documented
from stopgrad.flow.source_lines import excerpt, place
from stopgrad.flow.words import counted, names
from stopgrad.graph.graph import Operation, describe

CHANGES = "changes the gradient"
SAVES = "changes nothing, and saves {} operation{}"
IDLE = "idle"
NOTHING = "changes nothing and saves nothing"
ERROR = "without it, the gradient is an error"


ROWS = 12
"""So many inputs at most are shown one by one in the text, those with the largest difference."""


@dataclass(frozen=True)
class Change:
    """What a stop does to the gradient of one input.

    Attributes:
        difference: the norm of the difference with and without, relative to the larger of the two norms.
        cosine: of the angle between the two; None where one of them is zero.
        arrives_with, arrives_without: whether any gradient arrives. Where none does, it counts as zero.
    """

    difference: float
    cosine: float | None
    arrives_with: bool
    arrives_without: bool


@dataclass(frozen=True)
class Stop:
    """The stops of one line of the user's, with what they do to the gradient and what they cost.

    Attributes:
        operations: the gates, those in bodies of loops and branches included.
        kind: how it is written: ``"stop_gradient"``, ``"no_gradient"``, ...
        location: the line; None where it is not known.
        difference: the norm of the difference of the gradients with and without, all inputs together, on the
            given data, relative to the larger of the two norms; None where there is no gradient without.
        cosine: of the angle between them; None also where one of them is zero.
        inputs: the same for each input.
        operations_with, operations_without: how many operations compute ys and their gradient.
        seconds_with, seconds_without: how long that takes; None where it was not measured.
        verdict: in words.
        evidence: what the verdict rests on.
        error: why there is no gradient without; None where there is.
    """

    operations: tuple[Operation, ...]
    kind: str
    location: Location | None
    difference: float | None
    cosine: float | None
    inputs: Mapping[str, Change]
    operations_with: int
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
        operations: those whose result would be stopped; several where one line built them.
        location: the line; None where it is not known.
        operations_with, operations_without: how many operations compute ys and their gradient with the stop,
            and as it is.
        seconds_with, seconds_without: how long that takes; None where it was not measured.
        disconnects: the inputs whose gradient, zero now, would be absent.
        within: whether it is an inner value of one call, where no stop can be written from outside.
        points: on how many data points the arriving gradient was zero.
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
        """How many operations less there would be."""
        return self.operations_without - self.operations_with


@dataclass(frozen=True)
class Ablation(Documented):
    """What each stop does to a gradient, and where one more would cost nothing.

    Attributes:
        stops: an entry for each line with stops.
        suggestions: where a stop would save operations and change neither a gradient nor whether one arrives.
        zeros: where all that arrives is zero, and where a stop would save operations, but some input's
            gradient would then be absent instead of zero.
        inputs: the labels of the inputs.
        points: how many data points were looked at: the given one, and copies of it with noise.
        engine: the name of the engine on which times were measured; None where none were.
    """

    stops: tuple[Stop, ...]
    suggestions: tuple[Suggestion, ...]
    zeros: tuple[Suggestion, ...]
    inputs: tuple[str, ...]
    points: int
    engine: str | None

    def to_text(self, width: int = 80) -> str:
        """The report, for a terminal.

        Args:
            width: how many characters a line has at most, at least 40.
        """
        return "\n".join(_text(self, max(40, width)))

    __str__ = to_text

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{_place(stop)}: {stop.verdict}" for stop in self.stops)
        return f"<Ablation {verdicts or 'no stops'}; {len(self.suggestions)} suggestions>"

    def to_dict(self) -> dict[str, Any]:
        """Objects have the attributes of the classes, by their names; operations a name and a type.

        Locations have what they have in :meth:`Flow.to_dict`. A number that is not finite is None.
        """
        return {
            "schema": "stopgrad/ablation/1",
            "inputs": list(self.inputs),
            "points": self.points,
            "engine": self.engine,
            "stops": [_stop_json(stop) for stop in self.stops],
            "suggestions": [_suggestion_json(one) for one in self.suggestions],
            "zeros": [_suggestion_json(one) for one in self.zeros],
        }


# ---------------------------------------------------------------------------------------------- JSON


def _number(x: float | None) -> float | None:
    return x if x is not None and math.isfinite(x) else None


def _operations_json(operations: Iterable[Operation]) -> list[dict[str, str]]:
    return [{"name": op.name, "type": op.type} for op in operations]


def _stop_json(stop: Stop) -> dict[str, Any]:
    return {
        "kind": stop.kind,
        "location": place_of(stop.location),
        "operations": _operations_json(stop.operations),
        "verdict": stop.verdict,
        "evidence": stop.evidence,
        "error": stop.error,
        "difference": _number(stop.difference),
        "cosine": _number(stop.cosine),
        "inputs": {
            label: {
                "difference": _number(change.difference),
                "cosine": _number(change.cosine),
                "arrives_with": change.arrives_with,
                "arrives_without": change.arrives_without,
            }
            for label, change in stop.inputs.items()
        },
        "operations_with": stop.operations_with,
        "operations_without": stop.operations_without,
        "seconds_with": stop.seconds_with,
        "seconds_without": stop.seconds_without,
    }


def _suggestion_json(one: Suggestion) -> dict[str, Any]:
    return {
        "location": place_of(one.location),
        "operations": _operations_json(one.operations),
        "operations_saved": one.operations_saved,
        "operations_with": one.operations_with,
        "operations_without": one.operations_without,
        "seconds_with": one.seconds_with,
        "seconds_without": one.seconds_without,
        "disconnects": list(one.disconnects),
        "within": one.within,
        "points": one.points,
    }


# ---------------------------------------------------------------------------------------------- text


def _text(report: Ablation, width: int) -> Iterator[str]:
    count = len(report.stops)
    head = f"{counted(count, 'line')} with stops" if count else "no stops"
    yield from _wrapped(f"{head}; gradients of {names(report.inputs, report.inputs) or 'nothing'}", width)
    for stop in report.stops:
        yield ""
        yield from _headed(stop.kind, stop.location, stop.operations, width)
        yield from _stop_lines(stop, report.engine, width)
    for title, found in (
        ("a stop here would change no gradient and save work", report.suggestions),
        ("all that arrives here is zero", report.zeros),
    ):
        for one in found:
            yield ""
            yield from _headed(title, one.location, one.operations, width)
            yield from _suggestion_lines(one, report.engine, width)


def _stop_lines(stop: Stop, engine: str | None, width: int) -> Iterator[str]:
    yield from _wrapped(stop.verdict, width, "  ")
    if stop.error is not None:
        yield from _wrapped(stop.error, width, "    ")
        return
    if stop.evidence:
        yield from _wrapped(stop.evidence, width, "    ")
    if stop.verdict == CHANGES:
        yield from _table(stop, width)
    yield from _wrapped(
        f"operations: {stop.operations_with} with, {stop.operations_without} without", width, "    "
    )
    if stop.seconds_with is not None and stop.seconds_without is not None:
        took = f"{_seconds(stop.seconds_with)} with, {_seconds(stop.seconds_without)} without"
        yield from _wrapped(f"time: {took} ({engine})", width, "    ")


def _table(stop: Stop, width: int) -> Iterator[str]:
    """The difference and cosine of all inputs together, and of those that the stop changes most."""
    changed = {name: one for name, one in stop.inputs.items() if one.difference}
    shown = sorted(changed, key=lambda name: changed[name].difference, reverse=True)[:ROWS]
    label = min(max(map(len, [*shown, "all"])), width - 40)
    yield f"    {'':<{label}}  difference  cosine"
    rows = [
        (name, one.difference, one.cosine, _arrival(one)) for name, one in changed.items() if name in shown
    ]
    for name, difference, cosine, note in [("all", stop.difference, stop.cosine, ""), *rows]:
        angle = "-" if cosine is None else f"{cosine:.4f}"
        short = name if len(name) <= label else f"…{name[len(name) - label + 1 :]}"
        yield f"    {short:<{label}}  {_figure(difference):>10}  {angle:>6}{note}"
    if len(changed) > len(shown):
        yield f"    and {counted(len(changed) - len(shown), 'input')} with less difference"
    if len(changed) < len(stop.inputs):
        yield f"    the same with and without: {counted(len(stop.inputs) - len(changed), 'input')}"


def _arrival(change: Change) -> str:
    if change.arrives_with == change.arrives_without:
        return ""
    return "  none with it" if change.arrives_without else "  none without"


def _suggestion_lines(one: Suggestion, engine: str | None, width: int) -> Iterator[str]:
    if one.within:
        yield from _wrapped("at an inner value of this call: to be mended there", width, "    ")
    yield from _wrapped(zero_at("what arrives", one.points), width, "    ")
    if one.disconnects:
        told = f"with a stop here, the gradient of {names(one.disconnects)} is none instead of zero"
        yield from _wrapped(told, width, "    ")
    saved = f"{one.operations_saved} of {one.operations_without} operations"
    yield from _wrapped(f"a stop saves {saved}", width, "    ")
    if one.seconds_with is not None and one.seconds_without is not None:
        took = f"{_seconds(one.seconds_without)} as it is, {_seconds(one.seconds_with)} with a stop"
        yield from _wrapped(f"time: {took} ({engine})", width, "    ")


def zero_at(what: str, points: int) -> str:
    """That something is zero, and how that is known."""
    more = f", the given one and {points - 1} with noise on its floats" if points > 1 else ""
    return f"{what} is zero up to rounding at {counted(points, 'data point')}{more}: evidence, no proof"


def _headed(
    title: str, location: Location | None, operations: Sequence[Operation], width: int
) -> Iterator[str]:
    """Where it is, and the source line with the expressions underlined."""
    if location is None:
        yield from _wrapped(f"{describe(operations[0])}: {title}", width)
        return
    yield from _wrapped(f"{place(location)}: {title}", width)
    yield from excerpt([op.location for op in operations], width)


def _place(stop: Stop) -> str:
    return "?" if stop.location is None else place(stop.location)


def _figure(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"


def _seconds(x: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if x * factor >= 1.0:
            return f"{x * factor:.3g} {unit}"
    return f"{x * 1e6:.3g} µs"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ") or [indent]
