"""The parts of a report as a notebook shows them: HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stopgrad.base.notebooks import at_line, cell_of
from stopgrad.base.printable import printable
from stopgrad.flow.page.page_sources import shown_names
from stopgrad.flow.reports.sections import DIM, STYLES, Excerpt, Paragraph, Part, Piece, Section, Table
from stopgrad.flow.source_lines import source_line

MONO = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
WIDTH = 110
"""The most characters of a line of source."""
OPEN = 20
"""The number of sections that are unfolded at first."""


def html_of(parts: Iterable[Part]) -> str:
    """Parts as HTML that is readable on white and on black."""
    return f'<div style="line-height:1.45;max-width:60em">{_html(parts)}</div>'


def _html(parts: Iterable[Part]) -> str:
    shown, sections = [], 0
    for part in parts:
        match part:
            case Paragraph():
                shown.append(f"<div{_moved(part.indent)}>{_text(part)}</div>")
            case Excerpt():
                shown.append(_excerpt(part))
            case Table():
                shown.append(_table(part))
            case Section(title, below):
                sections += 1
                shown.append(_section(title, _html(below), " open" if sections <= OPEN else ""))
    return "".join(shown)


def _section(title: Paragraph, below: str, unfolded: str) -> str:
    margin = f"margin:.4em 0 .4em {0.6 * title.indent:.1f}em"
    if not below:
        return f'<div style="{margin}">{_text(title)}</div>'
    return f'<details style="{margin}"{unfolded}><summary>{_text(title)}</summary>{below}</details>'


def _text(part: Paragraph) -> str:
    return "".join(map(_piece, part.pieces))


def _piece(piece: Piece) -> str:
    what, style = (piece, "") if isinstance(piece, str) else piece
    # Notebooks are shared, and need not say where their author's files are.
    text = printable(
        what if isinstance(what, str) else at_line(shown_names([what.file])[0], what.line, cell_of(what.file))
    )
    if not style:
        return escape(text)
    colour = STYLES[style].colour
    looks = f' style="color:{colour}"' if colour else ""
    tag = "span" if style == DIM else "b"
    return f"<{tag}{looks}>{escape(text)}</{tag}>"


def _moved(indent: int) -> str:
    return f' style="margin-left:{0.6 * indent:.1f}em"' if indent else ""


def _excerpt(part: Excerpt) -> str:
    """The user's line, with its number and the expressions underlined."""
    line = source_line(part.locations, WIDTH)
    if line is None:
        return ""
    under = f"text-decoration:underline wavy {STYLES[part.style].colour}"
    shown, at = "", 0
    for start, end in line.spans:
        shown += f'{escape(line.text[at:start])}<span style="{under}">{escape(line.text[start:end])}</span>'
        at = end
    return (
        f'<pre style="margin:.1em 0 .3em 1.4em;padding:.2em .6em;{MONO};font-size:.92em;'
        f'background:rgba(128,128,128,.12);white-space:pre-wrap">'
        f'<span style="opacity:.75">{line.number}</span>  {shown}{escape(line.text[at:])}</pre>'
    )


def _table(part: Table) -> str:
    sides = ["right" if align == ">" else "left" for align in part.align]
    rows = []
    for row in part.rows:
        cells = zip(row, sides, strict=True)
        shown = [f'<td style="text-align:{side}">{escape(printable(cell))}</td>' for cell, side in cells]
        rows.append(f"<tr>{''.join(shown)}</tr>")
    return f'<table style="margin-left:1.4em;{MONO};font-size:.92em">{"".join(rows)}</table>'
