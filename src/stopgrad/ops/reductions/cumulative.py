"""Running sums, products, maxima and minima along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Axis,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.compare import equal, logical_or, not_equal
from stopgrad.ops.elementwise.convert import cast, conj, where
from stopgrad.ops.elementwise.powers import exp
from stopgrad.ops.indexing.gather import ScatterAddAlongAxis
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.reductions.recurrence import linear_recurrence, shifted
from stopgrad.ops.shapes.join import pad
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import size_as, zeros_like

__all__ = [
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_logsumexp",
]


class Running(Op, abstract=True):
    """Numbers accumulated along an axis.

    Args:
        x: numbers.
        axis: the axis along which to accumulate.
        exclusive: whether each result leaves out the element at its own position.
        reverse: whether to accumulate from the end.

    Constraints:
        (C1) x holds numbers.
        (C2) The axis exists.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, exclusive: bool, reverse: bool) -> TensorType:
        d.check_dtype(x, d.is_number, "numbers")
        d.normal_axis(axis, x.ndim)
        return x

    batch = d.ALONG
    rounds_once = True
    samples: d.Samples = [
        d.sample(d.floats(2, 3, low=0.5), axis=1, exclusive=False, reverse=False),
        d.sample(d.floats("n", 2, low=0.5), axis=0, exclusive=True, reverse=True),
        d.sample(d.floats(0, 2), axis=0, exclusive=True, reverse=False),
        d.sample(d.complexes(3), axis=0, exclusive=False, reverse=True),
        d.sample(np.array([[2.0, 0.0, -1.0, 0.0, 3.0]]), axis=1, exclusive=False, reverse=False),
        d.sample(np.array([0.0, 2.0, 0.0, -1.0]), axis=0, exclusive=True, reverse=True),
    ]


def _accumulate(
    xp: Namespace,
    x: Array,
    axis: int,
    exclusive: bool,
    reverse: bool,
    function: Callable[..., Any],
    neutral: int,
) -> Array:
    if reverse:
        x = xp.flip(x, axis)
    if exclusive:
        start = xp.full((*x.shape[:axis], min(1, x.shape[axis]), *x.shape[axis + 1 :]), neutral, x.dtype)
        x = xp.concatenate([start, x[(slice(None),) * axis + (slice(None, -1),)]], axis)
    x = function(x, axis=axis, dtype=x.dtype)
    return xp.flip(x, axis) if reverse else x


class Cumsum(Running):
    """Running sum along an axis.

    Returns:
        The sums, of x's shape.

    Examples:
        >>> sg.cumsum(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """

    gradient: d.Gradient = {"x": lambda g, op: cumsum(g, op.axis, op.exclusive, not op.reverse)}
    lower: d.Lowering = lambda xp, x, axis, exclusive, reverse: _accumulate(
        xp, x, axis, exclusive, reverse, xp.cumsum, 0
    )


@d.builds(Cumsum, by_type=True)
def cumsum(
    x: ArrayLike, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    return d.apply(Cumsum, (x,), (d.axis_in(Cumsum, axis, x), d.flag(exclusive), d.flag(reverse)), name)


class Cumprod(Running):
    """Running product along an axis.

    Returns:
        The products, of x's shape. The gradient is right even where elements are 0, since it never divides.

    Examples:
        >>> sg.cumprod(np.array([1.0, 2.0, 3.0]))
        array([1., 2., 6.])
    """

    gradient: d.Gradient = {"x": lambda g, op: _cumprod_gradient(g, op)}
    lower: d.Lowering = lambda xp, x, axis, exclusive, reverse: _accumulate(
        xp, x, axis, exclusive, reverse, xp.cumprod, 1
    )


@d.builds(Cumprod, by_type=True)
def cumprod(
    x: ArrayLike, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    return d.apply(Cumprod, (x,), (d.axis_in(Cumprod, axis, x), d.flag(exclusive), d.flag(reverse)), name)


def _cumprod_gradient(g: Output, op: Operation) -> Tensor:
    """For each element, the product of the elements before it, times a sum over the results that it enters.

    Each term of that sum is the result's cotangent, times the elements between the two.
    """
    x, back = conj(op.x), not op.reverse
    if op.exclusive:
        following = shifted(linear_recurrence(x, g, op.axis, back), op.axis, back)
    else:
        following = linear_recurrence(shifted(x, op.axis, back), g, op.axis, back)
    return cumprod(x, op.axis, exclusive=True, reverse=op.reverse) * following


# ------------------------------------------------------------------------------------------------ extremes


class RunningExtremum(Op, abstract=True):
    """The largest or smallest of the real numbers so far, along an axis.

    Args:
        x: real numbers.
        axis: the axis along which to run.
        reverse: whether to run from the end.

    Constraints:
        (C1) x holds real numbers.
        (C2) The axis exists.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, reverse: bool) -> TensorType:
        d.check_dtype(x, d.is_real, "real numbers")
        d.normal_axis(axis, x.ndim)
        return x

    gradient: d.Gradient = {"x": lambda g, op: _to_extremes(g, op)}
    batch = d.ALONG
    samples: d.Samples = [
        d.sample(d.floats(2, 3, distinct=True), axis=1, reverse=False),
        d.sample(d.floats("n", 2, distinct=True), axis=0, reverse=True),
        d.sample(d.floats(0, 2), axis=0, reverse=False),
        d.sample(d.ints(4), axis=0, reverse=True),
    ]
    extremes = (([[1.0, math.nan, math.inf]],), ([[-math.inf, 0.0, -0.0]],))


def _to_extremes(g: Output, op: Operation) -> Tensor:
    """The cotangent of running extremes: each goes to the last element that attains it; a NaN attains NaN."""
    x, axis = op.x, op.axis
    place = _places(x, axis)
    attains = logical_or(equal(x, op.result), not_equal(x, x))
    if op.reverse:
        latest = d.apply(Cummin, (where(attains, place, np.int32(2**31 - 1)),), (axis, True))
    else:
        latest = d.apply(Cummax, (where(attains, place, np.int32(-1)),), (axis, False))
    return d.apply(ScatterAddAlongAxis, (zeros_like(g), latest, g), (axis,))


def _places(x: Output, axis: int) -> Tensor:
    """The positions 0, 1, 2, … along an axis, in a shape that broadcasts with the tensor."""
    size = x.shape[axis]
    return reshape(numbers(size), tuple(size if i == axis else 1 for i in range(x.ndim)))


class Cummax(RunningExtremum):
    """The largest element so far, along an axis; NaN from the first NaN on.

    Returns:
        The maxima, of x's shape. Of equal elements, the latest gets the gradient.

    Examples:
        >>> sg.cummax(np.array([1.0, 3.0, 2.0]))
        array([1., 3., 3.])
    """

    lower: d.Lowering = lambda xp, x, axis, reverse: _accumulated(xp, x, axis, reverse, np.maximum.accumulate)
    xla: d.Lowering = lambda xp, x, axis, reverse: xp.lax.cummax(x, axis, reverse) if x.size else x


@d.builds(Cummax)
def cummax(x: ArrayLike, axis: int = 0, reverse: bool = False, name: str | None = None) -> Tensor:
    return d.apply(Cummax, (x,), (d.axis_in(Cummax, axis, x), d.flag(reverse)), name)


class Cummin(RunningExtremum):
    """The smallest element so far, along an axis; NaN from the first NaN on.

    Returns:
        The minima, of x's shape. Of equal elements, the latest gets the gradient.

    Examples:
        >>> sg.cummin(np.array([3.0, 1.0, 2.0]))
        array([3., 1., 1.])
    """

    lower: d.Lowering = lambda xp, x, axis, reverse: _accumulated(xp, x, axis, reverse, np.minimum.accumulate)
    xla: d.Lowering = lambda xp, x, axis, reverse: xp.lax.cummin(x, axis, reverse) if x.size else x


@d.builds(Cummin)
def cummin(x: ArrayLike, axis: int = 0, reverse: bool = False, name: str | None = None) -> Tensor:
    return d.apply(Cummin, (x,), (d.axis_in(Cummin, axis, x), d.flag(reverse)), name)


def _accumulated(xp: Namespace, x: Array, axis: int, reverse: bool, function: Callable[..., Any]) -> Array:
    if not x.size:
        return x
    return xp.flip(function(xp.flip(x, axis), axis), axis) if reverse else function(x, axis)


class CumulativeLogsumexp(Op):
    """The logarithm of the running sum of exponentials along an axis, without overflow.

    Args:
        x: floating-point.
        axis: the axis along which to accumulate.
        reverse: whether to accumulate from the end.

    Returns:
        log(exp x₀ + … + exp xᵢ), of x's shape.

    Constraints:
        (C1) x is floating-point.
        (C2) The axis exists.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, reverse: bool) -> TensorType:
        d.check_dtype(x, d.is_floating, "floating-point numbers")
        d.normal_axis(axis, x.ndim)
        return x

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: _to_running_exponentials(cast(g, d.float64), cast(op.x, d.float64), op)
    }
    batch = d.ALONG
    rounds_once = True
    # In float64, since each step rounds a logarithm whose last digit may be more than the step.
    lower: d.Lowering = lambda xp, x, axis, reverse: _accumulated(
        xp, x.astype(np.float64), axis, reverse, np.logaddexp.accumulate
    )
    xla: d.Lowering = lambda xp, x, axis, reverse: xp.lax.cumlogsumexp(x, axis, reverse) if x.size else x
    samples: d.Samples = [
        d.sample(d.floats(2, 3), axis=1, reverse=False),
        d.sample(d.floats("n", 2), axis=0, reverse=True),
        d.sample(d.floats(0, 2), axis=0, reverse=False),
        d.sample(np.array([-800.0, 700.0, 710.0]), axis=0, reverse=False),
    ]
    extremes = (([[-math.inf, -math.inf, 1.0]],), ([[1.0, math.inf, 2.0]],), ([[0.0, math.nan]],))


def _to_running_exponentials(g: Output, x: Output, op: Operation) -> Tensor:
    """A sum over the results r that an element enters, of g · exp(x - r), which is at most g.

    It is a running sum in the other direction, with factors exp(r - next r). In float64: there are as many
    factors as elements, all of them near 1, and their product would have the sum of their errors.
    """
    axis, back = op.axis, not op.reverse
    r = d.apply(CumulativeLogsumexp, (x,), (axis, op.reverse))
    place = _places(r, axis)
    last = equal(place, 0 if op.reverse else size_as(r.shape[axis] - 1, d.int32, r))
    factors = _share(r, where(last, r, shifted(r, axis, back)))
    return _share(x, r) * linear_recurrence(factors, g, axis, back)


def _share(x: Output, result: Output) -> Tensor:
    """exp(x - result), which is 1 where both are the same infinity."""
    return exp(where(equal(x, result), 0, x - result))


@d.builds(CumulativeLogsumexp)
def cumulative_logsumexp(
    x: ArrayLike, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The logarithm of the running sum of exponentials along an axis, without overflow.

    Args:
        x: floating-point; integers are converted.
        axis: the axis along which to accumulate.
        exclusive: whether each result leaves out the element at its own position, so that the first is -∞.
        reverse: whether to accumulate from the end.

    Returns:
        log(exp x₀ + … + exp xᵢ), of x's shape.

    Constraints:
        (C1) x is floating-point.
        (C2) The axis exists.

    Examples:
        >>> sg.cumulative_logsumexp(np.log(np.array([1.0, 2.0, 3.0])))
        array([0.        , 1.09861229, 1.79175947])
    """
    position, back = d.axis_in(CumulativeLogsumexp, axis, x), d.flag(reverse)
    if not d.flag(exclusive):
        return d.apply(CumulativeLogsumexp, (x,), (position, back), name)
    inclusive = d.apply(CumulativeLogsumexp, (x,), (position, back))
    size = d.type_of(inclusive).shape[position]
    ndim = d.type_of(inclusive).ndim
    padding = [((0, 1) if back else (1, 0)) if i == position else (0, 0) for i in range(ndim)]
    return part_of(pad(inclusive, padding, constant_values=-math.inf), position, 1 if back else 0, size)
