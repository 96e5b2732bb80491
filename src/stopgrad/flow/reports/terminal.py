"""The parts of a report as the lines of a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from stopgrad.base.namespaces import require
from stopgrad.base.printable import printable
from stopgrad.flow.reports.sections import STYLES, Excerpt, Paragraph, Part, Piece, Section, Table
from stopgrad.flow.source_lines import columns, place, source_line


def text_of(parts: Iterable[Part], width: int, color: bool | None = False) -> str:
    """Parts as lines of *width* columns, with or without colours; for None as the standard output allows."""
    shown = _shows_colors() if color is None else color
    lines: list[str] = []
    _write(parts, lines, width, shown)
    return "\n".join(lines)


def _write(parts: Iterable[Part], lines: list[str], width: int, color: bool) -> None:
    for part in parts:
        match part:
            case Paragraph():
                lines += _paragraph(part, width, color)
            case Excerpt():
                lines += _excerpt(part, width, color)
            case Table():
                lines += _table(part, width)
            case Section():
                lines += [""] if part.apart and lines else []
                _write((part.title, *part.parts), lines, width, color)


def _paragraph(part: Paragraph, width: int, color: bool) -> Iterator[str]:
    pieces = [_read(piece) for piece in part.pieces]
    room = width - part.indent
    whole = "".join([text for text, _ in pieces])
    # Names of files stay whole.
    firm = [
        text if isinstance(piece, str) or isinstance(piece[0], str) else text.replace(" ", "_")
        for piece, (text, _) in zip(part.pieces, pieces, strict=True)
    ]
    ends = [*_breaks("".join(firm), room, room - part.hang), len(whole)]
    at = 0
    for i, end in enumerate(ends):
        line = _cut_out(pieces, at, at + len(whole[at:end].rstrip()))
        yield " " * (part.indent + (part.hang if i else 0)) + "".join(
            [_styled(text, style, color, bold=True) for text, style in line]
        )
        at = end


def _read(piece: Piece) -> tuple[str, str]:
    """The text of a piece, and its style."""
    what, style = (piece, "") if isinstance(piece, str) else piece
    return _in_line(what if isinstance(what, str) else place(what)), style


def _in_line(text: str) -> str:
    """A text that stays in its line."""
    return printable(text.translate(_BLANKS))


_BLANKS = dict.fromkeys(b"\t\n\v\f\r", " ")


def _cut_out(pieces: Sequence[tuple[str, str]], start: int, end: int) -> Iterator[tuple[str, str]]:
    """The pieces between two positions of a text."""
    at = 0
    for text, style in pieces:
        shown = text[max(0, start - at) : max(0, end - at)]
        if shown:
            yield shown, style
        at += len(text)


def _breaks(text: str, first: int, room: int) -> list[int]:
    """The positions at which a text is broken into lines, after spaces; the first line has its own width."""
    breaks: list[int] = []
    begin = space = 0
    for match in re.finditer(r" |$", text):
        if columns(text[begin : match.start()]) > (room if breaks else first) and space > begin:
            breaks.append(space)
            begin = space
        space = match.end()
    return breaks


def _excerpt(part: Excerpt, width: int, color: bool) -> Iterator[str]:
    line = source_line(part.locations, width - part.indent)
    if line is None:
        return
    yield " " * part.indent + line.source
    if line.underline:
        yield " " * part.indent + _styled(line.underline, part.style, color)


def _table(part: Table, width: int) -> Iterator[str]:
    sizes = [max(map(columns, column)) for column in zip(*part.rows, strict=True)]
    over = part.indent + sum(size + 2 for size in sizes if size) - 2 - width
    if over > 0:
        sizes[part.shrinks] = max(1, sizes[part.shrinks] - over)
    for row in part.rows:
        cells = zip(row, part.align, sizes, strict=True)
        shown = [_cell(text, align, size) for text, align, size in cells if size]
        yield (" " * part.indent + "  ".join(shown)).rstrip()


def _cell(text: str, align: str, size: int) -> str:
    """A text of exactly *size* columns, cut at its left if it is longer."""
    text = _in_line(text)
    if columns(text) > size:
        while columns(text) >= size > 0 and text:
            text = text[1:]
        text = f"…{text}"
    room = " " * (size - columns(text))
    return room + text if align == ">" else text + room


def _styled(text: str, style: str, color: bool, bold: bool = False) -> str:
    if not color or not style:
        return text
    codes = [code for code in ("1" if bold and style != "dim" else "", STYLES[style].code) if code]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text


def _shows_colors() -> bool:
    """Whether the standard output is a terminal that shows colours, and they are not forbidden."""
    console = require("rich.console", "a report as text").Console(file=sys.stdout)
    return console.is_terminal and console.color_system is not None and not console.no_color
