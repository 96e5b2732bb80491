"""What reports tell of magnitudes: in the summary, in sections, as findings, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from stopgrad.flow.magnitudes.causes import Cause, figure
from stopgrad.flow.magnitudes.magnitude import VANISHED, Magnitude
from stopgrad.flow.magnitudes.troubles import EXPLODING, KINDS, NOT_FINITE, VANISHING, ZERO, Trouble
from stopgrad.flow.parts import Finding
from stopgrad.flow.reports.json_form import operation_of, place_of
from stopgrad.flow.reports.sections import DIM, STRONG, Excerpt, Paragraph, Part, Section
from stopgrad.flow.words import counted, listed, names, number, some
from stopgrad.graph.graph import Operation, title
from stopgrad.graph.op import Status

MOST = 8
"""The most troubles that a text shows."""
_VERBS = {
    ZERO: ("gets exactly 0", "get exactly 0"),
    VANISHING: ("vanishes", "vanish"),
    EXPLODING: ("explodes", "explode"),
    NOT_FINITE: ("is NaN or infinite", "are NaN or infinite"),
}
Source = Callable[[Sequence[Operation], str], Excerpt]
_STYLES = {
    ZERO: Status.STOPPED,
    VANISHING: Status.PARTLY_STOPPED,
    EXPLODING: Status.PARTLY_STOPPED,
    NOT_FINITE: Status.UNDEFINED,
}


def in_short(troubles: Sequence[Trouble], magnitudes: Iterable[Magnitude], single: bool) -> str:
    """What is wrong, as the last part of a summary: ``"12 of them get exactly 0"``; empty if nothing is.

    Args:
        troubles: the troubles.
        magnitudes: the magnitudes of the tensors asked about.
        single: whether the summary is about a single tensor.
    """
    all_magnitudes = list(magnitudes)
    counts = Counter(
        {kind: sum(len(trouble.keys) for trouble in troubles if trouble.kind == kind) for kind in _VERBS}
    )
    # What vanished may have become exactly 0.
    faded = sum(magnitude.is_zero for magnitude in all_magnitudes) - counts[ZERO]
    counts[ZERO] += faded
    counts[VANISHING] -= faded
    if single:
        kinds = [kind for kind in _VERBS if counts[kind]]
        return f"it {'is exactly 0' if kinds == [ZERO] else _VERBS[kinds[0]][0]}" if kinds else ""
    whole = [kind for kind, n in counts.items() if n == len(all_magnitudes) > 0]
    if whole:
        return f"{'both' if len(all_magnitudes) == 2 else 'all'} of them {_VERBS[whole[0]][1]}"
    clauses = [f"{number(n)} of them {_VERBS[kind][n > 1]}" for kind, n in counts.items() if n > 0]
    rest = [clause.replace(" of them", "", 1) for clause in clauses[1:]]
    return listed([*clauses[:1], *rest]) if clauses else ""


def span(magnitudes: dict[str, Magnitude], all_names: Iterable[str]) -> Paragraph | None:
    """The smallest and the largest norm; None if there are none that are numbers other than 0."""
    norms = sorted(
        [
            (magnitude.norm, name)
            for name, magnitude in magnitudes.items()
            if magnitude.is_finite and magnitude.norm
        ]
    )
    if not norms:
        return None
    (low, least), (high, most) = norms[0], norms[-1]
    text = f"{figure(low)} at {names([least], all_names)}"
    if len(norms) > 1:
        text += f" to {figure(high)} at {names([most], all_names)}"
    return Paragraph(("norms: ", DIM), text)


def parts_of(
    troubles: Sequence[Trouble],
    magnitudes: dict[str, Magnitude],
    all_names: Iterable[str],
    width: int,
    source: Source,
) -> Iterator[Part]:
    """The sections of a report.

    Args:
        troubles: the troubles.
        magnitudes: the magnitudes of the tensors asked about, by name.
        all_names: the names of all of them.
        width: the columns of the page.
        source: makes an excerpt of the line of operations, in a style.
    """
    if not magnitudes:
        return
    all_names = list(all_names)
    for trouble in troubles[:MOST]:
        shown = list(_cause_parts(trouble.causes, _STYLES[trouble.kind], source))
        if trouble.kind == NOT_FINITE and not shown:  # Nothing on the way was measured.
            shown = [Paragraph("trace_nan finds the operation that makes it so", indent=2)]
        yield Section(_heading(trouble, magnitudes, all_names, width), shown)
    if len(troubles) > MOST:
        yield Section(Paragraph(f"and {counted(len(troubles) - MOST, 'more trouble')}; to_json() has all"))
    norms = span(magnitudes, all_names)
    if norms is not None:
        yield Section(norms)


def _cause_parts(causes: Sequence[Cause], style: str, source: Source) -> Iterator[Part]:
    """The causes, and each line of source once below those in it."""
    for place, here in groupby(
        causes, lambda cause: cause.location and (cause.location.file, cause.location.line)
    ):
        causes = list(here)
        for cause in causes:
            where = cause.location or title(cause.operations[0])
            yield Paragraph((where, STRONG), f"  {cause}", indent=2)
        if place is not None:
            yield source([op for cause in causes for op in cause.operations], style)


def _heading(
    trouble: Trouble, magnitudes: dict[str, Magnitude], all_names: Sequence[str], width: int
) -> Paragraph:
    kind = _title(trouble, magnitudes)
    if trouble.end is None:
        return Paragraph(
            (f"{kind}:", _STYLES[trouble.kind]), f" {names(trouble.keys, all_names, width - len(kind) - 4)}"
        )
    return Paragraph((f"{kind}:", _STYLES[trouble.kind]), f" {_ends(trouble)}{_others(trouble)}")


def _title(trouble: Trouble, magnitudes: dict[str, Magnitude]) -> str:
    if trouble.kind == NOT_FINITE:
        return "NaN" if any(magnitudes[key].nans for key in trouble.keys) else "infinite"
    return {ZERO: "exactly 0", VANISHING: "vanishes", EXPLODING: "explodes"}[trouble.kind]


def _ends(trouble: Trouble) -> str:
    assert trouble.end is not None
    where = "at the layer of" if trouble.at_layers else "at"
    last = f"{figure(trouble.end[1])} {where} {names([trouble.end[0]])}"
    if trouble.start is None:
        return f"{last} at most"
    return f"from {figure(trouble.start[1])} {where} {names([trouble.start[0]])} to {last}"


def _others(trouble: Trouble) -> str:
    if len(trouble.keys) == 1:
        return ""
    if trouble.start is None:
        return f", the largest of {counted(len(trouble.keys), 'tensor')}"
    beyond = "below" if trouble.kind == VANISHING else "above"
    factor = figure(VANISHED if trouble.kind == VANISHING else 1 / VANISHED)
    return f"; {counted(len(trouble.keys), 'tensor')} are {beyond} {factor} of it"


def findings_of(troubles: Sequence[Trouble], magnitudes: dict[str, Magnitude]) -> list[Finding]:
    """The troubles as findings, which notices and data contain."""
    return [
        Finding(
            trouble.kind,
            f"{_sentence(trouble, magnitudes)}{_because(trouble.causes)}",
            tuple([op for cause in trouble.causes for op in cause.operations]),
            trouble.keys,
        )
        for trouble in troubles
    ]


def _sentence(trouble: Trouble, magnitudes: dict[str, Magnitude]) -> str:
    if trouble.end is not None:
        return f"the gradient {_title(trouble, magnitudes)}, {_ends(trouble)}{_others(trouble)}"
    count = f"{counted(len(trouble.keys), 'tensor')}: " if len(trouble.keys) > 1 else ""
    return f"the gradient is {_title(trouble, magnitudes)} at {count}{some(trouble.keys)}"


def _because(causes: Sequence[Cause]) -> str:
    return f": {listed([str(cause) for cause in causes])}" if causes else ""


def summary_data(troubles: Sequence[Trouble], magnitudes: dict[str, Magnitude]) -> dict[str, Any] | None:
    """How many gradients were measured, and how many are of no use; None if none were measured."""
    if not magnitudes:
        return None
    counts = {kind: sum(len(trouble.keys) for trouble in troubles if trouble.kind == kind) for kind in KINDS}
    return {"measured": len(magnitudes), "kinds": counts}


def trouble_data(trouble: Trouble) -> dict[str, Any]:
    """A trouble as data."""
    ends = {"from": trouble.start, "to": trouble.end}
    return {
        "kind": trouble.kind,
        "keys": list(trouble.keys),
        "at_layers": trouble.at_layers,
        **{side: None if end is None else {"key": end[0], "norm": end[1]} for side, end in ends.items()},
        "causes": [
            {
                "reason": cause.reason,
                "location": place_of(cause.location),
                "uses": cause.uses,
                "operations": [operation_of(op) for op in cause.operations],
            }
            for cause in trouble.causes
        ],
    }


def data_of(magnitude: Magnitude | None) -> dict[str, Any] | None:
    """A magnitude as data."""
    if magnitude is None:
        return None
    return {
        "norm": magnitude.norm,
        "parameter_norm": magnitude.parameter_norm,
        "ratio": magnitude.ratio,
        "elements": magnitude.elements,
        "zeros": magnitude.zeros,
        "nans": magnitude.nans,
        "infs": magnitude.infs,
    }
