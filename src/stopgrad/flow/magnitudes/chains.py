"""The ways on which gradients come from ys to each tensor, and how large they are along them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from stopgrad.flow.magnitudes.magnitude import Measured
from stopgrad.graph.graph import Operation, Output, by_id
from stopgrad.ops.structural.sources import Const
from stopgrad.transforms.gradients.reach import routes


class Link(NamedTuple):
    """A step towards ys: an operation that takes a tensor, and its result with the largest gradient."""

    operation: Operation
    result: Output


class Chains:
    """For each tensor, the operations that take it; and of these, the one with the largest gradient.

    Attributes:
        users: for each tensor between xs and ys, the operations from which gradients come to it.
        link: the one of these whose result has the largest gradient.
    """

    def __init__(self, measured: Measured) -> None:
        self._at = measured.at
        self._ys = set(measured.ys)
        self.users: dict[Output, list[Link]] = {}
        self.link: dict[Output, Link] = {}
        self._sizes: dict[Output, float] = {}
        live: dict[Operation, dict[int, None]] = {}
        for _, _, path in routes(measured.ys, list(dict.fromkeys(measured.xs.values())), measured.stops):
            for op, inputs in path:
                live.setdefault(op, {}).update(dict.fromkeys(inputs))
        for op in sorted(live, key=by_id, reverse=True):
            results = [y for y in op.outputs if y in self.users or y in self._ys]
            if results:
                link = Link(op, max(results, key=self._rank))
                for x in dict.fromkeys([op.inputs[i] for i in live[op]]):
                    self.users.setdefault(x, []).append(link)
                    if x not in self.link or self._rank(link.result) > self._rank(self.link[x].result):
                        self.link[x] = link
        above = measured.ys[0].op.graph.subgraph_to(measured.ys)
        self._varies: set[Operation] = set()
        for op in above:
            if any(x.op in self._varies for x in op.inputs) if op.inputs else op.definition is not Const:
                self._varies.add(op)

    def size(self, x: Output) -> float:
        """The norm of the gradient at a tensor; where it is not known, that of the next nearer ys."""
        passed = []
        while x not in self._sizes:
            passed.append(x)
            if x in self._at or x not in self.link:
                self._sizes[x] = self._at.get(x, math.nan)
            else:
                x = self.link[x].result
        self._sizes.update(dict.fromkeys(passed, size := self._sizes[x]))
        return size

    def known(self, x: Output) -> float | None:
        """The norm of the gradient at a tensor, if it was measured."""
        return self._at.get(x)

    def _rank(self, x: Output) -> float:
        size = self.size(x)
        return math.inf if math.isnan(size) else size

    def walk(self, x: Output) -> Iterator[tuple[Output, Link]]:
        """The way from a tensor to ys on which the gradient is the largest."""
        while x in self.link:
            link = self.link[x]
            yield x, link
            x = link.result

    def layer(self, x: Output) -> tuple[Output, Output]:
        """Where a tensor first meets others, and the last tensor on the way there.

        What stands before is computed from it and from constants alone: a transpose, a conversion, a factor.
        """
        for at, (op, result) in self.walk(x):
            if sum(y.op in self._varies for y in op.inputs) > 1:
                return result, at
            x = result
        return x, x
