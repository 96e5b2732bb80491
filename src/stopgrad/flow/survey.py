"""Surveys: from the sweeps, how each x is reached, where its paths end, and how many there are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from stopgrad.base.garbage import without_gc
from stopgrad.flow.hidden import Hidden
from stopgrad.flow.walls import LEVELS, OPEN, Removed, Wall, Way, keep_all, no_gradient_of
from stopgrad.flow.ways import (
    Ending,
    Results,
    Sources,
    Sweep,
    endings,
    from_results,
    openly_behind,
    replaces,
    to_sources,
    walled,
    ways_of,
)
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.op import Op, Status
from stopgrad.graph.selective import Acting, by_gates, selective_gates

NAMED = "named in stop_gradients"
"""The reason of walls for tensors named in stop_gradients."""


Unseen = Callable[[Operation], bool]
"""The operations whose walls a survey passes over, as if no paths led to them."""


def _none(op: Operation) -> bool:
    return False


class Survey:
    """A survey of xs for which the same selective gates act."""

    xs: Sequence[Output]
    acting: Acting
    graph: Graph
    sweep: Sweep
    results: Results
    reached: list[int]
    sources: Sources
    leads: list[int]

    def __init__(
        self,
        ys: Sequence[Output],
        xs: Sequence[Output],
        stops: Collection[Output],
        above: Sequence[Operation],
        acting: Acting,
        sweep: Sweep | None = None,
        unseen: Unseen = _none,
    ) -> None:
        self._ys, self.xs, self.acting, self._unseen = ys, xs, acting, unseen
        self.graph = ys[0].op.graph
        self.sweep = sweep = Sweep(above, acting) if sweep is None else sweep
        self._own: dict[int, Way] = {}  # By place, the ways behind tensors that are named in stops.
        self._stops = [t for t in stops if sweep.place(t) >= 0 and t.type.differentiable]
        for t in self._stops:
            self._own[sweep.place(t)] = sweep.ways.setdefault(t.op.id, ways_of(t.op, acting))[t.index]
        self._wall_off(sweep)
        self.results = results = Results(1)
        self.reached = from_results(sweep, {y: results.starting(1, y) for y in ys}, results)
        self.sources = sources = Sources(1)  # Which of the xs these are is asked of what is hidden.
        self._begin = {x: sources.starting(1) for x in xs if sweep.place(x) >= 0}
        self.leads = to_sources(sweep, self._begin, sources)
        ends = endings(sweep, self.reached, self.leads, results, sources)
        self.endings: list[Ending] = [ending for ending in ends if not unseen(ending.wall.operation)]

    @cached_property
    def hidden(self) -> Hidden:
        """Which xs lie behind which walls."""
        return without_gc(Hidden, self.sweep, self.xs, self.leads, [ending.spot for ending in self.endings])

    def ends_at(self, x: Output) -> bool:
        """Whether a tensor is named in stops, so that paths end there."""
        return self.sweep.place(x) in self._own

    def _wall_off(self, sweep: Sweep, removed: Removed = keep_all) -> None:
        """Put walls before the ways of tensors that are named in stops."""
        for t in self._stops:
            ways = sweep.ways[t.op.id] = list(sweep.ways[t.op.id])
            ways[t.index] = walled(ways[t.index], Wall(t.op, Status.STOPPED, NAMED), removed)

    def opened(self, removed: Removed) -> list[int]:
        """The xs, by their positions, that a gradient would reach through these walls without all of them."""
        sweep, results, sources = self.sweep.without(removed, self.acting), self.results, self.sources
        for t in self._stops:
            sweep.ways[t.op.id] = ways_of(t.op, self.acting, removed)
        self._wall_off(sweep, removed)
        reached = from_results(sweep, {y: results.starting(1, y) for y in self._ys}, results)
        leads = to_sources(sweep, self._begin, sources)
        ends = endings(sweep, reached, leads, results, sources)
        passed = openly_behind(sweep, [end.spot for end in ends if removed(end.wall)])
        return [k for k, x in enumerate(self.xs) if x in self._begin and passed[sweep.place(x)]]

    def status(self, x: Output) -> Status:
        """Whether a gradient arrives, and if not, why not."""
        place = self.sweep.place(x)
        level = len(LEVELS) if place < 0 else self.results.level(self.reached[place], 1)
        if level == len(LEVELS):
            return Status.DISCONNECTED
        if level == OPEN and self.endings and self.hidden.is_cut(self.position(x)):
            return Status.PARTLY_STOPPED
        return LEVELS[level]

    def arrives(self, x: Output) -> bool:
        """Whether a gradient arrives."""
        place = self.sweep.place(x)
        return place >= 0 and self.results.level(self.reached[place], 1) == OPEN

    def own_wall(self, x: Output) -> Wall | None:
        """The wall of an x that carries no gradient, which is the tensor itself; None for others."""
        if x.type.differentiable or self.status(x) is Status.DISCONNECTED:
            return None
        return Wall(x.op, Status.NOT_DIFFERENTIABLE, no_gradient_of(x))

    def position(self, x: Output) -> int:
        """The position of x among the xs."""
        return self._positions[x]

    @cached_property
    def _positions(self) -> dict[Output, int]:
        return {x: k for k, x in enumerate(self.xs)}

    def paths(self, x: Output) -> tuple[int, int]:
        """The number of paths from ys to x, and of those that are cut."""
        place = self.sweep.place(x)
        if place < 0:
            return 0, 0
        total, free = self._counts
        return total[place], total[place] - free[place]

    @cached_property
    def _counts(self) -> tuple[list[int], list[int]]:
        """For each place the number of paths from ys to it; and of those that no wall ends.

        The numbers are added up, operation by operation. An input counts once if a gradient passes to it, and
        once if none does; in operations with bodies both may be so.
        """
        sweep = self.sweep
        total, free = [0] * sweep.places, [0] * sweep.places
        for y in self._ys:
            total[sweep.place(y)] += 1
            free[sweep.place(y)] += y.type.differentiable
        asked = {sweep.place(x) for x in self.xs}
        for op in reversed(sweep.operations):
            start = sweep.first[op.id]
            ways = sweep.ways.get(op.id)
            for o in range(len(op.outputs)):
                n, m = total[start + o], free[start + o]
                if not n:
                    continue
                if start + o not in asked:  # The numbers may be large.
                    total[start + o] = free[start + o] = 0
                if ways is None:
                    for x in op.inputs:
                        to = sweep.first[x.op.id] + x.index
                        total[to] += n
                        free[to] += m
                else:
                    walled_off = start + o in self._own
                    for i, passing, all in _times(self._own.get(start + o, ways[o]), self._unseen):
                        to = sweep.place(op.inputs[i])
                        total[to] += all * n
                        free[to] += 0 if walled_off else passing * m
        return total, free

    def mark(self, op: Operation) -> Mark:
        """The mark of an operation for the gradient of the xs."""
        place = self.sweep.first[op.id] if op.id < len(self.sweep.first) else -1
        if place < 0:
            return Mark(False, False, False, False, False, False)
        arrives, leads = self.reached[place], self.leads[place]
        mark = self._mark(arrives, leads)
        for n in range(place + 1, place + len(op.outputs)):
            mark = Mark(*map(operator.or_, mark, self._mark(self.reached[n], self.leads[n])))
        return mark

    def _mark(self, reached: int, leads: int) -> Mark:
        """The mark of one output."""
        if not leads:
            return Mark(bool(reached & 1), False, False, False, False, False)
        comes = bool(reached & 1)
        openly = comes and self.sources.openly(leads) != 0
        return Mark(comes, openly, comes, bool(reached & 2), reached != 0, True)


class Mark(NamedTuple):
    """The role of an operation for a gradient.

    Attributes:
        comes: whether the gradient comes to one of its outputs.
        passes: whether it continues to xs from an output to which it comes.
        ends: whether paths lead to xs from an output to which it comes.
        awaited: whether paths lead to xs from an output to which it comes, or would be an error.
        hidden: whether a path, open or cut, leads from ys through one of its outputs to xs.
        leads: whether it is computed from xs.
    """

    comes: bool
    passes: bool
    ends: bool
    awaited: bool
    hidden: bool
    leads: bool


def best_of(marks: Sequence[Mark]) -> str:
    """The mark of an operation in which no paths end, for the gradients of all xs."""
    if any(mark.passes for mark in marks):
        return "live"
    if any(mark.ends for mark in marks):
        return "severed"
    return "hidden" if any(mark.hidden for mark in marks) else "aside"


def _times(way: Way, unseen: Unseen) -> list[tuple[int, int, int]]:
    """For each input, the number of ways by which gradients pass to it, and of all ways."""
    seen = [inputs for wall, inputs in way.walls if not unseen(wall.operation)]
    cut = set(way.dark).union(*[[i for i, _ in inputs] for inputs in seen])
    return [(i, level == OPEN, (level == OPEN) + (i in cut)) for i, level in way.inputs]


def surveys(
    graph: Graph,
    ys: Sequence[Output],
    xs: Sequence[Output],
    stops: Collection[Output] = (),
    by_library: Unseen | None = None,
) -> list[Survey]:
    """One survey for each group of xs for which the same selective gates act; usually there is only one.

    Where walls of libraries are on paths to xs that a gradient reaches, these have a survey without them.
    """
    _settle(graph, ys)
    above = graph.subgraph_to(ys)
    some = [op for op in above if op.definition.selective or op.definition.has_bodies]
    groups = by_gates(list(selective_gates(some)), list(dict.fromkeys(xs)))
    sweep = Sweep(above)
    separate = []
    for acting, group in groups.items():
        survey = Survey(ys, group, stops, above, acting, sweep.where(acting, some))
        if by_library is None or not any(by_library(ending.wall.operation) for ending in survey.endings):
            separate.append(survey)
            continue
        arriving = [x for x in group if survey.arrives(x)]
        others = [x for x in group if not survey.arrives(x)]
        if arriving:
            separate.append(Survey(ys, arriving, stops, above, acting, sweep.where(acting, some), by_library))
        if others:
            separate.append(Survey(ys, others, stops, above, acting, sweep.where(acting, some)))
    return separate


def untaken(graph: Graph, above: Collection[Operation]) -> list[Operation]:
    """The operations of a graph from which ys are not computed, and whose results nothing takes."""
    leading = set(above)
    left = [op for op in graph.operations if op not in leading]
    taken = {x.op for op in left for x in op.inputs}
    return [op for op in left if op not in taken]


def within_rules(graph: Graph) -> set[Operation]:
    """The operations whose results are only handed on, by functions with gradients of their own."""
    takers: dict[Operation, bool] = {}
    handing: set[Operation] = set()
    for op in reversed(graph.operations):
        if takers.get(op):
            handing.add(op)
        for i, x in enumerate(op.inputs):
            takers[x.op] = takers.get(x.op, True) and (op in handing or replaces(op, i))
    return handing


def _settle(graph: Graph, ys: Sequence[Output]) -> None:
    """Settle operations that make parts explicit on demand; not behind a stop."""
    settle = Op.settle.__func__  # type: ignore[attr-defined]
    stack = [y.op for y in ys]
    seen = set(stack)
    while stack:
        op = stack.pop()
        definition = op.definition
        if definition.settle.__func__ is not settle:
            definition.settle(op)
        for i in definition.open_inputs(op):
            source = op.inputs[i].op
            if source not in seen:
                seen.add(source)
                stack.append(source)


def with_bodies(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and those in the bodies that they run forward; each body once, without pullbacks."""
    seen: set[Operation] = set()
    todo = [list(operations)]
    for some in todo:  # The list grows with bodies that are found. Several may share their operations.
        for op in some:
            if op not in seen:
                seen.add(op)
                yield op
                if op.definition.has_bodies:
                    todo.extend([wire.body.operations() for wire in op.definition.wires(op)])
