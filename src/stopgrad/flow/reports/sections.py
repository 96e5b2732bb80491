"""The parts of a report: paragraphs, lines of source, tables, and sections of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stopgrad.base.source import Location
from stopgrad.graph.op import Status


class Style(NamedTuple):
    """A style: the code for terminals, and the colour for notebooks.

    The colours are of medium lightness, so that they are readable on white and on black.
    """

    code: str
    colour: str


STRONG, DIM, IDLE = "strong", "dim", "idle"
STYLES: dict[str, Style] = {
    Status.FLOWS: Style("32", "#1f9d4d"),
    Status.PARTLY_STOPPED: Style("33", "#b07d00"),
    Status.STOPPED: Style("31", "#dd3c50"),
    Status.UNDEFINED: Style("1;31", "#a060c8"),
    Status.NOT_DIFFERENTIABLE: Style("35", "#a060c8"),
    Status.DISCONNECTED: Style("36", "#888888"),
    IDLE: Style("33", "#b07d00"),
    DIM: Style("2", "#888888"),
    STRONG: Style("", ""),
}
"""The styles by name: those of statuses, and others."""

Piece = str | tuple[str | Location, str]
"""A text; or a text with the name of its style; or a place, which is shown as file and line."""


class Paragraph:
    """Text that is wrapped between words; longer words stand alone.

    Attributes:
        pieces: its text.
        indent: the indentation of its lines, in columns.
        hang: the additional indentation of all lines but the first.
    """

    pieces: tuple[Piece, ...]
    indent: int
    hang: int

    def __init__(self, *pieces: Piece, indent: int = 0, hang: int = 2) -> None:
        self.pieces, self.indent, self.hang = pieces, indent, hang


class Excerpt(NamedTuple):
    """A line of the user's source, with what was built there underlined.

    Attributes:
        locations: one or several places in that line; those in other lines are ignored.
        style: the style of the underlines.
        indent: its indentation, in columns.
    """

    locations: Sequence[Location | None]
    style: str = IDLE
    indent: int = 0


class Table(NamedTuple):
    """Rows of cells below each other.

    Attributes:
        rows: the cells; as many in each row.
        align: for each column ``"<"`` or ``">"``.
        shrinks: the column that is cut at its left if the page is too narrow.
        indent: its indentation, in columns.
    """

    rows: Sequence[Sequence[str]]
    align: str
    shrinks: int
    indent: int


class Section(NamedTuple):
    """Parts that belong together, which a notebook folds below the title.

    Attributes:
        title: its title.
        parts: its parts.
        apart: whether an empty line precedes it.
    """

    title: Paragraph
    parts: Sequence[Part] = ()
    apart: bool = True


Part = Paragraph | Excerpt | Table | Section
