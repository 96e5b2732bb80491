"""What one operation does to cotangents, and where they are collected: the parts of backpropagation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from stopgrad.base.types import TensorType
from stopgrad.graph.builder import Builder
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.selective import Acting
from stopgrad.ops.elementwise.arithmetic import add, add_n
from stopgrad.ops.elementwise.convert import cast, real
from stopgrad.ops.shapes.reshape import sum_to
from stopgrad.ops.structural.sources import zeros_like


def pull_back(
    op: Operation, g: object, live: Sequence[int], acting: Acting, seen: Operation | None = None
) -> list[tuple[Output, Any]]:
    """The cotangents of an operation's live inputs, each with its input, from that of its output.

    *g* is a tuple for several outputs. Rules read *seen*, by default the operation itself. An operation whose
    bodies have open selective gates may give :class:`Parts`.
    """
    definition, inputs = op.definition, op.inputs
    seen = op if seen is None else seen
    pulled = []
    if definition.joint is not None:
        for i, dx in zip(live, definition.joint.pull(g, seen, live, acting), strict=True):
            if dx is not None:
                x = inputs[i]
                pulled.append((x, dx if isinstance(dx, Parts) else fit_to(dx, x.type)))
        return pulled
    fixed = len(definition.operands)
    for i in live:
        x = inputs[i]
        dx = definition.rules[i](g, seen) if i < fixed else definition.rule(op, i)(g, seen, i)
        if dx is not None:
            pulled.append((x, dx if dx.type is x.type else fit_to(dx, x.type)))
    return pulled


def fit_to(dx: Output, x: TensorType) -> Output:
    """A cotangent in its operand's shape and dtype. Only here is broadcasting undone."""
    if dx.type.shape != x.shape:
        dx = sum_to(dx, x)
    if dx.type.dtype is not x.dtype:
        dx = cast(real(dx) if dx.type.dtype.is_complex and not x.dtype.is_complex else dx, x.dtype)
    return dx


Holds = frozenset[frozenset[int]]
"""What is held where a cotangent leaves a body: sets of the operands that its selective gates name."""

NOWHERE: Holds = frozenset()

Key = tuple[int, Holds]
"""An operand's position, and what is held where a cotangent of it arrives."""


class Parts(dict[Holds, Output]):
    """The cotangents of one operand by what is held where they arrive; their sum is its gradient."""


def by_operand(keys: Iterable[Key], cotangents: Iterable[Output], count: int) -> list[Output | Parts | None]:
    """For each of so many operands its cotangent; Parts if something is held for some of it."""
    by_position = [Parts() for _ in range(count)]
    for (i, holds), dx in zip(keys, cotangents, strict=False):
        by_position[i][holds] = dx
    return [parts if parts.keys() - {NOWHERE} else parts.get(NOWHERE) for parts in by_position]


class Cotangents:
    """The cotangents that have arrived at each tensor. Reading sums them, and forgets those not of xs."""

    __slots__ = ("_arrived", "_builder", "_kept", "_stops")

    def __init__(
        self,
        ys: Sequence[Output],
        xs: Sequence[Output],
        seeds: Sequence[Output],
        stops: Collection[Output],
        builder: Builder,
    ) -> None:
        self._arrived: dict[Output, Output | list[Output]] = {}  # A list where there are several.
        self._kept = frozenset(xs)
        self._stops = stops
        self._builder = builder
        for y, seed in zip(ys, seeds, strict=True):
            if y.type.differentiable:
                self.add(y, seed)

    def add(self, x: Output, dx: Output) -> None:
        earlier = self._arrived.get(x)
        if earlier is None:
            self._arrived[x] = dx
        elif isinstance(earlier, list):
            earlier.append(dx)
        else:
            self._arrived[x] = [earlier, dx]

    def arrived_at(self, x: Output) -> Output | None:
        """The sum of the cotangents that have arrived at a tensor; None if there are none."""
        cotangent = self._arrived.pop(x, None)
        if isinstance(cotangent, list):
            self._builder.origin = x.op
            cotangent = add(cotangent[0], cotangent[1]) if len(cotangent) == 2 else add_n(cotangent)
        if x in self._kept and cotangent is not None:
            self._arrived[x] = cotangent
        return cotangent

    def take(self, op: Operation) -> Any:
        """The cotangent of an operation's output; for several outputs, a tuple.

        For outputs without a cotangent, it holds zeros for rules and None for joint pullbacks. A cotangent of
        a tensor in *stops* is not passed on.
        """
        outputs = op.outputs
        if len(outputs) == 1 and op.definition.joint is None:
            return self.arrived_at(outputs[0])
        arrived = [None if y in self._stops else self.arrived_at(y) for y in outputs]
        if all(g is None for g in arrived):
            return None
        if op.definition.joint is not None:
            return tuple(arrived)
        self._builder.origin = op
        return tuple(zeros_like(y) if g is None else g for y, g in zip(outputs, arrived, strict=True))
