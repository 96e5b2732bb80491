"""The text of a flow report: in the order that a reader wants, with each line of source once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from stopgrad.base.source import in_library
from stopgrad.flow import updates
from stopgrad.flow.magnitudes import magnitude_parts as magnitudes
from stopgrad.flow.parts import ARRIVES, Cut, Finding, Story
from stopgrad.flow.reaches import FROZEN, Reaches
from stopgrad.flow.reports.notices import Notice, at_lines
from stopgrad.flow.reports.sections import DIM, IDLE, STRONG, Paragraph, Part, Piece, Section
from stopgrad.flow.reports.terminal import text_of
from stopgrad.flow.spots import Spot, as_text, at, at_places, source_of, spots_of
from stopgrad.flow.words import counted, listed, names, number, paths_cut, plain
from stopgrad.graph.op import Status

EXCERPTS = 40
"""The most lines of source that are shown; of further cuts, only the place and the reason are."""
SHOWN = 3
"""The most lines of source that are shown for a group of tensors, or one more if that is the last."""
CUTS = 12
"""The most cuts that are reported for a group of tensors."""
STORIES = 60
"""The most groups of tensors that are reported."""
_ABSENT = (Status.STOPPED, FROZEN, Status.UNDEFINED, Status.NOT_DIFFERENTIABLE, Status.DISCONNECTED)
ALL = "to_json() has all"
WIDTH = 80
"""The columns of reports in messages."""


def parts_of(report: Reaches, width: int) -> Iterator[Part]:
    """The parts of the whole report."""
    yield Paragraph((summary_of(report), STRONG))
    text = _Text(report, width)
    yield from text.stories()
    yield from magnitudes.parts_of(
        report.troubles, report.magnitudes, report.xs, width, partial(source_of, report)
    )
    yield from updates.parts_of(report.updates, report.xs, width)
    yield from text.idle()
    yield from text.noted()


def notices_of(report: Reaches) -> Iterator[Notice]:
    """The findings, each at every line that it is about."""
    for finding in report.findings:
        level = "note" if finding.frozen or finding in report.noted else "warning"
        operations = finding.operations[:1] if finding.frozen else finding.operations
        locations = [location for location in map(report.location, operations) if location is not None]
        inside = [] if finding.frozen else [at for at in locations if at.own is not at]
        message = f"{finding.message}, in {as_text(at_places(inside))}" if inside else finding.message
        yield from at_lines(level, finding.kind, message, locations)


def stories_of(report: Reaches) -> str:
    """Only the tensors of a report, with what cuts their paths, for messages."""
    return text_of(_Text(report, WIDTH).stories(), WIDTH)


def summary_of(report: Reaches) -> str:
    """A sentence that says how many of the tensors gradients reach."""
    of = of_what(report)
    if not report:
        return f"Gradients{of}: nothing was asked about."
    reaches = list(zip(report.xs.items(), report.values(), strict=True))
    # Labels and positions among the arguments have no gradients.
    floats = [entry for entry in reaches if entry[0][1].type.differentiable]
    able = (
        [entry for entry in floats if entry[1].arrives or not report.is_updated(entry[0][0])]
        or floats
        or reaches
    )
    statuses = Counter(FROZEN if x in report.frozen else str(reach.status) for (_, x), reach in able)
    total, reached = len(able), sum(statuses[status] for status in ARRIVES)
    partly = statuses[Status.PARTLY_STOPPED]
    kinds = {x.dtype.name == "bool" for (_, x), _ in reaches if not x.type.differentiable}
    kind = "booleans" if kinds == {True} else "integers" if kinds == {False} else "integers and booleans"
    aside = [f"{number(len(floats) - total)} that the function updates"] if len(floats) > total else []
    aside += [f"{number(len(reaches) - len(floats))} of {kind}"] if kinds and floats else []
    stepped = updates.in_short(report.updates)
    if total == 1:
        name, (status,) = plain(able[0][0][0]), statuses
        if status not in ARRIVES:
            return f"No gradient{of} reaches {name}: {listed([status, *aside])}{_joined([stepped])}."
        rest = ["some of the paths are cut"] if partly else []
        measured = magnitudes.in_short(report.troubles, report.magnitudes.values(), True)
        return f"A gradient{of} reaches {name}{_joined([listed([*rest, *aside]), measured, stepped])}."
    if reached == total:
        count = "both" if total == 2 else f"all {number(total)}"
    else:
        count = f"{number(reached) if reached else 'none'} of {number(total)}"
    rest = [f"{number(statuses[status])} {status}" for status in _ABSENT if statuses[status]] + aside
    some = f" ({'' if partly == reached else f'{number(partly)} '}partly)" if partly else ""
    measured = magnitudes.in_short(report.troubles, report.magnitudes.values(), False)
    return f"Gradients{of} reach {count} tensors{some}{_joined([listed(rest), measured, stepped])}."


def _joined(parts: Sequence[str]) -> str:
    """The further parts of a sentence."""
    return "".join([f"; {part}" for part in parts if part])


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


class _Text:
    """Makes the parts of a report, one after the other."""

    def __init__(self, report: Reaches, width: int) -> None:
        self._report, self._width = report, width
        self._shown: set[object] = set()
        self._excerpts = 0
        self._spots = {spot.key: spot for spot in spots_of(report, report.cuts)}
        self._spots_in = Counter(spot.line for spot in self._spots.values())

    def stories(self) -> Iterator[Part]:
        """The worst comes first; tensors that take only one line come last."""
        short: list[Story] = []
        long: list[Story] = []
        for story in self._report.stories:
            (short if self._is_short(story) else long).append(story)
        for story in long[:STORIES]:
            yield Section(self._heading(story.status, story.labels), list(self._story(story)))
        if len(long) > STORIES:
            rest = sum(len(story.keys) for story in long[STORIES:])
            yield Section(Paragraph(f"and {counted(rest, 'tensor')} more, cut at other lines; {ALL}"))
        lines: dict[tuple[Status, str], list[str]] = {}
        for story in short:
            if not story.frozen:
                lines.setdefault((story.status, self._why_short(story)), []).extend(story.labels)
        headings = [self._frozen(story) for story in short if story.frozen]
        for status, why in sorted(lines, key=lambda key: key[0] is Status.FLOWS):
            headings.append(self._heading(status, lines[status, why], why))
        for i, line in enumerate(headings):
            yield Section(line, apart=i == 0)

    def _carries_none(self, story: Story) -> bool:
        return not self._report.xs[story.labels[0]].type.differentiable

    def _is_short(self, story: Story) -> bool:
        return story.frozen or not story.is_cut or self._carries_none(story)

    def _why_short(self, story: Story) -> str:
        if story.is_cut:
            return story.cuts[0].reason
        updated = story.status not in ARRIVES and self._report.is_updated(story.labels[0])
        return "the function itself updates this" if updated else ""

    def _heading(self, status: Status, labels: Sequence[str], why: str = "") -> Paragraph:
        shown = names(labels, self._report.xs, self._width - len(status) - 4)
        return Paragraph((f"{status}:", status), f" {shown}", f" ({why})" if why else "")

    def _frozen(self, story: Story) -> Paragraph:
        """The line about all tensors that require no gradient."""
        shown = names(story.labels, self._report.xs, self._width // 2)
        froze = [self._report.location(op) for op in self._report.freezing(story)]
        others = [cut for cut in story.cuts if not self._report.is_frozen(cut)]
        every = all(set(story.labels).issubset(cut.behind) for cut in others)
        return Paragraph(
            f"{shown}: ",
            (FROZEN, DIM),
            *(
                [" at ", *at_places(location.cause for location in froze if location is not None)]
                if any(froze)
                else []
            ),
            f", {self._report.requires}",
            *(
                [
                    f"; {'' if every else 'some '}also cut at ",
                    *at(spots_of(self._report, others), None),
                ]
                if others
                else []
            ),
        )

    def _story(self, story: Story) -> Iterator[Part]:
        """The text of how many paths to tensors are cut, and where."""
        natural = Status.NOT_DIFFERENTIABLE if story.status in ARRIVES else None
        aside = [cut for cut in story.cuts if cut.is_discrete or cut.status is natural]
        cutting = [cut for cut in story.cuts if not (cut.is_discrete or cut.status is natural)]
        if story.status not in ARRIVES and not cutting:
            aside, cutting = [], aside  # That is the reason.
        paths = self._paths(story)
        if paths and cutting and not all(cut.switched for cut in cutting):
            yield Paragraph(paths, indent=2)
        spots = spots_of(self._report, cutting)
        # What helpers cut at a line is told together, also what only concerns other tensors.
        spots = [self._spots[spot.key] if spot.helpers else spot for spot in spots]
        new = [spot for spot in spots if spot.key not in self._shown]
        old = [spot for spot in spots if spot.key in self._shown]
        self._shown.update([spot.key for spot in new])
        first = len(new) if len(new) <= SHOWN + 1 else SHOWN
        for spot in new[:first]:
            yield from self._spot(spot, story)
        yield from self._more(new[first:])
        if old:
            also = "also cut" if new else "cut"
            several = {spot.key for spot in old if self._spots_in[spot.line] > 1}
            shown = at(old, several, CUTS) if len(old) <= CUTS else [f"{counted(len(old), 'line')} of source"]
            yield Paragraph(f"{also} at ", *shown, ", shown above", indent=2)
        yield from self._without_derivative(aside)

    def _paths(self, story: Story) -> str:
        """How many of the paths are cut; empty if there is only one."""
        return paths_cut(
            (reach.cut_paths, reach.paths) for reach in map(self._report.__getitem__, story.keys)
        )

    def _spot(self, spot: Spot, story: Story) -> Iterator[Part]:
        """A line at which paths end, with its source, and the effect of removing it."""
        yield Paragraph((spot.where, STRONG), "  ", *spot.pieces(), indent=2)
        self._excerpts += 1
        if self._excerpts <= EXCERPTS:
            yield spot.source(self._report, spot.cuts[0].status)
        effect = [] if story.status in ARRIVES or len(spot.cuts) > 1 else self._removed(spot, story)
        if effect:
            yield Paragraph(*effect, indent=9)

    def _more(self, spots: Sequence[Spot]) -> Iterator[Part]:
        """Further lines at which paths end, without their source."""
        if not spots:
            return
        yield Paragraph("and ", *at(spots[: CUTS - SHOWN], None, CUTS), indent=2)
        rest = len(spots) - CUTS + SHOWN
        if rest > 0:
            yield Paragraph(f"and {counted(rest, 'more line')} of source; {ALL}", indent=2)

    def _removed(self, spot: Spot, story: Story) -> list[Piece]:
        """What removing only this cut would not open, and why; empty if it opens everything."""
        (cut,) = spot.cuts
        opens = set(cut.opens)
        closed = {label for label in story.labels if label not in opens}
        if not closed:
            return []
        opened = [label for label in story.labels if label in opens]
        beyond = [other for other in self._report.beyond(cut) if closed.intersection(other.behind)]
        behind = [other for other in spots_of(self._report, beyond) if other.key != spot.key]
        is_ = "is" if len(behind) == 1 else "are"
        why: list[Piece] = [f": behind it {is_} ", *at(behind, None)] if behind else []
        if opened:
            effect = f"without it gradients would reach {names(opened, self._report.xs)} only"
        else:
            effect = "removing it alone opens nothing"
        return [effect, *(why or [": other cuts lie behind it"])]

    def _without_derivative(self, cuts: Sequence[Cut]) -> Iterator[Paragraph]:
        """The paths without derivative to tensors that a gradient reaches by another path.

        Comparisons, indices and masks, which a program has many of, are one line.
        """
        discrete = [cut for cut in cuts if cut.is_discrete]
        alone = cuts if len(discrete) == 1 else [cut for cut in cuts if not cut.is_discrete]
        for cut in alone[:CUTS]:
            spot = Spot(self._report, cut)
            source = " ".join(spot.cause.source.split()) if spot.cause is not None else ""
            shown = f"  {source if len(source) <= 30 else f'{source[:27]}...'}" if source else ""
            yield Paragraph(
                ("no derivative: ", DIM), (spot.where, ""), f"{shown}: ", *spot.pieces(), indent=2
            )
        if len(alone) > CUTS:
            yield Paragraph(f"and {counted(len(alone) - CUTS, 'more line')} without derivative", indent=2)
        if len(discrete) > 1:
            where = at(spots_of(self._report, discrete))
            text = f"{number(sum(cut.uses for cut in discrete))} comparisons, indices and masks, at "
            yield Paragraph(("no derivative: ", DIM), text, *where, indent=2)

    def idle(self) -> Iterator[Part]:
        """The text about stops that do nothing; of those in libraries, only where they are."""
        findings = self._report.idle_lines
        if not findings or not len(self._report):
            return
        cutting = {op for cut in self._report.cuts for op in cut.operations}
        spots = [Spot(self._report, _as_cut(finding)) for finding in findings]
        own = [spot for spot in spots if spot.cause is None or not in_library(spot.cause.file)]
        first = own if len(own) <= SHOWN + 1 else own[:SHOWN]
        parts: list[Part] = []
        for spot in first:
            parts.append(Paragraph((spot.where, STRONG), "  ", *spot.pieces(counting=False), indent=2))
            parts += [spot.source(self._report, IDLE)] if spot.operations[0] not in cutting else []
        rest = [spot for spot in spots if spot not in first]
        where = at(rest, None, CUTS) if rest else []
        if first and rest:
            parts.append(Paragraph("and ", *where, indent=2))
        text = f" {counted(len(findings), 'stop')} that {'does' if len(findings) == 1 else 'do'} nothing"
        yield Section(Paragraph(("idle:", IDLE), text, *([] if first else [", at ", *where])), parts)

    def noted(self) -> Iterator[Part]:
        """Comparisons by mistake, and findings from recording importing; what lines share, once."""
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in (*self._report.compared, *self._report.noted):
            groups.setdefault((finding.kind, finding.message), []).append(finding)
        for i, ((kind, message), findings) in enumerate([*groups.items()][:CUTS]):
            cuts = [_as_cut(finding) for finding in findings if finding.operations]
            spots = [spot for spot in spots_of(self._report, cuts) if spot.cause is not None]
            where: list[Piece] = [*at(spots), "  "] if spots else []
            helpers = spots[0].helpers if len(spots) == 1 else []
            heading = Paragraph((f"{kind}:", IDLE), " ", *where, message, *helpers)
            below = [spots[0].source(self._report, IDLE)] if len(spots) == 1 else []
            yield Section(heading, below, apart=i == 0)
        if len(groups) > CUTS:
            yield Paragraph(f"and {len(groups) - CUTS} more; {ALL}")


def _as_cut(finding: Finding) -> Cut:
    return Cut(finding.operations, Status.STOPPED, finding.reason)
