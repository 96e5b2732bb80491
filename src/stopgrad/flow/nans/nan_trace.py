"""The report about NaNs and infinities: its sites and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.json_form import fields_of
from stopgrad.flow.reports.notices import Notice
from stopgrad.flow.reports.sections import STRONG, Excerpt, Paragraph, Part, Piece, Section, Table
from stopgrad.flow.source_lines import in_short
from stopgrad.flow.words import counted, listed
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Status

# ------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class NanInput:
    """An operand of an operation that made a NaN or infinity.

    Attributes:
        operand: the operand's name in the definition.
        label: the tensor's name, or the path of the argument that it is.
        dtype: its dtype.
        shape: its shape.
        min, max: the smallest and largest element that is not NaN, for complex ones the magnitudes; None if
            there is none.
        has_nan: whether it holds a NaN.
        has_inf: whether it holds an infinity.
        value: the element that belongs to the bad one, if shapes agree; else None.
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
        """The operand as a dict for JSON; numbers that are not finite become texts."""
        return fields_of(self)


@dataclass(frozen=True)
class NanSite:
    """An operation that made a NaN or infinity from operands without any.

    Attributes:
        operation: the operation. One that :func:`trace_nan` generated is in no graph any more.
        name: its name, or the path of the argument if the value itself holds it.
        where: ``"forward"`` or ``"gradient"``.
        kind: ``"nan"`` or ``"inf"``.
        index: the index of the first bad element of its result.
        count: the number of bad elements that it made.
        inputs: its operands.
        location: the user's line.
        origin: for a gradient operation, the user's operation whose gradient it computes.
        origin_name: the name of that.
        origin_location: the line of that.
        order: the number of differentiations between: 0 for the user's own operations, 1 for those of a
            gradient.
        iteration: inside loops, the step of the innermost one, counted from 0; of a scan, the position in its
            sequences. None outside.
        around: the loops and branches around, the outermost first, each with its step, None for a branch.
        source: ``"argument"``, ``"fed value"``, ``"parameter"`` or ``"constant"`` if the value itself holds
            it; else None.
        cause: the site of a constant's infinity, if that was turned into a NaN here.
        pattern: the name of the known mistake; None if it is none.
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
        """The fields as dicts, lists, strings, numbers and None, for JSON."""
        return {
            **fields_of(self, without=("origin_name",)),
            "operation": self.operation.type,
            "origin": self.origin_name,
            "around": [{"operation": op.name, "step": step} for op, step in self.around],
        }

    def headline(self) -> str:
        """One line that says what was made where."""
        what = "NaN" if self.kind == "nan" else "infinity"
        at = f" at {list(self.index)}" if self.index else ""
        more = f" ({self.count:,} elements)" if self.count > 1 else ""
        if self.source is not None:
            return f"{what}: the {self.source} {self.name} holds {'it' if not at else 'one'}{at}{more}"
        place = "in the gradient" if self.where == "gradient" else "in the values"
        return f"{what}: made {place}, by {_shown_as(self.operation, self.name)}{at}{more}"


@dataclass(frozen=True)
class NanNote:
    """An operation that returned a finite number where there is no right one, and no NaN.

    Attributes:
        operation: the operation.
        message: what it did.
        index: the index of the first such element.
        location: the user's line.
    """

    operation: Operation
    message: str
    index: tuple[int, ...]
    location: Location | None

    def to_dict(self) -> dict[str, Any]:
        """The fields as dicts, lists, strings, numbers and None, for JSON."""
        return {**fields_of(self), "operation": self.operation.name}


@dataclass(frozen=True, repr=False)
class NanTrace(FlowReport):
    """The report of :func:`trace_nan`. It is true if a NaN or infinity arrives in a result.

    Attributes:
        first: the earliest operation that made what arrives; None if all results are finite.
        then: later operations that turned its infinity into a NaN.
        others: further operations that independently made some that arrive.
        reaches: the results that hold NaNs or infinities.
        harmless: the number of operations that made some of which nothing arrives (a mask's infinities, what
            ``where`` or ``exp(-inf)`` discards).
        notes: operations that returned a finite number where there is no right one.
        operations: the number of operations that ran; those in bodies count once.
    """

    _format = "stopgrad.trace-nan"

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

    def _data(self) -> dict[str, Any]:
        return {"found": self.found, **fields_of(self)}

    def _parts(self, width: int) -> Iterator[Part]:
        if self.first is None:
            ran = counted(self.operations, "operation")
            yield _line(("Every value and gradient is finite", Status.FLOWS), f" ({ran}).")
        else:
            yield from _site_parts(self.first)
            yield _line(f"It reaches {listed(self.reaches)}.")
            for site in self.then:
                yield Section(_line("Then"), list(_site_parts(site, cures=self.first.cure is None)))
            if self.others:
                some = listed([f"{site.name}{_at_line(site.location, ' ({})')}" for site in self.others])
                yield Section(_line(f"Others that reach results by themselves: {some}."))
        if self.harmless:
            some = counted(self.harmless, "operation")
            yield _line(f"{some} made NaNs or infinities of which nothing arrives.")
        for note in self.notes:
            text = f"Note: {note.operation.type} {note.message}, at {list(note.index)}."
            yield Section(_line(text), list(_quoted(note.location)))

    def _notices(self) -> Iterator[Notice]:
        """Where NaNs and infinities are made: the first as an error, what follows as warnings."""
        for level, sites in (("error", [self.first]), ("warning", [*self.then, *self.others])):
            for site in filter(None, sites):
                cure = f"; {site.cure}" if site.cure else ""
                place = site.location or site.origin_location
                yield Notice(level, site.kind, f"{site.headline()}{cure}", place)
        for note in self.notes:
            yield Notice("note", "finite", f"{note.operation.type} {note.message}", note.location)

    def __repr__(self) -> str:
        return f"<NanTrace {self.first.headline() if self.first else 'of finite results'}>"


# -------------------------------------------------------------------------------------------- parts


def _line(*pieces: Piece, indent: int = 0) -> Paragraph:
    return Paragraph(*pieces, indent=indent, hang=0)


def _shown_as(op: Operation, name: str | None) -> str:
    """An operation by its kind and name; one of another framework as it is called there."""
    called = op.definition.called(op)
    return f"{called} {name!r}" if called == op.type else called


def _site_parts(site: NanSite, cures: bool = True) -> Iterator[Part]:
    yield _line((site.headline(), Status.STOPPED))
    if site.origin is not None:
        times = f" of order {site.order}" if site.order > 1 else ""
        again = "" if site.order else "computed again "
        yield _line(f"{again}for the gradient{times} of {_shown_as(site.origin, site.origin_name)}", indent=2)
    for op, step in site.around:
        which = f"in step {step} of" if step is not None else "inside"
        yield Paragraph(f"{which} {op.definition.called(op)}{_at_line(op.location, ', {}')}", indent=2)
    if site.source != "argument":
        yield from _quoted(site.location)
    if site.inputs:
        yield _table(site.inputs)
    if site.cause is not None:
        whose = f"a constant's{_at_line(site.cause.location, ', of {}')}"
        yield _line(f"The infinity is {whose}.", indent=2)
    if site.cure is not None and cures:
        yield Paragraph(("Cure:", STRONG), f" {site.cure}.", hang=6)


def _table(inputs: Sequence[NanInput]) -> Table:
    rows = []
    for x in inputs:
        span = "empty" if x.min is None and not x.has_nan else f"{_figure(x.min)} .. {_figure(x.max)}"
        held = [name for name, has in (("NaN", x.has_nan), ("inf", x.has_inf)) if has]
        here = "" if x.value is None else f"here {_figure(x.value)}"
        kind = f"{x.dtype}{list(x.shape) if x.shape else ''}"
        rows.append([x.operand, x.label, kind, span, here, f"has {' and '.join(held)}" if held else ""])
    return Table(rows, "<<<<<<", shrinks=1, indent=2)


def _quoted(location: Location | None) -> Iterator[Part]:
    """The user's line with the sub-expression underlined."""
    if location is not None:
        yield Paragraph((location, STRONG), indent=2)
        yield Excerpt([location])


def _at_line(location: Location | None, form: str) -> str:
    """A line within a sentence; empty if it is not known."""
    return "" if location is None else form.format(in_short(location))


def _figure(x: object) -> str:
    return "-" if x is None else f"{x:.4g}"
