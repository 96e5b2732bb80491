"""The report for a terminal: in the order in which a reader wants it, each line of source once."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stopgrad.base.coercion import whole
from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.flow.model import Report
from stopgrad.flow.parts import ARRIVES, Cut, Place, Story
from stopgrad.flow.source_lines import columns, place, source_line
from stopgrad.flow.words import counted, listed, names, number, plain
from stopgrad.graph.graph import Operation, title
from stopgrad.graph.op import Status

NARROWEST = 40
EXCERPTS = 40
"""So many lines of source are shown; of further cuts, the place and the reason."""
CUTS = 12
"""So many cuts are told of a group of tensors."""
STORIES = 60
"""So many groups of tensors are told of."""

STYLES = {
    Status.FLOWS: "green",
    Status.PARTLY_STOPPED: "yellow",
    Status.STOPPED: "red",
    Status.UNDEFINED: "bold red",
    Status.NOT_DIFFERENTIABLE: "magenta",
    Status.DISCONNECTED: "cyan",
}
_IDLE = "yellow"

Part = str | tuple[str, str]
"""A text, or one with its style."""


def text_of(report: Report, width: int = 80, color: bool | None = None) -> str:
    """The whole report; see :meth:`stopgrad.flow.report.Flow.to_text`."""
    page = _Page(report, whole(width))
    page.summary()
    page.stories()
    page.idle()
    page.noted()
    return page.text(color)


def stories_of(report: Report) -> str:
    """Of a report only the tensors with what cuts their paths, without colours."""
    page = _Page(report)
    page.stories()
    return page.text(False)


def summary_of(report: Report) -> str:
    """How many of the tensors gradients reach, in a sentence."""
    of = of_what(report)
    if not report:
        return f"Gradients{of}: nothing was asked about."
    found = list(zip(report.xs.items(), report.values(), strict=True))
    # Labels and positions among the arguments were not kept from anything.
    able = [one for one in found if one[0][1].type.differentiable] or found
    statuses = Counter(reach.status for _, reach in able)
    total, reached = len(able), sum(statuses[status] for status in ARRIVES)
    partly = statuses[Status.PARTLY_STOPPED]
    kinds = {x.dtype.name == "bool" for (_, x), _ in found if not x.type.differentiable}
    kind = "booleans" if kinds == {True} else "integers" if kinds == {False} else "integers and booleans"
    aside = [f"{number(len(found) - total)} of {kind}"] if len(found) > total else []
    if total == 1:
        name, (status,) = plain(able[0][0][0]), statuses
        if status not in ARRIVES:
            return f"No gradient{of} reaches {name}: {listed([str(status), *aside])}."
        rest = ["some of the paths are cut"] if partly else []
        return f"A gradient{of} reaches {name}{f'; {listed([*rest, *aside])}' if rest or aside else ''}."
    if reached == total:
        count = "both" if total == 2 else f"all {number(total)}"
    else:
        count = f"{number(reached) if reached else 'none'} of {number(total)}"
    rest = [
        f"{number(statuses[status])} {status}"
        for status in STYLES
        if status not in ARRIVES and statuses[status]
    ] + aside
    some = f" ({'' if partly == reached else f'{number(partly)} '}partly)" if partly else ""
    return f"Gradients{of} reach {count} tensors{some}{f'; {listed(rest)}' if rest else ''}."


def of_what(report: Report) -> str:
    """What is differentiated, where a reader knows it by a name that somebody gave it."""
    named = [plain(y.name) for y in report.ys]
    types = "|".join(re.escape(y.op.type) for y in report.ys)
    own = re.compile(rf"(.*/)?({types})(_\d+)?(:\d+)?")
    return (
        ""
        if report.is_function or len(named) > 3 or any(map(own.fullmatch, named))
        else f" of {listed(named)}"
    )


def reason_of(cut: Cut) -> str:
    """What cuts, in a few words."""
    uses = f" ({counted(cut.uses, 'use')})" if cut.uses > 1 else ""
    switched = " while its condition holds" if cut.switched else ""
    reason = cut.reason.removesuffix(", where its condition holds") if cut.switched else cut.reason
    origin = cut.operation.origin
    if origin is None:
        made = ""
    else:
        made = ", in the gradient of this line" if cut.location else f", in the gradient of {origin.type}"
    return f"{reason}{switched}{uses}{made}"


class _Page:
    """What has been written of a report, line by line."""

    def __init__(self, report: Report, width: int = 80) -> None:
        if width < NARROWEST:
            raise ArgumentError(f"to_text: width is {NARROWEST} columns or more, not {width}")
        self._report, self._width = report, width
        self._text: Any = require("rich.text", "a report as text").Text
        self._lines: list[Any] = []
        self._shown: set[Place] = set()
        self._cuts_in = Counter(place(cut.location) for cut in report.cuts if cut.location)

    def text(self, color: bool | None) -> str:
        """All of it, with colours or without."""
        if not (_shows_colors() if color is None else color):
            return "\n".join([line.plain for line in self._lines])
        rich = require("rich.console", "a report as text")
        file = io.StringIO()
        console = rich.Console(
            file=file, force_terminal=True, color_system="standard", no_color=False, width=self._width
        )
        for line in self._lines:
            console.print(line, soft_wrap=True, highlight=False)
        return file.getvalue().removesuffix("\n")

    def add(self, *parts: Part, indent: int = 0) -> None:
        """A line, wrapped; names and paths are not broken."""
        text = self._text.assemble(*parts)
        room = self._width - indent
        breaks = _breaks(text.plain, room, room - 2)
        for i, line in enumerate(text.divide(breaks)):
            line.rstrip()
            self._lines.append(self._text(" " * (indent + 2 if i else indent)) + line)

    def source(self, operations: Sequence[Operation], style: str) -> None:
        """A line of source, with what built the operations underlined."""
        found = source_line(dict.fromkeys(map(self._report.location, operations)), self._width)
        if found is not None:
            self._lines.append(self._text(found.source))
            if found.underline:
                self._lines.append(self._text(found.underline, style=style))

    def gap(self) -> None:
        if self._lines:
            self._lines.append(self._text(""))

    # ------------------------------------------------------------------------------------- the parts

    def summary(self) -> None:
        self.add((summary_of(self._report), "bold"))

    def stories(self) -> None:
        """What is worst comes first; tensors of which one line says all come last."""
        stories = self._report.stories
        short = [story for story in stories if self._is_short(story)]
        long = [story for story in stories if not self._is_short(story)]
        for story in long[:STORIES]:
            self.gap()
            self.story(story)
        if len(long) > STORIES:
            rest = sum(len(story.keys) for story in long[STORIES:])
            self.gap()
            self.add(f"and {counted(rest, 'tensor')} more, cut at other lines; to_json() has all")
        if short:
            self.gap()
        lines: dict[tuple[Status, str], list[str]] = {}
        for story in short:
            lines.setdefault((story.status, self._why_short(story)), []).extend(story.labels)
        for status, why in sorted(lines, key=lambda key: key[0] is Status.FLOWS):
            self.heading(status, lines[status, why], why)

    def _carries_none(self, story: Story) -> bool:
        return not self._report.xs[story.labels[0]].type.differentiable

    def _is_short(self, story: Story) -> bool:
        return not story.cuts or self._carries_none(story)

    def _why_short(self, story: Story) -> str:
        return story.cuts[0].reason if story.cuts else ""

    def heading(self, status: Status, labels: Sequence[str], why: str = "") -> None:
        shown = names(labels, self._report.xs, self._width - len(status) - 4)
        self.add((f"{status}:", f"bold {STYLES[status]}"), f" {shown}", f" ({why})" if why else "")

    def story(self, story: Story) -> None:
        """Tensors, how many of their paths are cut, and where."""
        arrives = story.status in ARRIVES
        self.heading(story.status, story.labels)
        aside = [cut for cut in story.cuts if arrives and cut.status is Status.NOT_DIFFERENTIABLE]
        cutting = [cut for cut in story.cuts if cut not in set(aside)]
        paths = self._paths(story)
        if paths and cutting and not all(cut.switched for cut in cutting):
            self.add(paths, indent=2)
        new = [cut for cut in cutting if self._report.place(cut) not in self._shown]
        old = [cut for cut in cutting if self._report.place(cut) in self._shown]
        for cut in new[:CUTS]:
            self.cut(cut, story)
        if len(new) > CUTS:
            self.add(f"and {counted(len(new) - CUTS, 'more line')} of source; to_json() has all", indent=2)
        if old:
            also = "also cut" if new else "cut"
            shown = (
                listed(_places(old, self._cuts_in))
                if len(old) <= CUTS
                else f"{counted(len(old), 'line')} of source"
            )
            self.add(f"{also} at {shown}, shown above", indent=2)
        for cut in aside[:CUTS]:
            self.without_derivative(cut)
        if len(aside) > CUTS:
            self.add(f"and {counted(len(aside) - CUTS, 'more line')} without derivative", indent=2)

    def _paths(self, story: Story) -> str:
        """How many paths there are, and how many are cut; nothing where there is one."""
        found = [self._report[key] for key in story.keys]
        each = " to each" if len(found) > 1 else ""
        every, cut = _span([reach.paths for reach in found]), _span([reach.cut_paths for reach in found])
        if all(reach.paths == reach.cut_paths for reach in found):
            if every == "1":
                return ""
            if " to " in every:
                return f"all paths are cut, {every}{each}"
            return f"{'both' if every == '2' else f'all {every}'} paths{each} are cut"
        verb = "is" if cut == "1" else "are"
        return f"{cut} of {'the ' if ' to ' in every else ''}{every} paths{each} {verb} cut"

    def cut(self, cut: Cut, story: Story) -> None:
        """A line at which paths end, with its source, and what removing it would bring."""
        style = STYLES[cut.status]
        self._shown.add(self._report.place(cut))
        where = title(cut.operation) if cut.location is None else place(cut.location)
        self.add((where, "bold"), f"  {reason_of(cut)}", indent=2)
        if len(self._shown) <= EXCERPTS:
            self.source(cut.operations, style)
        told = "" if story.status in ARRIVES else self._removed(cut, story)
        if told:
            self.add(told, indent=9)

    def _removed(self, cut: Cut, story: Story) -> str:
        """What removing a cut alone would not bring, and why not; nothing where it brings all."""
        opens = set(cut.opens)
        closed = {label for label in story.labels if label not in opens}
        if not closed:
            return ""
        opened = [label for label in story.labels if label in opens]
        behind = [
            self._next(one)
            for one in self._report.beyond(cut)
            if closed.intersection(one.behind) and self._report.place(one) != self._report.place(cut)
        ]
        more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
        why = f": behind it {listed(behind[:3])}{more}" if behind else ": other cuts lie behind it"
        if opened:
            return f"without it gradients would reach {names(opened, self._report.xs)} only{why}"
        return f"removing it alone opens nothing{why}"

    def _next(self, behind: Cut) -> str:
        """A cut behind another."""
        where = title(behind.operation) if behind.location is None else place(behind.location)
        return f"is {where} ({behind.reason})"

    def without_derivative(self, cut: Cut) -> None:
        """A way without derivative to tensors that a gradient reaches by another: in one line."""
        self._shown.add(self._report.place(cut))
        location = cut.location
        if location is None:
            where = title(cut.operation)
        else:
            source = " ".join(location.source.split())
            where = f"{place(location)}  {source if len(source) <= 30 else f'{source[:27]}...'}"
        self.add(("no derivative: ", "dim"), f"{where}: {reason_of(cut)}", indent=2)

    def idle(self) -> None:
        """The stops that do nothing."""
        found = [one for one in self._report.findings if one.kind == "idle"]
        if not found or not len(self._report):
            return
        cutting = {op for cut in self._report.cuts for op in cut.operations}
        self.gap()
        self.add(
            ("idle:", f"bold {_IDLE}"),
            f" {counted(len(found), 'stop')} that {'does' if len(found) == 1 else 'do'} nothing",
        )
        for one in found[:CUTS]:
            op = one.operations[0]
            where = title(op) if one.location is None else place(one.location)
            self.add((where, "bold"), f"  {one.reason}", indent=2)
            if op not in cutting:
                self.source(one.operations, _IDLE)
        if len(found) > CUTS:
            self.add(f"and {len(found) - CUTS} more", indent=2)

    def noted(self) -> None:
        """What else was found by who recorded or imported the graph."""
        found = self._report.noted
        if not found:
            return
        self.gap()
        for one in found[:CUTS]:
            where = "" if one.location is None else f"{place(one.location)}  "
            self.add((f"{one.kind}:", f"bold {_IDLE}"), f" {where}{one.message}")
            if one.operations:
                self.source(one.operations, _IDLE)
        if len(found) > CUTS:
            self.add(f"and {len(found) - CUTS} more; to_json() has all")


def _places(cuts: Sequence[Cut], lines: Mapping[str, int]) -> list[str]:
    """Where cuts are: a file once for several, and why where several are in a line."""
    found: list[str] = []
    last = ""
    for cut in cuts:
        if cut.location is None:
            found.append(title(cut.operation))
            continue
        where = place(cut.location)
        file = where.rpartition(":")[0]
        found.append(where.removeprefix(file) if file == last else where)
        if lines[where] > 1:
            found[-1] += f" ({cut.reason})"
        last = file
    return found


def _breaks(text: str, first: int, room: int) -> list[int]:
    """Where a text is broken into lines, after spaces: the first of its own width."""
    found: list[int] = []
    begin = space = 0
    for match in re.finditer(r" |$", text):
        if columns(text[begin : match.start()]) > (room if found else first) and space > begin:
            found.append(space)
            begin = space
        space = match.end()
    return found


def _span(numbers: Sequence[int]) -> str:
    """From the least to the greatest."""
    low, high = number(min(numbers)), number(max(numbers))
    return low if low == high else f"{low} to {high}"


def _shows_colors() -> bool:
    """Whether the standard output is a terminal that shows colours, and nobody forbade them."""
    console = require("rich.console", "a report as text").Console(file=sys.stdout)
    return console.is_terminal and console.color_system is not None and not console.no_color
