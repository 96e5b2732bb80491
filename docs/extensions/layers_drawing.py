"""Draws the mermaid diagrams of the pages, where GitHub draws them itself: boxes one above the other."""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDTH, HEIGHT, GAP = 180, 26, 14
ARROW = re.compile(r"^\s*(\w+) --> (\w+)\s*$", re.MULTILINE)


def drawing(text: str) -> str:
    """A chain of arrows as SVG."""
    arrows = ARROW.findall(text)
    names = [arrows[0][0], *(below for _, below in arrows)]
    if [above for above, _ in arrows] != names[:-1]:
        raise ValueError("only a chain of arrows can be drawn: a --> b, b --> c")
    parts = []
    for row, name in enumerate(names):
        y = 2 + row * (HEIGHT + GAP)
        parts.append(f'<rect x="2" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>')
        parts.append(f'<text x="{2 + WIDTH / 2}" y="{y + HEIGHT / 2}">{escape(name)}</text>')
        if row:
            parts.append(f'<path d="M{2 + WIDTH / 2} {y - GAP}v{GAP - 4}m-4 -4l4 5l4 -5"/>')
    size = f'width="{WIDTH + 4}" height="{len(names) * (HEIGHT + GAP)}"'
    label = escape(" above ".join(names))
    return f'<svg class="layers" role="img" aria-label="{label}" {size}>{"".join(parts)}</svg>'


class Mermaid(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", drawing("\n".join(self.content)), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
