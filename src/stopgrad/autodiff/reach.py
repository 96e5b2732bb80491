"""Which operations lie between xs and ys, as far as gradients pass; and, where none pass, why not.

The first sweep walks from ys towards the inputs and never enters what a gate hides; the second walks what was
found, in order, and keeps what depends on xs. Work is proportional to the live part alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.op import NoGradient, Undefined
from stopgrad.ops.data import Identity

Acting = frozenset[Operation]
"""The selective gates that act towards the tensors whose gradient is wanted; the others are open."""

Step = tuple[Operation, Sequence[int]]
"""An operation on the way, and the positions of its inputs that lead to xs."""

NOBODY: Acting = frozenset()
_OPEN = (0,)


def open_inputs(op: Operation, acting: Acting) -> Sequence[int]:
    """The positions of the inputs towards which a gradient passes through the operation."""
    definition = op.definition
    if definition.selective and op not in acting:
        return _OPEN
    if definition.variadic is None:
        positions: Sequence[int] = definition.differentiable
        return positions
    return list(definition.open_inputs(op))


def between(ys: Iterable[Output], xs: Collection[Output], stops: Collection[Output] = (), acting: Acting = NOBODY) -> list[Step]:
    """The operations that a gradient passes on its way from ys to xs, in order of their ids.

    Gradients arrive at the tensors in *stops* and go no further.
    """
    if not xs:
        return []
    graph = next(iter(xs)).op.graph
    lowest = min(x.op.id for x in xs)
    seen = bytearray(len(graph))
    holds_x = bytearray(len(graph))
    for x in xs:
        holds_x[x.op.id] = 1
    stack = []
    for y in ys:
        if y.type.differentiable and y not in stops and not seen[y.op.id]:
            seen[y.op.id] = 1
            stack.append(y.op)
    found = list(stack)
    while stack:
        op = stack.pop()
        inputs = op.inputs
        for i in open_inputs(op, acting):
            x = inputs[i]
            source = x.op
            if not seen[source.id] and source.id >= lowest and x.type.differentiable and x not in stops:
                seen[source.id] = 1
                found.append(source)
                stack.append(source)
    found.sort(key=_id)
    carries = bytearray(len(graph))
    path: list[Step] = []
    for op in found:
        inputs = op.inputs
        live = [
            i
            for i in open_inputs(op, acting)
            if ((carries[(x := inputs[i]).op.id] and x not in stops) or (holds_x[x.op.id] and x in xs)) and x.type.differentiable
        ]
        if live:
            carries[op.id] = 1
            path.append((op, live))
    return path


def _id(op: Operation) -> int:
    return op.id


def routes(ys: Sequence[Output], xs: Sequence[Output], stops: Collection[Output]) -> list[tuple[Acting, list[Output], list[Step]]]:
    """The ways from ys to xs: one route for the xs towards which the same selective gates act, with those gates.

    Where there are no selective gates, that is one route for all.
    """
    path = between(ys, set(xs), stops)
    selective = [op for op, _ in path if op.definition.selective]
    if not selective:
        return [(NOBODY, list(xs), path)]
    groups: dict[Acting, list[Output]] = {}
    for x in xs:
        groups.setdefault(frozenset(op for op in selective if acts_towards(op, x)), []).append(x)
    return [(acting, group, between(ys, set(group), stops, acting)) for acting, group in groups.items()]


def acts_towards(gate: Operation, x: Output) -> bool:
    """Whether a selective gate acts when the gradient of *x* is wanted. One that names nothing acts always.

    To name an identity of *x*, such as a transform makes of each argument, is to name *x*.
    """
    named = gate.inputs[len(gate.definition.operands) :]
    return not named or any(x in _identities(n) for n in named)


def _identities(x: Output) -> Iterator[Output]:
    """The tensor, and those whose value it hands on."""
    yield x
    while x.op.definition is Identity:
        x = x.op.inputs[0]
        yield x


# --------------------------------------------------------------------------------------------- reasons


@dataclass(frozen=True)
class Cut:
    """An operation that keeps gradients from passing to one of its inputs, on a way from x to y."""

    operation: Operation
    status: str
    reason: str

    @property
    def location(self) -> Any:
        """Where the operation was built: ``file`` and ``line``; None where that is not known."""
        return self.operation.location

    def __str__(self) -> str:
        return f"{self.reason}: {describe(self.operation)}"


@dataclass(frozen=True)
class Reach:
    """Whether the gradient of ys reaches x: the status, and what cuts the ways that do not."""

    status: str
    cuts: tuple[Cut, ...]


_INTEGER = NoGradient("integers and booleans carry no gradient")


def wall(op: Operation, i: int, acting: Acting, stops: Collection[Output]) -> NoGradient | Undefined | None:
    """What keeps a gradient from passing through the operation to its i-th input; None where it passes."""
    x = op.inputs[i]
    if x in stops:
        return NoGradient("named in stop_gradients", "stopped")
    if op.definition.selective and op not in acting:
        return None if i == 0 else NoGradient("names a tensor; takes no value from it", "no way")
    rule = op.definition.rule(op, i)
    if isinstance(rule, (NoGradient, Undefined)):
        return rule
    return None if x.type.differentiable else _INTEGER


def reach(ys: Sequence[Output], x: Output, stops: Collection[Output] = ()) -> Reach:
    """Whether, and if not why not, the gradient of ys arrives at x. Looks at every way, open or cut."""
    graph = x.op.graph
    stops = set(stops) - {x}
    below = _depends_on(graph, x)
    above = _leads_to(graph, ys)
    ways = [op for op in graph._operations if below[op.id] and above[op.id]]
    acting = frozenset(op for op in ways if op.definition.selective and acts_towards(op, x))
    cuts: list[Cut] = []
    # A tensor's state is the best of its ways: how far a gradient from ys could come back to it.
    edges: list[tuple[Operation, int, NoGradient | Undefined | None]] = []
    for op in ways:
        for i, source in enumerate(op.inputs):
            if source is x or (below[source.op.id] and source.op is not x.op):
                barrier = wall(op, i, acting, stops)
                if isinstance(barrier, NoGradient) and barrier.status == "no way":
                    continue
                edges.append((op, i, barrier))
                if barrier is not None:
                    cuts.append(_cut(op, barrier))
    roots = [y for y in ys if y is x or below[y.op.id]]
    for y in roots:
        if not y.type.differentiable:
            cuts.append(Cut(y.op, _INTEGER.status, _INTEGER.reason))
    if not roots or (not edges and x not in ys):
        return Reach("disconnected", ())
    openness = {
        "flows": lambda barrier: barrier is None,
        "undefined": lambda barrier: barrier is None or isinstance(barrier, Undefined),
        "stopped": lambda barrier: barrier is None or isinstance(barrier, Undefined) or barrier.status == "stopped",
    }
    for status, passes in openness.items():
        if _arrives(x, roots, edges, passes, stops if status == "flows" else ()):
            if status == "flows" and cuts:
                status = "partly stopped"
            return Reach(status, tuple(dict.fromkeys(cuts)))
    return Reach("not differentiable", tuple(dict.fromkeys(cuts)))


def _cut(op: Operation, barrier: NoGradient | Undefined) -> Cut:
    if isinstance(barrier, Undefined):
        return Cut(op, "undefined", barrier.reason(op))
    return Cut(op, barrier.status, barrier.reason)


def _arrives(x: Output, roots: Sequence[Output], edges: Sequence[tuple[Operation, int, Any]], passes: Any, stops: Collection[Output]) -> bool:
    reached = {y.op for y in roots if y.type.differentiable and y is not x and y not in stops}
    if any(y is x and y.type.differentiable for y in roots):
        return True
    for op, i, barrier in reversed(edges):
        if op in reached and passes(barrier):
            if op.inputs[i] is x:
                return True
            reached.add(op.inputs[i].op)
    return False


def _depends_on(graph: Graph, x: Output) -> bytearray:
    marks = bytearray(len(graph))
    marks[x.op.id] = 1
    for op in graph._operations[x.op.id + 1 :]:
        for i in _on_ways(op):
            source = op.inputs[i]
            if source is x or (marks[source.op.id] and source.op is not x.op):
                marks[op.id] = 1
                break
    return marks


def _leads_to(graph: Graph, ys: Sequence[Output]) -> bytearray:
    marks = bytearray(len(graph))
    stack = [y.op for y in ys]
    while stack:
        op = stack.pop()
        if not marks[op.id]:
            marks[op.id] = 1
            stack.extend([op.inputs[i].op for i in _on_ways(op)])
    return marks


def _on_ways(op: Operation) -> Sequence[int]:
    """The positions of the inputs through which a way can lead: not of those that are only named, or replaced."""
    definition = op.definition
    if definition.variadic is None:
        return range(len(op.inputs))
    return [i for i in range(len(op.inputs)) if getattr(definition.rule(op, i), "status", None) != "no way"]
