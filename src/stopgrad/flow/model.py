"""The report: whether gradients flow, what keeps them, what does nothing.

What shows it, as text, JSON or a page, reads a :class:`Report`; the :class:`stopgrad.flow.report.Flow` of a
user is one that can be shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from stopgrad.flow.asked import Asked, label
from stopgrad.flow.beyond import open_path, walls_beyond
from stopgrad.flow.opened import behind_themselves
from stopgrad.flow.survey import NAMED, Survey, best_of, untaken, with_bodies
from stopgrad.flow.ways import Wall, may_end_paths, no_gradient_of
from stopgrad.flow.words import some
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.op import NoGradient, Status, Undefined
from stopgrad.source import Location
from stopgrad.structure import flatten

ARRIVES = (Status.FLOWS, Status.PARTLY_STOPPED)
"""The statuses with which a gradient is generated."""


@dataclass(frozen=True)
class Cut:
    """A line of the user's source at which paths end, seen from ys: nothing behind another cut is one.

    Attributes:
        operations: those that end them, built at this line.
        status: the absence that they cause.
        reason: why.
        behind: the tensors asked about that lie behind it, at least by one path.
        opens: those that a gradient would reach if this cut alone were removed.
        switched: whether a condition, read when the graph runs, says if it acts.
    """

    operations: tuple[Operation, ...]
    status: Status
    reason: str
    behind: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    switched: bool = False

    @property
    def operation(self) -> Operation:
        """The first of the operations."""
        return self.operations[0]

    @property
    def uses(self) -> int:
        """How many operations it is."""
        return len(self.operations)

    @property
    def location(self) -> Location | None:
        """Where the first operation was built: ``file``, ``line``, and the sub-expression."""
        return self.operation.location

    def __str__(self) -> str:
        return f"{self.reason}: {describe(self.operation)}"


class Reach:
    """Whether the gradient of ys reaches x, what cuts the other paths, and how many these are.

    Attributes:
        status: see :func:`explain`.
        paths: the number of paths from ys to x, cut ones included. An operation that runs bodies, such as a
            loop, is one step of a path; where one way through it is open and another cut, it is two.
        cut_paths: the number of those that a cut ends.
        cuts: the cuts on them, in the order of their operations.
    """

    def __init__(
        self, status: Status | str, cuts: tuple[Cut, ...] = (), paths: int = 0, cut_paths: int = 0
    ) -> None:
        self.status = Status(status)
        self._given = cuts, paths, cut_paths

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        return self._given[0]

    @cached_property
    def _counted(self) -> tuple[int, int]:
        return self._given[1:]

    @property
    def paths(self) -> int:
        return self._counted[0]

    @property
    def cut_paths(self) -> int:
        return self._counted[1]

    @property
    def arrives(self) -> bool:
        """Whether a gradient is generated."""
        return self.status in ARRIVES

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and (self.status, self.cuts) == (other.status, other.cuts)

    def __hash__(self) -> int:
        return hash((self.status, self.cuts))

    def __repr__(self) -> str:
        return f"Reach({self.status!r}, {self.cuts!r})"


class _Surveyed(Reach):
    """What a survey says of x; counted and put in order when it is asked for."""

    def __init__(self, survey: Survey, x: Output, lines: _Lines) -> None:
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


@dataclass(frozen=True)
class GateUse:
    """A gate between ys and the tensors asked about that may end paths.

    Attributes:
        operation: the gate.
        fully: the tensors that it cuts and that no gradient reaches.
        partly: those that it cuts, and that a gradient reaches all the same.
        idle: whether it does nothing: were it removed, and all other gates too, no path would be opened that
            is not open without it.
        why_idle: how that comes; empty where it is not idle.
    """

    operation: Operation
    fully: tuple[str, ...]
    partly: tuple[str, ...]
    why_idle: str = ""

    @property
    def cuts(self) -> tuple[str, ...]:
        """The tensors that it cuts."""
        return self.fully + self.partly

    @property
    def idle(self) -> bool:
        return bool(self.why_idle)

    @property
    def location(self) -> Location | None:
        return self.operation.location


@dataclass(frozen=True)
class Finding:
    """Something that a reader should look at.

    Attributes:
        kind: ``"idle"``, for a stop that does nothing, or the status of tensors that no gradient reaches.
        message: what it is, in a sentence.
        operations: where it is; for a status, the operations of the cuts.
        keys: the tensors that it is about.
        reason: of an idle stop, why it does nothing.
    """

    kind: str
    message: str
    operations: tuple[Operation, ...]
    keys: tuple[str, ...] = ()
    reason: str = ""

    @property
    def location(self) -> Location | None:
        return self.operations[0].location if self.operations else None


@dataclass(frozen=True)
class Story:
    """Tensors of which the same is to be told."""

    keys: tuple[Any, ...]
    status: Status
    cuts: tuple[Cut, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(label, self.keys))


Place = tuple[Any, ...]
"""What the cuts have in common that are one for the reader: a line of the source and what happens there."""


class _Lines:
    """The walls at which paths end, by the lines of the user's source."""

    def __init__(self, asked: Asked, surveys: Sequence[Survey]) -> None:
        self._locations: dict[Any, Location | None] = {}
        self._labels: dict[Output, list[str]] = {}
        for key, x in asked.xs.items():
            self._labels.setdefault(x, []).append(label(key))
        self._lines: dict[Survey, dict[Place, _Line]] = {}
        for survey in surveys:
            lines = self._lines[survey] = {}
            for ending in reversed(survey.endings):
                line = lines.setdefault(self.place(ending.wall), _Line())
                line.walls.append((ending.wall, survey.sources.behind(ending.leads)))
                line.leads |= ending.leads
        self._behind_themselves: dict[Survey, set[Place]] = {}
        self._known: dict[Place, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._beyond: dict[Survey, dict[Place, list[tuple[Wall, int]]]] = {}

    def location(self, op: Operation) -> Location | None:
        """Where an operation was built; decoded once for all that one instruction built."""
        like: Operation | None = op
        while like is not None and like._place is None:
            like = like.origin
        key = None if like is None else (id(like._place), like._instruction)
        if key not in self._locations:
            self._locations[key] = op.location
        return self._locations[key]

    def place(self, wall: Wall | Cut) -> Place:
        op = wall.operation
        found = self.location(op)
        where: tuple[Any, ...] = (op,) if found is None else (found.file, found.line, op.origin is None)
        return (*where, wall.status, wall.reason, wall.switched)

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
        """The cuts at these lines, each with the operations behind which any of the xs lies."""
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
                line = self._lines[survey].get(place, _Line())
                walls |= dict.fromkeys([wall for wall, behind in line.walls if behind & mask])
            operations = tuple(dict.fromkeys([wall.operation for wall in walls]))
            first = next(iter(walls))
            cut = Cut(operations, first.status, first.reason, *self._behind(place, xs), first.switched)
            found.append(cut)
        return tuple(found)

    def beyond(self, place: Place) -> tuple[Cut, ...]:
        """The cuts at which paths would end if those of a line were removed."""
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

    def _closes(self, survey: Survey, line: _Line) -> bool:
        """Whether tensors stay without a gradient when the line is removed."""
        return survey.sources.openly(line.leads) != survey.sources.behind(line.leads)

    def _behind(
        self, place: Place, xs: Sequence[tuple[Survey, Output]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is called that lies behind a line, and what of it a gradient would reach without the line."""
        found = self._known.get(place)
        if found is None:
            behind: dict[str, None] = {}
            opens: dict[str, None] = {}
            for survey, lines in self._lines.items():
                names = [self._labels[x] for x in survey.xs]
                leads = lines[place].leads if place in lines else 0
                behind |= dict.fromkeys(_chosen(names, survey.sources.behind(leads)))
                opens |= dict.fromkeys(_chosen(names, self._opened(survey, place, leads)))
            if not behind:  # A tensor that carries no gradient itself.
                own = [x for survey, x in xs if (wall := survey.own_wall(x)) and self.place(wall) == place]
                return tuple(dict.fromkeys([name for x in own for name in self._labels[x]])), ()
            found = self._known[place] = tuple(behind), tuple(opens)
        return found

    def _opened(self, survey: Survey, place: Place, leads: int) -> int:
        """The xs that a gradient would reach without a line behind which these are."""
        openly = survey.sources.openly(leads)
        if openly == survey.sources.behind(leads):
            return openly
        if survey not in self._behind_themselves:
            self._behind_themselves[survey] = behind_themselves(survey, self.place)
        if place not in self._behind_themselves[survey]:
            return openly
        return survey.opened(lambda wall: self.place(wall) == place)


class _Line:
    """What ends paths at a line: walls, each with the xs behind it; and all that is behind them."""

    def __init__(self) -> None:
        self.walls: list[tuple[Wall, int]] = []
        self.leads = 0


def _chosen(names: Sequence[Sequence[str]], bits: int) -> Iterator[str]:
    """The names at the positions that are set."""
    while bits:
        lowest = bits & -bits
        yield from names[lowest.bit_length() - 1]
        bits ^= lowest


class Report(Mapping[Any, Reach]):
    """Per tensor asked about, whether gradients arrive, and what cuts the paths of those that do not.

    Keys are the outputs themselves, or, for a function, the paths of its arguments (``"params.w"``). A tensor
    is found by its name too (``"w"`` or ``"w:0"``), and what begins a path (``"params"``), or a structure of
    tensors, gives the report on all below it.

    Attributes:
        graph: the graph that was looked at.
        ys: what is differentiated.
        xs: the tensors asked about, by what they are called.
        is_function: whether a function was asked about, its arguments being the tensors.
    """

    def __init__(self, asked: Asked, surveys: Sequence[Survey]) -> None:
        self._asked, self._surveys = asked, surveys
        self.graph: Graph = asked.graph
        self.ys = asked.ys
        self.is_function = asked.is_function
        self.xs: dict[str, Output] = {label(key): x for key, x in asked.xs.items()}
        self._lines = _Lines(asked, surveys)
        home = {x: survey for survey in surveys for x in survey.xs}
        self._found = {key: _Surveyed(home[x], x, self._lines) for key, x in asked.xs.items()}

    # ------------------------------------------------------------------------------------- reading

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Operation):
            key = key.as_output()
        if isinstance(key, (dict, list, tuple)):
            return self._part([self._key(leaf) for leaf in flatten(key)[0]])
        found = self._key(key, missing=None)
        if found is not None:
            return self._found[found]
        below = [
            k for k in self._found if isinstance(key, str) and label(k).startswith((f"{key}.", f"{key}/"))
        ]
        return self._part(below) if below else self._found[self._key(key)]

    def _key(self, key: Any, **otherwise: Any) -> Any:
        """The key as it was asked about; a KeyError, or what is given for that case, where it was not."""
        if isinstance(key, Operation):
            key = key.as_output()
        if isinstance(key, (str, Output)) and key in self._found:
            return key
        if isinstance(key, str):
            named = self._by_name.get(key)
            if named is not None:
                return named
        if "missing" in otherwise:
            return otherwise["missing"]
        known = list(map(label, self._found))
        close = difflib.get_close_matches(label(key), known, 3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"it knows {some(known)}"
        raise KeyError(f"explain was not asked about {label(key)}; {hint}")

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        """Keys by the names of their tensors and of operations with a single one."""
        found: dict[str, Any] = {}
        for key, x in self._asked.xs.items():
            found.setdefault(x.name, key)
            if len(x.op.outputs) == 1:
                found.setdefault(x.op.name, key)
        return found

    def _part(self, keys: Sequence[Any]) -> Self:
        part = type(self).__new__(type(self))
        part.__dict__.update({k: v for k, v in self.__dict__.items() if k not in _DERIVED})
        part._found = {key: self._found[key] for key in keys}
        part.xs = {label(key): self._asked.xs[key] for key in keys}
        return part

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def status(self) -> str:
        """The status that all tensors have; ``"mixed"`` where they differ."""
        found = {reach.status for reach in self._found.values()}
        return found.pop() if len(found) == 1 else "mixed"

    # ------------------------------------------------------------------------------------- answers

    @cached_property
    def stories(self) -> tuple[Story, ...]:
        """The tensors asked about, together where the same cuts are told of them, the worst first."""
        groups: dict[Any, list[Any]] = {}
        for key, reach in self._found.items():
            groups.setdefault((reach.status, reach.places), []).append(key)
        found = [
            Story(tuple(keys), status, self._told(places, keys)) for (status, places), keys in groups.items()
        ]
        return tuple(sorted(found, key=lambda story: _ORDER.index(story.status)))

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """All the cuts, each once."""
        places = dict.fromkeys([place for reach in self._found.values() for place in reach.places])
        return self._told(tuple(places), tuple(self._found))

    def location(self, op: Operation) -> Location | None:
        """Where an operation was built; decoded once for all that one instruction built."""
        return self._lines.location(op)

    def place(self, cut: Cut) -> Place:
        """What a cut has in common with those that are the same for a reader: the line, and what happens."""
        return self._lines.place(cut)

    def beyond(self, cut: Cut) -> tuple[Cut, ...]:
        """The cuts behind a cut, at which the paths would end next if this alone were removed.

        Found for cuts that would not open all that lies behind them; not inside the body of a loop.
        """
        return self._lines.beyond(self._lines.place(cut))

    def open_path(self, key: Any) -> list[Operation]:
        """The operations of a path that no cut ends, from ys to a tensor; none where there is none."""
        reach = self[key]
        return open_path(reach.survey, self.ys, reach.x) if reach.arrives else []

    def _told(self, places: Sequence[Place], keys: Sequence[Any]) -> tuple[Cut, ...]:
        found = [self._found[key] for key in keys]
        return self._lines.cuts(places, [(reach.survey, reach.x) for reach in found])

    @cached_property
    def gates(self) -> tuple[GateUse, ...]:
        """The gates that may end paths, with the tensors each cuts off; of a function also unused ones."""
        leads: dict[Operation, list[tuple[Survey, int]]] = {}
        for survey in self._surveys:
            for ending in survey.endings:
                if ending.wall.reason is not NAMED:
                    leads.setdefault(ending.wall.operation, []).append((survey, ending.leads))
        above = self.graph.subgraph_to(self.ys)
        left = untaken(self.graph, above) if self._asked.is_function else ()
        known: dict[tuple[tuple[Survey, int], ...], tuple[tuple[str, ...], tuple[str, ...], bool]] = {}
        found = []
        for op in dict.fromkeys(op for op in (*with_bodies(above), *left) if may_end_paths(op)):
            before = tuple(leads.get(op, ()))
            if before not in known:
                known[before] = self._cut_by(before)
            fully, partly, works = known[before]
            why = "" if works else self._why_idle(op, bool(fully + partly))
            found.append(GateUse(op, fully, partly, why))
        return tuple(found)

    def _cut_by(self, leads: Sequence[tuple[Survey, int]]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Of what a gate leads to, what it cuts fully and partly, and whether it does anything."""
        cuts: dict[Output, None] = {}
        works = False
        for survey, bits in leads:
            cuts |= dict.fromkeys(_chosen_from(survey.xs, survey.sources.behind(bits)))
            works = works or bool(survey.sources.if_gates_were_open(bits))
        fully, partly = list[str](), list[str]()
        for key in [key for key in self._found if self._asked.xs[key] in cuts]:
            (partly if self._found[key].arrives else fully).append(label(key))
        return tuple(fully), tuple(partly), works

    def _why_idle(self, op: Operation, cuts: bool) -> str:
        rules, passes = op.definition.rules, op.definition.passes or 0
        if isinstance(rules[passes], Undefined):
            return ""  # It waits for what should not happen.
        if any(i != passes and not isinstance(rule, NoGradient) for i, rule in enumerate(rules)):
            return ""  # It leads gradients to another tensor: a straight-through.
        if cuts:
            return "what lies behind it has no derivative anyway"
        if op.graph is self.graph and any(survey.sweep.place(op.outputs[0]) < 0 for survey in self._surveys):
            return "its result is not used"
        if not op.outputs[0].type.differentiable:
            return no_gradient_of(op.outputs[0])
        if op.graph is not self.graph:
            undefined = any(e.wall.status is Status.UNDEFINED for s in self._surveys for e in s.endings)
            return "" if undefined else "no path to what was asked about ends at it"
        selective = op.definition.selective
        acting = [survey for survey in self._surveys if not selective or op in survey.acting]
        if not acting:
            return "it acts for none of the tensors asked about"
        if not any(survey.leads[survey.sweep.place(op.inputs[passes])] for survey in acting):
            return "nothing behind it depends on what was asked about"
        marks = [survey.mark(op) for survey in acting]
        if any(mark.awaited for mark in marks) and not any(mark.ends for mark in marks):
            return ""  # It keeps away an error.
        return "every path to it is cut before"

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader should look at: stops that do nothing, and tensors that no gradient reaches."""
        found = []
        for story in self.stories:
            # What carries no gradient itself, such as labels, was not kept from one.
            names = [label(key) for key in story.keys if self._asked.xs[key].type.differentiable]
            if story.status not in ARRIVES and names:
                count = f"{len(names)} tensors: " if len(names) > 1 else ""
                operations = tuple([op for cut in story.cuts for op in cut.operations])
                message = f"{story.status}: {count}{some(names)}"
                found.append(Finding(str(story.status), message, operations, tuple(names)))
        lines: dict[Any, list[GateUse]] = {}
        for gate in self.gates:
            place = self._lines.location(gate.operation)
            where: Any = gate.operation if place is None else (place.file, place.line, gate.operation.type)
            lines.setdefault(where, []).append(gate)
        for gates in lines.values():
            if all(gate.idle for gate in gates):
                why = gates[0].why_idle
                operations = tuple([gate.operation for gate in gates])
                found.append(Finding("idle", f"this stop does nothing: {why}", operations, (), why))
        return tuple(found)

    def marks(self) -> dict[Operation, str]:
        """What each operation that ys are computed from is to their gradient.

        ``"live"``: gradients pass it; ``"cut"``: paths end in it; ``"idle"``: a stop that does nothing;
        ``"severed"``: it leads to tensors asked about, but only through cuts; ``"hidden"``: it lies behind
        cuts; ``"aside"``: it leads to none of the tensors.
        """
        cutting = {
            op
            for survey in self._surveys
            for ending in survey.endings
            for op in (ending.wall.operation, ending.inside)
        }
        idle = {gate.operation for gate in self.gates if gate.idle and not gate.cuts}
        marks: dict[Operation, str] = {}
        for op in self.graph.subgraph_to(self.ys):
            seen = [survey.mark(op) for survey in self._surveys]
            if op in cutting:
                marks[op] = "cut"
            elif op in idle and not any(mark.passes for mark in seen):
                marks[op] = "idle"
            else:
                marks[op] = best_of(seen)
        return marks

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {', '.join(f'{label(k)}: {v.status}' for k, v in self._found.items())}>"
        )


_DERIVED = ("stories", "cuts", "gates", "findings")
_ORDER = (
    Status.UNDEFINED,
    Status.STOPPED,
    Status.NOT_DIFFERENTIABLE,
    Status.DISCONNECTED,
    Status.PARTLY_STOPPED,
    Status.FLOWS,
)


def _chosen_from(xs: Sequence[Output], bits: int) -> Iterator[Output]:
    return (xs[k] for k in range(len(xs)) if bits >> k & 1)
