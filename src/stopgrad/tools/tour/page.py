"""The page of the tour: one self-contained HTML file."""

from __future__ import annotations

import html
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

from stopgrad.base.namespaces import require
from stopgrad.tools.recipes.plots import FAINT, INK
from stopgrad.tools.recipes.result import Check, LossGraph, Picture, Result, Table
from stopgrad.tools.tour import graph_pictures
from stopgrad.tools.tour.style import CSS

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stopgrad: the tour</title>
<style>$css</style>
</head>
<body>
<header>
<h1>stopgrad: the tour</h1>
<p>$lead</p>
<nav aria-label="Workloads">$nav</nav>
</header>
<main>
$overview
$sections
</main>
<footer><p>$footer</p></footer>
</body>
</html>
""")

_LEAD = (
    "Uses of a stopped gradient, each on data, each trained to a result. "
    "In every picture of a graph the forward operations stand on the left and, "
    "in the same row, what was generated for their gradient on the right. "
    "A <span class='key stop'>stop</span> is a wall: behind it nothing is generated."
)


def page(results: Sequence[Result], seconds: Sequence[float], facts: str) -> str:
    """The whole page. *facts* describes in words the machine on which it ran."""
    nav = " ".join(f'<a href="#{r.name}">{html.escape(r.title)}</a>' for r in results)
    sections = "\n".join(_section(r) for r in results)
    return _PAGE.substitute(
        css=CSS + _highlighting(),
        lead=_LEAD,
        nav=nav,
        overview=_overview(results, seconds),
        sections=sections,
        footer=html.escape(facts),
    )


def _overview(results: Sequence[Result], seconds: Sequence[float]) -> str:
    rows = [
        f'<tr><th scope="row"><a href="#{r.name}">{html.escape(r.title)}</a></th>'
        f"<td>{html.escape(r.summary)}</td>"
        f'<td class="number">{sum(c.passed for c in r.checks)} of {len(r.checks)}</td>'
        f'<td class="number">{s:.1f} s</td></tr>'
        for r, s in zip(results, seconds, strict=True)
    ]
    head = _head("workload", "what the stop does", "checks passed", "time")
    table = f'<table class="overview">{head}<tbody>{"".join(rows)}</tbody></table>'
    return f"<section><h2>Overview</h2>{_scrolled(table)}</section>"


def _section(result: Result) -> str:
    parts = [
        f'<section id="{result.name}"><h2>{html.escape(result.title)}</h2>',
        f'<p class="summary">{html.escape(result.summary)}</p>',
        _about(result.code),
        *(_table(t) for t in result.tables),
        f'<div class="pictures">{"".join(_picture(p) for p in result.pictures)}</div>',
        *(_graph(g) for g in result.graphs),
        _checks(result.checks),
        _code(result.code),
        "</section>",
    ]
    return "\n".join(parts)


def _about(functions: Sequence[Callable[..., Any]]) -> str:
    """The recipe's own docstring: equations, where the stop stands, and the source."""
    if not functions:
        return ""
    text = inspect.getdoc(inspect.getmodule(functions[0])) or ""
    blocks = text.split("\n\n")[1:]
    return "".join(_paragraph(block) for block in blocks)


def _paragraph(block: str) -> str:
    """A block of a docstring: indented ones, and those that lead up to one, keep their lines."""
    if block.startswith("    "):
        return f'<pre class="equation">{html.escape(textwrap.dedent(block))}</pre>'
    lines = block.split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith("    ")), len(lines))
    text = re.sub(r"``(.+?)``", r"<code>\1</code>", html.escape(" ".join(lines[:first])))
    return f"<p>{text}</p>" + (_paragraph("\n".join(lines[first:])) if first < len(lines) else "")


def _head(*names: str) -> str:
    """The head of a table."""
    cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def _scrolled(content: str) -> str:
    """Content that may be wider than the page, in a box that scrolls by itself."""
    return f'<div class="scroll" tabindex="0">{content}</div>'


def _table(table: Table) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f'<td class="number">{html.escape(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    whole = f"<table>{_head(*table.header)}<tbody>{rows}</tbody></table>"
    return f"<h3>{html.escape(table.title)}</h3>{_scrolled(whole)}"


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr class="{"passed" if c.passed else "failed"}"><td>{"✓" if c.passed else "✗"}</td>'
        f'<th scope="row">{html.escape(c.claim)}</th>'
        f'<td class="number">{c.measured:.4g}</td><td class="number">{c.relation} {c.threshold:g}</td></tr>'
        for c in checks
    )
    head = (
        '<thead><tr><th><span class="hidden">passed</span></th><th scope="col">claim</th>'
        '<th scope="col">measured</th><th scope="col">must be</th></tr></thead>'
    )
    table = f'<table class="checks">{head}<tbody>{rows}</tbody></table>'
    return f"<h3>Checks</h3>{_scrolled(table)}"


def _picture(picture: Picture) -> str:
    wide = " wide" if picture.wide else ""
    caption = html.escape(picture.caption)
    drawn = _svg(picture.figure, picture.caption)
    return f'<figure class="picture{wide}">{_scrolled(drawn)}<figcaption>{caption}</figcaption></figure>'


def _svg(figure: Any, label: str) -> str:
    """A figure of matplotlib as inline SVG that takes its ink from the page."""
    buffer = io.StringIO()
    with require("matplotlib", "drawing", "tour").rc_context({"svg.hashsalt": label}):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


def _graph(graph: LossGraph) -> str:
    rows = "".join(
        f'<tr class="{line.kind}"><td><code>{html.escape(line.place)}</code></td>'
        f"<td><code>{html.escape(line.operation)}</code></td>"
        f"<td><code>{html.escape(line.generated)}</code></td></tr>"
        for line in graph_pictures.listing(graph)
    )
    head = _head("line", "operation", "generated for its gradient")
    table = f'<table class="listing">{head}<tbody>{rows}</tbody></table>'
    counts = f"{len(graph.forward)} forward operations, {len(graph.generated)} generated for the gradient."
    return (
        f"<h3>Graph: {html.escape(graph.title)}</h3><p>{html.escape(graph.note)} {counts}</p>"
        f'<figure class="scroll" tabindex="0">{graph_pictures.to_svg(graph)}</figure>'
        f"<details><summary>As a listing, with the lines of the program</summary>{_scrolled(table)}</details>"
        "<details><summary>What <code>sg.explain</code> says</summary>"
        f"<pre>{html.escape(graph.flow.to_text())}</pre></details>"
    )


# ----------------------------------------------------------------------------------------------- code


def _code(functions: Sequence[Callable[..., Any]]) -> str:
    pygments = require("pygments", "highlighting code", "tour")
    lexer = require("pygments.lexers", "highlighting code", "tour").PythonLexer()
    formatter = require("pygments.formatters", "highlighting code", "tour").HtmlFormatter(nowrap=True)
    text = "\n\n".join(inspect.getsource(f).rstrip() for f in functions)
    return f'<h3>Code</h3><pre class="code"><code>{pygments.highlight(text, lexer, formatter)}</code></pre>'


def _highlighting() -> str:
    formatter = require("pygments.formatters", "highlighting code", "tour").HtmlFormatter
    light = formatter(style="friendly").get_style_defs(".code")
    dark = formatter(style="monokai").get_style_defs(".code")
    rules = "\n".join(line for line in light.splitlines() if line.startswith(".code ."))
    dark_rules = "\n".join(line for line in dark.splitlines() if line.startswith(".code ."))
    return f"{rules}\n@media (prefers-color-scheme: dark) {{\n{dark_rules}\n}}"
