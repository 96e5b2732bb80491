"""The report: whether gradients flow, what stops them, and what does nothing.

Text, JSON and the page are made from :class:`Reaches`; the users'
:class:`stopgrad.flow.flow_report.Flow` adds these forms.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from stopgrad.base.source import Location
from stopgrad.base.structure import flatten
from stopgrad.flow.asked import Asked, label
from stopgrad.flow.beyond import open_path
from stopgrad.flow.comparisons import KIND, Comparison, comparisons
from stopgrad.flow.lines import Lines, Surveyed
from stopgrad.flow.magnitudes.magnitude import Magnitude, Measured
from stopgrad.flow.magnitudes.magnitude_parts import findings_of
from stopgrad.flow.magnitudes.troubles import Trouble, troubles
from stopgrad.flow.parts import ARRIVES, Cut, Finding, GateUse, Names, Place, Reach, Story
from stopgrad.flow.patterns import called
from stopgrad.flow.survey import NAMED, Survey, best_of, untaken, with_bodies, within_rules
from stopgrad.flow.updates import Step, Update, problems_in, update_of
from stopgrad.flow.walls import no_gradient_of
from stopgrad.flow.ways import Ending, may_end_paths
from stopgrad.flow.words import names, some
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.op import NoGradient, Status, Undefined


class Reaches(Mapping[Any, Reach]):
    """For each tensor asked about, whether gradients arrive, and what cuts the paths if they do not.

    Keys are the outputs themselves, or, for a function, the paths of its arguments (``"params.w"``). A tensor
    is also found by its name (``"w"`` or ``"w:0"``); the beginning of a path (``"params"``), a pattern
    (``"params.*.w"``) or a structure of tensors gives the report on all of these.

    Attributes:
        graph: the graph that was examined.
        ys: what is differentiated.
        xs: the tensors asked about, by their names.
        is_function: whether a function was asked about, whose arguments are the tensors.
        noted: findings from recording or importing the graph; also among ``findings``.
        measured: how large the gradients are, if that was measured; else None.
    """

    noted: tuple[Finding, ...]
    measured: Measured | None
    ys: tuple[Output, ...]
    is_function: bool

    def __init__(
        self,
        asked: Asked,
        surveys: Sequence[Survey],
        noted: Sequence[Finding] = (),
        measured: Measured | None = None,
    ) -> None:
        self._asked, self._surveys, self.noted, self.measured = asked, surveys, tuple(noted), measured
        self.graph: Graph = asked.graph
        self.ys = asked.ys
        self.is_function = asked.is_function
        self.calls: Mapping[Operation, Any] = asked.calls
        self.xs: dict[str, Output] = {label(key): x for key, x in asked.xs.items()}
        self._every = self.xs  # Also those that a part of the report leaves out.
        self._lines = Lines(asked, surveys)
        home = {x: survey for survey in surveys for x in survey.xs}
        self._reaches = {key: Surveyed(home[x], x, self._lines) for key, x in asked.xs.items()}
        self._ruled: dict[Graph, set[Operation]] = {}
        for key, reach in self._reaches.items():
            reach.magnitude = None if measured is None else measured.of.get(label(key))

    # ------------------------------------------------------------------------------------- reading

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, Operation):
            key = key.as_output()
        if isinstance(key, (dict, list, tuple)):
            return self._part([self._key(leaf) for leaf in flatten(key)[0]])
        asked_key = self._key(key, missing=None)
        if asked_key is not None:
            return self._reaches[asked_key]
        named = set(called(key, map(label, self._reaches))) if isinstance(key, str) else ()
        below = [k for k in self._reaches if label(k) in named]
        return self._part(below) if below else self._reaches[self._key(key)]

    def _key(self, key: object, **otherwise: object) -> Any:
        """The key as it was asked about; else *missing* if that is given, or a KeyError."""
        if isinstance(key, Operation):
            key = key.as_output()
        if isinstance(key, (str, Output)) and key in self._reaches:
            return key
        if isinstance(key, str):
            named = self._by_name.get(key)
            if named is not None:
                return named
        if "missing" in otherwise:
            return otherwise["missing"]
        labels = list(map(label, self._reaches))
        close = difflib.get_close_matches(label(key), labels, 3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"it knows {some(labels)}"
        raise KeyError(f"explain was not asked about {label(key)}; {hint}")

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        """Keys by the names of their tensors, and of operations with a single output."""
        by_name: dict[str, Any] = {}
        for key, x in self._asked.xs.items():
            by_name.setdefault(x.name, key)
            if len(x.op.outputs) == 1:
                by_name.setdefault(x.op.name, key)
        return by_name

    def _part(self, keys: Sequence[Any]) -> Self:
        part = type(self).__new__(type(self))
        part.__dict__.update({k: v for k, v in self.__dict__.items() if k not in _DERIVED})
        part._reaches = {key: self._reaches[key] for key in keys}
        part.xs = {label(key): self._asked.xs[key] for key in keys}
        part.noted = tuple(
            finding for finding in self.noted if not finding.keys or any(k in part.xs for k in finding.keys)
        )
        return part

    def __iter__(self) -> Iterator[Any]:
        return iter(self._reaches)

    def __len__(self) -> int:
        return len(self._reaches)

    @property
    def magnitudes(self) -> dict[str, Magnitude]:
        """How large the gradients are that arrived, by the tensors' names, as far as that was measured."""
        by_label = {label(key): reach.magnitude for key, reach in self._reaches.items()}
        return {name: magnitude for name, magnitude in by_label.items() if magnitude is not None}

    @property
    def updates(self) -> dict[str, Update]:
        """What one update of the user's optimizer does, by the tensors' names, as far as that is known."""
        by_label = {label(key): reach.update for key, reach in self._reaches.items()}
        return {name: update for name, update in by_label.items() if update is not None}

    def with_steps(self, steps: Mapping[str, Step]) -> Self:
        """The same, with what updates did to tensors, by their names."""
        for key, reach in self._reaches.items():
            step = steps.get(label(key))
            if step is not None:
                reach.update = update_of(step, reach.arrives)
        return self._part(list(self._reaches))

    @property
    def status(self) -> str:
        """The status of all tensors; ``"mixed"`` if they differ."""
        statuses = {reach.status for reach in self._reaches.values()}
        return statuses.pop() if len(statuses) == 1 else "mixed"

    # ------------------------------------------------------------------------------------- answers

    @cached_property
    def stories(self) -> tuple[Story, ...]:
        """The tensors asked about, grouped if their cuts are the same, the worst first.

        Comparisons, indices and masks make no difference for tensors that a gradient reaches, or that other
        cuts keep it from; nor does anything for frozen ones.
        """
        groups: dict[tuple[Status, bool, bool, object], list[Any]] = {}
        for key, reach in self._reaches.items():
            frozen = self._asked.xs[key] in self.frozen
            alike, discrete = (None, False) if frozen else reach.seen
            if self._asked.xs[key] in self._asked.updated and not reach.arrives:
                alike = (alike, "updated")
            groups.setdefault((reach.status, discrete, frozen, alike), []).append(key)
        ranked = sorted(groups, key=lambda group: (_ORDER.index(group[0]), group[1]))
        return tuple([self._story(groups[group], frozen=group[2]) for group in ranked])

    @cached_property
    def frozen(self) -> Mapping[Output, tuple[Operation, ...]]:
        """The tensors asked about that no gradient reaches since they require none, with what says so."""
        recorded = self._asked.recorded
        if recorded is None or not recorded.frozen:
            return {}
        stops: dict[Output, list[Operation]] = {}
        used: set[Output] = set(self.ys)
        for op in self.graph.subgraph_to(self.ys):
            if op in recorded.frozen:
                stops.setdefault(op.inputs[0], []).append(op)
            else:
                used.update(op.inputs)
        xs = {x for key, x in self._asked.xs.items() if self._reaches[key].status is Status.STOPPED}
        return {x: tuple(ops) for x, ops in stops.items() if x in xs and x not in used}

    @property
    def requires(self) -> str:
        """How the framework says that a tensor requires no gradient."""
        recorded = self._asked.recorded
        return "" if recorded is None else recorded.requires

    def is_updated(self, name: str) -> bool:
        """Whether the function writes a tensor anew, as layers do with running statistics."""
        return self.xs[name] in self._asked.updated

    def freezing(self, story: Story) -> tuple[Operation, ...]:
        """The stops at the lines that froze tensors, as far as these lines are known."""
        recorded = self._asked.recorded
        stops = [op for key in story.keys for op in self.frozen[self._asked.xs[key]]]
        return tuple([op for op in stops if recorded is not None and recorded.frozen[op]])

    def is_frozen(self, cut: Cut) -> bool:
        """Whether a cut only says that tensors require no gradient."""
        recorded = self._asked.recorded
        return recorded is not None and all(op in recorded.frozen for op in cut.operations)

    def _story(self, keys: Sequence[Any], frozen: bool) -> Story:
        first = self._reaches[keys[0]]
        return Story(tuple(keys), first.status, first.is_cut, lambda: self._cuts_of(keys), frozen)

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """All the cuts, each once."""
        return self._cuts_of(self._reaches)

    def _cuts_of(self, keys: Iterable[Any]) -> tuple[Cut, ...]:
        """All the cuts on the paths to some tensors, each once."""
        xs = [(reach.survey, reach.x) for reach in [self._reaches[key] for key in keys]]
        return self._lines.cuts(self._lines.all_places(xs), xs)

    def location(self, op: Operation) -> Location | None:
        """Where an operation was built. It is decoded once for all operations of an instruction."""
        return self._lines.location(op)

    def place(self, cut: Cut) -> Place:
        """The key of a cut: its line, and what happens there."""
        return self._lines.place(cut)

    def spot(self, cut: Cut) -> Place:
        """The same for the reader: what helpers cut is cut at the line that called these."""
        return self._lines.spot(cut)

    def line(self, op: Operation) -> Place:
        """The key of the line where an operation was built."""
        return self._lines.line(op)

    def beyond(self, cut: Cut) -> tuple[Cut, ...]:
        """The cuts behind a cut, at which paths would end next if only this one were removed.

        Only cuts that would not open everything behind them have some; bodies of loops are not searched.
        """
        return self._lines.beyond(self._lines.place(cut))

    def open_path(self, key: object) -> list[Operation]:
        """The operations of a path from ys to a tensor that no cut ends; empty if there is none."""
        reach = self[key]
        return open_path(reach.survey, self.ys, reach.x) if reach.arrives else []

    def _cuts_at(self, places: Sequence[Place], keys: Sequence[Any]) -> tuple[Cut, ...]:
        reaches = [self._reaches[key] for key in keys]
        return self._lines.cuts(places, [(reach.survey, reach.x) for reach in reaches])

    @cached_property
    def gates(self) -> tuple[GateUse, ...]:
        """The gates that may end paths, with the tensors that each cuts; for a function also unused ones."""
        endings: dict[Operation, list[tuple[Survey, Ending]]] = {}
        for survey in self._surveys:
            for ending in survey.endings:
                if ending.wall.reason is not NAMED:
                    endings.setdefault(ending.wall.operation, []).append((survey, ending))
        above = self.graph.subgraph_to(self.ys)
        wholly = self._asked.is_function and not self._asked.recorded
        left = untaken(self.graph, above) if wholly else ()
        cut_by = functools.cache(self._cut_by)
        uses = []
        for op in dict.fromkeys(op for op in (*with_bodies(above), *left) if may_end_paths(op)):
            walls: dict[Survey, list[int]] = {}
            works = False
            for survey, ending in endings.get(op, ()):
                walls.setdefault(survey, []).append(survey.hidden.wall(ending.spot))
                works = works or survey.sources.if_gates_were_open(ending.leads) != 0
            alike = tuple([(survey, survey.hidden.alike(some)) for survey, some in walls.items()])
            cuts = functools.partial(cut_by, alike)
            why = "" if works else self._why_idle(op, any(cuts()))
            uses.append(GateUse(op, cuts, why))
        return tuple(uses)

    def _cut_by(self, walls: Sequence[tuple[Survey, Iterable[int]]]) -> tuple[Names, Names]:
        """The tensors behind a gate that no gradient reaches, and those that one reaches by other paths."""
        xs = [survey.xs[k] for survey, nodes in walls for k in survey.hidden.tensors(nodes)]
        fully, partly = list[str](), list[str]()
        for _, key in sorted([pair for x in xs for pair in self._keys.get(x, ())]):
            (partly if self._reaches[key].arrives else fully).append(label(key))
        return tuple(fully), tuple(partly)

    @cached_property
    def _keys(self) -> dict[Output, list[tuple[int, Any]]]:
        """The keys of each tensor, with their positions."""
        keys: dict[Output, list[tuple[int, Any]]] = {}
        for position, (key, reach) in enumerate(self._reaches.items()):
            keys.setdefault(reach.x, []).append((position, key))
        return keys

    def _why_idle(self, op: Operation, cuts: bool) -> str:
        rules, passes = op.definition.rules, op.definition.passes or 0
        if isinstance(rules[passes], Undefined):
            return ""  # It is a guard for what should not happen.
        if any(i != passes and not isinstance(rule, NoGradient) for i, rule in enumerate(rules)):
            return ""  # A straight-through sends gradients to another tensor.
        if cuts:
            return "what lies behind it has no derivative anyway"
        if op.graph is self.graph and any(survey.sweep.place(op.outputs[0]) < 0 for survey in self._surveys):
            return "its result is not used"
        if not op.outputs[0].type.differentiable:
            return no_gradient_of(op.outputs[0])
        if op.graph is not self.graph:
            if op in self._within_rules(op.graph):
                return RULED
            undefined = any(e.wall.status is Status.UNDEFINED for s in self._surveys for e in s.endings)
            return "" if undefined else "no path to what was asked about ends at it"
        selective = op.definition.selective
        acting = [survey for survey in self._surveys if not selective or op in survey.acting]
        if not acting:
            return "it acts for none of the tensors asked about"
        behind = [(survey.sources, survey.leads[survey.sweep.place(op.inputs[passes])]) for survey in acting]
        if not any(leads for _, leads in behind):
            return _APART
        if not any(sources.if_gates_were_open(leads) for sources, leads in behind):
            return "what lies behind it has no derivative anyway"
        marks = [survey.mark(op) for survey in acting]
        ended = any(survey.ends_at(op.outputs[0]) for survey in acting)
        if any(mark.awaited for mark in marks) and not (ended or any(mark.ends for mark in marks)):
            return ""  # It avoids an error.
        if op in self._within_rules(self.graph):
            return RULED
        return "every path to it is cut before"

    def _within_rules(self, graph: Graph) -> set[Operation]:
        within = self._ruled.get(graph)
        if within is None:
            within = self._ruled[graph] = within_rules(graph)
        return within

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader should look at: stops that do nothing, and tensors that no gradient reaches."""
        findings = []
        for story in self.stories:
            # Tensors without gradients, such as labels, are no findings.
            keys = [label(key) for key in story.keys if self._asked.xs[key].type.differentiable]
            keys = [key for key in keys if not self.is_updated(key)]
            if story.status not in ARRIVES and keys:
                operations = tuple([op for cut in story.cuts for op in cut.operations])
                if story.frozen:
                    operations = self.freezing(story) or operations
                word = f"{FROZEN}, {self.requires}" if story.frozen else str(story.status)
                message = f"{word}: {names(keys, self.xs)}"
                findings.append(
                    Finding(str(story.status), message, operations, tuple(keys), frozen=story.frozen)
                )
        findings += self._about_updates()
        findings += [*self.idle_lines, *self.compared, *findings_of(self.troubles, self.magnitudes)]
        return (*findings, *self.noted)

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Predictions that are compared with each target, by the rules of broadcasting and by mistake."""
        mapped = self._asked.is_mapped
        return tuple(comparisons(self.ys, self._every, self.location, self.is_function, mapped))

    @cached_property
    def compared(self) -> tuple[Finding, ...]:
        """The same as findings."""
        return tuple([Finding(KIND, f"{x.message}; {x.cure}", (x.operation,)) for x in self.comparisons])

    def _about_updates(self) -> Iterator[Finding]:
        """The tensors that an update moves although it should have nothing to move them by."""
        by_name = {label(key): reach for key, reach in self._reaches.items()}
        for kind, message, keys in problems_in(self.updates, lambda name: by_name[name].arrives):
            cuts = [cut for name in keys if not by_name[name].arrives for cut in by_name[name].cuts]
            operations = tuple(dict.fromkeys(op for cut in cuts for op in cut.operations))
            yield Finding(kind, message, operations, keys)

    @cached_property
    def idle_lines(self) -> tuple[Finding, ...]:
        """The lines with stops that do nothing, and that a reader should look at."""
        findings = []
        lines: dict[Any, list[GateUse]] = {}
        for gate in self.gates:
            lines.setdefault((*self.line(gate.operation), gate.operation.type), []).append(gate)
        idle = {gate.operation: gate.why_idle for gate in self.idle}
        for gates in lines.values():
            stops = tuple([gate.operation for gate in gates if gate.operation in idle])
            if stops and all(gate.idle for gate in gates):
                why = idle[stops[0]]
                findings.append(Finding("idle", f"this stop does nothing: {why}", stops, (), why))
        return tuple(findings)

    @cached_property
    def troubles(self) -> tuple[Trouble, ...]:
        """Gradients that arrive but are zero, vanish, explode or are no numbers, as far as measured."""

        def where(op: Operation) -> Operation | tuple[str, int]:
            place = self.location(op)
            return op if place is None else (place.file, place.line)

        return () if self.measured is None else tuple(troubles(self.measured, list(self.xs), where))

    @cached_property
    def idle(self) -> tuple[GateUse, ...]:
        """The gates that do nothing, and that a reader should look at."""
        by_library = self._asked.by_library or (lambda op: False)
        return tuple(
            [
                gate
                for gate in self.gates
                if gate.idle and not by_library(gate.operation) and not self._is_meant(gate)
            ]
        )

    def _is_meant(self, gate: GateUse) -> bool:
        """Whether a stop that does nothing is nobody's mistake.

        In a recorded program nothing is said of stops of what is only logged, of those that nobody wrote, and
        of those that keep frozen layers apart, or are in an update of these.
        """
        recorded, op = self._asked.recorded, gate.operation
        if recorded is None:
            return False
        if gate.why_idle == _APART or op in recorded.frozen or op in recorded.unwritten:
            return True
        leading, behind = self._but_by_updates
        return op not in leading or behind.get(op) == {True}

    @cached_property
    def _but_by_updates(self) -> tuple[set[Operation], dict[Operation, set[bool]]]:
        """What is computed not only to be written into frozen tensors.

        Returns:
            The operations that lead to ys; and for each operation, whether frozen tensors lead to it (True),
            and whether others do (False).
        """
        updates = set(self._asked.recorded.updates) if self._asked.recorded is not None else set()
        above = self.graph.subgraph_to(self.ys)
        leading = {y.op for y in self.ys}
        for op in reversed(above):
            if op in leading:
                leading.update(x.op for x in (op.inputs[:1] if op in updates else op.inputs))
        behind: dict[Operation, set[bool]] = {}
        for x in self._asked.xs.values():
            if x.type.differentiable:
                behind.setdefault(x.op, set()).add(x in self.frozen)
        for op in above:
            inputs = op.inputs[:1] if op in updates else op.inputs
            sides = behind.get(op, set()).union(*[behind[x.op] for x in inputs if x.op in behind])
            if sides:
                behind[op] = sides
        return leading, behind

    def marks(self) -> dict[Operation, str]:
        """A mark for each operation from which ys are computed.

        ``"live"``: gradients pass it; ``"cut"``: paths end in it; ``"idle"``: a stop that does nothing;
        ``"severed"``: it leads to tensors asked about, but only through cuts; ``"hidden"``: it is behind
        cuts; ``"aside"``: it leads to none of the tensors.
        """
        cutting = {
            op
            for survey in self._surveys
            for ending in survey.endings
            for op in (ending.wall.operation, ending.inside)
        }
        idle = {gate.operation for gate in self.idle if not gate.cuts}
        marks: dict[Operation, str] = {}
        for op in self.graph.subgraph_to(self.ys):
            by_survey = [survey.mark(op) for survey in self._surveys]
            if op in cutting:
                marks[op] = "cut"
            elif op in idle and not any(mark.passes for mark in by_survey):
                marks[op] = "idle"
            else:
                marks[op] = best_of(by_survey)
        return marks

    def __repr__(self) -> str:
        statuses = ", ".join(f"{label(key)}: {reach.status}" for key, reach in self._reaches.items())
        return f"<{type(self).__name__} {statuses}>"


FROZEN = "frozen"
RULED = "it is in a function with a gradient of its own, whose rule decides; a stop in it has no effect"
"""Why a stop is idle in a function with a ``custom_vjp`` or the like."""
_APART = "nothing behind it depends on what was asked about"
_DERIVED = (
    *("stories", "frozen", "cuts", "gates", "idle", "idle_lines", "_but_by_updates", "findings", "troubles"),
    "_keys",
)
_ORDER = (
    Status.UNDEFINED,
    Status.STOPPED,
    Status.NOT_DIFFERENTIABLE,
    Status.DISCONNECTED,
    Status.PARTLY_STOPPED,
    Status.FLOWS,
)
