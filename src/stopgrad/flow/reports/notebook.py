"""What a notebook shows of a report: HTML without scripts, which reads well on white and on black."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stopgrad.base.source import Location
from stopgrad.flow.model import Report
from stopgrad.flow.page.sources import shown_names
from stopgrad.flow.parts import Cut, Story
from stopgrad.flow.source_lines import source_line
from stopgrad.flow.words import names

COLOURS = {
    "flows": "#1f9d4d",
    "partly stopped": "#b07d00",
    "stopped": "#dd3c50",
    "not differentiable": "#a060c8",
    "undefined": "#a060c8",
    "disconnected": "#888888",
}
"""Of statuses: of a middling lightness, so that each can be read on white and on black."""
MONO = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SHOWN = 8
"""So many cuts of one story are shown, and so many findings."""
STORIES = 20
WIDTH = 110
"""Characters of a line of source."""


def fragment(report: Report) -> str:
    """Statuses, cuts with the underlined expression, and stops that do nothing."""
    stories = report.stories
    told = [_story(story, report.xs) for story in stories[:STORIES]]
    idle = [finding for finding in report.findings if finding.kind == "idle"]
    for finding in idle[:SHOWN]:
        shown = _source(finding.location, "idle")
        told.append(f'<div style="margin:.5em 0">{escape(finding.message)}{shown}</div>')
    more = len(stories[STORIES:]) + len(idle[SHOWN:])
    if more:
        told.append(f"<div>and {more} more; Flow.to_html(path) shows all</div>")
    return f'<div style="line-height:1.45;max-width:60em">{"".join(told)}</div>'


def _story(story: Story, every: Iterable[str]) -> str:
    status = str(story.status)
    badge = f'<b style="color:{COLOURS[status]}">{escape(status)}</b>'
    cuts = "".join(_cut(cut) for cut in story.cuts[:SHOWN])
    if len(story.cuts) > SHOWN:
        cuts += f'<div style="margin-left:1.4em">and {len(story.cuts) - SHOWN} more</div>'
    labels = escape(names(story.labels, every))
    return f'<div style="margin:.5em 0"><code>{labels}</code> &nbsp;{badge}{cuts}</div>'


def _cut(cut: Cut) -> str:
    uses = f" ({cut.uses} uses)" if cut.uses > 1 else ""
    shown = _source(cut.location, "stopped")
    return f'<div style="margin-left:1.4em">{escape(cut.reason)}{uses}{shown}</div>'


def _source(location: Location | None, status: str) -> str:
    """The user's line, with its place before it and the expression underlined."""
    if location is None:
        return ""
    under = f"text-decoration:underline wavy {COLOURS.get(status, COLOURS['partly stopped'])}"
    line, shown, at = source_line(location, WIDTH), "", 0
    if line is not None:
        for start, end in line.spans:
            shown += (
                f'{escape(line.text[at:start])}<span style="{under}">{escape(line.text[start:end])}</span>'
            )
            at = end
        shown += escape(line.text[at:])
    where = f"{shown_names([location.file])[0]}:{location.line}"
    return (
        f'<pre style="margin:.1em 0 .3em;padding:.2em .6em;{MONO};font-size:.92em;'
        f'background:rgba(128,128,128,.12);white-space:pre-wrap">'
        f'<span style="opacity:.75">{escape(where)}</span>  {shown}</pre>'
    )
