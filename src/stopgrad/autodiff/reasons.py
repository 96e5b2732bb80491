"""Whether a gradient arrives, and if not, which operations keep it from arriving.

Unlike the generator, which must not, this looks at every path, open or cut. One sweep serves all xs: along
the operations in order it finds which xs each tensor depends on, and against them how far a gradient would
come if it passed the barriers of one status and milder ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stopgrad.body import Body
from stopgrad.graph import Operation, Output, describe
from stopgrad.op import NoGradient, Status, Undefined, Wire
from stopgrad.selective import Acting, by_gates, selective_gates


@dataclass(frozen=True)
class Cut:
    """An operation that keeps gradients from passing to one of its inputs, on a path from x to y."""

    operation: Operation
    status: Status
    reason: str

    @property
    def location(self) -> Any:
        """Where the operation was built: ``file`` and ``line``; None where that is not known."""
        return self.operation.location

    def __str__(self) -> str:
        return f"{self.reason}: {describe(self.operation)}"


@dataclass(frozen=True)
class Reach:
    """Whether the gradient of ys reaches x: the status, and what cuts the paths that do not."""

    status: Status
    cuts: tuple[Cut, ...]


_INTEGER = NoGradient("integers and booleans carry no gradient")
_NAMED = NoGradient("named in stop_gradients", Status.STOPPED)
_LEVELS = (Status.FLOWS, Status.UNDEFINED, Status.STOPPED, Status.NOT_DIFFERENTIABLE)
"""From the best to the worst: a gradient that would pass barriers up to this status arrives."""

Cuts = dict[Cut, None]
"""An ordered set."""


class Edge(NamedTuple):
    """From outputs of an operation to one of its inputs: how bad the barrier is, and what makes it."""

    op: Operation
    outputs: Sequence[int]
    input: int
    level: int
    cuts: Cuts


def wall(op: Operation, i: int, acting: Acting) -> NoGradient | Undefined | None:
    """What keeps a gradient from passing through the operation to its i-th input; None where it passes."""
    if op.definition.selective and op not in acting:
        return None if i == 0 else NoGradient("names a tensor; takes no value from it", Status.DISCONNECTED)
    rule = op.definition.rule(op, i)
    if isinstance(rule, (NoGradient, Undefined)):
        return rule
    return None if op.inputs[i].type.differentiable else _INTEGER


def _edge(op: Operation, outputs: Sequence[int], i: int, barrier: NoGradient | Undefined | None) -> Edge:
    if barrier is None:
        return Edge(op, outputs, i, 0, {})
    if isinstance(barrier, Undefined):
        cut = Cut(op, Status.UNDEFINED, barrier.reason(op))
    else:
        cut = Cut(op, barrier.status, barrier.reason)
    return Edge(op, outputs, i, _LEVELS.index(cut.status), {cut: None})


def _not_differentiable(y: Output) -> Cut:
    return Cut(y.op, _INTEGER.status, _INTEGER.reason)


def edges(op: Operation, acting: Acting) -> Iterable[Edge]:
    """How an operation's outputs lead to its inputs."""
    outputs = range(len(op.outputs))
    definition = op.definition
    wired: set[int] = set()
    if definition.has_bodies:
        for wire in definition.wires(op):
            wired.update(wire.operands)
            yield from _through(op, wire, acting)
    dependence = definition.dependence(op) if definition.has_bodies else None
    for i in range(len(op.inputs)):
        if i in wired:
            continue
        barrier = wall(op, i, acting)
        if isinstance(barrier, NoGradient) and barrier.status is Status.DISCONNECTED:
            continue
        if barrier is None and dependence is not None:
            yield _edge(op, [o for o in outputs if i in dependence[o]], i, None)
        else:
            yield _edge(op, outputs, i, barrier)


# --------------------------------------------------------------------------------------------- bodies

Path = tuple[int, Cuts]
"""The level of the best path, and what cuts any of them."""
Paths = dict[int, Path]
"""By parameter of a body."""


def _better(a: Path | None, b: Path) -> Path:
    """Two sets of paths together."""
    return b if a is None else a if a[1] == b[1] and a[0] <= b[0] else (min(a[0], b[0]), a[1] | b[1])


def _after(a: Path, b: Path) -> Path:
    """One path and then another."""
    return (max(a[0], b[0]), a[1] | b[1] if a[1] and b[1] else a[1] or b[1])


def _through(op: Operation, wire: Wire, acting: Acting) -> Iterable[Edge]:
    """The edges of an operation that lead through one of its bodies, run any number of times."""
    found = _body_paths(wire.body, acting)
    if wire.skipped:
        for m, k in wire.feedback.items():
            found[m][k] = _better(found[m].get(k), (0, {}))
    changed = bool(wire.feedback)
    while changed:
        changed = False
        for paths in found:
            for source, k in wire.feedback.items():
                for parameter, path in list(found[source].items()) if k in paths else ():
                    wider = _better(paths.get(parameter), _after(paths[k], path))
                    if wider != paths.get(parameter):
                        paths[parameter], changed = wider, True
    for output, paths in zip(wire.outputs, found, strict=True):
        if output is not None:
            for k, (level, cuts) in sorted(paths.items()):
                yield Edge(op, [output], wire.operands[k], level, cuts)


def _body_paths(body: Body, acting: Acting) -> list[Paths]:
    """For each result of a body, the paths to the parameters."""
    known: dict[Output, Paths] = {x: {k: (0, {})} for k, x in enumerate(body.inputs)}
    for op in body.operations():
        for y in op.outputs:
            known[y] = {}
        for edge in edges(op, acting):
            step = (edge.level, edge.cuts)
            for o in edge.outputs:
                paths = known[op.outputs[o]]
                for k, path in known[op.inputs[edge.input]].items():
                    paths[k] = _better(paths.get(k), _after(path, step))
    results = []
    for result in body.outputs:
        paths = {} if result is None else dict(known[result])
        if result is not None and not result.type.differentiable:
            integer = (_LEVELS.index(_INTEGER.status), {_not_differentiable(result): None})
            paths = {k: _after(path, integer) for k, path in paths.items()}
        results.append(paths)
    return results


# -------------------------------------------------------------------------------------------- answers


def reach(ys: Sequence[Output], xs: Sequence[Output], stops: Collection[Output] = ()) -> dict[Output, Reach]:
    """Whether, and if not why not, the gradient of ys arrives at each x."""
    if not xs:
        return {}
    above = xs[0].op.graph.subgraph_to(ys)
    groups = by_gates(list(selective_gates(above)), xs)
    found: dict[Output, Reach] = {}
    for acting, group in groups.items():
        found.update(_reach(ys, group, set(stops), above, acting))
    return {x: found[x] for x in xs}


def _reach(
    ys: Sequence[Output],
    xs: Sequence[Output],
    stops: Collection[Output],
    above: Sequence[Operation],
    acting: Acting,
) -> dict[Output, Reach]:
    """:func:`reach`, for xs with respect to which the same selective gates act."""
    bits = {x: 1 << n for n, x in enumerate(dict.fromkeys(xs))}
    below = _depends_on(above, bits, acting)
    found, cuts = below.edges, {x: Cuts() for x in bits}
    # What cuts counts only where ys lead: an output that no y uses says nothing.
    used = _arrived(ys, found, len(_LEVELS) - 1, stops)
    for edge in found:
        if any(edge.op.outputs[o] in used for o in edge.outputs):
            source = edge.op.inputs[edge.input]
            _collect(cuts, bits, below.of(source), edge.cuts)
            if source in stops:
                named = Cut(edge.op, _NAMED.status, _NAMED.reason)
                _collect(cuts, bits, below.of(source) & ~bits.get(source, 0), {named: None})
    for y in ys:
        if not y.type.differentiable:
            _collect(cuts, bits, below.of(y), {_not_differentiable(y): None})
    status = dict.fromkeys(bits, Status.DISCONNECTED)
    for level in reversed(range(len(_LEVELS))):
        arrived = _arrived(ys, found, level, stops)
        status.update({x: _LEVELS[level] for x in bits if x in arrived})
    for x, its in cuts.items():
        if status[x] is Status.FLOWS and its:
            status[x] = Status.PARTLY_STOPPED
        elif status[x] is Status.DISCONNECTED:
            its.clear()
    return {x: Reach(status[x], tuple(cuts[x])) for x in bits}


def _collect(cuts: dict[Output, Cuts], bits: dict[Output, int], mask: int, new: Cuts) -> None:
    if mask and new:
        for x, bit in bits.items():
            if mask & bit:
                cuts[x].update(new)


class _Below:
    """Which xs each tensor depends on, as the bits of a number; and the edges on paths to them, in order."""

    __slots__ = ("_bits", "_by_op", "_by_output", "edges")

    def __init__(self, bits: dict[Output, int]) -> None:
        self._bits = bits
        self._by_op: dict[Operation, int] = {}
        self._by_output: dict[Output, int] = {}
        self.edges: list[Edge] = []

    def of(self, x: Output) -> int:
        """The xs that *x* is or depends on."""
        behind = self._by_output.get(x) if len(x.op.outputs) > 1 else self._by_op.get(x.op)
        return (behind or 0) | self._bits.get(x, 0)

    def pass_on(self, edge: Edge) -> None:
        """The outputs of an edge depend on what its input does."""
        mask = self.of(edge.op.inputs[edge.input])
        if mask:
            self.edges.append(edge)
            if len(edge.op.outputs) == 1:
                self._by_op[edge.op] = self._by_op.get(edge.op, 0) | mask
            else:
                for o in edge.outputs:
                    y = edge.op.outputs[o]
                    self._by_output[y] = self._by_output.get(y, 0) | mask


def _depends_on(above: Sequence[Operation], bits: dict[Output, int], acting: Acting) -> _Below:
    below = _Below(bits)
    for op in above:
        if any(below.of(x) for x in op.inputs):
            for edge in edges(op, acting):
                if edge.outputs:
                    below.pass_on(edge)
    return below


def _arrived(
    ys: Sequence[Output], found: Sequence[Edge], level: int, stops: Collection[Output]
) -> set[Output]:
    """The tensors at which a gradient from ys arrives, if it passes barriers up to a level."""
    last = len(_LEVELS) - 1
    passes_stops = level >= _LEVELS.index(Status.STOPPED)
    arrived = {y for y in ys if y.type.differentiable or level == last}
    for edge in reversed(found):
        if edge.level <= level and any(
            (y := edge.op.outputs[o]) in arrived and (passes_stops or y not in stops) for o in edge.outputs
        ):
            arrived.add(edge.op.inputs[edge.input])
    return arrived
