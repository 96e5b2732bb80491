"""Compares generated derivatives with numeric ones, and finds the element that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stopgrad.base.types import TensorType
from stopgrad.flow.checking.finite_differences import KINK, SMOOTH, Slope
from stopgrad.flow.checking.numeric import ROUNDINGS, Settings, flat, size_of
from stopgrad.graph.operands import NumpyArray

UNITS = 16
"""The most results that are also differentiated one by one."""

COLUMNS = 1 << 16
"""The most results that are compared one by one in forward mode; of more, weighted sums are."""

CORNER = 8
"""The most numbers with kinks that are examined together."""

NEIGHBOURS = 32
"""The number of points nearby at which slopes are taken where something differs."""

FLAT = 0.01
"""The change of slopes around a corner, relative to the largest, that is no kink."""

DENSE, SINGLE = 4, 4
"""For large inputs: the number of random directions, and of numbers that are moved alone."""

KINKS = 16
"""The most numbers with kinks that are searched for, and set aside, along a random direction."""

CERTAIN = 4
"""The number of directions that differ with steps of every size after which no more are examined."""

SAFETY = 4.0
"""The number of estimated errors of the differences that is allowed in addition to the tolerance."""

UNSETTLED = 0.02
"""The error of differences, relative to the gradient, above which they prove nothing."""


# ------------------------------------------------------------------------------------------------ compared


def factors(generator: np.random.Generator, count: int) -> NumpyArray:
    """Random numbers with absolute values between 0.5 and 1.5 and either sign, exact in every dtype."""
    return generator.integers(4, 13, count) / 8.0 * generator.choice((-1.0, 1.0), count)


class Numeric(Protocol):
    """A function of vectors, and its slopes by differences.

    Attributes:
        here: its values at the base point.
        terms: the size of the terms that add up to these.
        is_double: whether they are computed in double precision.
    """

    here: NumpyArray
    terms: NumpyArray
    is_double: bool

    def point(self, which: int) -> NumpyArray:
        """One x at the base point, as a vector."""

    def along(self, which: int, direction: NumpyArray, size: float) -> Slope:
        """The slopes as one x moves in a direction, by differences with steps relative to *size*."""

    def moved(self, which: int, change: NumpyArray) -> NumpyArray:
        """The values where one x is changed by a vector."""

    def by_complex_step(self, which: int, direction: NumpyArray, size: float) -> Slope | None:
        """The slopes by a step along the imaginary axis; None if that is not possible."""


class Generated(Protocol):
    """The derivatives that are judged, as functions of vectors."""

    def pulled(self, cotangent: NumpyArray) -> list[NumpyArray]:
        """The gradient at each x, as a vector; zeros if none arrives."""

    def pushed(self, which: int, direction: NumpyArray) -> NumpyArray:
        """The change of ys when one x moves."""


@dataclass
class Direction:
    """A direction in which one x was moved, and the slopes there.

    Attributes:
        vector: the direction.
        place: the position of the real number that moves; None if many do.
        slope: the slope by differences.
        method: how it was computed.
    """

    vector: NumpyArray
    place: int | None
    slope: Slope
    method: str


@dataclass
class Rows:
    """Generated and numeric derivatives: a row for each direction, a column for each weighting of results.

    Attributes:
        mode: ``"reverse"`` or ``"forward"``.
        generated, numeric, error: the derivatives, and the error of the numeric ones.
        low, high: the numeric derivative; at a kink, those on both sides.
        kind: SMOOTH, KINK or JUMP.
        allowed: the difference that is allowed between generated and numeric.
        excess: their difference relative to that; above 1 they differ.
        unsettled: where differences prove nothing.
        scale: the size of the largest derivative, or what counts as one.
    """

    mode: str
    generated: NumpyArray
    numeric: NumpyArray
    error: NumpyArray
    low: NumpyArray
    high: NumpyArray
    kind: NumpyArray
    allowed: NumpyArray
    excess: NumpyArray
    unsettled: NumpyArray
    scale: float


def _weighted(
    weights: NumpyArray | None, slope: Slope
) -> tuple[NumpyArray, NumpyArray, NumpyArray, NumpyArray, NumpyArray]:
    """Value, error, the lower and the higher one-sided slope, and the kind, of weighted sums of results.

    Without weights, of each result by itself.
    """
    with np.errstate(all="ignore"):
        if weights is None:
            sides = slope.below, slope.above
            return slope.value, slope.error, np.fmin(*sides), np.fmax(*sides), slope.kind
        # Kinks of several results may point in opposite ways: each derivative is between its own two.
        below, above = weights * slope.below, weights * slope.above
        low, high = (_total(weights, side) for side in (np.fmin(below, above), np.fmax(below, above)))
        value, error = _total(weights, weights * slope.value), _total(weights, abs(weights) * slope.error)
        kind = np.max(np.where(weights != 0.0, slope.kind, SMOOTH), -1, initial=SMOOTH)
        return value, error, low, high, kind


def _total(factors: NumpyArray, terms: NumpyArray) -> NumpyArray:
    """Sums of terms; one whose factor is 0 does not count, even if it is infinite."""
    total: NumpyArray = np.sum(np.where(factors != 0.0, terms, 0.0), -1)
    return total


def _products(vectors: NumpyArray, others: NumpyArray) -> NumpyArray:
    """The scalar product of each vector with each of the others, as :func:`_total` has it."""
    if np.all(np.isfinite(others)):
        return vectors @ others.T
    return np.array([_total(vector, vector * others) for vector in vectors])


def _sizes(weights: NumpyArray | None, values: NumpyArray) -> NumpyArray:
    """Sums of sizes, weighted; without weights, each by itself."""
    return values if weights is None else np.abs(weights) @ values


class Order:
    """The derivatives of one order, generated and numeric.

    Args:
        number: the order.
        xs, ys: the types of what moves, and of the function's results.
        settings: the user's settings.
        numeric, generated: the two kinds of derivatives.

    Attributes:
        cotangents: the weightings of results with which they are compared; the first has ones.
        outcomes: those in forward mode; None to compare each result by itself.
        pulled: the gradients, by weighting and x.
    """

    number: int
    xs: Sequence[TensorType]
    settings: Settings
    numeric: Numeric
    generated: Generated
    cotangents: NumpyArray
    outcomes: NumpyArray | None
    pulled: list[list[NumpyArray]]
    generator: np.random.Generator

    def __init__(
        self,
        number: int,
        xs: Sequence[TensorType],
        ys: Sequence[TensorType],
        settings: Settings,
        numeric: Numeric,
        generated: Generated,
    ) -> None:
        self.number, self.xs, self.settings = number, xs, settings
        self.numeric, self.generated = numeric, generated
        self.generator = np.random.default_rng([settings.seed, number])
        count = sum(size_of(y) for y in ys)
        rows = [_ones(ys), factors(self.generator, count), factors(self.generator, count)]
        if 1 < count <= UNITS:
            rows += list(np.diag(factors(self.generator, count)))
        self.cotangents = np.array(rows)
        self.outcomes = None if count <= COLUMNS else self.cotangents
        self.pulled = [generated.pulled(c) for c in self.cotangents] if "reverse" in settings.modes else []

    @property
    def weights(self) -> NumpyArray:
        """The weighting of results whose gradients are differentiated for the next order."""
        weights: NumpyArray = self.cotangents[0 if len(self.cotangents[0]) == 1 else 1]
        return weights

    def terms(self, weights: NumpyArray, arrives: Sequence[bool]) -> NumpyArray:
        """The size of the terms that add up to each derivative that arrives.

        A small derivative may be the difference of large terms, as in a saturated softmax.
        """
        value = float(np.abs(weights) @ np.abs(self.numeric.here))
        sizes = [
            np.full(size_of(x), value / _at_least_one(self.numeric.point(i)))
            for i, (x, is_there) in enumerate(zip(self.xs, arrives, strict=True))
            if is_there
        ]
        return np.concatenate(sizes)


def _ones(ys: Sequence[TensorType]) -> NumpyArray:
    return flat([np.ones(y.shape, y.dtype.numpy) for y in ys])


class Comparison:
    """Compares the derivatives of one order with respect to one x, and examines where they differ.

    Attributes:
        directions: the directions in which x was moved.
        rows: the results, by mode.
    """

    order: Order
    which: int
    settings: Settings
    directions: list[Direction]
    rows: list[Rows]

    def __init__(self, order: Order, which: int) -> None:
        self.order, self.which, self.settings = order, which, order.settings
        self._numeric = order.numeric
        self._size = size_of(order.xs[which])
        self._point = order.numeric.point(which)
        self._scale = _power_of_two(float(np.max(np.abs(self._point), initial=0.0)) or 1.0)
        self.directions = [self._measured(v, place) for v, place in self._chosen()] if self._size else []
        self.rows = self._compared(self.directions)
        self._look_closer()
        if self.passed:
            self._look_along_corner()

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self._failing()

    @property
    def contradicted(self) -> bool:
        """Whether something differs from differences that are certain."""
        return any(
            bool(np.any((rows.excess > 1.0) & ~rows.unsettled & np.isfinite(rows.generated)))
            for rows in self.rows
        )

    @property
    def by_number(self) -> bool:
        """Whether each number of x is moved by itself."""
        return self.settings.directions is None and self._size <= self.settings.elementwise

    def _chosen(self) -> list[tuple[NumpyArray, int | None]]:
        generator = self.order.generator
        if self.by_number:
            places: Sequence[int] = range(self._size)
            return [(self._unit(i), i) for i in places]
        if self.settings.directions is not None:
            return [(factors(generator, self._size), None) for _ in range(self.settings.directions)]
        dense: list[tuple[NumpyArray, int | None]] = [
            (factors(generator, self._size), None) for _ in range(DENSE)
        ]
        return dense + [(self._unit(i), i) for i in generator.choice(self._size, SINGLE, replace=False)]

    def _unit(self, place: int) -> NumpyArray:
        vector = np.zeros(self._size)
        vector[place] = 1.0
        return vector

    def _measured(self, vector: NumpyArray, place: int | None) -> Direction:
        slope = self._numeric.by_complex_step(self.which, vector, self._scale)
        if slope is not None:
            return Direction(vector, place, slope, "complex step")
        return Direction(vector, place, self._numeric.along(self.which, vector, self._scale), "central")

    # ------------------------------------------------------------------------------------------ judging

    def _compared(self, directions: Sequence[Direction]) -> list[Rows]:
        return [self._rows(mode, directions) for mode in self.settings.modes] if directions else []

    def _rows(self, mode: str, directions: Sequence[Direction]) -> Rows:
        """The rows of one mode, with verdicts."""
        order, vectors = self.order, np.array([d.vector for d in directions])
        weights = order.cotangents if mode == "reverse" else order.outcomes
        slopes = [
            np.array(part) for part in zip(*(_weighted(weights, d.slope) for d in directions), strict=True)
        ]
        with np.errstate(all="ignore"):
            if mode == "reverse":
                pulled = np.array([by_x[self.which] for by_x in order.pulled])
                generated = _products(vectors, pulled)
                spread = np.sqrt(_products(np.square(vectors), np.square(pulled)))
            else:
                generated = np.array([order.generated.pushed(self.which, v) for v in vectors])
                if weights is not None:
                    generated = generated @ weights.T
                spread = np.abs(generated)
            rows = self._judged(mode, weights, generated, spread, self._turned(weights, directions), *slopes)
        excused = np.isnan(generated) & self._beside_steep(weights, directions)
        rows.excess = np.where(excused, 0.0, rows.excess)
        return rows

    def _beside_steep(self, weights: NumpyArray | None, directions: Sequence[Direction]) -> NumpyArray:
        """Where a result with an infinite slope elsewhere counts nothing: 0 times infinity is NaN there."""
        values = np.array([direction.slope.value for direction in directions])
        still = (values == 0.0) & np.any(np.isinf(values), 0)
        if weights is None:
            return still
        beside: NumpyArray = np.any(still, 1)[:, None] | (np.isinf(values).any(0) & (weights == 0.0)).any(1)
        return beside

    def _turned(self, weights: NumpyArray | None, directions: Sequence[Direction]) -> NumpyArray:
        """How much each derivative changes as x changes by its size: its usual size where it is 0 by chance.

        It is not smaller where the derivative itself is 0. So it measures rounding at minima, where the
        rounding of x changes the slope. Along a direction the changes of single numbers add up as errors do.
        """
        return np.array(
            [
                self._scale * _sizes(weights, d.slope.bend) / np.sqrt(np.sum(np.square(d.vector)))
                for d in directions
            ]
        )

    def _judged(
        self,
        mode: str,
        weights: NumpyArray | None,
        generated: NumpyArray,
        spread: NumpyArray,
        turned: NumpyArray,
        value: NumpyArray,
        error: NumpyArray,
        low: NumpyArray,
        high: NumpyArray,
        kind: NumpyArray,
    ) -> Rows:
        settings = self.settings
        size = np.fmax(np.fmax(_finite(generated), _finite(value)), _finite(spread))
        largest = np.max(size, 0, initial=0.0)
        # The derivative with which the value changes by its own size as x does.
        unit = _sizes(weights, self._numeric.terms) / _at_least_one(self._point)
        roundings = min(ROUNDINGS * settings.epsilon, settings.rtol)
        rounding = np.fmax(roundings * np.max(np.fmax(unit, largest), initial=0.0), roundings * turned)
        slack = settings.atol
        if slack is None:
            slack = 0.1 * settings.rtol * largest + rounding
        allowed = slack + settings.rtol * size
        least = settings.rtol * np.fmax(np.max(np.fmax(unit, largest), initial=0.0), turned)
        limit = np.fmax(np.fmax(allowed, least), UNSETTLED * np.fmax(size, largest))
        doubt = SAFETY * error
        apart = distance(generated, value, low, high, kind)
        excess = np.where(apart == 0.0, 0.0, apart / (allowed + np.where(doubt <= limit, doubt, 0.0)))
        unsettled = ~(doubt <= limit) & ((apart != 0.0) | (kind != SMOOTH))
        if settings.only_proven and not self._numeric.is_double:
            excess = np.where(unsettled & np.isfinite(doubt), apart / (allowed + doubt), excess)
            excess = np.where(unsettled & ~np.isfinite(doubt), np.fmax(excess, 2.0), excess)
        else:
            excess = np.where(unsettled, np.fmax(excess, 2.0), excess)
        excess = np.where(np.isnan(generated), np.inf, excess)
        # If all derivatives are rounding errors of zeros, they are not compared with each other.
        zeros = float(np.max(rounding, initial=0.0)) / max(settings.rtol, 1e-12)
        scale = max(float(np.max(largest, initial=0.0)), zeros)
        return Rows(mode, generated, value, error, low, high, kind, allowed, excess, unsettled, scale)

    # -------------------------------------------------------------------------------------- a closer look

    def _failing(self) -> list[int]:
        """The directions in which something differs."""
        if not self.rows:
            return []
        worst = np.max([np.max(rows.excess, 1, initial=0.0) for rows in self.rows], 0, initial=0.0)
        return [int(i) for i in np.nonzero(worst > 1.0)[0]]

    def _passes(self, direction: Direction) -> bool:
        return all(np.all(rows.excess <= 1.0) for rows in self._compared([direction]))

    def _look_closer(self) -> None:
        """If something differs, try other steps, and single numbers."""
        failing, lost = self._failing(), 0
        for i in failing:
            self.directions[i] = self._measured_again(self.directions[i])
            lost += not self._passes(self.directions[i])
            if lost == CERTAIN:
                break
        if failing:
            self.rows = self._compared(self.directions)
        for i in self._failing():
            if self.directions[i].place is None:
                self._search(i)
                self.rows = self._compared(self.directions)
                break

    def _measured_again(self, direction: Direction) -> Direction:
        """Measure the same direction again, with steps of other sizes, until the slopes settle."""
        vector, place = direction.vector, direction.place
        sizes = [self._scale, 1.0, self._scale * 2.0**-20]
        if place is not None and self._point[place] != 0.0:
            sizes.insert(1, _power_of_two(abs(float(self._point[place]))))
        best: Slope | None = None
        for size in dict.fromkeys(sizes):
            slope = self._numeric.along(self.which, vector, size)
            best = slope if best is None else best.improved_by(slope)
            if self._passes(Direction(vector, place, best, "central")):
                break
        else:
            assert best is not None
            if self._numeric.is_double:
                own = np.where(self._point == 0.0, self._scale, np.abs(self._point))
                near, rounding = self._slopes_near(vector[None], NEIGHBOURS, own)
                best = best.among(near[:, 0], rounding)
        return Direction(vector, place, best, "central")

    def _look_along_corner(self) -> None:
        """Compare directions in which several kinks make none, as when all that are tied for a maximum move.

        Each number alone may have any derivative between the one-sided ones there, but their sum may not.
        """
        places = [d.place for d in self.directions if d.place is not None and np.any(d.slope.kind == KINK)]
        if not self.by_number or not 2 <= len(places) <= CORNER or not self._numeric.is_double:
            return
        units = np.array([self._unit(place) for place in places])
        sizes = np.full(self._size, self._scale)
        near = _finite_ones(self._slopes_near(units, len(places) + CORNER, sizes)[0])
        changes = (near - near[0]).swapaxes(0, 1).reshape(len(places), -1)
        bends, vectors = np.linalg.eigh(changes @ changes.T)
        straight = vectors.T[bends <= np.square(FLAT * np.max(np.abs(near), initial=0.0))] @ units
        measured = [self._measured(vector, None) for vector in straight]
        self.directions += [direction for direction in measured if np.all(direction.slope.kind == SMOOTH)]
        self.rows = self._compared(self.directions)

    def _slopes_near(
        self, vectors: NumpyArray, count: int, sizes: NumpyArray
    ) -> tuple[NumpyArray, NumpyArray]:
        """The slopes along vectors at random points nearby, relative to sizes; and their rounding errors.

        The slopes are ordered by points, vectors, results.
        """
        away = sizes * 2.0**-18
        steps = [2.0**-8 * np.min(away[vector != 0.0]) for vector in vectors]
        slopes = []
        with np.errstate(all="ignore"):
            for _ in range(count):
                beside = self.order.generator.uniform(-away, away)
                moved = [(beside + h * v, beside - h * v) for h, v in zip(steps, vectors, strict=True)]
                values = [[self._numeric.moved(self.which, x) for x in pair] for pair in moved]
                slopes.append([(a - b) / (2.0 * h) for h, (a, b) in zip(steps, values, strict=True)])
        return np.array(slopes), self._numeric.terms * 2.0**-52 / np.min(steps)

    def _search(self, i: int) -> None:
        """Find the number that differs along a direction, setting aside those with kinks."""
        vector = self.directions[i].vector.copy()
        for _ in range(KINKS):
            place = self._worst_place(vector)
            alone = self._measured_again(
                Direction(self._unit(place), place, self.directions[i].slope, "central")
            )
            self.directions.append(alone)
            if not self._passes(alone) or np.all(alone.slope.kind == SMOOTH):
                return
            vector[place] = 0.0
            rest = self._measured_again(Direction(vector, None, alone.slope, "central"))
            if self._passes(rest):
                self.directions[i] = rest
                return

    def _worst_place(self, vector: NumpyArray) -> int:
        """The number of x that contributes most to a difference, by bisection."""
        places = np.nonzero(vector)[0]
        while len(places) > 1:
            halves = np.array_split(places, 2)
            parts = []
            for half in halves:
                part = np.zeros_like(vector)
                part[half] = vector[half]
                parts.append(
                    Direction(part, None, self._numeric.along(self.which, part, self._scale), "central")
                )
            apart = [
                max(
                    float(np.max(np.where(np.isfinite(rows.excess[i]), rows.excess[i], np.inf)))
                    for rows in self._compared(parts)
                )
                for i in range(2)
            ]
            places = halves[int(apart[1] > apart[0])]
        return int(places[0])


def distance(
    generated: NumpyArray, value: NumpyArray, low: NumpyArray, high: NumpyArray, kind: NumpyArray
) -> NumpyArray:
    """How far derivatives are from numeric ones; at kinks, from those on both sides. Infinities can agree."""
    with np.errstate(invalid="ignore"):
        outside = np.fmax(np.fmax(low - generated, generated - high), 0.0)
        return np.where(kind == SMOOTH, np.where(generated == value, 0.0, np.abs(generated - value)), outside)


def _finite_ones(values: NumpyArray) -> NumpyArray:
    """Values; 0 for what is not finite."""
    return np.where(np.isfinite(values), values, 0.0)


def _finite(values: NumpyArray) -> NumpyArray:
    """Absolute values; 0 for what is not finite."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _at_least_one(point: NumpyArray) -> float:
    return max(1.0, float(np.max(np.abs(point), initial=0.0)))


def _power_of_two(size: float) -> float:
    """The power of two nearest to a size, so that steps are exact."""
    return float(2.0 ** np.round(np.log2(size))) if np.isfinite(size) else 1.0
