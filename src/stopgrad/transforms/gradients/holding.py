"""Selective gates that are open for the tensors asked for: what lies behind them is held.

A selective gate is y as a function whose named tensors are held. So it commutes with operations,
``gate(f(u)) = f(gate(u))``, and with the derivative for every tensor that it does not name; for those that it
names, its derivative is 0. A cotangent that comes through an open gate is therefore pulled back by rules that
read gated values: ``gate(u)`` instead of each u that depends on a named tensor. Such cotangents are kept
apart from those that reach the same tensor beside the gate, until they arrive where nothing depends on the
names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from stopgrad.graph.build import building_in, emit
from stopgrad.graph.builder import current
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.selective import Acting, aliases_of, named_by, selective_gates, selective_in
from stopgrad.ops.elementwise.arithmetic import add_n
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.gates.stopping import StopGradientTowards, StopGradientWhen
from stopgrad.ops.shapes.reshape import beside
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.gradients.cotangents import Cotangents, Holds, Parts, pull_back
from stopgrad.transforms.gradients.reach import Step, between


class Hold(NamedTuple):
    """Tensors that are held, and a scalar condition for it; None if they always are."""

    names: tuple[Output, ...]
    when: Output | None


Held = frozenset[Hold]
"""What is held for a cotangent, by the gates through which it came."""

NOTHING: Held = frozenset()

_NONE: Mapping[Output, int] = MappingProxyType({})


def is_open(op: Operation, acting: Acting) -> bool:
    """Whether an operation is a selective gate that is open, or has one in its bodies."""
    definition = op.definition
    if definition.selective:
        return op not in acting
    return definition.has_bodies and any(selective_in(wire.body) - acting for wire in definition.wires(op))


def has_open_gates(path: Sequence[Step], acting: Acting) -> bool:
    """Whether an open selective gate is on the path, or in a body of an operation on it."""
    selective = [op for op, _ in path if op.definition.always_open is None]
    return any(is_open(op, acting) for op in selective)


def total(parts: Mapping[Any, Output]) -> Output | None:
    """The sum of cotangents; None if there are none."""
    return _sum(list(parts.values())) if parts else None


def _sum(cotangents: Sequence[Output]) -> Output:
    result: Output = cotangents[0] if len(cotangents) == 1 else add_n(cotangents)
    return result


class Seen(Operation):
    """An operation as gradient rules see it behind gates: its operands and results are gated where needed.

    It is in no graph. The gates are built when a rule reads them.
    """

    __slots__ = ("_forward", "_gated", "_inputs", "_outputs")

    def __init__(self, op: Operation, gated: Any) -> None:
        for name in ("graph", "definition", "id", "values", "origin", "_label", "_place", "_instruction"):
            setattr(self, name, getattr(op, name))
        self._forward, self._gated = op, gated
        self._inputs: tuple[Output, ...] | None = None
        self._outputs: tuple[Output, ...] | None = None

    @property
    def inputs(self) -> tuple[Output, ...]:  # type: ignore[override]
        if self._inputs is None:
            self._inputs = tuple([self._gated(x) for x in self._forward.inputs])
        return self._inputs

    @property
    def outputs(self) -> tuple[Output, ...]:  # type: ignore[override]
        if self._outputs is None:
            self._outputs = tuple([self._gated(y) for y in self._forward.outputs])
        return self._outputs


class Holding:
    """Backpropagation along a path with open selective gates.

    Args:
        path: from ys to xs.
        acting: the selective gates that are closed.
        parameters: those of a body, where the path is in one, with the positions of the operands that they
            stand for. Each may depend outside on what gates name.
    """

    def __init__(
        self, path: Sequence[Step], acting: Acting, parameters: Mapping[Output, int] = _NONE
    ) -> None:
        self._acting = acting
        self._parameters = parameters
        self._opened = [op for op, _ in path if is_open(op, acting)]
        self._hold_bits: dict[Hold, int] = {}
        self._gates: dict[tuple[Output, Hold], Output] = {}

    def run(
        self,
        ys: Sequence[Output],
        xs: Sequence[Output],
        seeds: Sequence[Output],
        path: list[Step],
        stops: Collection[Output] = (),
        held: Sequence[Held] | None = None,
    ) -> list[dict[Held, Output]]:
        """The cotangents that reach each x, by what is held there. The path is consumed.

        *held* is what is held for each of the seeds; nothing by default.
        """
        builder = current()
        arrived: dict[Held, Cotangents] = {}
        waiting: dict[Operation, dict[Held, None]] = {}

        def add(x: Output, dx: Output, held: Held) -> None:
            there = self._held_at(x, held) if held else held
            if there not in arrived:
                arrived[there] = Cotangents((), xs, (), stops, builder)
            arrived[there].add(x, dx)
            waiting.setdefault(x.op, {})[there] = None

        for k, (y, seed) in enumerate(zip(ys, seeds, strict=True)):
            if y.type.differentiable:
                add(y, seed, NOTHING if held is None else held[k])
        while path:
            op, live = path.pop()
            builder.origin = op
            gs = {here: g for here in waiting.pop(op, ()) if (g := arrived[here].take(op)) is not None}
            if op.definition.clips and len(gs) > 1:  # It is not linear: what comes is clipped together.
                gs = {frozenset.intersection(*gs): total(gs)}
            for here, g in gs.items():
                builder.origin = op
                for x, dx, there in self._pull(op, g, live, here):
                    add(x, dx, there)
        return [
            {here: g for here, sums in arrived.items() if (g := sums.arrived_at(x)) is not None} for x in xs
        ]

    def run_inside(
        self,
        ys: Sequence[Output],
        xs: Sequence[Output],
        seeds: Sequence[Output],
        path: list[Step],
        holds: Sequence[Holds],
    ) -> list[Parts]:
        """As :meth:`run` in a body, with operands of its operation for what is held."""
        named = {i: x for x, i in self._parameters.items()}
        held = [frozenset(Hold(_sorted({named[i] for i in some}), None) for some in one) for one in holds]
        return [self._outside(parts) for parts in self.run(ys, xs, seeds, path, held=held or None)]

    def _outside(self, parts: Mapping[Held, Output]) -> Parts:
        """The cotangents of a parameter, by the operands that are held; nobody outside asks for the rest."""
        place = self._parameters
        by_operands: dict[Holds, list[Output]] = {}
        for held, dx in parts.items():
            operands = [
                frozenset(place[x] for n in hold.names for x in aliases_of(n, {}) if x in place)
                for hold in held
            ]
            by_operands.setdefault(frozenset(some for some in operands if some), []).append(dx)
        return Parts({holds: _sum(some) for holds, some in by_operands.items()})

    def _pull(
        self, op: Operation, g: Any, live: Sequence[int], held: Held
    ) -> Iterator[tuple[Output, Any, Held]]:
        """The cotangents of an operation's live inputs, each with its input and what is held there."""
        if op.definition.selective:
            yield from self._through(op, g, live, held)
            return
        if held:
            op.definition.settle(op)
        seen = Seen(op, lambda x: self._gated(x, held)) if held else op
        for x, dx in pull_back(op, g, live, self._acting, seen):
            if not isinstance(dx, Parts):
                yield x, dx, held
                continue
            for holds, part in dx.items():
                named = [Hold(_sorted({op.inputs[k] for k in some}), None) for some in holds]
                yield x, part, held.union(named)

    def _through(
        self, op: Operation, g: Output, live: Sequence[int], held: Held
    ) -> Iterator[tuple[Output, Output, Held]]:
        """The cotangents that pass a selective gate."""
        x = op.inputs[0]
        if op in self._acting:
            for x, dx in pull_back(op, g, live, self._acting):
                yield x, dx, held
            return
        names = _sorted(set(named_by(op)))
        when: Output | None = op.when if op.definition is StopGradientWhen else None
        # Of each example, or inside a body, a condition is none for other tensors.
        apart = when if when is not None and (when.ndim or self._parameters) else None
        hold = Hold(names, when if apart is None else None)
        if not self._held_at(x, frozenset([hold])):
            yield x, g, held
        elif apart is not None:
            stops, none = beside(apart, g), zeros_like(g)
            yield x, where(stops, g, none), held | {hold}
            yield x, where(stops, none, g), held
        else:
            yield x, g, held | {hold}

    def _held_at(self, x: Output, held: Held) -> Held:
        """What of it must be held behind *x*: the tensors on which an operand of its operation depends."""
        if self._parameters:
            return held if x.op.inputs or x in self._parameters else NOTHING
        above = self._names_above.get(x.op, 0)
        return frozenset([hold for hold in held if above & self._bits_of(hold)])

    def _gated(self, x: Output, held: Held) -> Output:
        """The tensor behind a gate for each of these, as far as it depends on them."""
        if not x.type.differentiable:
            return x
        there = self._held_at(x, held)
        if not self._parameters:
            there |= {hold for hold in held if self._bits.get(x, 0) & self._bits_of(hold)}
        for hold in sorted(there, key=_order):
            x = self._gate(x, hold)
        return x

    def _gate(self, x: Output, hold: Hold) -> Output:
        """A gate, built once, beside what it gates, with the line of the gate that asks for it."""
        gate = self._gates.get((x, hold))
        if gate is None:
            names, when = hold
            definition = StopGradientTowards if when is None else StopGradientWhen
            operands = (x, *names) if when is None else (x, when, *names)
            with building_in(x.op.graph):
                builder = current()
                builder.origin = self._origins.get(names, x.op)
                shared = {} if builder.shared is None else builder.shared
                op = shared.get((definition, operands))
                if op is None or not op.graph.holds(op):
                    op = shared[definition, operands] = emit(definition, operands, (), "")
            gate = self._gates[x, hold] = op.outputs[0]
        return gate

    @cached_property
    def _named(self) -> list[tuple[Operation, list[list[Output]]]]:
        """The selective gates that are open here and in bodies, each with what it names here, and aliases."""
        return [
            (gate, [[x for x in aliases_of(n, names) if x.op.graph is op.graph] for n in named_by(gate)])
            for op in self._opened
            for gate, names in selective_gates([op])
        ]

    @cached_property
    def _bits(self) -> dict[Output, int]:
        """A bit for each tensor that is named here."""
        everything = dict.fromkeys(x for _, named in self._named for aliases in named for x in aliases)
        return {x: 1 << k for k, x in enumerate(everything)}

    @cached_property
    def _names_above(self) -> dict[Operation, int]:
        """The named tensors on which the operands of an operation behind a gate depend."""
        ends = [x for op in self._opened for x in op.inputs if x.type.differentiable]
        bits, above = self._bits, dict[Operation, int]()
        for op, live in between(ends, bits):
            mask = 0
            for i in live:
                x = op.inputs[i]
                mask |= above.get(x.op, 0) | bits.get(x, 0)
            above[op] = mask
        return above

    def _bits_of(self, hold: Hold) -> int:
        mask = self._hold_bits.get(hold)
        if mask is None:
            aliases = {x for n in hold.names for x in aliases_of(n, {})}
            mask = self._hold_bits[hold] = sum(self._bits.get(x, 0) for x in aliases)
        return mask

    @cached_property
    def _origins(self) -> dict[tuple[Output, ...], Operation]:
        """The gates, by what they name here."""
        origins: dict[tuple[Output, ...], Operation] = {}
        for gate, named in self._named:
            origins.setdefault(_sorted({aliases[0] for aliases in named if aliases}), gate)
        return origins


def _sorted(names: Collection[Output]) -> tuple[Output, ...]:
    return tuple(sorted(names, key=_place))


def _place(x: Output) -> tuple[int, int]:
    return x.op.id, x.index


def _order(hold: Hold) -> tuple[Any, ...]:
    return [_place(n) for n in hold.names], -1 if hold.when is None else hold.when.op.id
