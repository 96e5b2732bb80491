"""The base class of reports: text for terminals, HTML for notebooks, and data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from stopgrad.base.coercion import whole
from stopgrad.base.errors import ArgumentError
from stopgrad.flow.reports.json_form import json_of
from stopgrad.flow.reports.notebook_html import WIDTH, html_of
from stopgrad.flow.reports.notices import Notice, github, sarif
from stopgrad.flow.reports.sections import Part
from stopgrad.flow.reports.terminal import text_of

NARROWEST = 40


class FlowReport:
    """A report with a form as text, in notebooks, as dicts and lists, and as JSON.

    Subclasses define its parts and its data.
    """

    _format: ClassVar[str]
    _version: ClassVar[int] = 1
    """The version of the data. New fields do not change it; removed or redefined ones do."""

    def _parts(self, width: int) -> Iterable[Part]:
        """The parts of the report, for a page of *width* columns."""
        raise NotImplementedError

    def _in_notebook(self) -> Iterable[Part]:
        """The parts of the report in a notebook."""
        return self._parts(WIDTH)

    def _drawing(self) -> str:
        """What a notebook shows below the report, as HTML."""
        return ""

    def _data(self) -> dict[str, Any]:
        """The content of the report as data."""
        raise NotImplementedError

    def _notices(self) -> Iterable[Notice]:
        """What the report says of lines of source."""
        raise NotImplementedError

    def to_text(self, width: int = 80, color: bool | None = None) -> str:
        """The report for a terminal, the most important part first, with lines of source.

        Args:
            width: the columns of a line, at least 40; longer names, paths and messages have their own line.
            color: whether to use colours; unless given, if the standard output is a terminal that shows them.

        Raises:
            ArgumentError: the width is invalid.

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
        if whole(width) < NARROWEST:
            raise ArgumentError(f"to_text: width is {NARROWEST} columns or more, not {width}")
        return text_of(self._parts(width), width, color)

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, strings, numbers and None; docs/flow-report.md describes them.

        Numbers that are not finite are the texts ``"nan"``, ``"inf"`` and ``"-inf"``.
        """
        return {"format": self._format, "version": self._version, **json_of(self._data())}

    def to_json(self, indent: int | None = None) -> str:
        """The same as a text in JSON, ``indent`` spaces deep if given.

        Examples:
            >>> import json
            >>> flow = sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)
            >>> [(x["key"], x["status"], x["paths"]) for x in json.loads(flow.to_json())["xs"]]
            [('a', 'flows', 1), ('b', 'stopped', 1)]
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def to_github(self) -> str:
        """What the report finds, as commands by which GitHub Actions annotates lines of source.

        Examples:
            >>> flow = sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)
            >>> flow.to_github()  # doctest: +ELLIPSIS
            '::warning file=...,line=1,...,title=stopgrad%3A stopped::stopped: b'
        """
        return github(self._notices())

    def to_sarif(self) -> str:
        """What the report finds, in SARIF 2.1.0, which code scanning and editors read.

        Examples:
            >>> import json
            >>> flow = sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)
            >>> [found["message"]["text"] for found in json.loads(flow.to_sarif())["runs"][0]["results"]]
            ['stopped: b']
        """
        return sarif(self._notices())

    def _repr_html_(self) -> str:
        """The report for notebooks."""
        return html_of(self._in_notebook()) + self._drawing()

    def __str__(self, width: int = 80) -> str:
        return self.to_text(width, color=False)
