"""The report of :func:`explain`, as users get it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stopgrad.flow.document import document_of
from stopgrad.flow.page.html import drawing, is_drawn, write
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.notebook_html import html_of
from stopgrad.flow.reports.notices import Notice
from stopgrad.flow.reports.sections import DIM, Paragraph, Part
from stopgrad.flow.stories import notices_of, parts_of
from stopgrad.flow.words import counted
from stopgrad.graph.files import AnyPath


class Flow(Reaches, FlowReport):
    __doc__ = Reaches.__doc__

    _format = "stopgrad.flow"

    def _parts(self, width: int) -> Iterable[Part]:
        return parts_of(self, width)

    def _data(self) -> dict[str, Any]:
        return document_of(self)

    def _notices(self) -> Iterable[Notice]:
        return notices_of(self)

    def _drawing(self) -> str:
        if not is_drawn(self.graph):
            draw = f'The graph has {counted(len(self.graph), "operation")}: to_html("flow.html") draws it.'
            return html_of([Paragraph((draw, DIM))])
        drawn = drawing(self)
        return f"<details><summary>the graph</summary>{drawn}</details>" if drawn else ""

    def to_html(self, path: AnyPath) -> None:
        """Write the report as a page: the graph, folded by scopes, beside the source, with the findings.

        It is a single file that needs no others and no network. An old file stays until the new one is
        complete.

        Args:
            path: the path of the file; its folder must exist.

        Raises:
            FileError: the file cannot be written.
        """
        write(self, path)
