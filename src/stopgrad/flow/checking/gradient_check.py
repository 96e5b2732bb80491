"""The report of a check of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stopgrad.base.errors import GradientError
from stopgrad.base.source import Location
from stopgrad.flow.asked import label
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.json_form import fields_of, place_of
from stopgrad.flow.reports.notebook_html import WIDTH
from stopgrad.flow.reports.notices import Notice, at_lines
from stopgrad.flow.reports.sections import STRONG, Excerpt, Paragraph, Part, Section, Table
from stopgrad.flow.reports.terminal import text_of
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Status

_SHOWN = 6
_WORDS = {True: "passed", False: "DIFFERS"}


@dataclass(frozen=True)
class Worst:
    """Where a generated derivative is farthest from the numeric one, in units of what is allowed.

    Attributes:
        index: the element of the input; None if all of it moved in a random direction.
        generated, numeric: the derivatives there.
        allowed: the difference that is allowed.
        order: 1 or 2.
        mode: ``"reverse"`` or ``"forward"``.
    """

    index: tuple[int, ...] | None
    generated: float
    numeric: float
    allowed: float
    order: int
    mode: str


@dataclass(frozen=True)
class Kink:
    """An element at which there are only two one-sided derivatives, or at which the derivative is infinite.

    Attributes:
        index: the element of the input; None for a direction of several elements.
        generated: the generated derivative, which must lie between the one-sided ones.
        low, high: these, in order, with those of points around it; twice the same where it is infinite.
        jump: whether the function jumps there; the one-sided derivatives are then those beside the jump.
        order: 1 or 2.
    """

    index: tuple[int, ...] | None
    generated: float
    low: float
    high: float
    jump: bool
    order: int


@dataclass(frozen=True)
class Checked:
    """The result for one input.

    Attributes:
        type: dtype and shape of the input.
        passed: whether its generated derivatives are those of the frozen function.
        error: the largest difference, relative to the largest derivative; infinite if one is not finite.
        step: the least step of the differences for the worst element; NaN if there was nothing to compare.
        worst: where they differ most; None if there was nothing to compare.
        method: ``"complex step"``; ``"central"`` for differences; or ``"directional"`` for differences along
            random directions.
        kinks: elements at which there is no derivative.
        reason: why it did not pass; empty if it did.
    """

    type: str
    passed: bool
    error: float
    step: float
    worst: Worst | None
    method: str
    kinks: tuple[Kink, ...] = ()
    reason: str = ""


class Held(NamedTuple):
    """A gate on the way, which the frozen function takes into account.

    Attributes:
        operations: those built at one line.
        location: that line.
        what: how the frozen function treats it.
        rule: for a custom gradient, the first line of its gradient function.
    """

    operations: tuple[Operation, ...]
    location: Location | None
    what: str
    rule: Location | None = None


class GradientCheck(Mapping[Any, Checked], FlowReport):
    """Per input, how the generated derivatives compare with numeric ones. It is true if all passed.

    Keys are the outputs themselves, or, for a function, the paths of its arguments (``"params.w"``). An
    output is found by its name, too.

    Attributes:
        order: the highest order of derivatives that was compared.
        modes: how they were generated.
        stops: ``"hold"`` if stopped values kept those of the base point; ``"program"`` if only those did that
            the program's own gates stop; ``"ignore"`` if none did.
        rtol: the relative tolerance.
        held: the gates on the way from the inputs.
        custom: the custom gradients on the way.
        rules: at order 2, the gates inside gradient functions: the second derivative counts what they stop as
            a constant.
        wrong: if a check failed, the operations and custom gradients that differ by themselves, on the
            values that they got; those in bodies are not examined.
        notes: further notes for the reader.
    """

    _format = "stopgrad.check"

    order: int
    modes: tuple[str, ...]
    stops: str
    rtol: float
    held: tuple[Held, ...]
    custom: tuple[Held, ...]
    rules: tuple[Held, ...]
    wrong: tuple[Held, ...]
    notes: tuple[str, ...]

    def __init__(
        self,
        found: Mapping[Any, Checked],
        order: int,
        modes: Sequence[str],
        stops: str,
        rtol: float,
        held: Sequence[Held] = (),
        custom: Sequence[Held] = (),
        rules: Sequence[Held] = (),
        wrong: Sequence[Held] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self._by_input = dict(found)
        self._by_name = {name: key for key in self._by_input for name in _names(key)}
        self.order, self.modes, self.stops, self.rtol = order, tuple(modes), stops, rtol
        self.held, self.custom = tuple(held), tuple(custom)
        self.rules, self.wrong = tuple(rules), tuple(wrong)
        self.notes = tuple(notes)

    def __getitem__(self, key: object) -> Checked:
        if isinstance(key, Operation):
            key = key.as_output()
        try:
            return self._by_input[self._by_name.get(key, key) if isinstance(key, str) else key]
        except (KeyError, TypeError):
            checked = ", ".join(map(label, self._by_input))
            raise KeyError(f"check_gradients did not check {label(key)}; it checked {checked}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_input)

    def __len__(self) -> int:
        return len(self._by_input)

    @property
    def passed(self) -> bool:
        """Whether all inputs passed."""
        return all(checked.passed for checked in self._by_input.values())

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        verdicts = ", ".join(
            f"{label(k)}: {'passed' if v.passed else 'FAILED'}" for k, v in self._by_input.items()
        )
        return f"<GradientCheck {verdicts}>"

    def _parts(self, width: int) -> Iterator[Part]:
        yield self._verdict()
        yield from [_of_input(label(key), checked) for key, checked in self._ordered()]
        yield from self._gates()

    def _in_notebook(self) -> Iterator[Part]:
        """With a table of the inputs, and details of those that have any."""
        yield self._verdict()
        rows = [
            (label(key), checked.type, _WORDS[checked.passed], f"error {checked.error:.1e}", checked.method)
            for key, checked in self._ordered()
        ]
        yield Table(rows, "<<<<<", 0, 2)
        sections = [_of_input(label(key), checked) for key, checked in self._ordered()]
        yield from [section for section in sections if section.parts]
        yield from self._gates()

    def _ordered(self) -> list[tuple[Any, Checked]]:
        """The inputs, with those that differ first."""
        return sorted(self._by_input.items(), key=lambda item: item[1].passed)

    def _verdict(self) -> Paragraph:
        held = {
            "hold": "held",
            "program": "of the program held, those of gradient functions not",
            "ignore": "ignored, so compared with the true total derivative",
        }[self.stops]
        orders = "order 1" if self.order == 1 else "orders 1 and 2"
        failed = sum(not checked.passed for checked in self._by_input.values())
        verdict = "passed" if not failed else f"{failed} of {len(self)} inputs differ"
        head = f"gradients of {orders}, {' and '.join(self.modes)}, stops {held}: "
        return Paragraph(head, _verdict(verdict, not failed))

    def _gates(self) -> Iterator[Part]:
        """What was held, what differs, and notes."""
        yield from _of_places("operations whose own rules differ:", self.wrong)
        guilty = {op for held in self.wrong for op in held.operations}
        custom = [held for held in self.custom if not guilty & {*held.operations}]
        yield from _of_places("custom gradients on the way:", custom)
        where = "gates on the way:" if self.stops == "ignore" else "held at the base point:"
        yield from _of_places(where, self.held)
        rules = "stopped inside gradient functions"
        if self.stops == "hold":
            rules += ', which can hide a wrong second derivative; stops="program" does not hold these'
        yield from _of_places(f"{rules}:", self.rules)
        for note in self.notes:
            yield Paragraph(f"note: {note}", indent=2)

    def _data(self) -> dict[str, Any]:
        def gates(places: Iterable[Held]) -> list[dict[str, Any]]:
            return [
                {
                    "operations": [op.name for op in held.operations],
                    "location": place_of(held.location),
                    "what": held.what,
                    "rule": place_of(held.rule),
                }
                for held in places
            ]

        return {
            "passed": self.passed,
            "order": self.order,
            "modes": self.modes,
            "stops": self.stops,
            "rtol": self.rtol,
            "inputs": {label(key): fields_of(checked) for key, checked in self._by_input.items()},
            "held": gates(self.held),
            "custom": gates(self.custom),
            "rules": gates(self.rules),
            "wrong": gates(self.wrong),
            "notes": self.notes,
        }

    def _notices(self) -> Iterator[Notice]:
        """The inputs that differ, at the lines of the operations whose own rules do."""
        places = [held.rule or held.location for held in self.wrong]
        for key, checked in self._by_input.items():
            if not checked.passed:
                text = f"the gradient with respect to {label(key)} differs from the numeric one"
                why = checked.reason or _compared(checked)
                yield from at_lines("error", "differs", f"{text}: {why}", places)

    def raise_if_failed(self) -> None:
        """Raise if an input did not pass.

        Raises:
            GradientError: its message has of the report what a traceback has room for: the first input that
                differs, and the first operation whose own rule does.
        """
        if not self.passed:
            short = text_of(self._in_short(), WIDTH)
            raise GradientError(f"check_gradients: generated and numeric ones differ\n{short}")

    def _in_short(self) -> Iterator[Part]:
        """What is wrong, and where, without what else the report has."""
        yield self._verdict()
        key, checked = self._ordered()[0]
        yield _of_input(label(key), checked).title
        worst = f"{_compared(checked)} {_where(checked.worst)}" if checked.worst else ""
        yield Paragraph(checked.reason or worst, indent=6)
        yield from _of_places("operations whose own rules differ:", self.wrong[:1], only_rules=True)
        yield Paragraph("the whole report: check_gradients(..., raises=False)", indent=2)


def _names(key: Output | str) -> tuple[str, ...]:
    return (key.name, key.name.removesuffix(":0")) if isinstance(key, Output) else (key,)


# ---------------------------------------------------------------------------------------------- the parts


def _verdict(text: str, passed: bool) -> tuple[str, Status]:
    """The verdict of a check, with its colour."""
    return text, Status.FLOWS if passed else Status.STOPPED


def _of_input(name: str, checked: Checked) -> Section:
    pieces = (f"{name} {checked.type}: ", _verdict(_WORDS[checked.passed], checked.passed))
    parts = [Paragraph(checked.reason, indent=6)] if checked.reason else []
    worst = checked.worst
    if worst is not None and not checked.passed:
        parts += [
            Paragraph(f"worst {_where(worst)}, order {worst.order}, {worst.mode} mode:", indent=6),
            Paragraph(f"generated {worst.generated:.10g}", indent=8),
            Paragraph(f"numeric   {worst.numeric:.10g}", indent=8),
            Paragraph(f"(step {checked.step:.1e}; they may differ by {worst.allowed:.1e})", indent=8),
        ]
    steep = [_place(k) for k in checked.kinks if k.low == k.high]
    kinks = [f"{_place(k)} ({k.low:.4g} to {k.high:.4g})" for k in checked.kinks if k.low != k.high]
    if kinks:
        parts.append(Paragraph(f"no derivative, only one-sided ones, at {_some(kinks)}", indent=6))
    if steep:
        text = "the derivative is infinite, which sg.trace_nan follows, at"
        parts.append(Paragraph(f"{text} {_some(steep)}", indent=6))
    title = Paragraph(*pieces, f", error {checked.error:.1e}, {checked.method}", indent=2)
    return Section(title, parts, apart=False)


def _where(worst: Worst) -> str:
    return "along a direction of several elements" if worst.index is None else f"at {_index(worst.index)}"


def _place(kink: Kink) -> str:
    return "direction" if kink.index is None else _index(kink.index)


def _some(texts: Sequence[str]) -> str:
    """The first few of some texts."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"


def _compared(checked: Checked) -> str:
    worst = checked.worst
    return "" if worst is None else f"generated {worst.generated:.10g}, numeric {worst.numeric:.10g}"


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else "its one element"


def _of_places(title: str, places: Sequence[Held], only_rules: bool = False) -> Iterator[Section]:
    """Gates by their lines and those of their rules, or only by the latter where there are any."""
    if not places:
        return
    parts: list[Part] = []
    for held in places:
        many = f" ({len(held.operations)} times)" if len(held.operations) > 1 else ""
        parts.append(Paragraph(f"{held.what} {held.operations[0].name!r}{many}", indent=4))
        for location in (held.location, held.rule):
            if location is not None and not (only_rules and location is not (held.rule or held.location)):
                parts += [Paragraph((location, STRONG), indent=6), Excerpt([location], indent=6)]
    yield Section(Paragraph(title, indent=2), parts, apart=False)
