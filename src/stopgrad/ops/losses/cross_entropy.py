"""Losses: cross entropies, each one operation with a safe gradient, and the mean squared error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Arithmetic,
    Array,
    ArrayLike,
    Axis,
    Namespace,
    Op,
    Output,
    Promotion,
    ShapeError,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import SquaredDifference, squared_difference
from stopgrad.ops.elementwise.composite import log_softmax, softmax
from stopgrad.ops.elementwise.convert import cast, wide
from stopgrad.ops.indexing.gather import TakeAlongAxis, lies_inside, one_hot
from stopgrad.ops.neural.activations import sigmoid
from stopgrad.ops.reductions.reduce import reduce_mean
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum

__all__ = [
    "mean_squared_error",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "sparse_softmax_cross_entropy_with_logits",
]


def _log_softmax(xp: Namespace, x: Array, axis: int) -> Array:
    centred = x - xp.max(x, axis=axis, keepdims=True, initial=-math.inf)
    return centred - xp.log(xp.sum(xp.exp(centred), axis=axis, keepdims=True, dtype=x.dtype))


class SoftmaxCrossEntropyWithLogits(Op):
    """Cross entropy -Σ labels · log softmax(logits) along an axis.

    Args:
        labels: usually probabilities.
        logits: logarithms of unnormalised probabilities.
        axis: the axis of the classes.

    Returns:
        The losses, without that axis. A class whose label is 0 adds nothing, even where its logit is -∞. The
        gradient with respect to the logits is right even for labels that do not sum to 1.

    Constraints:
        (C1) labels and logits are floating-point, of one dtype.
        (C2) labels and logits have one shape.
        (C3) The axis exists.

    Examples:
        >>> sg.softmax_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([0.0, 0.0]))
        array(0.69314718)
    """

    @staticmethod
    def infer(labels: TensorType, logits: TensorType, *, axis: Axis) -> TensorType:
        dtype = d.check_same_dtype(labels, logits)
        d.check_dtype(logits, d.is_floating, "floating-point numbers")
        d.check_shape(labels, logits.shape, "the labels", "C2", of="the logits")
        d.normal_axis(axis, logits.ndim, "C3")
        return d.tensor_type(dtype, (*logits.shape[:axis], *logits.shape[axis + 1 :]))

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {
        "labels": lambda g, op: -expand_dims(g, op.axis) * log_softmax(op.logits, op.axis),
        "logits": lambda g, op: (
            expand_dims(wide(g), op.axis) * _surplus(wide(op.labels), wide(op.logits), op.axis)
        ),
    }

    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, labels: Array, logits: Array, axis: int) -> Array:
        terms = labels * _log_softmax(xp, logits, axis)
        return -xp.sum(
            xp.where(labels == 0, xp.zeros((), labels.dtype), terms), axis=axis, dtype=labels.dtype
        )

    samples: d.Samples = [
        d.sample(d.floats(2, 3, low=0.1, high=1.0), d.floats(2, 3), axis=1),
        d.sample(d.floats("n", 2, low=0.1, high=1.0), d.floats("n", 2), axis=0),
        d.sample(d.floats(0, 2), d.floats(0, 2), axis=1),
    ]
    extremes = (
        ([[0.0, 1.0]], [[1e4, -1e4]]),
        ([[0.0, 1.0]], [[-d.INF, 0.0]]),
        ([[1.0, 0.0]], [[-d.INF, 0.0]]),
        ([[0.5, 0.5]], [[d.INF, d.NAN]]),
    )


def _surplus(labels: ArrayLike, logits: ArrayLike, axis: int) -> Tensor:
    """The derivative with respect to the logits: predicted probabilities times Σ labels, minus labels."""
    return softmax(logits, axis) * reduce_sum(labels, axis, True) - labels


@d.builds(SoftmaxCrossEntropyWithLogits)
def softmax_cross_entropy_with_logits(
    labels: ArrayLike, logits: ArrayLike, axis: int = -1, name: str | None = None
) -> Tensor:
    definition, ndim = SoftmaxCrossEntropyWithLogits, d.type_of(logits).ndim
    with d.about(definition, labels, logits):
        position = d.normal_axis(axis, ndim, "C3")
    return d.apply(definition, (labels, logits), (position,), name)


class SparseSoftmaxCrossEntropyWithLogits(Op):
    """Cross entropy -log softmax(logits)[label] along the last axis, for labels that are class numbers.

    Args:
        labels: class numbers.
        logits: logarithms of unnormalised probabilities; the last axis is that of the classes.

    Returns:
        The losses, of the labels' shape. A label that is no class gives NaN, as in TensorFlow on GPUs.

    Constraints:
        (C1) labels holds integers.
        (C2) logits has at least one axis, and labels its shape without the last one.
        (C3) logits is floating-point.

    Examples:
        >>> sg.sparse_softmax_cross_entropy_with_logits(np.array([1, 2]), np.array([[0.0, 0.0], [0.0, 0.0]]))
        array([0.69314718,        nan])
    """

    @staticmethod
    def infer(labels: TensorType, logits: TensorType) -> TensorType:
        d.check_dtype(labels, d.is_integer, "integers as labels")
        d.check_dtype(logits, d.is_floating, "floating-point logits", "C3")
        if not logits.ndim:
            raise ShapeError(f"(C2) the logits {logits!r} must have an axis for the classes")
        d.check_shape(labels, logits.shape[:-1], "the labels", "C2", of="the logits without the last axis")
        return d.tensor_type(logits.dtype, labels.shape)

    promotes = Promotion(d.is_floating, ("logits",))
    gradient: d.Gradient = {
        "labels": d.not_differentiable("a class number has no derivative"),
        "logits": lambda g, op: expand_dims(wide(g), -1) * _surplus_of_one(op.labels, wide(op.logits)),
    }

    batch = d.ALONG
    rounds_once = True

    lower: d.Lowering = lambda xp, labels, logits: _of_labels(xp, labels, logits, TakeAlongAxis.lower)
    xla: d.Lowering = lambda xp, labels, logits: _of_labels(xp, labels, logits, TakeAlongAxis.xla)

    samples: d.Samples = [
        d.sample(d.ints(4, low=0, high=3), d.floats(4, 3)),
        d.sample(d.ints("n", 2, low=0, high=2), d.floats("n", 2, 2)),
        d.sample(d.ints(low=0, high=3), d.floats(3)),
        d.sample(d.ints(0), d.floats(0, 3)),
    ]
    extremes = ((np.array([0, 1, 2, -1], np.int32), [[1e4, -1e4], [-d.INF, 0.0], [0.0, 0.0], [0.0, 0.0]]),)


def _of_labels(xp: Namespace, labels: Array, logits: Array, take_along_axis: Callable[..., Array]) -> Array:
    # One logit is taken from each row. Comparing all classes with the label takes three times as long.
    top = xp.max(logits, axis=-1, keepdims=True, initial=-math.inf)
    total = xp.sum(xp.exp(logits - top), axis=-1, keepdims=True, dtype=logits.dtype)
    chosen = take_along_axis(xp, logits, xp.expand_dims(labels, -1), axis=logits.ndim - 1)
    losses = xp.squeeze(xp.log(total) - (chosen - top), -1)
    return xp.where(lies_inside(xp, labels, logits.shape[-1]), losses, xp.full((), math.nan, logits.dtype))


def _surplus_of_one(labels: Output, logits: Output) -> Tensor:
    return softmax(logits) - one_hot(labels, logits.shape[-1], dtype=logits.dtype)


@d.builds(SparseSoftmaxCrossEntropyWithLogits)
def sparse_softmax_cross_entropy_with_logits(
    labels: ArrayLike, logits: ArrayLike, name: str | None = None
) -> Tensor:
    labels = labels if hasattr(labels, "dtype") or hasattr(labels, "as_output") else d.as_array(labels)
    return d.apply(SparseSoftmaxCrossEntropyWithLogits, (labels, logits), (), name)


class SigmoidCrossEntropyWithLogits(Arithmetic):
    """Elementwise binary cross entropy, without overflow, with broadcasting.

    Args:
        labels: usually probabilities.
        logits: logarithms of odds.

    Returns:
        The losses -labels · log sigmoid(logits) - (1 - labels) · log(1 - sigmoid(logits)), of the broadcast
        shape.

    Examples:
        >>> sg.sigmoid_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([0.0, 1000.0]))
        array([0.69314718, 0.        ])
    """

    infer = d.broadcast(d.is_floating, "labels", "logits")
    gradient: d.Gradient = {
        "labels": lambda g, op: -g * op.logits,
        "logits": lambda g, op: wide(g) * (sigmoid(wide(op.logits)) - wide(op.labels)),
    }
    lower: d.Lowering = lambda xp, labels, logits: (
        xp.maximum(logits, xp.zeros((), logits.dtype)) - logits * labels + xp.log1p(xp.exp(-xp.abs(logits)))
    )
    samples: d.Samples = [
        d.sample(d.floats(3, low=0.0, high=1.0), d.floats(2, 3)),
        d.sample(d.floats("n", low=0.0, high=1.0), d.floats("n")),
    ]
    extremes = ((1.0, 1e4), (0.0, -1e4), (0.5, d.INF), (0.5, d.NAN))


@d.builds(SigmoidCrossEntropyWithLogits)
def sigmoid_cross_entropy_with_logits(
    labels: ArrayLike | None = None, logits: ArrayLike | None = None, name: str | None = None
) -> Tensor:
    if labels is None or logits is None:
        raise ArgumentError("takes both labels and logits")
    return d.apply(SigmoidCrossEntropyWithLogits, (labels, logits), (), name)


@d.guarded("mean_squared_error")
def mean_squared_error(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of the squared differences, over axes.

    Args:
        labels: the true values, floating-point.
        predictions: the predicted values, of the same dtype and of a shape that broadcasts with the labels'.
        axis: one axis or several; None for all.
        name: of the mean; by default none.

    Returns:
        The losses, without these axes.

    Examples:
        >>> sg.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array(2.)
    """
    x, y = d.coerce(SquaredDifference, (labels, predictions))
    a, b = wide(x), wide(y)
    if a is x:
        return reduce_mean(squared_difference(a, b), axis, name=name)
    # A square overflows in float16 long before the mean does.
    return cast(reduce_mean(squared_difference(a, b), axis), d.type_of(x).dtype, name)
