"""Generated derivatives of graphs, and their comparison with numeric ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stopgrad.flow.checking.compared import Comparison, Order
from stopgrad.flow.checking.frozen import Posed
from stopgrad.flow.checking.numeric import OfFrozen, Settings, flat, size_of, unflat
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import computation
from stopgrad.graph.operands import NumpyArray
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import prepare
from stopgrad.transforms.gradients.forward import push_forward
from stopgrad.transforms.gradients.reverse import gradients


class OfGraph:
    """The generated derivatives of ys of a graph, in reverse and forward mode, as functions of vectors."""

    posed: Posed
    ys: list[Output]
    cotangents: list[Output]

    def __init__(self, posed: Posed, ys: Sequence[Output], modes: Sequence[str]) -> None:
        self.posed, self.ys = posed, list(ys)
        self._feeds = dict(posed.feeds)
        self._xs = posed.xs
        graph = posed.graph
        with graph.as_default():
            self.cotangents = [
                emit(Placeholder, (), (y.dtype, y.shape, ()), "", graph).outputs[0] for y in ys
            ]
            self.gradients: list[Output | None] = gradients(self.ys, self._xs, self.cotangents)
            self._pull = self._compiled(self.gradients, self.cotangents)
            if "forward" in modes:
                tangents = [
                    emit(Placeholder, (), (x.dtype, x.shape, ()), "", graph).outputs[0] for x in self._xs
                ]
                self._push = self._compiled(push_forward(self.ys, self._xs, tangents), tangents)

    def _compiled(
        self, outputs: Sequence[Output | None], inputs: Sequence[Output]
    ) -> Callable[[Sequence[NumpyArray]], list[NumpyArray | None]]:
        there = [y for y in outputs if y is not None]
        prepared = prepare(there, [*self._feeds, *inputs])
        run = computation(prepared.inputs, prepared.outputs)

        def compute(values: Sequence[NumpyArray]) -> list[NumpyArray | None]:
            results = iter(run([*self._feeds.values(), *values]))
            return [None if y is None else np.asarray(next(results)) for y in outputs]

        return compute

    def fed(self, cotangent: NumpyArray) -> dict[Output, NumpyArray]:
        """The feeds for a weighting of the results."""
        return dict(zip(self.cotangents, unflat(cotangent, self.ys), strict=True))

    def pulled(self, cotangent: NumpyArray) -> list[NumpyArray]:
        """The gradient at each x, as a vector; zeros if none arrives."""
        gradients = self._pull(unflat(cotangent, self.ys))
        return [
            np.zeros(size_of(x)) if g is None else flat([g])
            for x, g in zip(self.posed.xs, gradients, strict=True)
        ]

    def pushed(self, which: int, direction: NumpyArray) -> NumpyArray:
        """The change of ys when one x moves."""
        tangents = [
            unflat(direction, [x])[0] if i == which else np.zeros(x.shape, x.dtype.numpy)
            for i, x in enumerate(self.posed.xs)
        ]
        changes = self._push(tangents)
        still = [np.zeros(y.shape, y.dtype.numpy) for y in self.ys]
        return flat([y if t is None else t for y, t in zip(still, changes, strict=True)])


class Compared(NamedTuple):
    """What was compared.

    Attributes:
        by_input: for each x the comparisons of all orders.
        operations: those between the xs and ys.
        notes: notes for the reader.
    """

    by_input: list[list[Comparison]]
    operations: Sequence[Operation]
    notes: list[str]


def compared(posed: Posed, settings: Settings, last: int) -> Compared:
    """Compare the derivatives of all orders up to the last."""
    numeric, generated = OfFrozen(posed, posed.ys, settings), OfGraph(posed, posed.ys, settings.modes)
    first = _order(1, posed, posed.ys, settings, numeric, generated)
    orders, notes, operations = [first], list(numeric.notes), numeric.operations
    ys = [g for g in generated.gradients if g is not None]
    if last == 2 and ys:
        # Derivatives of the first derivatives, for a single weighting of the results.
        posed.feeds.update(generated.fed(first.weights))
        terms = first.terms(first.weights, [g is not None for g in generated.gradients])
        numeric = OfFrozen(posed, ys, settings, terms)
        orders.append(_order(2, posed, ys, settings, numeric, OfGraph(posed, ys, settings.modes)))
        notes, operations = notes + numeric.notes, numeric.operations
    by_input = [[Comparison(order, which) for order in orders] for which in range(len(posed.xs))]
    return Compared(by_input, operations, list(dict.fromkeys(notes)))


def _order(
    number: int, posed: Posed, ys: Sequence[Output], settings: Settings, numeric: OfFrozen, generated: OfGraph
) -> Order:
    return Order(number, [x.type for x in posed.xs], [y.type for y in ys], settings, numeric, generated)
