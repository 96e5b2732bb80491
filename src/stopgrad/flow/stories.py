"""The text of a flow report: in the order that a reader wants, with each line of source once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stopgrad.flow.parts import ARRIVES, Cut, Place, Story
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.reports.notices import Notice, at_lines
from stopgrad.flow.reports.terminal import text_of
from stopgrad.flow.reports.tree import DIM, IDLE, STRONG, Excerpt, Paragraph, Part, Piece, Section
from stopgrad.flow.source_lines import place
from stopgrad.flow.words import counted, listed, names, number, plain
from stopgrad.graph.graph import Operation, title
from stopgrad.graph.op import Status

EXCERPTS = 40
"""The most lines of source that are shown; of further cuts, only the place and the reason are."""
CUTS = 12
"""The most cuts that are reported for a group of tensors."""
STORIES = 60
"""The most groups of tensors that are reported."""
_ABSENT = (Status.STOPPED, Status.UNDEFINED, Status.NOT_DIFFERENTIABLE, Status.DISCONNECTED)
ALL = "to_json() has all"
WIDTH = 80
"""The columns of reports in messages."""


def parts_of(report: Reaches, width: int) -> Iterator[Part]:
    """The parts of the whole report."""
    yield Paragraph((summary_of(report), STRONG))
    told = _Told(report, width)
    yield from told.stories()
    yield from told.idle()
    yield from told.noted()


def notices_of(report: Reaches) -> Iterator[Notice]:
    """The findings, each at every line that it is about."""
    for finding in report.findings:
        level = "note" if finding in report.noted else "warning"
        locations = map(report.location, finding.operations)
        yield from at_lines(level, finding.kind, finding.message, locations)


def stories_of(report: Reaches) -> str:
    """Only the tensors of a report, with what cuts their paths, for messages."""
    return text_of(_Told(report, WIDTH).stories(), WIDTH)


def summary_of(report: Reaches) -> str:
    """A sentence that says how many of the tensors gradients reach."""
    of = of_what(report)
    if not report:
        return f"Gradients{of}: nothing was asked about."
    found = list(zip(report.xs.items(), report.values(), strict=True))
    # Labels and positions among the arguments have no gradients.
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
    rest = [f"{number(statuses[status])} {status}" for status in _ABSENT if statuses[status]] + aside
    some = f" ({'' if partly == reached else f'{number(partly)} '}partly)" if partly else ""
    return f"Gradients{of} reach {count} tensors{some}{f'; {listed(rest)}' if rest else ''}."


def of_what(report: Reaches) -> str:
    """The name of what is differentiated, if somebody gave it one."""
    named = [plain(y.name) for y in report.ys]
    types = "|".join(re.escape(y.op.type) for y in report.ys)
    own = re.compile(rf"(.*/)?({types})(_\d+)?(:\d+)?")
    return (
        ""
        if report.is_function or len(named) > 3 or any(map(own.fullmatch, named))
        else f" of {listed(named)}"
    )


def reason_of(cut: Cut) -> str:
    """The reason of a cut, in a few words."""
    uses = f" ({counted(cut.uses, 'use')})" if cut.uses > 1 else ""
    switched = " while its condition holds" if cut.switched else ""
    reason = cut.reason.removesuffix(", where its condition holds") if cut.switched else cut.reason
    origin = cut.operation.origin
    if origin is None:
        made = ""
    else:
        made = ", in the gradient of this line" if cut.location else f", in the gradient of {origin.type}"
    return f"{reason}{switched}{uses}{made}"


class _Told:
    """Makes the parts of a report, one after the other."""

    def __init__(self, report: Reaches, width: int) -> None:
        self._report, self._width = report, width
        self._shown: set[Place] = set()
        self._cuts_in = Counter(place(cut.location) for cut in report.cuts if cut.location)

    def _source(self, operations: Sequence[Operation], style: str) -> Excerpt:
        """A line of source, with the expressions of operations underlined."""
        return Excerpt(list(dict.fromkeys(map(self._report.location, operations))), style)

    def stories(self) -> Iterator[Part]:
        """The worst comes first; tensors that take only one line come last."""
        stories = self._report.stories
        short = [story for story in stories if self._is_short(story)]
        long = [story for story in stories if not self._is_short(story)]
        for story in long[:STORIES]:
            yield Section(self._heading(story.status, story.labels), list(self._story(story)))
        if len(long) > STORIES:
            rest = sum(len(story.keys) for story in long[STORIES:])
            yield Section(Paragraph(f"and {counted(rest, 'tensor')} more, cut at other lines; {ALL}"))
        lines: dict[tuple[Status, str], list[str]] = {}
        for story in short:
            lines.setdefault((story.status, self._why_short(story)), []).extend(story.labels)
        for i, (status, why) in enumerate(sorted(lines, key=lambda key: key[0] is Status.FLOWS)):
            yield Section(self._heading(status, lines[status, why], why), apart=i == 0)

    def _carries_none(self, story: Story) -> bool:
        return not self._report.xs[story.labels[0]].type.differentiable

    def _is_short(self, story: Story) -> bool:
        return not story.is_cut or self._carries_none(story)

    def _why_short(self, story: Story) -> str:
        return story.cuts[0].reason if story.is_cut else ""

    def _heading(self, status: Status, labels: Sequence[str], why: str = "") -> Paragraph:
        shown = names(labels, self._report.xs, self._width - len(status) - 4)
        return Paragraph((f"{status}:", status), f" {shown}", f" ({why})" if why else "")

    def _story(self, story: Story) -> Iterator[Part]:
        """The text of how many paths to tensors are cut, and where."""
        arrives = story.status in ARRIVES
        aside = [cut for cut in story.cuts if arrives and cut.status is Status.NOT_DIFFERENTIABLE]
        cutting = [cut for cut in story.cuts if not (arrives and cut.status is Status.NOT_DIFFERENTIABLE)]
        paths = self._paths(story)
        if paths and cutting and not all(cut.switched for cut in cutting):
            yield Paragraph(paths, indent=2)
        new = [cut for cut in cutting if self._report.place(cut) not in self._shown]
        old = [cut for cut in cutting if self._report.place(cut) in self._shown]
        for cut in new[:CUTS]:
            yield from self._cut(cut, story)
        if len(new) > CUTS:
            yield Paragraph(f"and {counted(len(new) - CUTS, 'more line')} of source; {ALL}", indent=2)
        if old:
            also = "also cut" if new else "cut"
            shown = (
                listed(_places(old, self._cuts_in))
                if len(old) <= CUTS
                else f"{counted(len(old), 'line')} of source"
            )
            yield Paragraph(f"{also} at {shown}, shown above", indent=2)
        for cut in aside[:CUTS]:
            yield self._without_derivative(cut)
        if len(aside) > CUTS:
            yield Paragraph(f"and {counted(len(aside) - CUTS, 'more line')} without derivative", indent=2)

    def _paths(self, story: Story) -> str:
        """The numbers of paths, and of cut ones; empty if there is only one."""
        found = [self._report[key] for key in story.keys]
        each = " to each" if len(found) > 1 else ""
        every, cut = _span(reach.paths for reach in found), _span(reach.cut_paths for reach in found)
        if all(reach.paths == reach.cut_paths for reach in found):
            if every == "1":
                return ""
            if " to " in every:
                return f"all paths are cut, {every}{each}"
            return f"{'both' if every == '2' else f'all {every}'} paths{each} are cut"
        verb = "is" if cut == "1" else "are"
        return f"{cut} of {'the ' if ' to ' in every else ''}{every} paths{each} {verb} cut"

    def _cut(self, cut: Cut, story: Story) -> Iterator[Part]:
        """A line at which paths end, with its source, and the effect of removing it."""
        self._shown.add(self._report.place(cut))
        where = cut.location or title(cut.operation)
        yield Paragraph((where, STRONG), f"  {reason_of(cut)}", indent=2)
        if len(self._shown) <= EXCERPTS:
            yield self._source(cut.operations, cut.status)
        told = "" if story.status in ARRIVES else self._removed(cut, story)
        if told:
            yield Paragraph(told, indent=9)

    def _removed(self, cut: Cut, story: Story) -> str:
        """What removing only this cut would not open, and why; empty if it opens everything."""
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
        """The text of a cut behind another."""
        where = title(behind.operation) if behind.location is None else place(behind.location)
        return f"is {where} ({behind.reason})"

    def _without_derivative(self, cut: Cut) -> Paragraph:
        """One line about a path without derivative to tensors that a gradient reaches by another path."""
        self._shown.add(self._report.place(cut))
        location = cut.location
        if location is None:
            where = title(cut.operation)
        else:
            source = " ".join(location.source.split())
            where = f"{place(location)}  {source if len(source) <= 30 else f'{source[:27]}...'}"
        return Paragraph(("no derivative: ", DIM), f"{where}: {reason_of(cut)}", indent=2)

    def idle(self) -> Iterator[Part]:
        """The text about stops that do nothing."""
        found = self._report.idle
        if not found or not len(self._report):
            return
        cutting = {op for cut in self._report.cuts for op in cut.operations}
        parts: list[Part] = []
        for one in found[:CUTS]:
            op = one.operations[0]
            where = one.location or title(op)
            parts.append(Paragraph((where, STRONG), f"  {one.reason}", indent=2))
            parts += [self._source(one.operations, IDLE)] if op not in cutting else []
        if len(found) > CUTS:
            parts.append(Paragraph(f"and {len(found) - CUTS} more", indent=2))
        does = "does" if len(found) == 1 else "do"
        yield Section(
            Paragraph(("idle:", IDLE), f" {counted(len(found), 'stop')} that {does} nothing"), parts
        )

    def noted(self) -> Iterator[Part]:
        """Findings from recording or importing the graph."""
        found = self._report.noted
        for i, one in enumerate(found[:CUTS]):
            where: list[Piece] = [] if one.location is None else [(one.location, STRONG), "  "]
            heading = Paragraph((f"{one.kind}:", IDLE), " ", *where, one.message)
            yield Section(heading, [self._source(one.operations, IDLE)], apart=i == 0)
        if len(found) > CUTS:
            yield Paragraph(f"and {len(found) - CUTS} more; {ALL}")


def _places(cuts: Sequence[Cut], lines: Mapping[str, int]) -> list[str]:
    """The places of cuts: each file once, and the reasons if several are in a line."""
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


def _span(numbers: Iterable[int]) -> str:
    """The text of the range of some numbers, of which all together may not fit into memory."""
    rest = iter(numbers)
    least = most = next(rest)
    for one in rest:
        least, most = min(one, least), max(one, most)
    low, high = number(least), number(most)
    return low if low == high else f"{low} to {high}"
