"""The ends of paths, by lines of the user's source: for a reader, each line is one cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from stopgrad.base.source import Location
from stopgrad.flow.asked import Asked, label
from stopgrad.flow.beyond import TOGETHER, Next, walls_beyond
from stopgrad.flow.opened import behind_themselves
from stopgrad.flow.parts import ARRIVES, Cut, Names, Place, Reach, Tensors, is_discrete
from stopgrad.flow.survey import Survey
from stopgrad.flow.walls import Wall
from stopgrad.flow.ways import Ending
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Status

CUT = tuple(status for status in Status if status not in (Status.DISCONNECTED, Status.FLOWS))

Subject = tuple[Survey, Output]
"""A tensor that was asked about, and the survey that has it."""


class Line:
    """A line of one survey.

    Attributes:
        number: of its lines, in the order of their operations.
        endings: the walls that end paths there, each by its node among what is hidden.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.endings: dict[int, Ending] = {}

    @property
    def wall(self) -> Wall:
        """The first of the walls."""
        return next(iter(self.endings.values())).wall


class Seen(NamedTuple):
    """What a reader sees of the cuts on the paths to a tensor.

    Comparisons, indices and masks make no difference for tensors that a gradient reaches, or that other cuts
    keep it from.

    Attributes:
        alike: it is the same for tensors that are cut at the same lines.
        discrete: whether there are only comparisons, indices and masks, or no cuts.
    """

    alike: object
    discrete: bool


class Lines:
    """The walls at which paths end, by lines of the user's source."""

    def __init__(self, asked: Asked, surveys: Sequence[Survey]) -> None:
        self._surveys = surveys
        self._locations: dict[Any, Location | None] = {}
        self._labels: dict[Output, list[str]] = {}
        for key, x in asked.xs.items():
            self._labels.setdefault(x, []).append(label(key))
        self._behind_themselves: dict[Survey, set[Place]] = {}
        self._places: dict[tuple[Survey, int], tuple[Place, ...]] = {}
        self._seen: dict[tuple[Survey, int], tuple[Place, ...]] = {}
        self._tensors: dict[Place, _OfLine] = {}
        self._beyond: dict[tuple[Survey, Place], Next] = {}

    def location(self, op: Operation) -> Location | None:
        """Where an operation was built. It is decoded once for all operations of an instruction."""
        like: Operation | None = op
        while like is not None and like._place is None:
            like = like.origin
        key = None if like is None else (id(like._place), like._instruction)
        if key not in self._locations:
            self._locations[key] = op.location
        return self._locations[key]

    def place(self, wall: Wall | Cut) -> Place:
        op = wall.operation
        return (*self.line(op), op.origin is None, wall.status, wall.reason, wall.switched)

    def line(self, op: Operation) -> Place:
        """The key of the line where an operation was built; of a helper's, with the line that called it."""
        location = self.location(op)
        if location is None:
            return (op,)
        cause = location.cause
        called_at = () if cause is location else (cause.file, cause.line)
        return (location.file, location.line, *called_at)

    def spot(self, wall: Wall | Cut) -> Place:
        """The key of a wall for the reader: what helpers cut is cut at the line that called these."""
        location = self.location(wall.operation)
        if location is None or location.cause is location:
            return self.place(wall)
        return location.cause.file, location.cause.line, is_discrete(wall)

    @cached_property
    def _lines(self) -> dict[Survey, dict[Place, Line]]:
        by_survey: dict[Survey, dict[Place, Line]] = {}
        for survey in self._surveys:
            lines = by_survey[survey] = {}
            for ending in reversed(survey.endings):
                line = lines.setdefault(self.place(ending.wall), Line(len(lines)))
                line.endings[survey.hidden.wall(ending.spot)] = ending
        return by_survey

    @cached_property
    def _numbers(self) -> dict[Survey, dict[int, int]]:
        """For the walls of each survey, by their nodes, the numbers of their lines."""
        return {
            survey: {wall: line.number for line in lines.values() for wall in line.endings}
            for survey, lines in self._lines.items()
        }

    @cached_property
    def _every(self) -> dict[Survey, list[Place]]:
        return {survey: list(lines) for survey, lines in self._lines.items()}

    @cached_property
    def _kinds(self) -> dict[Survey, dict[int, tuple[int, int]]]:
        return {survey: survey.hidden.kinds(numbers) for survey, numbers in self._numbers.items()}

    @cached_property
    def _spots(self) -> dict[Place, tuple[Place, bool]]:
        """What the reader sees of each line: where it is, and whether it is discrete."""
        return {
            place: (self.spot(line.wall), is_discrete(line.wall))
            for lines in self._lines.values()
            for place, line in lines.items()
        }

    @cached_property
    def _kinds_seen(self) -> dict[Survey, dict[int, tuple[int, int]]]:
        """The same for what a reader sees, where something else than comparisons and the like cuts."""
        by_survey = {}
        for survey, lines in self._lines.items():
            spots: dict[Place, int] = {}
            numbers: dict[int, int] = {}
            for place, line in lines.items():
                spot, discrete = self._spots[place]
                if not discrete:
                    numbers |= dict.fromkeys(line.endings, spots.setdefault(spot, len(spots)))
            by_survey[survey] = survey.hidden.kinds(numbers)
        return by_survey

    def places(self, survey: Survey, x: Output) -> tuple[Place, ...]:
        """The lines at which the paths to x end, in the order of their operations."""
        own = survey.own_wall(x)
        if own is not None:
            return (self.place(own),)
        node = self._node(survey, x)
        if not node:
            return ()
        kind, _ = self._kinds[survey][node]
        places = self._places.get((survey, kind))
        if places is None:
            numbers = self._numbers[survey]
            cut = {numbers[wall] for wall in survey.hidden.before([node]) if wall in numbers}
            places = self._places[survey, kind] = tuple([self._every[survey][k] for k in sorted(cut)])
        return places

    def is_cut(self, survey: Survey, x: Output) -> bool:
        """Whether some paths to x are cut."""
        return self._node(survey, x) != 0 or survey.own_wall(x) is not None

    @staticmethod
    def _node(survey: Survey, x: Output) -> int:
        """The node of a tensor that carries a gradient; 0 where no paths to it are cut."""
        if not x.type.differentiable or not survey.endings or survey.status(x) not in CUT:
            return 0
        return survey.hidden.node[survey.position(x)]

    def seen(self, survey: Survey, x: Output) -> Seen:
        """What a reader sees of the cuts on the paths to x."""
        own = survey.own_wall(x)
        if own is not None:
            return Seen((self.spot(own),), True)
        node = self._node(survey, x)
        if not node:
            return Seen((), True)
        kind, count = self._kinds_seen[survey][node]
        if count > 1 and len(self._surveys) == 1:
            return Seen(kind, False)
        if not count and survey.status(x) in ARRIVES:
            return Seen((), True)
        # They may be those of a tensor of another survey, or of integers.
        same = survey, self._kinds[survey][node][0]
        if same not in self._seen:
            spots = [self._spots[place] for place in self.places(survey, x)]
            some = [spot for spot, discrete in spots if not discrete or not count]
            self._seen[same] = tuple(dict.fromkeys(some))
        return Seen(self._seen[same], not count)

    def all_places(self, xs: Sequence[Subject]) -> tuple[Place, ...]:
        """The lines at which the paths to any of the xs end: those of the first, then others of the next."""
        numbers: dict[Survey, dict[int, int]] = {}
        ranked: list[tuple[int, int, Place]] = []
        for k, (survey, x) in enumerate(xs):
            own = survey.own_wall(x)
            if own is not None:
                ranked.append((k, 0, self.place(own)))
            elif node := self._node(survey, x):
                numbers.setdefault(survey, {}).setdefault(node, k)
        for survey, nodes in numbers.items():
            first = survey.hidden.first(nodes)
            for place, line in self._lines[survey].items():
                reached = [first[wall] for wall in line.endings if wall in first]
                if reached:
                    ranked.append((min(reached), line.number, place))
        ranked.sort(key=lambda one: one[:2])
        return tuple(dict.fromkeys([place for _, _, place in ranked]))

    def cuts(self, places: Sequence[Place], xs: Sequence[Subject]) -> tuple[Cut, ...]:
        """The cuts at these lines, each with the operations that have any of the xs behind them."""
        nodes: dict[Survey, set[int]] = {}
        own: dict[Place, dict[Wall, None]] = {}
        for survey, x in xs:
            wall = survey.own_wall(x)
            if wall is None:
                nodes.setdefault(survey, set()).add(self._node(survey, x))
            else:
                own.setdefault(self.place(wall), {})[wall] = None
        before = {survey: survey.hidden.before(some - {0}) for survey, some in nodes.items() if some != {0}}
        cuts = []
        for place in places:
            walls = dict(own.get(place, ()))
            for survey, above in before.items():
                line = self._lines[survey].get(place)
                endings = line.endings.items() if line is not None else ()
                walls |= dict.fromkeys([ending.wall for node, ending in endings if node in above])
            operations = tuple(dict.fromkeys([wall.operation for wall in walls]))
            first = next(iter(walls))
            tensors = self._of_line(place) or _Own(self, place, xs)
            cuts.append(Cut(operations, first.status, first.reason, tensors, first.switched))
        return tuple(cuts)

    def beyond(self, place: Place) -> tuple[Cut, ...]:
        """The cuts at which paths would end next if those of a line were removed."""
        by_line: dict[Place, tuple[list[Wall], list[tuple[Survey, int]]]] = {}
        for survey, lines in self._lines.items():
            if place in lines and self._closes(survey, lines[place]):
                for ending in self._next(survey, place):
                    walls, nodes = by_line.setdefault(self.place(ending.wall), ([], []))
                    walls.append(ending.wall)
                    nodes.append((survey, survey.hidden.wall(ending.spot)))
        return tuple(
            [
                Cut(tuple(dict.fromkeys([w.operation for w in walls])), *walls[0][1:3], _Beyond(self, nodes))
                for walls, nodes in by_line.values()
            ]
        )

    def _next(self, survey: Survey, place: Place) -> Next:
        """The walls that are next behind a line; those behind some lines after it are found together."""
        if (survey, place) not in self._beyond:
            lines = self._lines[survey]
            after = itertools.islice(lines, lines[place].number, None)
            some = [at for at in after if (survey, at) not in self._beyond][:TOGETHER]
            for at, walls in walls_beyond(survey, self.place, some).items():
                self._beyond[survey, at] = walls
        return self._beyond[survey, place]

    @staticmethod
    def _closes(survey: Survey, line: Line) -> bool:
        """Whether some tensors stay without a gradient if the line is removed."""
        tensors, walls = survey.hidden.tensors, line.endings
        return tensors(walls, openly=True) != tensors(walls)

    def opened(self, survey: Survey, place: Place) -> list[int]:
        """The positions of the xs behind a line that a gradient would reach without the line."""
        walls = self._lines[survey][place].endings
        openly = survey.hidden.tensors(walls, openly=True)
        if openly == survey.hidden.tensors(walls):
            return openly
        if survey not in self._behind_themselves:
            self._behind_themselves[survey] = behind_themselves(survey, self.place)
        if place not in self._behind_themselves[survey]:
            return openly
        return survey.opened(lambda wall: self.place(wall) == place)

    def labels(self, survey: Survey, positions: Iterable[int]) -> Iterator[str]:
        """The names of xs."""
        for k in positions:
            yield from self._labels[survey.xs[k]]

    def of_line(self, place: Place) -> list[tuple[Survey, Line]]:
        """A line, in all surveys in which paths end there."""
        return [(survey, lines[place]) for survey, lines in self._lines.items() if place in lines]

    def own(self, place: Place, xs: Sequence[Subject]) -> Names:
        """The names of the xs that carry no gradient, and are themselves the wall at a line."""
        own = [x for survey, x in xs if (wall := survey.own_wall(x)) and self.place(wall) == place]
        return tuple(dict.fromkeys([name for x in own for name in self._labels[x]]))

    def _of_line(self, place: Place) -> Tensors | None:
        """The tensors that a line concerns; None if there are only those that carry no gradient."""
        if place not in self._tensors and self.of_line(place):
            self._tensors[place] = _OfLine(self, place)
        return self._tensors.get(place)


class _OfLine(Tensors):
    """The tensors behind a line."""

    def __init__(self, lines: Lines, place: Place) -> None:
        self._lines, self._place = lines, place

    @cached_property
    def behind(self) -> Names:
        labels: dict[str, None] = {}
        for survey, line in self._lines.of_line(self._place):
            labels |= dict.fromkeys(self._lines.labels(survey, survey.hidden.tensors(line.endings)))
        return tuple(labels)

    @cached_property
    def opens(self) -> Names:
        labels: dict[str, None] = {}
        for survey, _ in self._lines.of_line(self._place):
            opened = self._lines.opened(survey, self._place)
            labels |= dict.fromkeys(self._lines.labels(survey, opened))
        return tuple(labels)


class _Own(Tensors):
    """Tensors that carry no gradient."""

    def __init__(self, lines: Lines, place: Place, xs: Sequence[Subject]) -> None:
        self._lines, self._place, self._xs = lines, place, xs

    @cached_property
    def behind(self) -> Names:
        return self._lines.own(self._place, self._xs)


class _Beyond(Tensors):
    """The tensors behind walls that come next."""

    def __init__(self, lines: Lines, walls: Sequence[tuple[Survey, int]]) -> None:
        self._lines, self._walls = lines, walls

    @cached_property
    def behind(self) -> Names:
        labels: dict[str, None] = {}
        visited: dict[Survey, set[int]] = {}
        for survey, wall in self._walls:
            tensors = survey.hidden.tensors([wall], visited=visited.setdefault(survey, set()))
            labels |= dict.fromkeys(self._lines.labels(survey, tensors))
        return tuple(labels)


class Surveyed(Reach):
    """The result of a survey for x; counts and cuts are computed when they are needed."""

    survey: Survey
    x: Output

    def __init__(self, survey: Survey, x: Output, lines: Lines) -> None:
        super().__init__(survey.status(x))
        self.survey, self.x, self._lines = survey, x, lines

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines at which the paths to it end."""
        return self._lines.places(self.survey, self.x)

    @property
    def is_cut(self) -> bool:
        """Whether some paths to it are cut."""
        return self._lines.is_cut(self.survey, self.x)

    @property
    def seen(self) -> Seen:
        """What a reader sees of the cuts."""
        return self._lines.seen(self.survey, self.x)

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        return self._lines.cuts(self.places, [(self.survey, self.x)])

    @property
    def _counted(self) -> tuple[int, int]:
        return self.survey.paths(self.x)
