"""How gradients pass from the outputs of operations to their inputs, and what stops them.

Two sweeps over operations in order answer everything: :func:`from_results`, backwards, finds the results from
which each tensor is reached, and :func:`to_sources`, forwards, finds the sources to which each tensor leads.
Both carry a number for each tensor. Its bits are results, or sources, once for each level of what is between:
so many are answered at once, and the same sweeps analyse bodies.

Seen from a result, a path ends at its first wall. Nothing behind integers and booleans has a gradient, but
the wall is the operation that made them from floats, not the one that took them: until there, the way is
*dark*.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from stopgrad.flow.runs import NOTHING, Reached, Sets, in_runs, joined
from stopgrad.flow.walls import (
    BLIND,
    LEVELS,
    OPEN,
    Behind,
    Removed,
    Wall,
    Way,
    keep_all,
    no_gradient_of,
)
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output, needed
from stopgrad.graph.op import NoGradient, Op, Status, Undefined, Wire
from stopgrad.graph.selective import NOBODY, Acting, selective_in

# ------------------------------------------------------------------------------------- one operation


def passes_all(definition: type[Op]) -> bool:
    """Whether gradients pass from every output to every input whose dtype has gradients."""
    rules = (NoGradient, Undefined)
    return not (
        definition.tells_apart
        or definition.selective
        or definition.switched is not None
        or definition.rule.__func__ is not Op.rule.__func__  # type: ignore[attr-defined]
        or any(isinstance(rule, rules) for rule in definition.rules)
    )


def may_end_paths(op: Operation) -> bool:
    """Whether it is a gate that may stop a gradient, or make it an error."""
    definition = op.definition
    if definition.passes is None:
        return False
    return definition.switched is not None or isinstance(
        definition.rules[definition.passes], (NoGradient, Undefined)
    )


def ways_of(op: Operation, acting: Acting = NOBODY, removed: Removed = keep_all) -> list[Way]:
    """For each output of an operation, its way to the inputs."""
    definition = op.definition
    ways = [_WayBuilder(removed) for _ in op.outputs]
    wired: set[int] = set()
    wires = list(definition.wires(op)) if definition.has_bodies else []
    if wires:
        for wire in wires:
            wired.update(wire.operands)
            for result, output in zip(_through(wire, acting, removed), wire.outputs, strict=True):
                if output is not None:
                    ways[output].add_body(result, wire.operands)
        _refuse(op, wired, ways)
    barriers = {i: _barrier(op, i, acting) for i in range(len(op.inputs)) if i not in wired}
    dependence = _dependence(op, barriers, acting) if definition.tells_apart else None
    settled = _settled(op, wires) if definition.alternatives else ()
    for i, barrier in barriers.items():
        if _apart(barrier):
            continue
        for o, y in enumerate(op.outputs):
            if o not in settled and (dependence is None or i in dependence[o]):
                ways[o].add(op, i, y, barrier, acting)
    return [way.done() for way in ways]


def _settled(op: Operation, wires: Sequence[Wire]) -> set[int]:
    """The outputs that are the same whichever body runs: an operand that all of them return."""
    returned: list[set[Output | None]] = [set() for _ in op.outputs]
    for wire in wires:
        operands = {x: op.inputs[i] for x, i in zip(wire.body.inputs, wire.operands, strict=True)}
        for y, output in zip(wire.body.outputs, wire.outputs, strict=True):
            if output is not None:
                returned[output].add(None if y is None else operands.get(y))
    return {o for o, some in enumerate(returned) if len(wires) == 1 or (len(some) == 1 and None not in some)}


def _dependence(
    op: Operation, barriers: Mapping[int, NoGradient | Undefined | None], acting: Acting
) -> Sequence[Collection[int]] | None:
    """For each output, the inputs on which it depends; None for all.

    An operation that hands on values tells of inputs with gradients alone. On others an output depends if the
    value that it hands on is computed from them.
    """
    dependence, handed = op.definition.dependence(op), op.definition.handed_on(op)
    if dependence is None or not handed:
        return dependence
    taken = {i: rule for i, rule in barriers.items() if not _apart(rule)}
    starts = dict.fromkeys([op.inputs[i] for i in taken])
    bits = {x: 1 << k for k, x in enumerate(starts)}
    values = [op.inputs[i] for i in handed]
    sweep, sources = Sweep(needed(values, starts), acting, starts), Sources(len(starts))
    leads = to_sources(sweep, {x: sources.starting(bit) for x, bit in bits.items()}, sources)
    depends = []
    for some, y in zip(dependence, values, strict=True):
        read = sources.behind(leads[sweep.place(y)])
        stopped = [i for i, rule in taken.items() if rule is not None and bits[op.inputs[i]] & read]
        depends.append({*some, *stopped})
    return depends


def _apart(rule: NoGradient | Undefined | None) -> bool:
    """Whether nothing is taken from an input."""
    return isinstance(rule, NoGradient) and rule.status is Status.DISCONNECTED


def replaces(op: Operation, i: int) -> bool:
    """Whether an operation hands on its i-th input with a gradient of its own, in place of what made it."""
    return i in op.definition.handed_on(op) and _apart(_barrier(op, i, NOBODY))


def _refuse(op: Operation, wired: Iterable[int], ways: Sequence[_WayBuilder]) -> None:
    """Put an operation's own wall before its bodies, if its gradient is undefined in any case."""
    refused = next((rule for i in wired if isinstance(rule := op.definition.rule(op, i), Undefined)), None)
    if refused is None:
        return
    for way, y in zip(ways, op.outputs, strict=True):
        if y.type.differentiable:
            way.wall_off(Wall(op, Status.UNDEFINED, refused.reason(op)))


def _barrier(op: Operation, i: int, acting: Acting) -> NoGradient | Undefined | None:
    """The wall before the operation's i-th input; None if gradients pass."""
    if op.definition.selective and op not in acting:
        return None if i == 0 else NoGradient("names a tensor; takes no value from it", Status.DISCONNECTED)
    rule = op.definition.rule(op, i)
    return rule if isinstance(rule, (NoGradient, Undefined)) else None


class _WayBuilder:
    """A way under construction."""

    def __init__(self, removed: Removed) -> None:
        self._removed = removed
        self.levels: dict[int, int] = {}
        self.dark: set[int] = set()
        self.walls: list[tuple[Wall, Behind]] = []

    def add(
        self, op: Operation, i: int, y: Output, barrier: NoGradient | Undefined | None, acting: Acting
    ) -> None:
        """Add the i-th input of the operation, with the wall before it."""
        x = op.inputs[i]
        if not x.type.differentiable:
            self._reach(i, BLIND)
            self.dark.add(i)
            return
        if isinstance(barrier, Undefined):
            wall = Wall(op, Status.UNDEFINED, barrier.reason(op))
        elif barrier is not None:
            about = barrier.reason if barrier.about is None else barrier.about(op)
            wall = Wall(op, barrier.status, _exit_of(op) or about)
        elif not y.type.differentiable:
            wall = Wall(op, Status.NOT_DIFFERENTIABLE, no_gradient_of(y))
        else:
            self._reach(i, OPEN)
            switched = op.definition.switched
            if i == op.definition.passes and switched is not None and op in acting:
                self.walls.append((Wall(op, switched.status, switched.reason, True), [(i, OPEN)]))
            return
        self._reach(i, OPEN if self._removed(wall) else LEVELS.index(wall.status))
        self.walls.append((wall, [(i, OPEN)]))

    def add_body(self, way: Way, operands: Sequence[int]) -> None:
        """Add the way through a body, whose parameters are these operands."""
        for k, level in way.inputs:
            self._reach(operands[k], level)
        self.dark.update([operands[k] for k in way.dark])
        self.walls += [(wall, [(operands[k], level) for k, level in behind]) for wall, behind in way.walls]

    def wall_off(self, wall: Wall) -> None:
        """Put a wall before everything so far."""
        way = walled(self.done(), wall, self._removed)
        self.levels, self.dark, self.walls = dict(way.inputs), set(way.dark), list(way.walls)

    def _reach(self, i: int, level: int) -> None:
        self.levels[i] = min(level, self.levels.get(i, BLIND))

    def done(self) -> Way:
        return Way(tuple(self.levels.items()), self.dark, self.walls)


def _exit_of(op: Operation) -> str:
    """The name of the stop at the end of a ``no_gradient`` block; empty for other operations."""
    hidden = op.graph._hidden
    if op.type != "StopGradient" or not hidden:
        return ""
    inside = hidden.get(op.inputs[0].op)
    return "no_gradient" if inside is not None and not inside.holds(hidden.get(op)) else ""


def walled(way: Way, wall: Wall, removed: Removed = keep_all) -> Way:
    """A way with a wall before all of it."""
    if removed(wall):
        return way._replace(walls=[(wall, way.inputs), *way.walls])
    level = LEVELS.index(wall.status)
    return Way([(i, max(level, own)) for i, own in way.inputs], (), [(wall, way.inputs)])


# --------------------------------------------------------------------------------------------- sweeps


class Sweep:
    """Operations of a graph, in order, with the ways through those that do not let everything pass.

    Attributes:
        operations: the operations from which the results are computed.
        first: by an operation's id, the place of its first output in the results of sweeps.
        places: the number of places.
        ways: by an operation's id, for each output the way to the inputs; all others are open.
    """

    first: list[int]

    def __init__(
        self,
        operations: Sequence[Operation],
        acting: Acting = NOBODY,
        sources: Iterable[Output] = (),
        removed: Removed = keep_all,
    ) -> None:
        self.operations = operations
        starts = {x.op: None for x in sources}
        size = max([op.id for op in (*operations, *starts)], default=-1) + 1
        self.first = first = [-1] * size
        self.ways: dict[int, list[Way]] = {}
        count = 0
        for op in starts:
            if first[op.id] < 0:
                first[op.id] = count
                count += len(op.outputs)
        open_to_all: dict[type[Op], bool] = {}
        for op in operations:
            if first[op.id] < 0:
                first[op.id] = count
                count += len(op.outputs)
            definition = op.definition
            plain = open_to_all.get(definition)
            if plain is None:
                plain = open_to_all[definition] = passes_all(definition)
            if plain:
                for x in (*op.inputs, *op.outputs):
                    if not x.type.differentiable:
                        plain = False
                        break
            if not plain:
                self.ways[op.id] = ways_of(op, acting, removed)
        self.places = count

    def where(self, acting: Acting, operations: Iterable[Operation]) -> Sweep:
        """The same if selective gates act, which are among these operations or in their bodies."""
        sweep = copy.copy(self)
        sweep.ways = dict(self.ways)
        for op in operations if acting else ():
            if op in acting or op.definition.has_bodies:
                sweep.ways[op.id] = ways_of(op, acting)
        return sweep

    def without(self, removed: Removed, acting: Acting = NOBODY) -> Sweep:
        """The same without some walls."""
        sweep = copy.copy(self)
        sweep.ways = dict(self.ways)
        for op in self.operations:
            ways = sweep.ways.get(op.id, ())
            if any(removed(wall) for way in ways for wall, _ in way.walls) or (
                ways and op.definition.has_bodies
            ):
                sweep.ways[op.id] = ways_of(op, acting, removed)
        return sweep

    def place(self, x: Output) -> int:
        """The place of a tensor; -1 if none of these operations makes it."""
        op = x.op
        first = self.first[op.id] if op.id < len(self.first) else -1
        return -1 if first < 0 else first + x.index


class Results:
    """Sets of results as bits of a number: those that reach a tensor at each level, and in the dark."""

    all: int
    keep: list[int]

    def __init__(self, count: int) -> None:
        self.count = count
        self.all = (1 << count) - 1
        whole = (1 << 4 * count) - 1
        self.keep = [whole & ~((1 << level * count) - 1) for level in range(4)]

    def starting(self, bits: int, y: Output) -> int:
        """The set for a tensor that is itself these results."""
        if y.type.differentiable:
            return sum(bits << level * self.count for level in range(4))
        return bits << BLIND * self.count | bits << 4 * self.count

    def seen(self, reached: int) -> int:
        """The results from which no wall has ended the way."""
        return (reached | reached >> 4 * self.count) & self.all

    def lit(self, reached: int) -> int:
        """The same set behind integers and booleans whose wall is removed."""
        return sum(self.seen(reached) << level * self.count for level in range(4))

    def in_the_dark(self, reached: int) -> int:
        """The same set at an input that carries no gradient."""
        return reached & self.keep[BLIND] | self.seen(reached) << 4 * self.count

    def level(self, reached: int, bit: int) -> int:
        """The level of the best way from a result; if there is none, one more than the worst level."""
        return next((n for n in range(4) if reached >> n * self.count & bit), len(LEVELS))

    def sets(self, reached: Sequence[int], m: int) -> tuple[Sets, int]:
        """Which of these sets the m-th result is in at each level; and in the dark."""
        *levels, dark = [
            sum(1 << k for k, bits in enumerate(reached) if bits >> n * self.count + m & 1) for n in range(5)
        ]
        return tuple(levels), dark


def from_results(sweep: Sweep, start: Mapping[Output, int], results: Results) -> list[int]:
    """The backward sweep: which results reach each place.

    Where the wall that made integers or booleans from floats is removed, the way is dark no longer.
    """
    reached = [0] * sweep.places
    first, ways, keep = sweep.first, sweep.ways, results.keep
    for y, bits in start.items():
        reached[sweep.place(y)] |= bits
    for op in reversed(sweep.operations):
        place = first[op.id]
        way = ways.get(op.id)
        if way is None:
            bits = reached[place]
            for n in range(1, len(op.outputs)):
                bits |= reached[place + n]
            if bits:
                for x in op.inputs:
                    reached[first[x.op.id] + x.index] |= bits
            continue
        for o, (inputs, dark, _) in enumerate(way):
            bits = reached[place + o]
            if bits:
                is_dark = not op.outputs[o].type.differentiable
                for i, level in inputs:
                    x = op.inputs[i]
                    if i in dark:
                        passed = results.in_the_dark(bits)
                    else:
                        passed = results.lit(bits) if is_dark and level == OPEN else bits & keep[level]
                    reached[first[x.op.id] + x.index] |= passed
    return reached


class Sources:
    """Sets of sources as bits of a number: all to which a tensor leads, with gates open, and openly."""

    all: int
    keep: list[int]

    def __init__(self, count: int) -> None:
        self.count = count
        self.all = (1 << count) - 1
        whole = (1 << 3 * count) - 1
        self.keep = [whole, whole >> count, whole >> count, self.all]

    def starting(self, bits: int) -> int:
        """The set for a tensor that is itself these sources."""
        return bits | bits << self.count | bits << 2 * self.count

    def behind(self, leads: int) -> int:
        return leads & self.all

    def if_gates_were_open(self, leads: int) -> int:
        return leads >> self.count & self.all

    def openly(self, leads: int) -> int:
        return leads >> 2 * self.count

    def at_levels(self, leads: int) -> Sets:
        """The sources to which there is a way no worse than each level."""
        gates = self.if_gates_were_open(leads)
        return self.openly(leads), gates, gates, self.behind(leads)


def to_sources(sweep: Sweep, start: Mapping[Output, int], sources: Sources) -> list[int]:
    """The forward sweep: to which sources each place leads."""
    leads = [0] * sweep.places
    first, ways = sweep.first, sweep.ways
    same: dict[int, int] = {}  # Equal sets are kept once.
    for x, bits in start.items():
        leads[sweep.place(x)] |= bits
    for op in sweep.operations:
        place = first[op.id]
        way = ways.get(op.id)
        if way is None:
            bits = 0
            for x in op.inputs:
                bits |= leads[first[x.op.id] + x.index]
            if bits:
                bits = same.setdefault(bits, bits)
                for n in range(place, place + len(op.outputs)):
                    leads[n] |= bits
            continue
        for o, (inputs, _, _) in enumerate(way):
            leads[place + o] |= behind(sweep, op, inputs, leads, sources)
    return leads


def behind(sweep: Sweep, op: Operation, inputs: Behind, leads: Sequence[int], sources: Sources) -> int:
    """The sources to which some inputs of an operation lead, each behind the walls before it."""
    bits = 0
    for i, level in inputs:
        bits |= leads[sweep.place(op.inputs[i])] & sources.keep[level]
    return bits


Spot = tuple[int, int, int]
"""Where a wall is: the id of its operation, which output, and which of the walls of that output's way."""


class Ending(NamedTuple):
    """An end of paths: the wall, the results from which it is seen, and the sources behind it.

    The wall is one of the operations of the sweep, or *inside* one.
    """

    wall: Wall
    inside: Operation
    results: int
    leads: int
    spot: Spot


def endings(
    sweep: Sweep, reached: Sequence[int], leads: Sequence[int], results: Results, sources: Sources
) -> Iterable[Ending]:
    """The first walls on the paths from results to sources, the latest ones first."""
    for op in reversed(sweep.operations):
        for o, way in enumerate(sweep.ways.get(op.id, ())):
            seen = results.seen(reached[sweep.first[op.id] + o]) if way.walls else 0
            for number, (wall, inputs) in enumerate(way.walls if seen else ()):
                bits = behind(sweep, op, inputs, leads, sources)
                if bits:
                    yield Ending(wall, op, seen, bits, (op.id, o, number))


def openly_behind(sweep: Sweep, walls: Iterable[Spot]) -> bytearray:
    """For each place, whether gradients pass to it from right behind some of these walls."""
    passed = bytearray(sweep.places)
    first, ways = sweep.first, sweep.ways

    def mark(op: Operation, inputs: Iterable[tuple[int, int]]) -> None:
        for i, level in inputs:
            if level == OPEN:
                x = op.inputs[i]
                passed[first[x.op.id] + x.index] = True

    spots: dict[int, list[Spot]] = {}
    for spot in walls:
        spots.setdefault(spot[0], []).append(spot)
    for op in reversed(sweep.operations):
        way, place = ways.get(op.id), first[op.id]
        for _, o, number in spots.get(op.id, ()):
            mark(op, ways[op.id][o].walls[number][1])
        if way is not None:
            for o, (inputs, _, _) in enumerate(way):
                if passed[place + o]:
                    mark(op, inputs)
        elif any(passed[place : place + len(op.outputs)]):
            for x in op.inputs:
                passed[first[x.op.id] + x.index] = True
    return passed


# --------------------------------------------------------------------------------------------- bodies


def _through(wire: Wire, acting: Acting, removed: Removed) -> list[Way]:
    """For each result of a body that runs as often as the wire says, the way to its parameters."""
    body = wire.body
    plain = removed is keep_all and acting.isdisjoint(selective_in(body))
    key = "ways", tuple(wire.feedback.items()), wire.runs, wire.skipped, wire.condition
    through: list[Way] | None = body.memo.get(key) if plain else None
    if through is None:
        condition: list[Way] = []
        if wire.condition is not None:
            condition = _through(Wire(wire.condition, wire.operands, (0,), {}), acting, removed)
        through = in_runs(wire, _once(body, acting, removed), *condition)
        if plain:
            body.memo[key] = through
    return through


def _once(body: Body, acting: Acting, removed: Removed) -> list[Reached]:
    """For each result of a body, what it is reached from in one run."""
    sweep = Sweep(body.operations(), acting, body.inputs, removed)
    results, sources = Results(len(body.outputs)), Sources(len(body.inputs))
    start: dict[Output, int] = {}
    for m, y in enumerate(body.outputs):
        if y is not None:
            start[y] = start.get(y, 0) | results.starting(1 << m, y)
    begin: dict[Output, int] = {}
    for k, x in enumerate(body.inputs):
        begin[x] = begin.get(x, 0) | sources.starting(1 << k)
    reached, leads = from_results(sweep, start, results), to_sources(sweep, begin, sources)
    walls: list[dict[Wall, Sets]] = [{} for _ in body.outputs]
    for ending in endings(sweep, reached, leads, results, sources):
        behind = sources.at_levels(ending.leads)
        for m, own in enumerate(walls):
            if ending.results >> m & 1:
                own[ending.wall] = joined(own.get(ending.wall, NOTHING), behind)
    at_parameters = [reached[sweep.place(x)] for x in body.inputs]
    return [Reached(*results.sets(at_parameters, m), own) for m, own in enumerate(walls)]
