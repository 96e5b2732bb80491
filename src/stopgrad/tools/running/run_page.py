"""The findings of a run as a page: a single file, with the norms of gradients over the steps as a picture."""

from __future__ import annotations

import html
import io
from string import Template

from stopgrad.base.errors import StopgradError
from stopgrad.base.namespaces import require
from stopgrad.flow.problems.catalogue import KINDS
from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.flow.problems.problem_parts import part_of
from stopgrad.flow.reports.notebook_html import html_of
from stopgrad.graph.files import AnyPath
from stopgrad.tools.cli.common import write_text

LAYERS = 12
"""The most layers in the picture: those with the largest and the smallest gradients."""
INK, FAINT = "#010203", "#818283"

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stopgrad run: $title</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.05em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .15em .9em .15em 0; text-align: left; }
svg { max-width: 100%; height: auto; } .step { color: #888; }
</style>
</head>
<body>
<h1>stopgrad run: $title</h1>
$timeline
$findings
$picture
</body>
</html>
""")


def write_page(path: AnyPath, diagnosis: Diagnosis) -> None:
    """Write the page. An old file stays until the new one is complete.

    Raises:
        FileError: it cannot be written.
    """
    write_text(path, page_of(diagnosis))


def page_of(diagnosis: Diagnosis) -> str:
    """The page, as HTML."""
    return _PAGE.substitute(
        title=html.escape(diagnosis.summary),
        timeline=_timeline(diagnosis),
        findings=html_of([part_of(problem) for problem in diagnosis.problems]),
        picture=_picture(diagnosis),
    )


def _timeline(diagnosis: Diagnosis) -> str:
    """The findings by the step in which each was seen first."""
    rows = [
        f"<tr><td class=step>{f'step {problem.step}' if problem.step else ''}</td>"
        f"<td>{KINDS[problem.kind].severity}</td>"
        f"<td>{html.escape(problem.kind)}</td><td>{html.escape(problem.message)}</td></tr>"
        for problem in sorted(diagnosis.problems, key=lambda problem: problem.step)
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _picture(diagnosis: Diagnosis) -> str:
    """The norms of the gradients of layers over the recorded steps; empty where none were measured."""
    norms = {name: points for name, points in diagnosis.norms.items() if any(norm > 0 for _, norm in points)}
    if not norms:
        return ""
    try:
        drawn = _drawn(norms)
    except StopgradError:  # matplotlib is not installed.
        return "<p>pip install 'stopgrad[tour]' draws the norms of gradients over the steps here.</p>"
    return f"<h2>Norms of gradients, by layer</h2>{drawn}"


def _drawn(norms: dict[str, list[tuple[int, float]]]) -> str:
    figures = require("matplotlib.figure", "the picture of a page", "tour")
    ordered = sorted(norms, key=lambda name: max(norm for _, norm in norms[name]))
    if len(ordered) > LAYERS:
        ordered = [*ordered[: LAYERS // 2], *ordered[-LAYERS // 2 :]]
    figure = figures.Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for name in [name for name in norms if name in ordered]:
        steps = [step for step, norm in norms[name] if norm > 0]
        axes.plot(steps, [norm for _, norm in norms[name] if norm > 0], marker=".", label=name)
    axes.set_yscale("log")
    axes.set_xlabel("step", color=INK)
    axes.set_ylabel("norm of the gradient", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.tick_params(colors=FAINT, labelcolor=INK)
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True)
    drawn = out.getvalue()
    return drawn[drawn.index("<svg") :].replace(INK, "currentColor")
