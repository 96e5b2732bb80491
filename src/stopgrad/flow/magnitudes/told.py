"""What reports tell of magnitudes: in the summary, in sections, as findings, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from stopgrad.flow.magnitudes.causes import Cause, figure
from stopgrad.flow.magnitudes.sizes import VANISHED, Magnitude
from stopgrad.flow.magnitudes.troubles import EXPLODING, KINDS, NOT_FINITE, VANISHING, ZERO, Trouble
from stopgrad.flow.parts import Finding
from stopgrad.flow.reports.json_form import operation_of, place_of
from stopgrad.flow.reports.tree import DIM, STRONG, Excerpt, Paragraph, Part, Section
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


def in_short(troubles: Sequence[Trouble], of: Iterable[Magnitude], single: bool) -> str:
    """What is wrong, as the last part of a summary: ``"12 of them get exactly 0"``; empty if nothing is.

    Args:
        troubles: the troubles.
        of: the magnitudes of the tensors asked about.
        single: whether the summary is about a single tensor.
    """
    every = list(of)
    counts = Counter({kind: sum(len(one.keys) for one in troubles if one.kind == kind) for kind in _VERBS})
    faded = sum(one.is_zero for one in every) - counts[ZERO]  # What vanished may have become exactly 0.
    counts[ZERO] += faded
    counts[VANISHING] -= faded
    if single:
        kinds = [kind for kind in _VERBS if counts[kind]]
        return f"it {'is exactly 0' if kinds == [ZERO] else _VERBS[kinds[0]][0]}" if kinds else ""
    whole = [kind for kind, n in counts.items() if n == len(every) > 0]
    if whole:
        return f"{'both' if len(every) == 2 else 'all'} of them {_VERBS[whole[0]][1]}"
    clauses = [f"{number(n)} of them {_VERBS[kind][n > 1]}" for kind, n in counts.items() if n > 0]
    return listed([clauses[0], *[one.replace(" of them", "", 1) for one in clauses[1:]]]) if clauses else ""


def span(of: dict[str, Magnitude], every: Iterable[str]) -> Paragraph | None:
    """The smallest and the largest norm; None if there are none that are numbers other than 0."""
    norms = sorted([(one.norm, name) for name, one in of.items() if one.is_finite and one.norm])
    if not norms:
        return None
    (low, least), (high, most) = norms[0], norms[-1]
    text = f"{figure(low)} at {names([least], every)}"
    if len(norms) > 1:
        text += f" to {figure(high)} at {names([most], every)}"
    return Paragraph(("norms: ", DIM), text)


def parts_of(
    troubles: Sequence[Trouble],
    of: dict[str, Magnitude],
    every: Iterable[str],
    width: int,
    source: Source,
) -> Iterator[Part]:
    """The sections of a report.

    Args:
        troubles: the troubles.
        of: the magnitudes of the tensors asked about, by name.
        every: the names of all of them.
        width: the columns of the page.
        source: makes an excerpt of the line of operations, in a style.
    """
    if not of:
        return
    every = list(every)
    for one in troubles[:MOST]:
        shown = list(_shown(one.causes, _STYLES[one.kind], source))
        if one.kind == NOT_FINITE and not shown:  # Nothing on the way was measured.
            shown = [Paragraph("trace_nan finds the operation that makes it so", indent=2)]
        yield Section(_heading(one, of, every, width), shown)
    if len(troubles) > MOST:
        yield Section(Paragraph(f"and {counted(len(troubles) - MOST, 'more trouble')}; to_json() has all"))
    norms = span(of, every)
    if norms is not None:
        yield Section(norms)


def _shown(causes: Sequence[Cause], style: str, source: Source) -> Iterator[Part]:
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


def _heading(one: Trouble, of: dict[str, Magnitude], every: Sequence[str], width: int) -> Paragraph:
    kind = _title(one, of)
    if one.end is None:
        return Paragraph((f"{kind}:", _STYLES[one.kind]), f" {names(one.keys, every, width - len(kind) - 4)}")
    return Paragraph((f"{kind}:", _STYLES[one.kind]), f" {_ends(one)}{_others(one)}")


def _title(one: Trouble, of: dict[str, Magnitude]) -> str:
    if one.kind == NOT_FINITE:
        return "NaN" if any(of[key].nans for key in one.keys) else "infinite"
    return {ZERO: "exactly 0", VANISHING: "vanishes", EXPLODING: "explodes"}[one.kind]


def _ends(one: Trouble) -> str:
    assert one.end is not None
    where = "at the layer of" if one.at_layers else "at"
    last = f"{figure(one.end[1])} {where} {names([one.end[0]])}"
    if one.start is None:
        return f"{last} at most"
    return f"from {figure(one.start[1])} {where} {names([one.start[0]])} to {last}"


def _others(one: Trouble) -> str:
    if len(one.keys) == 1:
        return ""
    if one.start is None:
        return f", the largest of {counted(len(one.keys), 'tensor')}"
    beyond = "below" if one.kind == VANISHING else "above"
    factor = figure(VANISHED if one.kind == VANISHING else 1 / VANISHED)
    return f"; {counted(len(one.keys), 'tensor')} are {beyond} {factor} of it"


def findings_of(troubles: Sequence[Trouble], of: dict[str, Magnitude]) -> list[Finding]:
    """The troubles as findings, which notices and data contain."""
    return [
        Finding(
            one.kind,
            f"{_sentence(one, of)}{_because(one.causes)}",
            tuple([op for cause in one.causes for op in cause.operations]),
            one.keys,
        )
        for one in troubles
    ]


def _sentence(one: Trouble, of: dict[str, Magnitude]) -> str:
    if one.end is not None:
        return f"the gradient {_title(one, of)}, {_ends(one)}{_others(one)}"
    count = f"{counted(len(one.keys), 'tensor')}: " if len(one.keys) > 1 else ""
    return f"the gradient is {_title(one, of)} at {count}{some(one.keys)}"


def _because(causes: Sequence[Cause]) -> str:
    return f": {listed([str(cause) for cause in causes])}" if causes else ""


def summary_data(troubles: Sequence[Trouble], of: dict[str, Magnitude]) -> dict[str, Any] | None:
    """How many gradients were measured, and how many are of no use; None if none were measured."""
    if not of:
        return None
    counts = {kind: sum(len(one.keys) for one in troubles if one.kind == kind) for kind in KINDS}
    return {"measured": len(of), "kinds": counts}


def trouble_data(one: Trouble) -> dict[str, Any]:
    """A trouble as data."""
    ends = {"from": one.start, "to": one.end}
    return {
        "kind": one.kind,
        "keys": list(one.keys),
        "at_layers": one.at_layers,
        **{side: None if end is None else {"key": end[0], "norm": end[1]} for side, end in ends.items()},
        "causes": [
            {
                "reason": cause.reason,
                "location": place_of(cause.location),
                "uses": cause.uses,
                "operations": [operation_of(op) for op in cause.operations],
            }
            for cause in one.causes
        ],
    }


def data_of(one: Magnitude | None) -> dict[str, Any] | None:
    """A magnitude as data."""
    if one is None:
        return None
    return {
        "norm": one.norm,
        "parameter_norm": one.parameter_norm,
        "ratio": one.ratio,
        "elements": one.elements,
        "zeros": one.zeros,
        "nans": one.nans,
        "infs": one.infs,
    }
