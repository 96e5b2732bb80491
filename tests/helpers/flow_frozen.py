"""The function whose derivative a gradient is, computed: what gates stop keeps its value of the base point.

It is made for the programs of :mod:`flow_graphs`, operation by operation: a first run notes what goes through
each gate and comes out of what is not differentiable, in the order of the run, and the next ones read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from flow_graphs import CLOSED, Case, Walk

import stopgrad as sg
from stopgrad.graph.interpreter import Observer, Step, computation
from stopgrad.graph.selective import by_gates, selective_gates

CHANGED = (*CLOSED, "Sign", "StopGradientWhen", "ZeroGradient", "ScaleGradient", "CustomGradient")
"""Operations whose gradient is not the derivative of what they compute, or not everywhere."""


class Frozen:
    """The sum of a case's real ys, as a function of one of its xs."""

    def __init__(self, case: Case, x: sg.Output, feeds: dict[sg.Output, Any]) -> None:
        self.case, self.x, self.feeds = case, x, feeds
        self.ys = [y for y in case.ys if y.dtype.is_differentiable]
        gates = list(selective_gates(case.graph.subgraph_to(case.ys)))
        (self.acting,) = by_gates(gates, [x]) or [frozenset()]
        self.walk = Walk(case)
        self.stops: Collection[sg.Output] = self.walk.stops - {x}
        self._tape: list[Any] = []
        self.base = self._run(None)

    def at(self, moved: Any) -> float:
        """The value where x is moved by so much."""
        return self._run(moved)

    def _run(self, moved: Any) -> float:
        notes = iter(list(self._tape))
        self._tape.clear()
        feeds = dict(self.feeds)
        if moved is not None and self.x in feeds:
            feeds[self.x] = feeds[self.x] + moved
        if not self.ys:
            return 0.0
        run = computation([*feeds], self.ys, observer=_Noting(self, notes, moved))
        return float(sum(np.sum(y) for y in run([*feeds.values()])))

    def special(self, op: sg.Operation) -> bool:
        """Whether an operation is another one here than in the graph."""
        wall = any(x.dtype.is_differentiable for x in op.inputs) and not all(
            y.dtype.is_differentiable for y in op.outputs
        )
        mine = any(y is self.x or y in self.stops for y in op.outputs)
        return op.type in CHANGED or wall or mine

    def results(
        self, op: sg.Operation, arrays: Sequence[Any], made: list[Any], notes: Iterator[Any], moved: Any
    ) -> list[Any]:
        """What one hands on, from what it is given and what it computes of that."""
        if moved is None:
            self._tape.append((arrays, made))
            return made
        given, base = next(notes)
        made = self._frozen(op, arrays, made, given, base)
        self._tape.append((given, base))
        return [v + moved if y is self.x else v for y, v in zip(op.outputs, made, strict=True)]

    def _frozen(
        self, op: sg.Operation, arrays: Sequence[Any], live: list[Any], given: Sequence[Any], base: list[Any]
    ) -> list[Any]:
        match op.type:
            case "StopGradientTowards":
                live = base if op in self.acting else [arrays[0]]
            case "StopGradientWhen":
                stops = np.asarray(
                    given[1] if op in self.acting else False
                )  # In a batch, one for each example.
                stops = stops.reshape(stops.shape + (1,) * (np.ndim(arrays[0]) - stops.ndim))
                live = [np.where(stops, base[0], arrays[0])]
            case "StraightThrough":
                live = [base[0] + (arrays[1] - given[1])]
            case "ScaleGradient":
                live = [base[0] + given[1] * (arrays[0] - given[0])]
            case "CustomGradient":
                live = list(base)
                for (o, i), factor in self.walk.factors(op).items():
                    k = op.count + i
                    if len(op.inputs) > op.count + len(op.kept):  # closing: times what it closes over
                        factor = given[op.count + len(op.kept)]
                    live[o] = live[o] + factor * (arrays[k] - given[k])
            case kind if kind in CHANGED:
                live = list(base)
        frozen = [
            base[k] if y in self.stops or not y.dtype.is_differentiable else live[k]
            for k, y in enumerate(op.outputs)
        ]
        return frozen


class _Noting(Observer):
    """Stands around what is another operation in the frozen function."""

    def __init__(self, frozen: Frozen, notes: Iterator[Any], moved: Any) -> None:
        self.frozen, self.notes, self.moved = frozen, notes, moved

    def around(self, op: sg.Operation, plain: Callable[[], Step]) -> Step | None:
        if not self.frozen.special(op):
            return None
        compute = plain()
        return lambda *arrays: self.frozen.results(op, arrays, list(compute(*arrays)), self.notes, self.moved)
