"""The lines at which paths end, as a report names them: the user's, with those of helpers called there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from stopgrad.base.source import Location
from stopgrad.flow.parts import Cut, Place
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.reports.sections import Excerpt, Piece
from stopgrad.flow.source_lines import place, shown_file
from stopgrad.flow.words import counted, listed
from stopgrad.graph.graph import Operation, title

PLACES = 3
"""The most places that are named for what is told in one line."""


class Spot:
    """Cuts at one line: of the user's, or of a library whose own model this is.

    Attributes:
        cuts: the cuts; several only if they are in a library's helpers that the line calls.
        cause: the line; None if it is not known.
        key: what a line is known by, and, of one that holds cuts itself, what happens there.
    """

    cuts: list[Cut]
    cause: Location | None

    def __init__(self, report: Reaches, cut: Cut) -> None:
        self.cuts = [cut]
        location = report.location(cut.operation)
        self.cause = cause = None if location is None else location.cause
        self._helpers = [] if location is None or location is cause else [location]
        self.key: Place = report.spot(cut)

    def add(self, other: Spot) -> None:
        """Add what is at the same line."""
        self.cuts += other.cuts
        self._helpers += other._helpers

    @property
    def operations(self) -> list[Operation]:
        return [op for cut in self.cuts for op in cut.operations]

    @property
    def where(self) -> Location | str:
        """The line, or without one the operation."""
        return title(self.cuts[0].operation) if self.cause is None else self.cause

    @property
    def line(self) -> str:
        """The same as text."""
        return as_text([(self.where, "")])

    def source(self, report: Reaches, style: str) -> Excerpt:
        """The line of source, with the expressions underlined."""
        return source_of(report, self.operations, style)

    def reasons(self, counting: bool = True) -> str:
        """Why paths end there, in a few words."""
        reasons: dict[tuple[str, str], int] = {}
        for cut in self.cuts:
            reason = _reason(cut)
            reasons[reason] = reasons.get(reason, 0) + cut.uses
        texts = [
            f"{why} ({counted(uses, 'use')}){suffix}" if counting and uses > 1 else why + suffix
            for (why, suffix), uses in reasons.items()
        ]
        return listed(texts if len(texts) <= PLACES + 1 else [*texts[:PLACES], "others"])

    def pieces(self, counting: bool = True) -> list[Piece]:
        """The same, and where in a helper."""
        return [self.reasons(counting), *self.helpers]

    @property
    def helpers(self) -> list[Piece]:
        """Where in helpers that is, as the end of a sentence."""
        return [", in ", *at_places(self._helpers)] if self._helpers else []


def source_of(report: Reaches, operations: Sequence[Operation], style: str) -> Excerpt:
    """The line of source that operations come from, with the expressions underlined."""
    locations = dict.fromkeys(map(report.location, operations))
    return Excerpt([None if location is None else location.cause for location in locations], style)


def spots_of(report: Reaches, cuts: Iterable[Cut]) -> list[Spot]:
    """The lines at which cuts are, each once."""
    by_line: dict[object, Spot] = {}
    for cut in cuts:
        spot = Spot(report, cut)
        if spot.key in by_line:
            by_line[spot.key].add(spot)
        else:
            by_line[spot.key] = spot
    return list(by_line.values())


def at(spots: Sequence[Spot], reasons: Collection[object] | None = (), most: int = PLACES) -> list[Piece]:
    """Where spots are: each file once, with the reasons of those with these keys; for None, of all."""
    after = [
        f" ({spot.reasons(counting=False)})" if reasons is None or spot.key in reasons else ""
        for spot in spots
    ]
    if len(set(after)) == 1:
        return [*_with_files([(spot.where, "") for spot in spots], most), after[0]]
    return _with_files([(spot.where, why) for spot, why in zip(spots, after, strict=True)], most)


def as_text(pieces: Iterable[Piece]) -> str:
    """Pieces as they are shown without styles."""
    whats = [piece if isinstance(piece, str) else piece[0] for piece in pieces]
    return "".join([what if isinstance(what, str) else place(what) for what in whats])


def at_places(locations: Iterable[Location], most: int = PLACES) -> list[Piece]:
    """Where these lines are, each once, and each file once."""
    return _with_files(
        [(location, "") for location in {place(location): location for location in locations}.values()], most
    )


def _with_files(places: Sequence[tuple[Location | str, str]], most: int) -> list[Piece]:
    files: dict[str, list[tuple[Location | str, str]]] = {}
    for where, more in places:
        file = where if isinstance(where, str) else shown_file(where.file)
        files.setdefault(file, []).append((where, more))
    lines: list[list[Piece]] = []
    for together in files.values():
        for i, (where, more) in enumerate(together):
            lines.append([f":{where.line}" if i and not isinstance(where, str) else (where, ""), more])
    if len(lines) > most + 1:
        lines[most:] = [[counted(len(lines) - most, "more line")]]
    joined: list[Piece] = []
    for i, pieces in enumerate(lines):
        joined += [", " if i < len(lines) - 1 else " and "] if i else []
        joined += pieces
    return joined


def _reason(cut: Cut) -> tuple[str, str]:
    """The reason of a cut, in a few words; and, of one in a gradient, of which operation's."""
    switched = " while its condition holds" if cut.switched else ""
    reason = cut.reason.removesuffix(", where its condition holds") if cut.switched else cut.reason
    origin = cut.operation.origin
    if origin is None:
        suffix = ""
    else:
        suffix = ", in the gradient of this line" if cut.location else f", in the gradient of {origin.type}"
    return f"{reason}{switched}", suffix
