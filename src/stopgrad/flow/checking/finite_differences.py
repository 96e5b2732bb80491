"""Derivatives by differences, with an estimate of the error; and points where there is no derivative.

Nothing here knows of graphs: a function of one real number returns a vector, and its slope at 0 is computed
from its values at smaller and smaller steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Curve = Callable[[float], Array]
"""Maps a step to the values there, a vector of real numbers."""

SMOOTH, KINK, JUMP = 0, 1, 2
"""Kinds of points: the function has a derivative; it has two one-sided derivatives; or it jumps."""

_SAFETY = 8.0
"""The number of estimated errors within which two values count as the same.

The estimate is the change by the last step of an extrapolation, and no bound.
"""

_STEEP = 5
"""The number of last secants that must grow for a slope to count as infinite."""


@dataclass(frozen=True)
class Steps:
    """The steps at which a function is evaluated: ``first``, ``first / ratio``, …, ``count`` of them.

    Attributes:
        first: the first step, relative to the size of what moves.
        ratio: the ratio of each step to the next.
        count: the number of steps.
        epsilon: the machine epsilon of the evaluation.
    """

    first: float
    ratio: float
    count: int
    epsilon: float

    @classmethod
    def of(cls, epsilon: float) -> Steps:
        """Steps for a precision: from an eighth down to about the root of *epsilon*.

        Below that, a difference has lost half of its digits. In double precision steps shrink fast, so that
        few suffice; in float16 there is only room for a few that are close.
        """
        if epsilon < 1e-12:
            return cls(0.125, 4.0, 12, epsilon)
        return cls(0.125, 2.0, 9, epsilon) if epsilon < 1e-5 else cls(0.5, 2.0, 5, epsilon)


@dataclass
class Slope:
    """The slope of a function in one direction, for each of its results.

    Attributes:
        value: the slope by central differences; if these do not exist, from one side. It is infinite where
            secants grow without a limit.
        error: an estimate of its error.
        below, above: the slopes on both sides; at a jump, those beside it.
        kind: SMOOTH, KINK or JUMP.
        step: the smallest step that was used for the value.
        bend: the change of the slope as the point moves by 1; 0 if that was not measured.
    """

    value: Array
    error: Array
    below: Array
    above: Array
    kind: Array
    step: Array
    bend: Array

    def improved_by(self, other: Slope) -> Slope:
        """For each result the slope that is known better.

        If both seem certain and differ, the smaller steps are right: large ones skip what these see.
        """
        better = other.error < self.error
        with np.errstate(invalid="ignore"):  # Two infinite slopes are no conflict.
            conflict = np.abs(other.value - self.value) > _SAFETY * (other.error + self.error)
        finer = other.step < self.step
        fine_error, fine_value = np.where(finer, (other.error, other.value), (self.error, self.value))
        better = np.where(conflict & (fine_error <= 0.01 * np.abs(fine_value)), finer, better)
        chosen = Slope(
            *(np.where(better, getattr(other, name), getattr(self, name)) for name in self.__annotations__)
        )
        chosen.bend = _least((self.bend, other.bend))
        return chosen

    def among(self, near: Array, rounding: Array) -> Slope:
        """The slope at a kink, where those of points around it, which have this rounding, differ.

        Moving one of several tied numbers may change nothing on either side, and yet a sorted result be that
        number (Clarke 1975, "Generalized gradients and applications").
        """
        low, high = np.fmin.reduce(near), np.fmax.reduce(near)
        kink = high - low > 0.01 * np.fmax(np.abs(low), np.abs(high)) + 1e3 * rounding
        kink &= self.kind != JUMP
        return replace(
            self,
            below=np.where(kink, np.fmin(low, np.fmin(self.below, self.above)), self.below),
            above=np.where(kink, np.fmax(high, np.fmax(self.below, self.above)), self.above),
            error=np.where(kink, 0.0, self.error),
            kind=np.where(kink, KINK, self.kind),
        )


class _Extrapolation:
    """Neville's table: estimates at ever smaller steps, extrapolated to a step of 0.

    For each element the entry is kept whose last change was the least (Ridders 1982, "Accurate computation of
    F'(x) and F'(x) F''(x)"): before it the formula is too coarse, after it the digits are gone.
    """

    _COLUMNS = 6

    def __init__(self, power: float, size: int) -> None:
        self._power = power
        self._row: list[Array] = []
        self.value = np.full(size, np.nan)
        self.error = np.full(size, np.inf)
        self.step = np.full(size, np.nan)

    def add(self, first: Array, noise: Array, step: float) -> None:
        """Add the estimate at the next step, whose rounding error is *noise*."""
        row = [first]
        weight = 1.0
        for before in self._row[: self._COLUMNS]:
            weight *= self._power
            refined = row[-1] + (row[-1] - before) / (weight - 1.0)
            error = np.maximum(np.abs(refined - row[-1]), np.abs(refined - before)) + noise
            better = error < self.error  # False if either is NaN.
            self.value = np.where(better, refined, self.value)
            self.error = np.where(better, error, self.error)
            self.step = np.where(better, step, self.step)
            row.append(refined)
        self._row = row


class _Side:
    """The results on one side of the point."""

    def __init__(self, sign: float, here: Array, ratio: float) -> None:
        self.sign, self.here, self.ratio = sign, here, ratio
        self.slope = _Extrapolation(ratio, here.size)  # by secants from the point
        self.beside = _Extrapolation(ratio, here.size)  # by secants between steps
        self.limit = here
        self.doubt = np.full(here.size, np.inf)
        self.last: Array | None = None
        self.step = math.nan
        self.secants: list[Array] = []
        self.rounding = np.zeros_like(here)

    def add(self, values: Array, step: float, noise: Array) -> None:
        secant = self.sign * (values - self.here) / step
        self.slope.add(secant, noise / step, step)
        self.secants, self.rounding, self.step = [*self.secants[1 - _STEEP :], secant], noise / step, step
        if self.last is not None:
            gap = step * (self.ratio - 1.0)
            self.beside.add(self.sign * (self.last - values) / gap, noise / gap, step)
            # From the last two only: what is far away proves nothing about a jump at the point.
            self.limit = values + (values - self.last) / (self.ratio - 1.0)
            self.doubt = np.abs(values - self.last) + noise
        self.last = values

    def leap(self, noise: Array) -> Array:
        """The distance of the limit on this side from the value at the point; 0 if they may be equal."""
        gap = np.abs(self.limit - self.here)
        return np.where(gap > _SAFETY * self.doubt + 1e3 * noise, gap, 0.0)

    def steep(self) -> Array:
        """Infinity, with its sign, where the slope grows without a limit; else 0.

        The secants of a function that has a slope approach it by ever smaller changes, those of a root by
        ever larger ones, and those of x log x by equal ones.
        """
        if len(self.secants) < _STEEP:
            return np.zeros_like(self.here)
        changes = np.diff(self.secants, axis=0)
        grows = np.all(changes * np.sign(self.secants[-1]) > _SAFETY * self.rounding, 0)
        grows &= np.all(np.abs(changes[1:]) >= 0.9 * np.abs(changes[:-1]), 0)
        grows &= np.abs(self.secants[-1]) > 1.25 * np.abs(self.secants[0])
        return np.where(grows, np.copysign(np.inf, self.secants[-1]), 0.0)

    def way(self) -> Array:
        """The change of the function in the last step, from its limit."""
        return np.zeros_like(self.here) if self.last is None else np.abs(self.last - self.limit)


def slope_at(
    curve: Curve, here: Array, size: float, steps: Steps, aim: float, inside: Array | float = 0.0
) -> Slope:
    """The slope of a curve at 0, where its values are *here*.

    Args:
        curve: the function.
        here: its values at 0.
        size: the size of what moves; steps are relative to it.
        steps: the steps.
        aim: the relative error that suffices.
        inside: the errors of values by rounding inside the function, if these are larger than the rounding
            of the values themselves.

    Returns:
        The slopes of its results. The error is infinite if none was found.
    """
    central = _Extrapolation(steps.ratio**2, here.size)
    ahead, behind = _Side(1.0, here, steps.ratio), _Side(-1.0, here, steps.ratio)
    noise = np.fmax(steps.epsilon * np.abs(here), inside)
    samples: list[tuple[float, Array, Array, Array]] = []
    with np.errstate(all="ignore"):
        for n in range(steps.count):
            step = size * steps.first / steps.ratio**n
            after, before = curve(step), curve(-step)
            rounding = steps.epsilon * np.fmax(np.abs(after), np.abs(before))  # One side may be NaN.
            rounding = np.fmax(rounding, inside)
            noise = np.fmax(noise, rounding)
            central.add((after - before) / (2.0 * step), rounding / step, step)
            ahead.add(after, step, rounding)
            behind.add(before, step, rounding)
            samples.append((step, after - here, here - before, rounding))
            # The rounding error of a slope of 0 at the first steps will not decrease.
            if n >= 3 and _settled(central, ahead, behind, aim, 16.0 * noise / (size * steps.first)):
                break
        slope = _judged(central, ahead, behind, noise, aim)
        slope.bend = _bend(samples, slope.value)
        return slope


def _bend(samples: Sequence[tuple[float, Array, Array, Array]], slope: Array) -> Array:
    """The change of the slope as the point moves by 1, from the distance of the values to a straight line.

    It is the least over all steps: large ones reach other parts of the function, which may be far steeper. It
    is not the second difference, which is 0 for a cube. Rounding noise counts, as it may hide a change.
    """
    bends = [
        2.0 * (np.fmax(np.abs(after - step * slope), np.abs(before - step * slope)) + noise) / step**2
        for step, after, before, noise in samples
    ]
    return _least(bends)


def _least(bends: Sequence[Array]) -> Array:
    """The least that was measured; 0 means that it was not measured, or that nothing moved."""
    measured = [np.where(np.isfinite(bend) & (bend > 0.0), bend, np.inf) for bend in bends]
    least = np.min(measured, 0)
    return np.where(np.isfinite(least), least, 0.0)


def _settled(central: _Extrapolation, ahead: _Side, behind: _Side, aim: float, least: Array) -> bool:
    enough = aim * np.abs(central.value) + least
    apart = np.abs(ahead.slope.value - behind.slope.value)
    uncertainty = _SAFETY * (ahead.slope.error + behind.slope.error)
    return bool(
        np.all((central.error <= enough) & (apart <= uncertainty + enough) & np.isfinite(uncertainty))
    )


def _judged(central: _Extrapolation, ahead: _Side, behind: _Side, noise: Array, aim: float) -> Slope:
    value, error, step = central.value, central.error, central.step
    # A corner that is nearer than the last step looks like a small jump.
    way = np.fmax(ahead.way(), behind.way())
    leaps = ahead.leap(noise) > way, behind.leap(noise) > way
    (above, from_above), (below, from_below) = (
        _one_sided(side, leaps) for side, leaps in zip((ahead, behind), leaps, strict=True)
    )
    sides = np.fmax(np.abs(above), np.abs(below))
    # What is small beside the other slopes may be rounding inside the function.
    least = 1e-9 * np.max(sides, initial=0.0, where=np.isfinite(sides))
    apart = _SAFETY * (from_above + from_below) + 10.0 * aim * sides + least
    steep = np.isinf(sides)
    kink = np.where(steep, above != below, np.abs(above - below) > apart)
    kind = np.where(leaps[0] | leaps[1], JUMP, np.where(kink, KINK, SMOOTH))
    for side, slope, doubt, other in (
        (ahead, above, from_above, from_below),
        (behind, below, from_below, from_above),
    ):
        # At the edge of its domain the function has only one side; or it is equally steep on both.
        alone = np.isinf(other) & np.isfinite(doubt) & np.isinf(central.error) | steep & (above == below)
        value = np.where(alone, slope, value)
        error = np.where(alone, doubt, error)
        step = np.where(alone, np.where(steep, side.step, side.slope.step), step)
        kind = np.where(alone, SMOOTH, kind)
    smooth = kind == SMOOTH
    return Slope(
        np.where(smooth, value, (above + below) / 2.0),
        np.where(smooth, error, from_above + from_below),
        np.where(smooth, value, below),
        np.where(smooth, value, above),
        kind,
        step,
        np.zeros_like(value),
    )


def _one_sided(side: _Side, leaps: Array) -> tuple[Array, Array]:
    """The slope on one side of the point, beside it where the function leaps; and its error."""
    steep = np.where(leaps, 0.0, side.steep())
    slope = np.where(leaps, side.beside.value, side.slope.value)
    error = np.where(leaps, side.beside.error, side.slope.error)
    return np.where(steep == 0.0, slope, steep), np.where(steep == 0.0, error, 0.0)


def complex_slope(curve: Callable[[complex], tuple[Array, Array]], here: Array, size: float) -> Slope | None:
    """The slope of a holomorphic function, by one step along the imaginary axis.

    Nothing is subtracted, so no digits are lost (Squire and Trapp 1998, "Using complex variables to estimate
    derivatives of real functions").

    Args:
        curve: maps an imaginary step to the real and imaginary parts of the values there.
        here: the values at 0.
        size: the size of what moves.

    Returns:
        The slope; None if the real parts moved, because the function is then not holomorphic.
    """
    step = 1e-20 * size
    real, imaginary = curve(1j * step)
    scale = np.max(np.abs(here), initial=0.0)
    if not np.all(np.abs(real - here) <= 1e-9 * scale) or not np.all(np.isfinite(imaginary)):
        return None
    value = imaginary / step
    error = 1e-14 * np.abs(value)
    nothing = np.zeros(here.size)
    return Slope(value, error, value, value, nothing.astype(int), nothing + step, nothing)
