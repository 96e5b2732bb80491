"""What is told of a NaN or infinity: the sites, the report, and its text."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.base.source import Location
from stopgrad.flow.documented import Documented
from stopgrad.flow.source_lines import excerpt, place
from stopgrad.flow.words import counted, listed
from stopgrad.graph.graph import Operation

# ------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class NanInput:
    """What an operation was given where it made a NaN or infinity.

    Attributes:
        operand: what its definition calls it.
        label: the tensor's name, or the path of the argument that it is.
        dtype: its dtype.
        shape: its shape.
        min, max: the smallest and largest element that is no NaN, of complex ones of their magnitudes; None
            where there is none.
        has_nan: whether it holds a NaN.
        has_inf: whether it holds an infinity.
        value: the element that belongs to the bad one, where shapes agree; else None.
    """

    operand: str
    label: str
    dtype: str
    shape: tuple[int, ...]
    min: float | None
    max: float | None
    has_nan: bool
    has_inf: bool
    value: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold; numbers that are not finite as text."""
        return {
            "operand": self.operand,
            "label": self.label,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "min": _number(self.min),
            "max": _number(self.max),
            "has_nan": self.has_nan,
            "has_inf": self.has_inf,
            "value": _number(self.value),
        }


@dataclass(frozen=True)
class NanSite:
    """An operation that made a NaN or infinity of what held none.

    Attributes:
        operation: which. A gradient operation that :func:`trace_nan` generated is in no graph any more.
        name: its name, or the path of the argument where the value itself holds it.
        where: ``"forward"`` or ``"gradient"``.
        kind: ``"nan"`` or ``"inf"``.
        index: of the first bad element of its result.
        count: how many elements it made.
        inputs: what it was given.
        location: the user's line.
        origin: for a gradient operation, the user's operation for whose gradient it was made.
        origin_name: the name of that.
        origin_location: the line of that.
        order: how many differentiations lie between: 0 for the user's own operations, 1 for those of a
            gradient.
        iteration: inside loops, the step of the innermost one, counted from 0; of a scan, the position in its
            sequences. None outside.
        around: the loops and branches around, the outermost first, each with its step, None for a branch.
        source: ``"argument"``, ``"fed value"``, ``"parameter"`` or ``"constant"`` where the value itself
            holds it; else None.
        cause: where an infinity was turned into a NaN here and is a constant, that constant's.
        pattern: the name of the known mistake that it is; None where it is none.
        cure: what helps.
    """

    operation: Operation
    name: str
    where: str
    kind: str
    index: tuple[int, ...]
    count: int
    inputs: tuple[NanInput, ...]
    location: Location | None
    origin: Operation | None
    origin_name: str | None
    origin_location: Location | None
    order: int
    iteration: int | None
    around: tuple[tuple[Operation, int | None], ...]
    source: str | None = None
    cause: NanSite | None = None
    pattern: str | None = None
    cure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {
            "operation": self.operation.type,
            "name": self.name,
            "where": self.where,
            "kind": self.kind,
            "index": list(self.index),
            "count": self.count,
            "inputs": [x.to_dict() for x in self.inputs],
            "location": _place(self.location),
            "origin": self.origin_name,
            "origin_location": _place(self.origin_location),
            "order": self.order,
            "iteration": self.iteration,
            "around": [{"operation": op.name, "step": step} for op, step in self.around],
            "source": self.source,
            "cause": None if self.cause is None else self.cause.to_dict(),
            "pattern": self.pattern,
            "cure": self.cure,
        }

    def headline(self) -> str:
        """What was made where, in a line."""
        what = "NaN" if self.kind == "nan" else "infinity"
        at = f" at {list(self.index)}" if self.index else ""
        more = f" ({self.count:,} elements)" if self.count > 1 else ""
        if self.source is not None:
            return f"{what}: the {self.source} {self.name} holds {'it' if not at else 'one'}{at}{more}"
        place = "in the gradient" if self.where == "gradient" else "in the values"
        return f"{what}: made {place}, by {self.operation.type} {self.name!r}{at}{more}"


@dataclass(frozen=True)
class NanNote:
    """An operation that answered with a finite number where there is none: no NaN shows it.

    Attributes:
        operation: which.
        message: what it did.
        index: the first element.
        location: the user's line.
    """

    operation: Operation
    message: str
    index: tuple[int, ...]
    location: Location | None

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {
            "operation": self.operation.name,
            "message": self.message,
            "index": list(self.index),
            "location": _place(self.location),
        }


@dataclass(frozen=True, repr=False)
class NanTrace(Documented):
    """What :func:`trace_nan` found. True where a NaN or infinity arrives in a result.

    Attributes:
        first: the earliest operation that made what arrives; None where all results are finite.
        then: later operations that turned its infinity into a NaN.
        others: further operations that made some that arrive, each for itself.
        reaches: the results that hold NaNs or infinities.
        harmless: how many operations made some of which nothing arrives (a mask's infinities, what ``where``
            or ``exp(-inf)`` discards).
        notes: operations that answered with a finite number where there is none.
        operations: how many were run; those in bodies count once.
    """

    first: NanSite | None
    then: tuple[NanSite, ...] = ()
    others: tuple[NanSite, ...] = ()
    reaches: tuple[str, ...] = ()
    harmless: int = 0
    notes: tuple[NanNote, ...] = ()
    operations: int = 0

    @property
    def found(self) -> bool:
        """Whether a NaN or infinity arrives in a result."""
        return self.first is not None

    def __bool__(self) -> bool:
        return self.found

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold: the attributes, with sites, inputs and locations as objects.

        Numbers that are not finite are texts: ``"nan"``, ``"inf"``, ``"-inf"``.
        """
        return {
            "found": self.found,
            "first": None if self.first is None else self.first.to_dict(),
            "then": [site.to_dict() for site in self.then],
            "others": [site.to_dict() for site in self.others],
            "reaches": list(self.reaches),
            "harmless": self.harmless,
            "notes": [note.to_dict() for note in self.notes],
            "operations": self.operations,
        }

    def to_text(self, width: int = 80) -> str:
        """The report for a terminal.

        Args:
            width: of its lines, in characters.

        Examples:
            >>> print(sg.trace_nan(lambda x: sg.exp(x), 1.0).to_text())
            Every value and gradient is finite (3 operations).
        """
        return "\n".join(_text(self, width))

    __str__ = to_text

    def __repr__(self) -> str:
        return f"<NanTrace {self.first.headline() if self.first else 'of finite results'}>"


# --------------------------------------------------------------------------------------------- text


def _text(trace: NanTrace, width: int) -> list[str]:
    lines: list[str] = []
    if trace.first is None:
        ran = counted(trace.operations, "operation")
        lines += _wrapped(f"Every value and gradient is finite ({ran}).", width)
    else:
        lines += _site_text(trace.first, width)
        lines += _wrapped(f"It reaches {listed(trace.reaches)}.", width)
        for site in trace.then:
            lines += ["", "Then", *_site_text(site, width, cures=trace.first.cure is None)]
        if trace.others:
            some = listed([f"{site.name}{_of(site.location, ' ({})')}" for site in trace.others])
            lines += ["", *_wrapped(f"Others that reach results by themselves: {some}.", width)]
    if trace.harmless:
        some = counted(trace.harmless, "operation")
        lines += _wrapped(f"{some} made NaNs or infinities of which nothing arrives.", width)
    for note in trace.notes:
        lines += ["", *_wrapped(f"Note: {note.operation.type} {note.message}, at {list(note.index)}.", width)]
        lines += _quoted(note.location, width)
    return lines


def _site_text(site: NanSite, width: int, cures: bool = True) -> list[str]:
    lines = _wrapped(site.headline(), width)
    if site.origin is not None:
        times = f" of order {site.order}" if site.order > 1 else ""
        again = "" if site.order else "computed again "
        what = f"  {again}for the gradient{times} of {site.origin.type} {site.origin_name!r}"
        lines += _wrapped(what, width, "  ")
    for op, step in site.around:
        which = f"in step {step} of" if step is not None else "inside"
        lines += _wrapped(f"  {which} {op.type}{_of(op.location, ', {}')}", width, "    ")
    lines += [] if site.source == "argument" else _quoted(site.location, width)
    lines += _table(site.inputs, width)
    if site.cause is not None:
        whose = f"a constant's{_of(site.cause.location, ', of {}')}"
        lines += _wrapped(f"  The infinity is {whose}.", width, "  ")
    if site.cure is not None and cures:
        lines += _wrapped(f"Cure: {site.cure}.", width, "      ")
    return lines


def _table(inputs: Sequence[NanInput], width: int) -> list[str]:
    rows = []
    for x in inputs:
        span = "empty" if x.min is None and not x.has_nan else f"{_shown(x.min)} .. {_shown(x.max)}"
        held = [name for name, has in (("NaN", x.has_nan), ("inf", x.has_inf)) if has]
        here = "" if x.value is None else f"here {_shown(x.value)}"
        kind = f"{x.dtype}{list(x.shape) if x.shape else ''}"
        rows.append(
            [x.operand, _cut(x.label, 24), kind, span, here, f"has {' and '.join(held)}" if held else ""]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(6)] if rows else []
    return [
        _cut(
            "  " + "  ".join(f"{cell:<{n}}" for cell, n in zip(row, widths, strict=True) if n).rstrip(), width
        )
        for row in rows
    ]


def _quoted(location: Location | None, width: int) -> list[str]:
    """The user's line with the sub-expression underlined."""
    if location is None:
        return []
    return [_cut(f"  {place(location)}", width, tail=True), *excerpt(location, width)]


def _of(location: Location | None, form: str) -> str:
    """A line in a sentence; nothing where it is not known."""
    return "" if location is None else form.format(in_short(location))


def in_short(location: Location) -> str:
    """A line without its folders: what stands in sentences does not depend on where it is read."""
    return f"{os.path.basename(location.file)}:{location.line}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _cut(text: str, width: int, tail: bool = False) -> str:
    if len(text) <= width:
        return text
    return f"...{text[3 - width :]}" if tail else f"{text[: width - 3]}..."


def _shown(x: Any) -> str:
    return "-" if x is None else f"{x:.4g}"


def _number(x: Any) -> Any:
    """A number as JSON holds it."""
    if x is None or isinstance(x, (bool, int)):
        return x
    if isinstance(x, complex):
        return str(x)
    return float(x) if np.isfinite(x) else str(float(x))


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "column": location.column,
        "end_line": location.end_line,
        "end_column": location.end_column,
        "source": location.source,
    }
