"""Losses: cross entropies, each one operation with a safe gradient, and the mean squared error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, ShapeError
from stopgrad.base.promotion import Promotion
from stopgrad.base.samples import floats, ints, sample
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.graph.batch_rules import ALONG
from stopgrad.graph.build import apply, coerce
from stopgrad.graph.families import INF, NAN, Arithmetic
from stopgrad.graph.inferred import about
from stopgrad.graph.op import Axis, Op, not_differentiable
from stopgrad.graph.operands import Tensor, as_array, type_of
from stopgrad.graph.public import builds, guarded
from stopgrad.graph.type_rules import (
    broadcast,
    check_dtype,
    check_same_dtype,
    check_shape,
    is_floating,
    is_integer,
    normal_axis,
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


def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    centred = x - xp.max(x, axis=axis, keepdims=True, initial=-math.inf)
    return centred - xp.log(xp.sum(xp.exp(centred), axis=axis, keepdims=True, dtype=x.dtype))


class SoftmaxCrossEntropyWithLogits(Op):
    """Cross entropy -Σ labels · log softmax(logits) along an axis.

    Args:
        labels: usually probabilities.
        logits: logarithms of unnormalised probabilities.
        axis: the axis of the classes.

    Returns:
        The losses, without that axis. A label of 0 counts nothing, even where the logit is -∞. The gradient
        with respect to the logits is right also for labels that do not sum to 1.

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
        dtype = check_same_dtype(labels, logits)
        check_dtype(logits, is_floating, "floating-point numbers")
        check_shape(labels, logits.shape, "the labels", "C2", of="the logits")
        normal_axis(axis, logits.ndim, "C3")
        return tensor_type(dtype, (*logits.shape[:axis], *logits.shape[axis + 1 :]))

    promotes = Promotion(is_floating)
    gradient = {
        "labels": lambda g, op: -expand_dims(g, op.axis) * log_softmax(op.logits, op.axis),
        "logits": lambda g, op: (
            expand_dims(wide(g), op.axis) * _surplus(wide(op.labels), wide(op.logits), op.axis)
        ),
    }

    batch = ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Any, labels: Any, logits: Any, axis: int) -> Any:
        terms = labels * _log_softmax(xp, logits, axis)
        return -xp.sum(
            xp.where(labels == 0, xp.zeros((), labels.dtype), terms), axis=axis, dtype=labels.dtype
        )

    samples = [
        sample(floats(2, 3, low=0.1, high=1.0), floats(2, 3), axis=1),
        sample(floats("n", 2, low=0.1, high=1.0), floats("n", 2), axis=0),
        sample(floats(0, 2), floats(0, 2), axis=1),
    ]
    extremes = (
        ([[0.0, 1.0]], [[1e4, -1e4]]),
        ([[0.0, 1.0]], [[-INF, 0.0]]),
        ([[1.0, 0.0]], [[-INF, 0.0]]),
        ([[0.5, 0.5]], [[INF, NAN]]),
    )


def _surplus(labels: Any, logits: Any, axis: int) -> Tensor:
    """By how much each class is thought likelier than it is."""
    return softmax(logits, axis) * reduce_sum(labels, axis, True) - labels


@builds(SoftmaxCrossEntropyWithLogits)
def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> Tensor:
    definition, ndim = SoftmaxCrossEntropyWithLogits, type_of(logits).ndim
    with about(definition, labels, logits):
        position = normal_axis(axis, ndim, "C3")
    return apply(definition, (labels, logits), (position,), name)


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
        check_dtype(labels, is_integer, "integers as labels")
        check_dtype(logits, is_floating, "floating-point logits", "C3")
        if not logits.ndim:
            raise ShapeError(f"(C2) the logits {logits!r} must have an axis for the classes")
        check_shape(labels, logits.shape[:-1], "the labels", "C2", of="the logits without the last axis")
        return tensor_type(logits.dtype, labels.shape)

    promotes = Promotion(is_floating, ("logits",))
    gradient = {
        "labels": not_differentiable("a class number has no derivative"),
        "logits": lambda g, op: expand_dims(wide(g), -1) * _surplus_of_one(op.labels, wide(op.logits)),
    }

    batch = ALONG
    rounds_once = True

    lower = lambda xp, labels, logits: _of_labels(xp, labels, logits, TakeAlongAxis.lower)
    xla = lambda xp, labels, logits: _of_labels(xp, labels, logits, TakeAlongAxis.xla)

    samples = [
        sample(ints(4, low=0, high=3), floats(4, 3)),
        sample(ints("n", 2, low=0, high=2), floats("n", 2, 2)),
        sample(ints(low=0, high=3), floats(3)),
        sample(ints(0), floats(0, 3)),
    ]
    extremes = ((np.array([0, 1, 2, -1], np.int32), [[1e4, -1e4], [-INF, 0.0], [0.0, 0.0], [0.0, 0.0]]),)


def _of_labels(xp: Any, labels: Any, logits: Any, take_along_axis: Callable[..., Any]) -> Any:
    # One logit is taken from each row. Comparing all classes with the label takes three times as long.
    top = xp.max(logits, axis=-1, keepdims=True, initial=-math.inf)
    total = xp.sum(xp.exp(logits - top), axis=-1, keepdims=True, dtype=logits.dtype)
    chosen = take_along_axis(xp, logits, xp.expand_dims(labels, -1), axis=logits.ndim - 1)
    losses = xp.squeeze(xp.log(total) - (chosen - top), -1)
    return xp.where(lies_inside(xp, labels, logits.shape[-1]), losses, xp.full((), math.nan, logits.dtype))


def _surplus_of_one(labels: Any, logits: Any) -> Tensor:
    return softmax(logits) - one_hot(labels, logits.shape[-1], dtype=logits.dtype)


@builds(SparseSoftmaxCrossEntropyWithLogits)
def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    labels = labels if hasattr(labels, "dtype") or hasattr(labels, "as_output") else as_array(labels)
    return apply(SparseSoftmaxCrossEntropyWithLogits, (labels, logits), (), name)


class SigmoidCrossEntropyWithLogits(Arithmetic):
    """Elementwise cross entropy of independent yes-or-no questions, without overflow, with broadcasting.

    Args:
        labels: usually probabilities.
        logits: logarithms of odds.

    Returns:
        The losses -labels · log sigmoid(logits) - (1 - labels) · log(1 - sigmoid(logits)), of the broadcast
        shape.

    Constraints:
        (C1) labels and logits are floating-point, of one dtype.
        (C2) The shapes of labels and logits broadcast.

    Examples:
        >>> sg.sigmoid_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([0.0, 1000.0]))
        array([0.69314718, 0.        ])
    """

    infer = staticmethod(lambda labels, logits: broadcast(is_floating)(labels, logits))
    promotes = Promotion(is_floating)
    gradient = {
        "labels": lambda g, op: -g * op.logits,
        "logits": lambda g, op: wide(g) * (sigmoid(wide(op.logits)) - wide(op.labels)),
    }
    lower = lambda xp, labels, logits: (
        xp.maximum(logits, xp.zeros((), logits.dtype)) - logits * labels + xp.log1p(xp.exp(-xp.abs(logits)))
    )
    samples = [
        sample(floats(3, low=0.0, high=1.0), floats(2, 3)),
        sample(floats("n", low=0.0, high=1.0), floats("n")),
    ]
    extremes = ((1.0, 1e4), (0.0, -1e4), (0.5, INF), (0.5, NAN))


@builds(SigmoidCrossEntropyWithLogits)
def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    if labels is None or logits is None:
        raise ArgumentError("takes both labels and logits")
    return apply(SigmoidCrossEntropyWithLogits, (labels, logits), (), name)


@guarded("mean_squared_error")
def mean_squared_error(labels: Any, predictions: Any, axis: Any = -1, name: str | None = None) -> Tensor:
    """Mean of the squared differences, over axes.

    Args:
        labels: what was to be predicted, floating-point.
        predictions: what was predicted, of the same dtype and of a shape that broadcasts with the labels'.
        axis: one axis or several; None for all.
        name: of the mean; by default none.

    Returns:
        The losses, without these axes.

    Examples:
        >>> sg.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array(2.)
    """
    x, y = coerce(SquaredDifference, (labels, predictions))
    a, b = wide(x), wide(y)
    if a is x:
        return reduce_mean(squared_difference(a, b), axis, name=name)
    # A square overflows in float16 long before the mean does.
    return cast(reduce_mean(squared_difference(a, b), axis), type_of(x).dtype, name)
