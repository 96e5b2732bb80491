"""Copies of a graph in which some stops are open, or in which there is one more; and where stops stand.

The rules here are no others of :mod:`stopgrad.rewrite.passes`: those leave gates alone until the last
differentiation. What these make *is* differentiated, since the gradient of another program is what is asked
for: the one that the user would have written without that stop, or with it. Nobody but :mod:`ablate` sees the
copies, and what he reports of them is never run in the place of the user's own graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stopgrad.autodiff.reach import open_inputs, pairs
from stopgrad.graph import Operation, Output
from stopgrad.ops.gates import (
    Named,
    StopGradient,
    StopGradientTowards,
    StopGradientWhen,
    StraightThrough,
)
from stopgrad.rewrite import Rule
from stopgrad.rewrite.engine import Copying
from stopgrad.selective import NOBODY, acts, selective_gates

STOPS = frozenset({StopGradient, StopGradientTowards, StopGradientWhen, StraightThrough})
"""What hides something from the gradient because somebody wrote it so."""


def opening(gates: Collection[Operation]) -> Rule:
    """The rule that lets gradients pass these gates to their first operand, as if they had not been written.

    Of a straight-through estimator that is the hard value: without it, the gradient goes there, and not to
    the soft one.
    """
    chosen = frozenset(gates)

    def opened(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in chosen:
            return None
        # A tensor of its own, since it may be asked about. No identity: to name one of those in wrt= is to
        # name its operand.
        return copying.add(Named, inputs[:1], (), op)

    return opened


def stopping(tensors: Collection[Output]) -> Rule:
    """The rule that puts a stop behind each of these tensors, for all its uses."""
    places: dict[Operation, list[int]] = {}
    for x in tensors:
        places.setdefault(x.op, []).append(x.index)

    def stopped(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op not in places:
            return None
        made = list(copying.add(op.definition, inputs, values, op))
        for i in places[op]:
            made[i] = copying.add(StopGradient, (made[i],), (), op)[0]
        return made

    return stopped


# ------------------------------------------------------------------------------------ where stops stand


class Ways:
    """How gradients would pass from ys to inputs if no stop were written, also through bodies.

    A body that several operations run counts once, for all of them together.

    Attributes:
        stops: the stops among the operations, in the order in which they are met.
    """

    def __init__(self, ys: Sequence[Output], xs: Sequence[Output]) -> None:
        self._ys, self._xs = list(ys), set(xs)
        self._down: dict[Output, list[Output]] = {}
        self.stops: list[Operation] = []
        above = ys[0].op.graph.subgraph_to(ys)
        for op in _inside(above):
            if op.definition in STOPS:
                self.stops.append(op)
            for y, x in _steps(op):
                if x.type.differentiable and y.type.differentiable:
                    self._down.setdefault(y, []).append(x)
        self._gate = {gate.outputs[0]: gate for gate in self.stops}
        self._top = set(above)
        self._named = {
            gate: frozenset(x for x in self._xs if acts(gate, x, names))
            for gate, names in selective_gates(above)
        }
        self._from_ys = self._reached(self._ys)
        up: dict[Output, list[Output]] = {}
        for y, found in self._down.items():
            for x in found:
                up.setdefault(x, []).append(y)
        self._to_xs = _reached(self._xs, up)

    def is_inside(self, gate: Operation) -> bool:
        """Whether a stop stands in a body."""
        return gate not in self._top

    def idle(self, gate: Operation) -> bool:
        """Whether a gate stands on no way from ys to an input that it stops, whatever the others do."""
        if gate.outputs[0] not in self._from_ys:
            return True
        named = self._named.get(gate)
        if named is not None:
            return named.isdisjoint(self._reached(gate.inputs[:1]))
        sides = gate.inputs if gate.definition is StraightThrough else gate.inputs[:1]
        return not any(x in self._to_xs for x in sides)

    def in_front(self, gates: Sequence[Operation]) -> list[Operation]:
        """The other stops that keep gradients from arriving at any of these; none where one arrives."""
        own = set(gates)
        closed = [gate for gate in self._gate.values() if gate not in own and gate not in self._named]
        found = self._reached(self._ys, {gate.outputs[0] for gate in closed})
        if any(gate.outputs[0] in found for gate in gates):
            return []
        return [
            gate
            for gate in closed
            if gate.outputs[0] in found
            and any(one.outputs[0] in self._reached(gate.inputs[:1]) for one in gates)
        ]

    def behind(self, gates: Sequence[Operation]) -> list[Operation]:
        """The other stops at which everything ends that lies behind these; none where something does not."""
        own = set(gates)
        closed = [gate for gate in self._gate.values() if gate not in own and gate not in self._named]
        found = self._reached([x for gate in gates for x in gate.inputs[:1]], {g.outputs[0] for g in closed})
        if not self._xs.isdisjoint(found):
            return []
        return [gate for gate in closed if gate.outputs[0] in found and gate.inputs[0] in self._to_xs]

    def _reached(self, start: Iterable[Output], walls: Collection[Output] = ()) -> set[Output]:
        return _reached(start, self._down, walls)


def _reached(
    start: Iterable[Output], ways: Mapping[Output, Sequence[Output]], walls: Collection[Output] = ()
) -> set[Output]:
    found = set(start)
    stack = list(found)
    while stack:
        y = stack.pop()
        for x in ways.get(y, ()) if y not in walls else ():
            if x not in found:
                found.add(x)
                stack.append(x)
    return found


def _inside(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and those in the bodies that they run forward: each body once, and no pullback."""
    seen: set[Operation] = set()
    todo = [list(operations)]
    for some in todo:  # Which grows by the bodies that are met. Several may share their operations.
        for op in some:
            if op not in seen:
                seen.add(op)
                yield op
                if op.definition.has_bodies:
                    todo.extend([wire.body.operations() for wire in op.definition.wires(op)])


def _steps(op: Operation) -> Iterator[tuple[Output, Output]]:
    """From tensors to those at which a gradient of them arrives next, stops being open."""
    definition = op.definition
    if not definition.has_bodies:
        positions: Iterable[int] = (
            range(2) if definition is StraightThrough else (0,) if definition in STOPS else open_inputs(op, NOBODY)
        )
        yield from ((y, op.inputs[i]) for y in op.outputs for i in positions)
        return
    wires = list(definition.wires(op))
    if not wires:
        yield from ((y, op.inputs[i]) for y, some in zip(op.outputs, pairs(op), strict=True) for i in some)
        return
    wired = {i for wire in wires for i in wire.operands}
    for i in open_inputs(op, NOBODY):
        if i not in wired:
            yield from ((y, op.inputs[i]) for y in op.outputs)
    for wire in wires:
        parameters, results = wire.body.inputs, wire.body.outputs
        for output, result in zip(wire.outputs, results, strict=True):
            if output is not None and result is not None:
                yield op.outputs[output], result
        for parameter, i in zip(parameters, wire.operands, strict=True):
            yield parameter, op.inputs[i]
        for m, k in wire.feedback.items():
            result, output = results[m], wire.outputs[m]
            if result is not None:
                yield parameters[k], result
            if wire.skipped and output is not None:
                yield op.outputs[output], op.inputs[wire.operands[k]]
