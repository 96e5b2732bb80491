"""Draws a report of ``explain``: from the loss to the tensors, with the lines at which gradients are cut.

    python docs/images/draw_flow.py README.md docs/images/readme.svg

runs the first Python program of the page and draws what it calls ``flow``.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from stopgrad.flow import Flow

WIDTH, ROW, HEIGHT = 820, 76, 48
WALL, ENDS = 270, 590
"""The left edges of the lines that cut, and of the tensors."""
STYLE = """
svg { font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 14px; }
rect { fill: #f6f8fa; stroke: #8c959f; } text { fill: #1f2328; dominant-baseline: middle; }
.dim { fill: #59636e; font-size: 12px; } path { fill: none; stroke-width: 2; }
.flows { stroke: #1a7f37; } .arrow { fill: #1a7f37; stroke: none; }
.gone { stroke: #8c959f; stroke-dasharray: 4 5; }
.wall rect { fill: #ffebe9; stroke: #cf222e; stroke-width: 2; } .ends rect { fill: #dafbe1; stroke: #1a7f37; }
@media (prefers-color-scheme: dark) {
  rect { fill: #151b23; stroke: #656c76; } text { fill: #f0f6fc; } .dim { fill: #9198a1; }
  .flows { stroke: #3fb950; } .arrow { fill: #3fb950; } .gone { stroke: #656c76; }
  .wall rect { fill: #3c1618; stroke: #f85149; } .ends rect { fill: #12261e; stroke: #3fb950; }
}
"""


class Row(NamedTuple):
    """Tensors with one story: their names, whether a gradient arrives, and the cuts on the way."""

    names: list[str]
    arrives: bool
    cuts: list[str]


def rows(flow: Flow) -> list[Row]:
    """The tensors of a report, those together whose gradients are cut at the same lines."""
    found: dict[Any, Row] = {}
    for name in flow:
        reach = flow[name]
        places = [(cut.location, cut.reason) for cut in reach.cuts]
        cuts = [f"{Path(place.file).name}:{place.line}|{reason}" for place, reason in places if place]
        found.setdefault((reach.arrives, *cuts), Row([], reach.arrives, cuts)).names.append(name)
    return sorted(found.values(), key=lambda row: not row.arrives)


def box(kind: str, x: float, y: float, width: float, lines: Iterable[str]) -> str:
    """A box around one line of text, or two, the second small."""
    shown = list(lines)
    texts = "".join(
        f'<text x="{x + 12}" y="{y + HEIGHT * (i + 1) / (len(shown) + 1):.0f}"'
        f"{' class=' + chr(34) + 'dim' + chr(34) if i else ''}>{escape(line)}</text>"
        for i, line in enumerate(shown)
    )
    return f'<g class="{kind}"><rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="6"/>{texts}</g>'


def way(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = (x1 + x2) / 2
    tip = f'<path class="arrow" d="M{x2} {y2}l-9 -5v10z"/>' if kind == "flows" else ""
    return f'<path class="{kind}" d="M{x1} {y1}C{bend} {y1} {bend} {y2} {x2 - 6} {y2}"/>{tip}'


def names_of(row: Row) -> list[str]:
    """The names in at most 26 letters, and what becomes of them."""
    heads = {name.rpartition(".")[0] for name in row.names}
    name = f"{heads.pop()}.*" if len(row.names) > 1 and len(heads) == 1 and "" not in heads else ""
    name = name or ", ".join(row.names)
    return [
        name if len(name) <= 26 else f"{name[:25]}…",
        "the gradient arrives" if row.arrives else "no gradient",
    ]


def to_svg(flow: Flow, loss: str = "loss") -> str:
    """The picture, in light or dark as the reader has it."""
    found = rows(flow)
    height = ROW * len(found) + 8
    middle = height / 2
    parts = []
    for i, row in enumerate(found):
        y = 4 + ROW * i + ROW / 2
        top = y - HEIGHT / 2
        if row.cuts and not row.arrives:
            parts.append(way("flows", (130, middle), (WALL, y)) + way("gone", (WALL + 210, y), (ENDS, y)))
            place, _, reason = row.cuts[0].partition("|")
            more = f" and {len(row.cuts) - 1} more" if len(row.cuts) > 1 else ""
            parts.append(box("wall", WALL, top, 210, [reason, f"{place}{more}"]))
        else:
            parts.append(way("flows" if row.arrives else "gone", (130, middle), (ENDS, y)))
        parts.append(box("ends" if row.arrives else "none", ENDS, top, 226, names_of(row)))
    parts.append(box("loss", 4, middle - HEIGHT / 2, 126, [loss, "gradients start"]))
    said = f"{str(flow).splitlines()[0]} A picture of the report of stopgrad."
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(said)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def flow_of(page: Path) -> Flow:
    """What the first program of a page calls ``flow``."""
    program = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    linecache.cache["train.py"] = (len(program), None, program.splitlines(keepends=True), "train.py")
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program, "train.py", "exec"), names)  # noqa: S102
    return names["flow"]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(to_svg(flow_of(Path(sys.argv[1]))))
