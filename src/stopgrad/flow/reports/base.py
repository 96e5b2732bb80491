"""What every report is: text for a terminal, HTML for a notebook, and data, all in one way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from stopgrad.base.coercion import whole
from stopgrad.base.errors import ArgumentError
from stopgrad.flow.reports.json_form import json_of
from stopgrad.flow.reports.notebook import WIDTH, html_of
from stopgrad.flow.reports.terminal import text_of
from stopgrad.flow.reports.tree import Part

NARROWEST = 40


class FlowReport:
    """A report that is shown as text and in notebooks, and is to be had as dicts and lists and as JSON.

    A class of reports says of which parts one is made, and what its data are.
    """

    _format: ClassVar[str]
    _version: ClassVar[int] = 1
    """Of the data: they grow by new fields; where one is removed or means something else, by one."""

    def _parts(self, width: int) -> Iterable[Part]:
        """What it is made of, on a page of so many columns."""
        raise NotImplementedError

    def _data(self) -> dict[str, Any]:
        """What it says, as data."""
        raise NotImplementedError

    def to_text(self, width: int = 80, color: bool | None = None) -> str:
        """The report for a terminal: what matters most comes first, with its line of source.

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

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_of(self._parts(WIDTH))

    def __str__(self, width: int = 80) -> str:
        return self.to_text(width, color=False)
