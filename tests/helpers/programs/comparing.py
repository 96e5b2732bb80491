"""Holds what a report says against the model; of any library, so that it imports none."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

from programs.language import Form, Program, Writer, Written, is_smooth
from programs.reach import STATUSES, End, Model, opened_by, verdicts
from programs.shrinking import shrunk

Said = Mapping[str, tuple[str, Mapping[End, frozenset[str]]]]
"""By sources, the status, and the ends of paths, each with the sources that it would open."""
Complaints = Generator[str, None, Said]
ARRIVES = ("flows", "partly stopped")
REASONS = {
    "named in stop_gradients": "named",
    "custom_gradient's function closes over": "closed",
    "left for Python": "left",
}


def told(flow: Any, written: Written, sources: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What a report says, in the words of the model.

    Args:
        flow: the report.
        written: the program that it is on.
        sources: for each source its key in the report.
        file: where the program stands.
    """
    labels = {line: label for label, line in written.lines.items()}
    names = {getattr(key, "name", key): name for name, key in sources.items()}
    found = {}
    for name, key in sources.items():
        ends = {}
        for cut in flow[key].cuts:
            place = cut.location
            known = place is not None and place.file == file
            end = End(
                labels.get(place.line, str(place)) if known else str(place),
                STATUSES.index(cut.status),
                cut.switched,
                next((why for text, why in REASONS.items() if text in cut.reason), ""),
            )
            ends[end] = frozenset([names.get(key, key) for key in cut.opens])
        found[name] = str(flow[key].status), ends
    return found


def against_model(
    said: Said,
    program: Program,
    forms: Mapping[str, Form],
    model: type[Model] = Model,
) -> Iterator[str]:
    """Where a report and the model differ."""
    expected = verdicts(program, forms, model)
    opens: dict[End, frozenset[str]] = {}
    for name, verdict in expected.items():
        status, ends = said[name]
        if status != verdict.status:
            yield f"{name}: {status!r}, and it is {verdict.status!r}"
        if not is_smooth(name):
            continue
        if set(ends) != verdict.cuts:
            more, less = shown(set(ends) - verdict.cuts), shown(verdict.cuts - set(ends))
            yield f"{name}: cuts {more} too many, {less} missing"
        for end, names in ends.items():
            if end in verdict.cuts:
                if end not in opens:
                    opens[end] = opened_by(program, forms, end, model)
                wanted = frozenset(filter(is_smooth, opens[end]))
                if names != wanted:
                    yield f"{end}: opens {sorted(names)}, and it would open {sorted(wanted)}"


def shown(ends: Any) -> str:
    return (
        ", ".join(
            [
                f"{e.label} ({STATUSES[e.level]}{' switched' * e.switched}{e.why and f' {e.why}'})"
                for e in sorted(ends)
            ]
        )
        or "none"
    )


# --------------------------------------------------------------------------------------------- worlds


class World(NamedTuple):
    """A library in which programs are written.

    Attributes:
        draw: makes the program of a seed.
        check: what is wrong with what is said of it.
        writer: writes it.
    """

    draw: Callable[[int], Program]
    check: Callable[[Program], Complaints]
    writer: type[Writer]


def held(world: World, program: Program) -> tuple[list[str], Said]:
    """What is wrong with what is said of a program; and what is said."""
    complaints = []
    checking = world.check(program)
    while True:
        try:
            complaints.append(next(checking))
        except StopIteration as end:
            return complaints, end.value


def counted(said: Said) -> tuple[int, int, int]:
    """How many statuses, lines and openings were said."""
    ends = [end for _, some in said.values() for end in some.items()]
    return len(said), len(ends), sum(len(opens) for _, opens in ends)


def example(world: World, program: Program) -> str:
    """The smallest program found of which something wrong is said, too, as text."""

    def fails(less: Program) -> bool:
        try:
            return bool(held(world, less)[0])
        except Exception:  # It is no program any more.
            return False

    least = shrunk(program, fails)
    asked = f"asked about {least.asked}, stopped {least.stops}\n" if least.asked or least.stops else ""
    return f"{world.writer(least).written().text}{asked}" + "\n".join(held(world, least)[0])
