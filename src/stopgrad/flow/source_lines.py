"""Lines of the user's source with expressions underlined, as compilers show them."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stopgrad.base.namespaces import require
from stopgrad.base.notebooks import at_line, cell_of
from stopgrad.base.printable import printable
from stopgrad.base.source import Location, in_library

NUMBER = 6
"""The columns for the number of a line, which is aligned right."""

_MORE = "..."
_LEAST = 8
"""The fewest columns of a line that are shown, however narrow the page."""


@dataclass(frozen=True)
class SourceLine:
    """A line of source, shortened to the width of the page.

    Attributes:
        number: its number in the file.
        text: the line without its indentation; "..." stands for what was left out, and for the rest of an
            expression that continues in the next line.
        spans: what is underlined: the first position in the text, and the one after the last.
    """

    number: int
    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def source(self) -> str:
        """The first printed line: number, rule, text."""
        return f"{self.number:>{NUMBER}} | {self.text}".rstrip()

    @property
    def underline(self) -> str:
        """The second printed line; empty if nothing is underlined."""
        marks, at = "", 0
        for start, end in self.spans:
            marks += " " * columns(self.text[at:start]) + "^" * max(1, columns(self.text[start:end]))
            at = end
        return f"{'':>{NUMBER}} | {marks}" if marks else ""

    def lines(self) -> list[str]:
        """Both lines, or only the first if nothing is underlined."""
        return [self.source, self.underline] if self.spans else [self.source]


def columns(text: str) -> int:
    """The columns of a terminal that a text takes: many Asian characters and signs take two."""
    return len(text) if text.isascii() else require("rich.cells", "a text for terminals").cell_len(text)


def source_line(locations: Location | Iterable[Location | None] | None, width: int = 80) -> SourceLine | None:
    """The line of source where something was built, with the expressions that built it underlined.

    Args:
        locations: one or several places in one line of a file; those in other lines are ignored.
        width: the columns of the page, with those of the line's number.

    Returns:
        The line, cut around the first expression if it is too long; None if the source cannot be read.
    """
    places = (
        [locations]
        if isinstance(locations, Location)
        else [location for location in locations or () if location]
    )
    if not places:
        return None
    first = places[0]
    here = [location for location in places if (location.file, location.line) == (first.file, first.line)]
    if first._source is not None:  # The graph came from a file: here, another file may have that name.
        text, spans = first._source, [(0, len(first._source))] if first._source else []
    else:
        text = linecache.getline(first.file, first.line).rstrip()
        spans = _united([span for span in [_span(location, text) for location in here] if span])
    if not text.strip() or not text.replace("\t", "").isprintable():
        return None  # Unprintable characters would shift the underlines, or move the cursor.
    text, spans = _without_tabs(text, spans)
    indent = len(text) - len(text.lstrip())
    text, spans = text[indent:], [(max(0, start - indent), end - indent) for start, end in spans]
    if (
        any(location.end_line is not None and location.end_line > location.line for location in here)
        and spans
        and not _block(text)
    ):
        text += f" {_MORE}"
    return SourceLine(first.line, *_cut(text, spans, max(_LEAST, width - NUMBER - 3)))


def excerpt(locations: Location | Iterable[Location | None] | None, width: int = 80) -> list[str]:
    """The lines of :func:`source_line`; empty if the source cannot be read."""
    line = source_line(locations, width)
    return [] if line is None else line.lines()


def shown_file(file: str) -> str:
    """A file as readers know it: a library's from the library's name on, others as :func:`relative_file`."""
    return in_library(file) or relative_file(file)


def relative_file(file: str) -> str:
    """A file relative to the working directory, if it is below that."""
    if not os.path.isabs(file):
        return file
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # The working directory is gone, or on another drive.
        return file
    return file if relative.startswith(os.pardir) else relative


def place(location: Location) -> str:
    """``file:line``, as reports show it."""
    return at_line(printable(shown_file(location.file)), location.line, cell_of(location.file))


def in_short(location: Location) -> str:
    """``file:line`` without folders: sentences should not depend on the working directory."""
    return at_line(os.path.basename(location.file), location.line, cell_of(location.file))


def character_columns(location: Location) -> tuple[int, int] | None:
    """The first and last column of an expression, in characters from 0; None if unknown.

    Python counts bytes of UTF-8. The end is in the line ``end_line``.
    """
    if location.column is None or location.end_column is None:
        return None
    if location._source is not None:
        return location.column, location.end_column
    first = linecache.getline(location.file, location.line)
    last = linecache.getline(location.file, location.end_line or location.line)
    return _characters(first, location.column), _characters(last, location.end_column)


# -------------------------------------------------------------------------------------------- parts


def _characters(line: str, column: int) -> int:
    """A position in bytes, converted to characters."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="replace"))


def _span(location: Location, text: str) -> tuple[int, int] | None:
    """The span of an expression in its first line; None if it is unknown, or the file has changed."""
    span = character_columns(location)
    if span is None:
        return None
    start, end = span
    if location.end_line is not None and location.end_line > location.line:
        block = _block(text)
        start, end = block.span(1) if block else (start, len(text))
    return (start, end) if start < end <= len(text) else None


def _block(text: str) -> re.Match[str] | None:
    """The span of the head of a ``with`` block: for Python 3.11, its exit is the whole block."""
    return re.fullmatch(r"\s*(?:async\s+)?with\s+(.*?)(?:\s+as\s+\w+)?\s*:\s*(?:#.*)?", text)


def _united(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, with overlapping ones united."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        else:
            united.append((start, end))
    return united


def _without_tabs(text: str, spans: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """The text with four spaces for each tab, and the spans adapted."""
    if "\t" not in text:
        return text, list(spans)
    at = [0]
    for sign in text:
        at.append(at[-1] + (4 if sign == "\t" else 1))
    return text.replace("\t", "    "), [(at[start], at[end]) for start, end in spans]


def _cut(text: str, spans: Sequence[tuple[int, int]], room: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """As much of the text and its spans as fits, the first expression before all."""
    if columns(text) <= room:
        return text, tuple(spans)
    first, last = spans[0] if spans else (0, 0)
    start = 0
    if columns(text[:last]) > room - len(_MORE):
        # The expression at the right end; or, if it is too long, as much as fits.
        start = last
        while start > 0 and columns(text[start - 1 : last]) <= room - 2 * len(_MORE):
            start -= 1
        if start > first:
            start = 0 if columns(text[:first]) <= room // 3 else first
    before = _MORE if start else ""
    end = start
    while end < len(text) and columns(text[start : end + 1]) <= room - len(before) - len(_MORE):
        end += 1
    after = _MORE if end < len(text) else ""
    moved = len(before) - start
    shown = [(max(a, start) + moved, min(b, end) + moved) for a, b in spans if a < end and b > start]
    return before + text[start:end] + after, tuple(shown)
