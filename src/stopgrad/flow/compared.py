"""Generated derivatives beside numeric ones: gathered, judged, and the element found that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stopgrad.autodiff.forward import push_forward
from stopgrad.autodiff.reverse import gradients
from stopgrad.build import emit
from stopgrad.flow.differences import JUMP, SMOOTH, Slope
from stopgrad.flow.frozen import Posed
from stopgrad.flow.numeric import Numeric, Settings, flat, size_of, unflat
from stopgrad.graph import Output
from stopgrad.interpreter import NUMPY_BACKEND, program, quietly
from stopgrad.operands import Array
from stopgrad.ops.data import Placeholder
from stopgrad.rewrite import prepare

ELEMENTWISE = 64
"""Inputs of so many real numbers at most are compared number by number, larger ones in directions."""

UNITS = 16
"""Of so many results at most each is differentiated by itself, too."""

COLUMNS = 256
"""Of so many results at most each is compared by itself in forward mode; of more, weighted sums are."""

DENSE, SINGLE = 4, 4
"""For large inputs: random directions in which all numbers move, and numbers that are moved alone."""

KINKS = 16
"""So many numbers with kinks are looked for, and set aside, along one random direction."""

SAFETY = 4.0
"""By how many estimated errors of the differences the two may differ besides the tolerance."""

UNSETTLED = 0.02
"""Differences whose error, relative to the gradient, may be larger than this say nothing."""


# ---------------------------------------------------------------------------------------------- generated


class Generated:
    """The generated derivatives of ys, in reverse and forward mode, as functions of vectors."""

    def __init__(self, posed: Posed, ys: Sequence[Output], modes: Sequence[str]) -> None:
        self.posed, self.ys = posed, list(ys)
        self._xs = list(posed.xs.values())
        graph = posed.graph
        with graph.as_default():
            self.cotangents = [emit(Placeholder, (), (y.dtype, y.shape), "", graph).outputs[0] for y in ys]
            self.gradients: list[Output | None] = gradients(self.ys, self._xs, self.cotangents)
            self._pull = self._compiled(self.gradients, self.cotangents)
            if "forward" in modes:
                tangents = [emit(Placeholder, (), (x.dtype, x.shape), "", graph).outputs[0] for x in self._xs]
                self._push = self._compiled(push_forward(self.ys, self._xs, tangents), tangents)

    def _compiled(
        self, outputs: Sequence[Output | None], inputs: Sequence[Output]
    ) -> Callable[[Sequence[Array]], list[Array | None]]:
        there = [y for y in outputs if y is not None]
        made = prepare(there, [*self.posed.feeds, *inputs])
        run = program(made.inputs, made.outputs, NUMPY_BACKEND)

        def compute(values: Sequence[Array]) -> list[Array | None]:
            results = iter(quietly(run, [*self.posed.feeds.values(), *values]))
            return [None if y is None else np.asarray(next(results)) for y in outputs]

        return compute

    def pulled(self, cotangent: Array) -> list[Array]:
        """What arrives at each x, as a vector; zeros where nothing does."""
        made = self._pull(unflat(cotangent, self.ys))
        return [
            np.zeros(size_of(x)) if g is None else flat([g])
            for x, g in zip(self.posed.xs, made, strict=True)
        ]

    def pushed(self, which: int, direction: Array) -> Array:
        """How ys move when one x moves."""
        tangents = [
            unflat(direction, [x])[0] if i == which else np.zeros(x.shape, x.dtype.numpy)
            for i, x in enumerate(self.posed.xs)
        ]
        made = self._push(tangents)
        still = [np.zeros(y.shape, y.dtype.numpy) for y in self.ys]
        return flat([y if t is None else t for y, t in zip(still, made, strict=True)])



# ------------------------------------------------------------------------------------------------ compared


def factors(generator: np.random.Generator, count: int) -> Array:
    """Random numbers of a size between 0.5 and 1.5 and either sign, exact in every dtype."""
    return generator.integers(4, 13, count) / 8.0 * generator.choice((-1.0, 1.0), count)


@dataclass
class Direction:
    """Where one x was moved to, and what the derivatives are there.

    Attributes:
        vector: the direction.
        place: the number that moves, counted in real ones; None where many do.
        slope: from differences.
        method: how that was found.
    """

    vector: Array
    place: int | None
    slope: Slope
    method: str


@dataclass
class Rows:
    """Generated and numeric derivatives: a row for each direction, a column for each weighting of results.

    Attributes:
        mode: ``"reverse"`` or ``"forward"``.
        weights: the weightings, a row each.
        generated, numeric, error, low, high: the numbers; where there is a kink, low and high are the
            derivatives on both sides.
        kind: SMOOTH, KINK or JUMP.
    """

    mode: str
    weights: Array
    generated: Array
    numeric: Array
    error: Array
    low: Array
    high: Array
    kind: Array


def weighted(weights: Array, slope: Slope) -> tuple[Array, Array, Array, Array, Array]:
    """Value, error, the two one-sided slopes in order, and kind, of weighted sums of results."""

    def total(values: Array) -> Array:
        # A result of weight 0 does not count, whatever it is.
        return np.sum(np.where(weights == 0.0, 0.0, weights * values), -1)

    with np.errstate(all="ignore"):
        below, above = total(slope.below), total(slope.above)
        error = np.sum(np.where(weights == 0.0, 0.0, np.abs(weights) * slope.error), -1)
        kind = np.max(np.where(weights == 0.0, SMOOTH, slope.kind), -1, initial=SMOOTH)
    return total(slope.value), error, np.fmin(below, above), np.fmax(below, above), kind


class Comparison:
    """The derivatives of ys, of one order, with respect to one x."""

    def __init__(self, which: int, generated: Generated, numeric: Numeric, settings: Settings) -> None:
        self.which, self.generated, self.numeric, self.settings = which, generated, numeric, settings
        self.x = generated.posed.xs[which]
        self.size = size_of(self.x)
        self.point = numeric.point(which)
        self.scale = _power_of_two(np.max(np.abs(self.point), initial=0.0) or 1.0)
        self.directions: list[Direction] = []
