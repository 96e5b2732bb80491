"""The report as a user has it: what it says, and how it is shown."""

from __future__ import annotations

from typing import Any

from stopgrad.flow.document import document_of
from stopgrad.flow.documented import Documented
from stopgrad.flow.model import Report
from stopgrad.flow.page.html import write
from stopgrad.flow.page.notebook import fragment
from stopgrad.flow.text import text_of
from stopgrad.graph.files import AnyPath


class Flow(Report, Documented):
    __doc__ = Report.__doc__

    def to_text(self, width: int = 80, color: bool | None = None) -> str:
        """The report for a terminal: what does not flow first, each cut with its line of source.

        Args:
            width: of a line, in columns, at least 40; longer names, paths and messages stand alone.
            color: whether with the codes that colour a terminal; unless given, where the standard output is
                one that shows colours.

        Raises:
            ArgumentError: the width is none.

        Examples:
            >>> with sg.Graph().as_default():
            ...     x = sg.placeholder(sg.float32, name="x")
            ...     y = sg.placeholder(sg.float32, name="y")
            ...     print(sg.explain(sg.exp(x), [x, y]).to_text())
            Gradients reach 1 of 2 tensors; 1 disconnected.
            <BLANKLINE>
            disconnected: y
            flows: x
        """
        return text_of(self, width, color)

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, strings, numbers and None; docs/flow-report.md describes each."""
        return document_of(self)

    def to_html(self, path: AnyPath) -> None:
        """Write the report as a page: the graph, folded by scopes, beside the source, with what was found.

        One file that needs nothing else, and no network. An old file stays as it is until the new one is
        complete.

        Args:
            path: of the file, whose folder exists.

        Raises:
            FileError: the file cannot be written.
        """
        write(self, path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(self)

    def __str__(self) -> str:
        return self.to_text(color=False)
