"""Further losses, composed of stable parts: regression, classification and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Tensor
from stopgrad.ops.composing import chosen, floating
from stopgrad.ops.elementwise.arithmetic import (
    abs,
    add,
    divide,
    maximum,
    minimum,
    multiply,
    negative,
    square,
    subtract,
)
from stopgrad.ops.elementwise.compare import greater, less_equal
from stopgrad.ops.elementwise.composite import log_softmax, logaddexp, xlogy
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.elementwise.powers import exp, expm1, log, log1p
from stopgrad.ops.losses.cross_entropy import sigmoid_cross_entropy_with_logits
from stopgrad.ops.neural.activations import log_sigmoid, relu, softplus
from stopgrad.ops.reductions.reduce import reduce_mean
from stopgrad.ops.shapes.reshape import reduce_sum
from stopgrad.ops.structural.sources import size_as

__all__ = [
    "hinge",
    "huber",
    "kl_div",
    "kl_divergence",
    "l2_loss",
    "log_cosh",
    "log_poisson_loss",
    "mean_absolute_error",
    "poisson_loss",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_focal_loss",
    "squared_hinge",
    "weighted_cross_entropy_with_logits",
]


# ------------------------------------------------------------------------------------------ regression


@d.guarded("mean_absolute_error")
def mean_absolute_error(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of the absolute differences, over axes.

    Args:
        labels: the true values.
        predictions: the predicted values, of a shape that broadcasts with the labels'.
        axis: one axis or several; None for all.
        name: of the result.

    Returns:
        The losses, without these axes. The gradient is 0 where a difference is 0.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    Examples:
        >>> sg.mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array(1.)
    """
    x, y = floating(labels, predictions)
    return cast(reduce_mean(abs(subtract(wide(y), wide(x))), axis), d.type_of(x).dtype, name)


@d.guarded("huber")
def huber(
    labels: ArrayLike,
    predictions: ArrayLike,
    delta: ArrayLike = 1.0,
    axis: int | Sequence[int] | None = -1,
    name: str | None = None,
) -> Tensor:
    """Mean of e²/2 where |e| ≤ δ, else δ (|e| - δ/2), over axes, where e are the differences.

    Args:
        labels: the true values.
        predictions: the predicted values, of a shape that broadcasts with the labels'.
        delta: δ, where the parabola turns into a line: a number above 0, or a tensor that broadcasts.
        axis: one axis or several; None for all, () for the losses of the elements.
        name: of the result.

    Returns:
        The losses, without these axes, as ``tf.keras.losses.huber`` and ``torch.nn.functional.huber_loss``.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    References:
        Huber 1964, "Robust estimation of a location parameter".

    Examples:
        >>> sg.huber(np.array([0.0, 0.0]), np.array([1.0, 3.0]), axis=())
        array([0.5, 2.5])
    """
    x, y, width = floating(labels, predictions, delta)
    width, error = wide(width), subtract(wide(y), wide(x))
    # Parabola and line as one product of signed numbers: nothing overflows, and no |e| has a kink at 0.
    inside = minimum(maximum(error, negative(width)), width)
    losses = multiply(inside, subtract(error, multiply(inside, 0.5)))
    return cast(reduce_mean(losses, axis), d.type_of(x).dtype, name)


@d.guarded("log_cosh")
def log_cosh(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of log cosh e over axes, where e are the differences; without overflow.

    Args:
        labels: the true values.
        predictions: the predicted values, of a shape that broadcasts with the labels'.
        axis: one axis or several; None for all, () for the losses of the elements.
        name: of the result.

    Returns:
        The losses, without these axes.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    Examples:
        >>> sg.log_cosh(np.array([0.0, 0.0]), np.array([0.0, 1000.0]), axis=())
        array([  0.        , 999.30685282])
    """
    x, y = floating(labels, predictions)
    e = subtract(wide(y), wide(x))
    losses = subtract(add(e, softplus(multiply(e, -2.0))), math.log(2.0))
    return cast(reduce_mean(losses, axis), d.type_of(x).dtype, name)


@d.guarded("l2_loss")
def l2_loss(t: ArrayLike, name: str | None = None) -> Tensor:
    """Half the sum of all squares.

    Args:
        t: floating-point.
        name: of the result.

    Returns:
        A scalar.

    Examples:
        >>> sg.l2_loss(np.array([3.0, 4.0]))
        array(12.5)
    """
    (x,) = floating(t)
    return cast(multiply(reduce_sum(square(wide(x))), 0.5), d.type_of(x).dtype, name)


# ---------------------------------------------------------------------------------------------- counts


@d.guarded("log_poisson_loss")
def log_poisson_loss(
    targets: ArrayLike, log_input: ArrayLike, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """Elementwise Poisson loss of counts, given the logarithm of the expected count.

    Args:
        targets: counts z, 0 or more.
        log_input: logarithms c of the expected counts.
        compute_full_loss: whether Stirling's approximation of log z! is added (for z > 1), which does not
            depend on the expected counts.
        name: of the result.

    Returns:
        The losses eᶜ - z c, plus z log z - z + log(2π z) / 2 for the full loss.

    Raises:
        ShapeError: the shapes do not broadcast.

    Examples:
        >>> sg.log_poisson_loss(np.array([2.0]), np.array([0.0]))
        array([1.])
    """
    z, c = floating(targets, log_input)
    dtype, z, c = d.type_of(z).dtype, wide(z), wide(c)
    losses = subtract(exp(c), multiply(z, c))
    if d.flag(compute_full_loss):
        large = greater(z, 1)
        counts = where(large, z, 1)
        stirling = add(
            subtract(multiply(counts, log(counts)), counts), multiply(log(multiply(counts, 2 * math.pi)), 0.5)
        )
        losses = add(losses, where(large, stirling, 0))
    return cast(losses, dtype, name)


@d.guarded("poisson_loss")
def poisson_loss(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of λ - z log λ over axes: the Poisson loss of counts z with expected counts λ.

    Args:
        labels: counts z, 0 or more.
        predictions: expected counts λ, above 0, or 0 where z is 0.
        axis: one axis or several; None for all, () for the losses of the elements.
        name: of the result.

    Returns:
        The losses, without these axes.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    Examples:
        >>> sg.poisson_loss(np.array([2.0, 0.0]), np.array([1.0, 0.0]))
        array(0.5)
    """
    z, mean = floating(labels, predictions)
    losses = subtract(wide(mean), xlogy(wide(z), wide(mean)))
    return cast(reduce_mean(losses, axis), d.type_of(z).dtype, name)


# -------------------------------------------------------------------------------------- classification


def _signs(labels: ArrayLike) -> Tensor:
    """Labels 0 and 1 as -1 and 1; those that are -1 stay."""
    return where(less_equal(labels, 0), -1, labels)


def _hinge(
    labels: ArrayLike,
    predictions: ArrayLike,
    axis: int | Sequence[int] | None,
    name: str | None,
    squared: bool,
) -> Tensor:
    z, y = floating(labels, predictions)
    losses = relu(subtract(1.0, multiply(_signs(wide(z)), wide(y))))
    return cast(reduce_mean(square(losses) if squared else losses, axis), d.type_of(z).dtype, name)


@d.guarded("hinge")
def hinge(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of max(1 - z y, 0) over axes.

    Args:
        labels: z, which are 1 and -1, or 1 and 0.
        predictions: y, real numbers.
        axis: one axis or several; None for all, () for the losses of the elements.
        name: of the result.

    Returns:
        The losses, without these axes.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    Examples:
        >>> sg.hinge(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
        array(1.)
    """
    return _hinge(labels, predictions, axis, name, False)


@d.guarded("squared_hinge")
def squared_hinge(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Mean of max(1 - z y, 0)² over axes.

    Args:
        labels: z, which are 1 and -1, or 1 and 0.
        predictions: y, real numbers.
        axis: one axis or several; None for all, () for the losses of the elements.
        name: of the result.

    Returns:
        The losses, without these axes.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    Examples:
        >>> sg.squared_hinge(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
        array(1.25)
    """
    return _hinge(labels, predictions, axis, name, True)


@d.guarded("weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    labels: ArrayLike, logits: ArrayLike, pos_weight: ArrayLike, name: str | None = None
) -> Tensor:
    """:func:`sigmoid_cross_entropy_with_logits` with a weight for positive labels.

    Args:
        labels: z, usually probabilities.
        logits: logarithms of odds.
        pos_weight: w, the factor of the terms of positive labels.
        name: of the result.

    Returns:
        The losses -w z log sigmoid(x) - (1 - z) log(1 - sigmoid(x)), of the broadcast shape.

    Raises:
        ShapeError: the shapes do not broadcast.

    Examples:
        >>> sg.weighted_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([0.0, 0.0]), 2.0)
        array([0.69314718, 1.38629436])
    """
    z, x, weight = floating(labels, logits, pos_weight)
    dtype, z, x = d.type_of(z).dtype, wide(z), wide(x)
    factor = add(1.0, multiply(subtract(wide(weight), 1.0), z))
    losses = add(multiply(subtract(1.0, z), x), multiply(factor, softplus(negative(x))))
    return cast(losses, dtype, name)


@d.guarded("smooth_labels")
def smooth_labels(labels: ArrayLike, smoothing: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """Probabilities, mixed with the uniform distribution over the classes.

    Args:
        labels: probabilities of classes, such as those of :func:`one_hot`.
        smoothing: α, the weight of the uniform distribution.
        axis: the axis of the classes.
        name: of the result.

    Returns:
        labels · (1 - α) + α / number of classes.

    Raises:
        ShapeError: the axis does not exist.

    References:
        Szegedy et al. 2015, arXiv:1512.00567.

    Examples:
        >>> sg.smooth_labels(np.array([0.0, 1.0]), 0.1)
        array([0.05, 0.95])
    """
    z, part = floating(labels, smoothing)
    dtype, z, part = d.type_of(z).dtype, wide(z), wide(part)
    kind = d.type_of(z)
    count = size_as(kind.shape[d.normal_axis(axis, kind.ndim)], kind.dtype, z)
    return cast(add(multiply(z, subtract(1.0, part)), divide(part, count)), dtype, name)


@d.guarded("sigmoid_focal_loss")
def sigmoid_focal_loss(
    labels: ArrayLike,
    logits: ArrayLike,
    gamma: ArrayLike = 2.0,
    alpha: ArrayLike | None = None,
    name: str | None = None,
) -> Tensor:
    """:func:`sigmoid_cross_entropy_with_logits`, with less weight on answers that are already likely.

    Args:
        labels: z in [0, 1], mostly 0 and 1.
        logits: logarithms of odds.
        gamma: γ, the power of the probability of the other answer by which a loss is multiplied.
        alpha: the weight α of positive labels; that of negative ones is 1 - α. None for no weights.
        name: of the result.

    Returns:
        The losses, of the broadcast shape; without overflow, and with a gradient for every γ ≥ 0.

    Raises:
        ShapeError: the shapes do not broadcast.

    References:
        Lin, Goyal, Girshick, He and Dollár 2017, arXiv:1708.02002.

    Examples:
        >>> sg.sigmoid_focal_loss(np.array([1.0, 1.0]), np.array([0.0, 1000.0]))
        array([0.1732868, 0.       ])
    """
    z, x, power = floating(labels, logits, gamma)
    dtype, z, x, power = d.type_of(z).dtype, wide(z), wide(x), wide(power)
    # The logarithm of z · (1 - p) + (1 - z) · p.
    miss = logaddexp(add(log(z), log_sigmoid(negative(x))), add(log1p(negative(z)), log_sigmoid(x)))
    losses = multiply(exp(multiply(power, miss)), sigmoid_cross_entropy_with_logits(z, x))
    if alpha is not None:
        losses = multiply(losses, _balance(z, alpha))
    return cast(losses, dtype, name)


def _balance(z: ArrayLike, alpha: ArrayLike) -> Tensor:
    """α where the label is 1, 1 - α where it is 0."""
    return add(multiply(z, alpha), multiply(subtract(1.0, z), subtract(1.0, alpha)))


@d.guarded("softmax_focal_loss")
def softmax_focal_loss(
    labels: ArrayLike, logits: ArrayLike, gamma: ArrayLike = 2.0, axis: int = -1, name: str | None = None
) -> Tensor:
    """:func:`softmax_cross_entropy_with_logits`, with less weight on classes that are already likely.

    Args:
        labels: z, probabilities, such as those of :func:`one_hot`.
        logits: logarithms of unnormalised probabilities p.
        gamma: γ, the power of 1 - p by which each term is multiplied.
        axis: the axis of the classes.
        name: of the result.

    Returns:
        The losses -Σ z (1 - p)^γ log p, without that axis.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis does not exist.

    References:
        Lin, Goyal, Girshick, He and Dollár 2017, arXiv:1708.02002.

    Examples:
        >>> sg.softmax_focal_loss(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
        array(0.1732868)
    """
    z, x, power = floating(labels, logits, gamma)
    dtype, z, power = d.type_of(z).dtype, wide(z), wide(power)
    logs = log_softmax(wide(x), axis)
    # log(1 - p); where p is 1, 1 - p is replaced by a number next to 0.
    tiny = 4 * float(np.finfo(d.type_of(logs).dtype.numpy).tiny)
    miss = log(negative(expm1(minimum(logs, -tiny))))
    # A term whose label is 0 is 0, even where p is 0.
    there = greater(z, 0)
    factor = multiply(z, exp(multiply(power, miss)))
    terms = where(there, multiply(factor, where(there, logs, 0)), 0)
    return cast(negative(reduce_sum(terms, axis)), dtype, name)


# --------------------------------------------------------------------------------------- distributions


@d.guarded("kl_divergence")
def kl_divergence(
    labels: ArrayLike, predictions: ArrayLike, axis: int | Sequence[int] | None = -1, name: str | None = None
) -> Tensor:
    """Kullback-Leibler divergence Σ p log(p / q) of probabilities, over axes.

    Args:
        labels: p, probabilities.
        predictions: q, probabilities.
        axis: one axis or several; None for all.
        name: of the result.

    Returns:
        The divergences, without these axes. A term is 0 where p is 0, and ∞ where only q is 0.

    Raises:
        ShapeError: the shapes do not broadcast, or an axis does not exist.

    References:
        Kullback and Leibler 1951, "On information and sufficiency".

    Examples:
        >>> sg.kl_divergence(np.array([0.5, 0.5]), np.array([0.25, 0.75]))
        array(0.14384104)
    """
    p, q = floating(labels, predictions)
    dtype, p, q = d.type_of(p).dtype, wide(p), wide(q)
    return cast(reduce_sum(subtract(xlogy(p, p), xlogy(p, q)), axis), dtype, name)


@d.guarded("kl_div")
def kl_div(
    input: ArrayLike,
    target: ArrayLike,
    reduction: str = "mean",
    log_target: bool = False,
    name: str | None = None,
) -> Tensor:
    """Kullback-Leibler divergence with predictions as logarithms, with PyTorch's order of arguments.

    Args:
        input: log q, as from :func:`log_softmax`.
        target: p; or log p, see log_target.
        reduction: "none" for the terms; "sum" for their sum; "mean" for their mean; "batchmean" for their sum
            divided by the size of the first axis, which is the mean of the divergences of distributions.
        log_target: whether the target is log p.
        name: of the result.

    Returns:
        The terms p (log p - log q), reduced; 0 where p is 0.

    Raises:
        ArgumentError: the reduction is unknown.
        ShapeError: the shapes do not broadcast.

    References:
        ``torch.nn.functional.kl_div``.

    Examples:
        >>> sg.kl_div(np.log([[0.25, 0.75]]), np.array([[0.5, 0.5]]), "batchmean")
        array(0.14384104)
    """
    q, p = floating(input, target)
    dtype, q, p = d.type_of(q).dtype, wide(q), wide(p)
    if d.flag(log_target):
        share = exp(p)
        terms = where(greater(share, 0), multiply(share, subtract(where(greater(share, 0), p, 0), q)), 0)
    else:
        positive = greater(p, 0)
        terms = subtract(xlogy(p, p), where(positive, multiply(p, where(positive, q, 0)), 0))
    reduce = chosen(
        reduction,
        {"none": lambda t: t, "sum": reduce_sum, "mean": reduce_mean, "batchmean": _mean_of_batch},
        "reduction",
    )
    return cast(reduce(terms), dtype, name)


def _mean_of_batch(terms: ArrayLike) -> Tensor:
    """The sum, divided by the size of the first axis."""
    kind = d.type_of(terms)
    if not kind.ndim:
        raise ArgumentError("reduction='batchmean' needs a first axis, that of the batch")
    return divide(reduce_sum(terms), size_as(kind.shape[0], kind.dtype, terms))
