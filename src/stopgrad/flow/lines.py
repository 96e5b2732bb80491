"""The ends of paths, by lines of the user's source: for a reader, each line is one cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.asked import Asked, label
from stopgrad.flow.beyond import walls_beyond
from stopgrad.flow.opened import behind_themselves
from stopgrad.flow.parts import Cut, Place, Reach
from stopgrad.flow.survey import Survey
from stopgrad.flow.walls import Wall
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Status


class Lines:
    """The walls at which paths end, by lines of the user's source."""

    def __init__(self, asked: Asked, surveys: Sequence[Survey]) -> None:
        self._locations: dict[Any, Location | None] = {}
        self._labels: dict[Output, list[str]] = {}
        for key, x in asked.xs.items():
            self._labels.setdefault(x, []).append(label(key))
        self._lines: dict[Survey, dict[Place, Line]] = {}
        for survey in surveys:
            lines = self._lines[survey] = {}
            for ending in reversed(survey.endings):
                line = lines.setdefault(self.place(ending.wall), Line())
                line.walls.append((ending.wall, survey.sources.behind(ending.leads)))
                line.leads |= ending.leads
        self._behind_themselves: dict[Survey, set[Place]] = {}
        self._known: dict[Place, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._beyond: dict[Survey, dict[Place, list[tuple[Wall, int]]]] = {}

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
        found = self.location(op)
        if found is None:
            return (op,)
        cause = found.cause
        called_at = () if cause is found else (cause.file, cause.line)
        return (found.file, found.line, *called_at)

    def places(self, survey: Survey, x: Output) -> tuple[Place, ...]:
        """The lines at which the paths to x end."""
        own = survey.own_wall(x)
        if own is not None:
            return (self.place(own),)
        if survey.status(x) in (Status.DISCONNECTED, Status.FLOWS):
            return ()
        bit = survey.bit(x)
        return tuple([place for place, line in self._lines[survey].items() if line.leads & bit])

    def cuts(self, places: Sequence[Place], xs: Sequence[tuple[Survey, Output]]) -> tuple[Cut, ...]:
        """The cuts at these lines, each with the operations that have any of the xs behind them."""
        bits: dict[Survey, int] = {}
        own: dict[Place, dict[Wall, None]] = {}
        for survey, x in xs:
            wall = survey.own_wall(x)
            if wall is None:
                bits[survey] = bits.get(survey, 0) | survey.bit(x)
            else:
                own.setdefault(self.place(wall), {})[wall] = None
        found = []
        for place in places:
            walls = dict(own.get(place, ()))
            for survey, mask in bits.items():
                line = self._lines[survey].get(place, Line())
                walls |= dict.fromkeys([wall for wall, behind in line.walls if behind & mask])
            operations = tuple(dict.fromkeys([wall.operation for wall in walls]))
            first = next(iter(walls))
            cut = Cut(operations, first.status, first.reason, *self._behind(place, xs), first.switched)
            found.append(cut)
        return tuple(found)

    def beyond(self, place: Place) -> tuple[Cut, ...]:
        """The cuts at which paths would end next if those of a line were removed."""
        found: dict[Place, tuple[list[Wall], dict[str, None]]] = {}
        for survey, lines in self._lines.items():
            if survey not in self._beyond:
                closed = [at for at, line in lines.items() if self._closes(survey, line)]
                self._beyond[survey] = walls_beyond(survey, self.place, closed)
            for wall, behind in self._beyond[survey].get(place, ()):
                walls, names = found.setdefault(self.place(wall), ([], {}))
                walls.append(wall)
                names |= dict.fromkeys(_chosen([self._labels[x] for x in survey.xs], behind))
        return tuple(
            [
                Cut(tuple(dict.fromkeys([w.operation for w in walls])), *walls[0][1:3], tuple(names))
                for walls, names in found.values()
            ]
        )

    def _closes(self, survey: Survey, line: Line) -> bool:
        """Whether some tensors stay without a gradient if the line is removed."""
        return survey.sources.openly(line.leads) != survey.sources.behind(line.leads)

    def _behind(
        self, place: Place, xs: Sequence[tuple[Survey, Output]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of tensors behind a line, and of those that a gradient would reach without the line."""
        found = self._known.get(place)
        if found is None:
            behind: dict[str, None] = {}
            opens: dict[str, None] = {}
            for survey, lines in self._lines.items():
                names = [self._labels[x] for x in survey.xs]
                leads = lines[place].leads if place in lines else 0
                behind |= dict.fromkeys(_chosen(names, survey.sources.behind(leads)))
                opens |= dict.fromkeys(_chosen(names, self._opened(survey, place, leads)))
            if not behind:  # The tensor itself carries no gradient.
                own = [x for survey, x in xs if (wall := survey.own_wall(x)) and self.place(wall) == place]
                return tuple(dict.fromkeys([name for x in own for name in self._labels[x]])), ()
            found = self._known[place] = tuple(behind), tuple(opens)
        return found

    def _opened(self, survey: Survey, place: Place, leads: int) -> int:
        """The xs behind a line that a gradient would reach without the line."""
        openly = survey.sources.openly(leads)
        if openly == survey.sources.behind(leads):
            return openly
        if survey not in self._behind_themselves:
            self._behind_themselves[survey] = behind_themselves(survey, self.place)
        if place not in self._behind_themselves[survey]:
            return openly
        return survey.opened(lambda wall: self.place(wall) == place)


class Line:
    """A line: the walls that end paths there, each with the xs behind it; and all xs behind them."""

    def __init__(self) -> None:
        self.walls: list[tuple[Wall, int]] = []
        self.leads = 0


def _chosen(names: Sequence[Sequence[str]], bits: int) -> Iterator[str]:
    """The names at the positions that are set."""
    while bits:
        lowest = bits & -bits
        yield from names[lowest.bit_length() - 1]
        bits ^= lowest


class Surveyed(Reach):
    """The result of a survey for x; counts and cuts are computed when they are needed."""

    def __init__(self, survey: Survey, x: Output, lines: Lines) -> None:
        super().__init__(survey.status(x))
        self.survey, self.x, self._lines = survey, x, lines

    @cached_property
    def places(self) -> tuple[Place, ...]:
        return self._lines.places(self.survey, self.x)

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        return self._lines.cuts(self.places, [(self.survey, self.x)])

    @cached_property
    def _counted(self) -> tuple[int, int]:
        return self.survey.paths(self.x)
