"""The page of a report: a single HTML file that contains all it needs, also scripts and layout engine."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
from pathlib import Path

from stopgrad.flow.page.page_data import page_data
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.words import plain
from stopgrad.graph.files import AnyPath, replacing
from stopgrad.graph.graph import Graph

HOME = Path(__file__).parent
SCRIPTS = ("model.js", "layout.js", "draw.js", "source.js", "panels.js", "main.js")
ENGINE_INTERFACE = "elk/elk-api.js"
ENGINE = "elk/elk-worker.min.js"


def write(report: Reaches, path: AnyPath) -> None:
    """Write the page of a report to a file. An old file stays until the new one is complete.

    Raises:
        FileError: the folder does not exist, the disk is full, the path is that of a folder.
    """
    text = memoryview(page(report).encode())
    with replacing(path) as file:
        while text:
            text = text[os.write(file, text) :]


DRAWN = 50_000
"""The most operations of a graph that is drawn in a notebook, whose file grows by 2.6 MB then."""


def is_drawn(graph: Graph) -> bool:
    """Whether a graph is small enough for a drawing in a notebook."""
    return len(graph) <= DRAWN


def drawing(report: Reaches) -> str:
    """The graph of a report as an element of a notebook: the page without what is beside the graph.

    It needs no network. Each drawing holds the layout engine, 0.6 MB. Empty for a large graph.
    """
    if not is_drawn(report.graph) or not report.ys:
        return ""
    inside = html.escape(page(report, small=True))
    style = "width:100%;height:32em;border:1px solid rgba(128,128,128,.35);border-radius:6px"
    return f'<iframe srcdoc="{inside}" title="the graph" loading="lazy" style="{style}"></iframe>'


def page(report: Reaches, small: bool = False) -> str:
    """The page of a report, as HTML; a small one has only the graph, without a gradient made for it."""
    labels = ", ".join(map(plain, report.xs))
    filled = {
        "title": html.escape(f"stopgrad: {labels[:60]}"),
        "style.css": _read("style.css"),
        "class": "small" if small else "whole",
        "data": _json(page_data(report, not small)),
        "engine": base64.b64encode(gzip.compress(_read(ENGINE).encode(), 6, mtime=0)).decode(),
        "scripts": "\n".join(f"<script>\n{_read(name)}</script>" for name in (ENGINE_INTERFACE, *SCRIPTS)),
    }
    return re.sub(r"\{\{(.+?)\}\}", lambda match: filled[match[1]], _read("page.html"))


def _read(name: str) -> str:
    return (HOME / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """JSON for a script element, escaped so that it cannot end the element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
