"""Guarded logarithms and quotients, clipping, softmax and normalisation.

Each is one operation whose value and gradient are exact where a composition would overflow or divide by zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Arithmetic,
    Array,
    ArrayLike,
    Axes,
    DType,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.compare import equal, greater, less, logical_and, logical_not
from stopgrad.ops.elementwise.convert import where, wide
from stopgrad.ops.elementwise.powers import exp, log, rsqrt
from stopgrad.ops.reductions.reduce import Reduction, lowest, reduce_mean, reduce_variance, reduction
from stopgrad.ops.shapes.reshape import reduce_sum, spread

__all__ = [
    "clip",
    "clip_by_value",
    "layer_norm",
    "log_softmax",
    "logaddexp",
    "reduce_logsumexp",
    "softmax",
    "xdivy",
    "xlogy",
]

# ------------------------------------------------------------------------------- two or more operands


class LogAddExp(Arithmetic):
    """Elementwise log(eˣ + eʸ), without overflow, with broadcasting.

    Returns:
        The logarithm of the sum; -∞ where both are -∞, with a gradient of 0 there.

    Examples:
        >>> sg.logaddexp(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
        array([6.93147181e-01, 1.00069315e+03])
    """

    infer = d.broadcast(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: _to_exponential(g, op.x, op),
        "y": lambda g, op: _to_exponential(g, op.y, op),
    }
    lower: d.Lowering = lambda xp, x, y: xp.logaddexp(x, y)
    samples: d.Samples = d.pairs()
    extremes = (*d.PAIRS, (-d.INF, -d.INF), (d.INF, d.INF), (1e4, -1e4))


logaddexp: d.Binary = d.binary(LogAddExp, "logaddexp")


def _to_exponential(g: Output, x: Output, op: Operation) -> Tensor:
    """The cotangent of x for log(eˣ + eʸ): g · eˣ / (eˣ + eʸ), from the sum before it was rounded."""
    numbers = wide(x)
    total = op.result if numbers is x else logaddexp(wide(op.x), wide(op.y))
    return wide(g) * exp(numbers - where(greater(total, -d.INF), total, 0))


class Xlogy(Arithmetic):
    """Elementwise x · log y, with broadcasting; 0 where x is 0, even if y is 0.

    Returns:
        The product. Where x is 0 and y not positive both gradients are 0; where y is positive that of x is
        log y, as in PyTorch and JAX (TensorFlow has 0).

    Examples:
        >>> sg.xlogy(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
        array([0., 0.])
    """

    infer = d.broadcast(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: _unless(_nothing(op.x, greater(op.y, 0)), op.y, lambda y: g * log(y)),
        "y": lambda g, op: g * xdivy(op.x, op.y),
    }

    @staticmethod
    def lower(xp: Namespace, x: Array, y: Array) -> Array:
        zero = x == 0
        return xp.where(zero, xp.zeros((), x.dtype), x * xp.log(xp.where(zero, xp.ones((), y.dtype), y)))

    samples: d.Samples = d.pairs((0.5, 2.0), (0.5, 2.0))
    extremes = ((0.0, 0.0), (0.0, -1.0), (0.0, d.NAN), (1.0, 0.0), (d.INF, 2.0), (d.NAN, 1.0), (2.0, d.INF))


xlogy: d.Binary = d.binary(Xlogy, "xlogy")


class Xdivy(Arithmetic):
    """Elementwise x / y, with broadcasting; 0 where x is 0, even if y is 0.

    Returns:
        The quotient. Where x and y are 0 both gradients are 0; where x alone is, that of x is 1 / y
        (TensorFlow has 0).

    Examples:
        >>> sg.xdivy(np.array([0.0, 2.0]), np.array([0.0, 4.0]))
        array([0. , 0.5])
    """

    infer = d.broadcast(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: _unless(_nothing(op.x, greater(abs(op.y), 0)), op.y, lambda y: g / y),
        "y": lambda g, op: -g * xdivy(op.result, op.y),
    }

    @staticmethod
    def lower(xp: Namespace, x: Array, y: Array) -> Array:
        zero = x == 0
        return xp.where(zero, xp.zeros((), x.dtype), x / xp.where(zero, xp.ones((), y.dtype), y))

    samples: d.Samples = d.pairs((0.5, 2.0), (0.5, 2.0))
    extremes = ((0.0, 0.0), (0.0, d.NAN), (1.0, 0.0), (d.INF, 2.0), (d.NAN, 1.0), (2.0, d.INF))


xdivy: d.Binary = d.binary(Xdivy, "xdivy")


def _nothing(x: Output, usual: Tensor) -> Tensor:
    """Where x is 0 and y is not as usual, so that the function is 0 without a look at y."""
    return logical_and(equal(x, 0), logical_not(usual))


def _unless(nothing: Tensor, y: Output, slope: Callable[[Tensor], Tensor]) -> Tensor:
    """The slope at y, and 0 where there is nothing; there the slope is taken at 1, so that no NaN arises."""
    return where(nothing, 0, slope(where(nothing, 1, y)))


class ClipByValue(Op):
    """Elementwise clipping: values below *low* become low, those above *high* become high, with broadcasting.

    Args:
        x: real numbers.
        low: the lower bound.
        high: the upper bound. Where low is greater than high, the result is high.

    Returns:
        The values min(max(x, low), high); NaN for NaN. The gradient goes to x where low ≤ x ≤ high, ends
        included, to low where x is below it and to high where x is above it, as in TensorFlow.

    Constraints:
        (C1) x, low and high hold real numbers, of one dtype.
        (C2) The shapes of x, low and high broadcast.

    Examples:
        >>> sg.clip_by_value(np.array([-1.0, 0.5, 2.0]), 0.0, 1.0)
        array([0. , 0.5, 1. ])
    """

    @staticmethod
    def infer(x: TensorType, low: TensorType, high: TensorType) -> TensorType:
        d.check_dtype(x, d.is_real, "real numbers")
        return d.tensor_type(d.check_same_dtype(x, low, high), d.broadcast_c2(x.shape, low.shape, high.shape))

    promotes = Promotion(d.is_real)
    gradient: d.Gradient = {
        "x": lambda g, op: where(less(op.x, op.low), 0, where(greater(op.x, op.high), 0, g)),
        "low": lambda g, op: where(less(op.x, op.low), g, 0),
        "high": lambda g, op: where(less(op.x, op.low), 0, where(greater(op.x, op.high), g, 0)),
    }
    batch = d.ELEMENTWISE
    lower: d.Lowering = lambda xp, x, low, high: xp.minimum(xp.maximum(x, low), high)
    samples: d.Samples = [
        d.sample(d.floats(9, distinct=True), d.floats(low=-1.0, high=-0.5), d.floats(low=0.5, high=1.0)),
        d.sample(d.floats("n", 2), d.floats(2, low=-1.0, high=-0.5), d.floats("n", 1, low=0.5, high=1.0)),
    ]
    extremes = ((d.INF, 0.0, 1.0), (-d.INF, 0.0, 1.0), (d.NAN, 0.0, 1.0), (0.0, -d.INF, d.INF))


@d.builds(ClipByValue)
def clip_by_value(
    t: ArrayLike, clip_value_min: ArrayLike, clip_value_max: ArrayLike, name: str | None = None
) -> Tensor:
    return d.apply(ClipByValue, (t, clip_value_min, clip_value_max), (), name)


@d.guarded("clip")
def clip(
    x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None, name: str | None = None
) -> Tensor:
    """:func:`clip_by_value`, as the Python array API calls it.

    Args:
        x: real numbers.
        min: the lower bound; None for none.
        max: the upper bound; None for none.
        name: of the operation; by default none.

    Returns:
        The values min(max(x, lower), upper); NaN for NaN.

    Examples:
        >>> sg.clip(np.array([-1.0, 0.5, 2.0]), 0.0)
        array([0. , 0.5, 2. ])
    """
    lowest, highest = _ends(d.type_of(x).dtype)
    return clip_by_value(x, lowest if min is None else min, highest if max is None else max, name)


def _ends(dtype: DType) -> tuple[Any, Any]:
    """The least and the greatest number of a dtype, infinities included."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return d.as_array(limits.min, dtype), d.as_array(limits.max, dtype)
    return -d.INF, d.INF


# -------------------------------------------------------------------------------------------- softmax


def _along(x: TensorType, *, axis: Axes) -> TensorType:
    d.check_dtype(x, d.is_floating, "floating-point numbers")
    return x


class AlongAxes(Op, abstract=True):
    """One operand, normalised along axes.

    Args:
        x: floating-point.
        axis: one axis, or several that are normalised together; by default the last.

    Constraints:
        (C1) x is floating-point.
        (C2) Each axis exists, and none is named twice.
    """

    infer: ClassVar[d.Infer] = staticmethod(_along)
    batch = d.ALONG
    rounds_once = True
    samples: d.Samples = [
        d.sample(d.floats(2, 3), axis=(1,)),
        d.sample(d.floats("n", 2, 3), axis=(0, 2)),
        d.sample(d.floats(0, 2), axis=(1,)),
        d.sample(d.floats(2, 0), axis=(1,)),
    ]
    extremes: ClassVar[d.Extremes] = (
        ([[1e4, -1e4]],),
        ([[d.INF, 0.0]],),
        ([[-d.INF, 0.0]],),
        ([[-d.INF, -d.INF]],),
        ([[d.NAN, 0.0]],),
    )


def _centred(xp: Namespace, x: Array, axis: tuple[int, ...]) -> Array:
    return x - xp.max(x, axis=axis, keepdims=True, initial=-d.INF)


class Softmax(AlongAxes):
    """eˣ / Σ eˣ, the sum over axes, without overflow.

    Returns:
        Values in [0, 1] that sum to 1; NaN where all are -∞, or one is ∞ or NaN.

    Examples:
        >>> sg.softmax(np.array([1000.0, 1000.0]))
        array([0.5, 0.5])
    """

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: _to_shares(wide(g), wide(op.result), op)}
    never_negative = True

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...]) -> Array:
        e = xp.exp(_centred(xp, x, axis))
        return e / xp.sum(e, axis=axis, keepdims=True, dtype=x.dtype)


def _to_shares(g: Output, y: Output, op: Operation) -> Tensor:
    return y * (g - reduce_sum(g * y, op.axis, True))


@d.builds(Softmax, by_type=True)
def softmax(logits: ArrayLike, axis: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    axes = d.axes_in(Softmax, -1 if axis is None else axis, logits)
    return d.apply(Softmax, (logits,), (axes,), name)


class LogSumExp(Reduction):
    """log Σ eˣ over axes, without overflow.

    Returns:
        The logarithm of the sum of exponentials; -∞ if there are no elements or all are -∞, with a gradient
        of 0 there.

    Examples:
        >>> sg.reduce_logsumexp(np.array([1000.0, 1000.0]))
        array(1000.69314718)
    """

    infer = reduction(d.is_floating)
    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: spread(wide(g), op) * _shares(wide(op.x), op)}

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        top = xp.max(x, axis=axis, keepdims=True, initial=lowest(x.dtype))
        top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
        total = xp.log(xp.sum(xp.exp(x - top), axis=axis, keepdims=True, dtype=x.dtype)) + top
        return total if keepdims else xp.squeeze(total, axis)


@d.builds(LogSumExp, by_type=True)
def reduce_logsumexp(
    input_tensor: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    values = (d.axes_in(LogSumExp, axis, input_tensor), d.flag(keepdims))
    return d.apply(LogSumExp, (input_tensor,), values, name)


def _shares(x: Output, op: Operation) -> Tensor:
    """eˣ / Σ eˣ; 0 where the sum is 0. Not from the logarithm of the sum, whose rounding is an error of x."""
    nothing = spread(wide(op.result) <= -math.inf, op)
    return where(nothing, 0, d.apply(Softmax, (where(nothing, 0, x),), (op.axis,)))


class LogSoftmax(AlongAxes):
    """x - log Σ eˣ, the sum over axes, without overflow.

    Returns:
        The logarithm of :func:`softmax`, precise even where the softmax rounds to 0.

    Examples:
        >>> sg.log_softmax(np.array([0.0, 1000.0]))
        array([-1000.,     0.])
    """

    promotes = Promotion(d.is_floating)
    # Not from the result, whose rounding would be an error of the exponent.
    gradient: d.Gradient = {
        "x": lambda g, op: wide(g) - softmax(wide(op.x), op.axis) * reduce_sum(wide(g), op.axis, True)
    }

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...]) -> Array:
        centred = _centred(xp, x, axis)
        return centred - xp.log(xp.sum(xp.exp(centred), axis=axis, keepdims=True, dtype=x.dtype))


@d.builds(LogSoftmax, by_type=True)
def log_softmax(
    logits: ArrayLike, axis: int | Sequence[int] | None = None, name: str | None = None
) -> Tensor:
    axes = d.axes_in(LogSoftmax, -1 if axis is None else axis, logits)
    return d.apply(LogSoftmax, (logits,), (axes,), name)


# -------------------------------------------------------------------------------------- normalisation


class LayerNorm(Op):
    """(x - mean) / √(variance + ε), both over axes.

    Args:
        x: floating-point.
        scale: the factor by which the function multiplies the normalised values; None for none.
        offset: the summand that the function adds after that; None for none.
        axis: one axis, or several that are normalised together.
        epsilon: ε, a Python number.

    Returns:
        The normalised values, of x's shape; NaN over no elements.

    Constraints:
        (C1) x is floating-point.
        (C2) Each axis exists, and none is named twice.

    References:
        Ba, Kiros and Hinton 2016, arXiv:1607.06450.

    Examples:
        >>> sg.layer_norm(np.array([1.0, 3.0]), epsilon=0.0)
        array([-1.,  1.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axes, epsilon: float) -> TensorType:
        return _along(x, axis=axis)

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: _layer_norm_gradient(g, op)}

    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...], epsilon: float) -> Array:
        count = xp.asarray(math.prod(x.shape[a] for a in axis), x.dtype)
        centred = x - xp.sum(x, axis=axis, keepdims=True, dtype=x.dtype) / count
        variance = xp.sum(xp.square(centred), axis=axis, keepdims=True, dtype=x.dtype) / count
        return centred / xp.sqrt(variance + xp.asarray(epsilon, x.dtype))

    samples: d.Samples = [
        d.sample(d.floats(2, 3), axis=(1,), epsilon=1e-3),
        d.sample(d.floats("n", 2, 3), axis=(0, 2), epsilon=0.1),
        d.sample(d.floats(0, 2), axis=(1,), epsilon=1e-3),
    ]
    extremes = (([[1e4, -1e4]],), ([[d.INF, 0.0]],), ([[1.0, 1.0]],), ([[d.NAN, 0.0]],))


def _layer_norm_gradient(g: Output, op: Operation) -> Tensor:
    g, x, y = wide(g), wide(op.x), wide(op.result)
    centred = g - reduce_mean(g, op.axis, True) - y * reduce_mean(g * y, op.axis, True)
    return centred * rsqrt(reduce_variance(x, op.axis, True) + op.epsilon)


@d.builds(LayerNorm)
def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    y = d.apply(LayerNorm, (x,), (d.axes_in(LayerNorm, axis, x), d.real(epsilon)), name)
    y = y if scale is None else y * scale
    return y if offset is None else y + offset
