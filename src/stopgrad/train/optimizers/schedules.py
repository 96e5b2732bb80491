"""Schedules: learning rates as functions of the number of steps done, computed inside the graph.

The first step uses the rate at 0. Rates are float64, or float32 where the number of steps is float32, which
counts up to 2**24. Optimisers compute rates in the dtype of their parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.base.types import float32, float64
from stopgrad.graph.operands import Tensor
from stopgrad.graph.public import call, guarded, reads_arguments
from stopgrad.ops.elementwise.arithmetic import maximum, minimum
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.powers import exp, log, pow
from stopgrad.ops.elementwise.rounding import floor, rint
from stopgrad.ops.elementwise.trigonometric import cos
from stopgrad.train.optimizers.rules import at_least

_NEVER = -1e38
"""In the place of the logarithm of 0: its exponential is 0, and that of its product with 0 is 1."""

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "exponential",
    "join",
    "linear",
    "piecewise",
    "polynomial",
    "warmup",
]


class Schedule:
    """A learning rate that depends on the number of steps done.

    Called with that number, an output or a plain number, it returns the rate as float64, or as float32 if the
    number is an output or array of float32. Any other function that does so can be used instead.

    Examples:
        >>> rate = sg.optimizers.cosine(0.1, 100)
        >>> rate, float(rate(0)), float(rate(50)), float(rate(1000))
        (cosine(0.1, 100), 0.1, 0.05, 0.0)
    """

    def __init__(self, text: str, rate: Callable[[Tensor], Tensor]) -> None:
        self._text = text
        self._rate = rate

    def __call__(self, step: ArrayLike) -> Tensor:
        return self._rate(step if getattr(step, "dtype", None) == float32 else cast(step, float64))

    def __repr__(self) -> str:
        return self._text


@guarded("optimizers.constant")
def constant(rate: float) -> Schedule:
    """The same rate at every step.

    Args:
        rate: a number.

    Returns:
        A :class:`Schedule`.

    Examples:
        >>> float(sg.optimizers.constant(0.1)(7))
        0.1
    """
    value = at_least(rate, "rate")
    return Schedule(f"constant({value:g})", lambda step: 0.0 * step + value)


@guarded("optimizers.linear")
def linear(start: float, end: float, steps: int) -> Schedule:
    """A rate that changes linearly, up or down.

    Args:
        start: the first rate.
        end: the rate after *steps* steps, and from then on.
        steps: the number of steps.

    Returns:
        A :class:`Schedule`.

    Examples:
        >>> rate = sg.optimizers.linear(0.0, 0.1, 10)
        >>> [float(rate(i)) for i in (0, 5, 10, 20)]
        [0.0, 0.05, 0.1, 0.1]
    """
    return Schedule(f"linear({start!r}, {end!r}, {steps!r})", _power(start, end, steps, 1.0))


@guarded("optimizers.polynomial")
def polynomial(start: float, end: float, steps: int, power: float = 2.0) -> Schedule:
    """A polynomial of the steps that remain: ``end + (start - end) * (1 - step / steps) ** power``.

    Args:
        start: the first rate.
        end: the rate after *steps* steps, and from then on.
        steps: the number of steps.
        power: 1 for a line.

    Returns:
        A :class:`Schedule`; the rates of ``optax.polynomial_schedule``.

    Examples:
        >>> rate = sg.optimizers.polynomial(0.4, 0.0, 10)
        >>> [float(rate(i)) for i in (0, 5, 10)]
        [0.4, 0.1, 0.0]
    """
    return Schedule(f"polynomial({start!r}, {end!r}, {steps!r}, {power!r})", _power(start, end, steps, power))


def _power(start: float, end: float, steps: int, power: float) -> Callable[[Tensor], Tensor]:
    first, last, exponent = at_least(start, "start"), at_least(end, "end"), at_least(power, "power")
    count = _count(steps, "steps")

    def rate(step: Tensor) -> Tensor:
        remaining = 1.0 - minimum(step, float(count)) / float(count)
        return last + (first - last) * (remaining if exponent == 1.0 else pow(remaining, exponent))

    return rate


@guarded("optimizers.cosine")
def cosine(
    start: float, steps: int, end: float = 0.0, *, restarts: bool = False, stretch: int = 1
) -> Schedule:
    """Half a cosine, from one rate down to another.

    Args:
        start: the first rate.
        steps: the number of steps after which the rate is *end*.
        end: the last rate, which remains; with *restarts*, it is almost reached before each of them.
        restarts: whether to begin again at *start* after each round of *steps* steps.
        stretch: the length of each round relative to the one before.

    Returns:
        A :class:`Schedule`; the rates of ``optax.cosine_decay_schedule`` with ``alpha=end / start`` and,
        with *restarts*, of PyTorch's ``CosineAnnealingWarmRestarts(T_0=steps, T_mult=stretch, eta_min=end)``.
        PyTorch's ``CosineAnnealingLR`` goes up again after *steps*; this does not.

    References:
        Loshchilov & Hutter 2017, "SGDR: stochastic gradient descent with warm restarts", arXiv 1608.03983.

    Examples:
        >>> rate = sg.optimizers.cosine(0.1, 10, restarts=True, stretch=2)
        >>> [round(float(rate(i)), 6) for i in (0, 5, 10, 20, 30)]
        [0.1, 0.05, 0.1, 0.05, 0.1]
    """
    first, last = at_least(start, "start"), at_least(end, "end")
    count, factor = _count(steps, "steps"), _count(stretch, "stretch")
    with_restarts = flag(restarts, "restarts")
    if factor > 1 and not with_restarts:
        raise ArgumentError("stretch is about the rounds after restarts; give restarts=True")

    def rate(step: Tensor) -> Tensor:
        done = _in_round(step, count, factor) if with_restarts else minimum(step, float(count)) / float(count)
        return last + (first - last) * (0.5 * (1.0 + cos(math.pi * done)))

    more = f", restarts=True, stretch={factor}" if with_restarts else ""
    return Schedule(f"cosine({start!r}, {steps!r}{f', {end!r}' if end else ''}{more})", rate)


def _in_round(step: Tensor, steps: int, stretch: int) -> Tensor:
    """The part of the current round that is done, if each is *stretch* times as long as the one before."""
    if stretch == 1:
        return (step - steps * floor(step / float(steps))) / float(steps)

    def begin(round: Tensor) -> Tensor:
        return float(steps) * ((rint(pow(float(stretch), round)) - 1.0) / (stretch - 1.0))

    guess = floor(log(step * ((stretch - 1.0) / steps) + 1.0) / math.log(stretch))
    # Rounding may put the first step of a round into the one before it, and the last into the next.
    too_early, too_late = step >= begin(guess + 1.0), step < begin(guess)
    current = guess + cast(too_early, guess.dtype) - cast(too_late, guess.dtype)
    return (step - begin(current)) / (begin(current + 1.0) - begin(current))


@guarded("optimizers.exponential")
def exponential(
    start: float, decay: float, steps: int = 1, *, staircase: bool = False, end: float = 0.0
) -> Schedule:
    """A rate that is multiplied by a constant factor every so many steps.

    Args:
        start: the first rate.
        decay: the factor for *steps* steps.
        steps: the number of steps.
        staircase: whether to multiply once after *steps* steps, instead of gradually in each step.
        end: the minimum of the rate.

    Returns:
        A :class:`Schedule`; the rates of ``optax.exponential_decay``, and with *staircase* those of PyTorch's
        ``StepLR(step_size=steps, gamma=decay)``.

    Examples:
        >>> rate = sg.optimizers.exponential(0.1, 0.5, 10)
        >>> [float(rate(i)) for i in (0, 10, 20)]
        [0.1, 0.05, 0.025]
    """
    first, factor, last = at_least(start, "start"), at_least(decay, "decay"), at_least(end, "end")
    power = math.log(factor) if factor else _NEVER  # Of float32, a factor near 1 would lose its last digits.
    count, jumps = _count(steps, "steps"), flag(staircase, "staircase")

    def rate(step: Tensor) -> Tensor:
        times = step / float(count)
        decayed = first * exp((floor(times) if jumps else times) * power)
        return maximum(decayed, last) if last else decayed

    more = f"{', staircase=True' if jumps else ''}{f', end={end!r}' if last else ''}"
    return Schedule(f"exponential({start!r}, {decay!r}, {steps!r}{more})", rate)


@guarded("optimizers.piecewise")
def piecewise(rates: Sequence[float], boundaries: Sequence[int]) -> Schedule:
    """A piecewise constant rate.

    Args:
        rates: one more than there are boundaries.
        boundaries: the first step of each rate except the first, in order.

    Returns:
        A :class:`Schedule`.

    Examples:
        >>> rate = sg.optimizers.piecewise([0.1, 0.01, 0.001], [100, 200])
        >>> [float(rate(i)) for i in (0, 99, 100, 200)]
        [0.1, 0.1, 0.01, 0.001]
    """
    values = [at_least(rate, f"rates[{i}]") for i, rate in enumerate(rates)]
    bounds = _bounds(boundaries, len(values), "rates")

    def rate(step: Tensor) -> Tensor:
        current = 0.0 * step + values[0]
        for bound, value in zip(bounds, values[1:], strict=True):
            current = where(step < float(bound), current, value)
        return current

    return Schedule(f"piecewise({list(rates)!r}, {list(boundaries)!r})", rate)


@guarded("optimizers.join")
def join(schedules: Sequence[Callable[[Any], Any] | float], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another, each counting steps from its beginning.

    Args:
        schedules: one more than there are boundaries; functions of the number of steps, or numbers.
        boundaries: the first step of each schedule except the first, in order.

    Returns:
        A :class:`Schedule`; the rates of ``optax.join_schedules``.

    Examples:
        >>> up, down = sg.optimizers.linear(0.0, 0.1, 10), sg.optimizers.cosine(0.1, 100)
        >>> rate = sg.optimizers.join([up, down], [10])
        >>> [float(rate(i)) for i in (0, 5, 10, 60, 110)]
        [0.0, 0.05, 0.1, 0.05, 0.0]
    """
    parts = [_schedule(part, f"schedules[{i}]") for i, part in enumerate(schedules)]
    bounds = _bounds(boundaries, len(parts), "schedules")

    def rate(step: Tensor) -> Tensor:
        current = parts[0](step)
        for bound, part in zip(bounds, parts[1:], strict=True):
            since = maximum(step - float(bound), 0.0)
            current = where(step < float(bound), current, part(since))
        return current

    return Schedule(f"join({list(schedules)!r}, {list(boundaries)!r})", rate)


@guarded("optimizers.warmup")
def warmup(schedule: Callable[[Any], Any] | float, steps: int, start: float = 0.0) -> Schedule:
    """A linear rise to the first rate of a schedule, followed by that schedule.

    Args:
        schedule: a schedule, or a number.
        steps: the number of steps of the rise.
        start: the first rate.

    Returns:
        A :class:`Schedule`.

    Examples:
        >>> rate = sg.optimizers.warmup(sg.optimizers.cosine(0.1, 100), 10)
        >>> [float(rate(i)) for i in (0, 5, 10, 110)]
        [0.0, 0.05, 0.1, 0.0]
    """
    after, count, first = _schedule(schedule, "schedule"), _count(steps, "steps"), at_least(start, "start")

    def rate(step: Tensor) -> Tensor:
        part = minimum(step / float(count), 1.0)
        later = after(maximum(step - float(count), 0.0))
        return where(step < float(count), first + (after(0.0 * step) - first) * part, later)

    return Schedule(f"warmup({schedule!r}, {steps!r}{f', {start!r}' if first else ''})", rate)


# ------------------------------------------------------------------------------------------- arguments


def _count(steps: int, name: str) -> int:
    if not is_whole(steps) or not 1 <= whole(steps) < 2**53:
        raise ArgumentError(f"{name} is a whole number from 1 on, not {steps!r:.60}")
    return whole(steps)


@reads_arguments
def _bounds(boundaries: Sequence[int], parts: int, name: str) -> list[int]:
    steps = [_count(bound, f"boundaries[{i}]") for i, bound in enumerate(boundaries)]
    if sorted(set(steps)) != steps:
        raise ArgumentError(f"boundaries are steps in rising order, not {steps}")
    if parts != len(steps) + 1:
        raise ArgumentError(
            f"there is one of the {name} more than there are boundaries; got {parts} and {len(steps)}"
        )
    return steps


def _schedule(schedule: Callable[[Any], Any] | float, name: str) -> Callable[[Tensor], Tensor]:
    if callable(schedule):
        return lambda step: call(schedule, step)
    value = at_least(schedule, name)
    return lambda step: 0.0 * step + value
