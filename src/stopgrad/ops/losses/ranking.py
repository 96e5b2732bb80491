"""Losses of similarity and of order: contrastive, triplet and ranking losses."""

from __future__ import annotations

import math
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, ShapeError, Tensor
from stopgrad.ops.composing import floating, positions
from stopgrad.ops.elementwise.arithmetic import add, divide, maximum, multiply, negative, square, subtract
from stopgrad.ops.elementwise.compare import greater, greater_equal
from stopgrad.ops.elementwise.composite import log_softmax, reduce_logsumexp, softmax
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.elementwise.powers import rsqrt, sqrt
from stopgrad.ops.indexing.gather import take_along_axis
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.losses.cross_entropy import sparse_softmax_cross_entropy_with_logits
from stopgrad.ops.neural.activations import relu, softplus
from stopgrad.ops.order.sorting import argsort
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reduce_sum, transpose

__all__ = [
    "contrastive_loss",
    "cosine_similarity",
    "info_nce",
    "listmle_loss",
    "listnet_loss",
    "margin_ranking_loss",
    "pairwise_logistic_loss",
    "triplet_margin_loss",
]

# ------------------------------------------------------------------------------------------ similarity


@d.guarded("cosine_similarity")
def cosine_similarity(
    x1: ArrayLike, x2: ArrayLike, axis: int = -1, epsilon: float = 1e-8, name: str | None = None
) -> Tensor:
    """The cosine of the angle between vectors: Σ x y / (|x| |y|).

    Args:
        x1: x, floating-point.
        x2: y, of a shape that broadcasts with x's.
        axis: that of the vectors.
        epsilon: a shorter vector is treated as having this length, so that nothing is divided by 0.
        name: of the result.

    Returns:
        Numbers in [-1, 1], without that axis, as from ``torch.nn.functional.cosine_similarity``; 0 for
        vectors of zeros, whose length has a gradient of 0. (The loss of Keras has the opposite sign.)

    Raises:
        ShapeError: the shapes do not broadcast, or the axis does not exist.

    Examples:
        >>> sg.cosine_similarity(np.array([3.0, 4.0]), np.array([4.0, 3.0]))
        array(0.96)
    """
    x, y = floating(x1, x2)
    dtype, x, y = d.type_of(x).dtype, wide(x), wide(y)
    # Each vector is normalised by itself, so that no product of squares overflows.
    x, y = (
        multiply(v, rsqrt(maximum(reduce_sum(square(v), axis, True), d.real(epsilon) ** 2))) for v in (x, y)
    )
    return cast(reduce_sum(multiply(x, y), axis), dtype, name)


@d.guarded("contrastive_loss")
def contrastive_loss(
    labels: ArrayLike, distances: ArrayLike, margin: ArrayLike = 1.0, name: str | None = None
) -> Tensor:
    """z d² + (1 - z) max(margin - d, 0)²: similar pairs are pulled together, others pushed a margin apart.

    Args:
        labels: z, 1 for similar pairs and 0 for others.
        distances: d, the distances of the pairs.
        margin: dissimilar pairs that are farther apart have a loss of 0.
        name: of the result.

    Returns:
        The losses of the pairs.

    Raises:
        ShapeError: the shapes do not broadcast.

    References:
        Hadsell, Chopra and LeCun 2006, "Dimensionality reduction by learning an invariant mapping".

    Examples:
        >>> sg.contrastive_loss(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
        array([0.25, 0.25])
    """
    labels, distances, margin = floating(labels, distances, margin)
    dtype, z, near = d.type_of(labels).dtype, wide(labels), wide(distances)
    apart = multiply(subtract(1.0, z), square(relu(subtract(wide(margin), near))))
    return cast(add(multiply(z, square(near)), apart), dtype, name)


@d.guarded("triplet_margin_loss")
def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    margin: ArrayLike = 1.0,
    axis: int = -1,
    epsilon: float = 1e-6,
    name: str | None = None,
) -> Tensor:
    """max(|a - p| - |a - n| + margin, 0): the positive should be closer than the negative by a margin.

    Args:
        anchor: a, floating-point.
        positive: p, similar to the anchor.
        negative: n, dissimilar to the anchor.
        margin: by how much the distances should differ.
        axis: that of the vectors.
        epsilon: added to each difference, as in PyTorch, so that a distance of 0 has a gradient.
        name: of the result.

    Returns:
        The losses of the triplets, without that axis.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis does not exist.

    References:
        Schroff, Kalenichenko and Philbin 2015, arXiv:1503.03832; ``torch.nn.functional.triplet_margin_loss``.

    Examples:
        >>> a, p, n = np.array([0.0, 0.0]), np.array([3.0, 4.0]), np.array([0.0, 4.5])
        >>> sg.triplet_margin_loss(a, p, n, epsilon=0.0)
        array(1.5)
    """
    a, p, n, m = floating(anchor, positive, negative, margin)
    dtype, a = d.type_of(a).dtype, wide(a)
    near, far = (sqrt(reduce_sum(square(add(subtract(a, wide(v)), d.real(epsilon))), axis)) for v in (p, n))
    return cast(relu(add(subtract(near, far), wide(m))), dtype, name)


@d.guarded("info_nce")
def info_nce(
    queries: ArrayLike,
    keys: ArrayLike,
    negatives: ArrayLike | None = None,
    temperature: ArrayLike = 0.1,
    name: str | None = None,
) -> Tensor:
    """Cross entropy of a softmax over similarities: -log of the right key's share among all keys.

    A loss in both directions, as CLIP's, need not multiply twice: the similarities of keys to queries are the
    transpose of those of queries to keys, and both go to :func:`sparse_softmax_cross_entropy_with_logits`.

    Args:
        queries: [n, features], usually of length 1 (see :func:`l2_normalize`).
        keys: [n, features]; key i is the right one for query i.
        negatives: [m, features], wrong keys for all queries, such as a queue of earlier ones; None for the
            keys of the other queries.
        temperature: what similarities are divided by.
        name: of the result.

    Returns:
        The losses, [n].

    Raises:
        ShapeError: the shapes do not fit.

    References:
        van den Oord, Li and Vinyals 2018, arXiv:1807.03748; He et al. 2019, arXiv:1911.05722, with a queue.

    Examples:
        >>> sg.info_nce(np.eye(2), np.eye(2), temperature=1.0)
        array([0.31326169, 0.31326169])
    """
    tensors = [queries, keys, temperature] + ([] if negatives is None else [negatives])
    q, k, heat, *others = floating(*tensors)
    shape = d.type_of(q).shape
    if len(shape) != 2 or d.type_of(k).ndim != 2:
        raise ShapeError(f"takes [n, features] and [n, features], not {d.type_of(q)!r} and {d.type_of(k)!r}")
    if others:
        own = reduce_sum(multiply(q, k), 1, True)
        logits = concat([own, matmul(q, others[0], transpose_b=True)], 1)
        right = multiply(positions(shape[0], q), 0)
    else:
        logits, right = matmul(q, k, transpose_b=True), positions(shape[0], q)
    return sparse_softmax_cross_entropy_with_logits(right, divide(logits, heat), name)


# --------------------------------------------------------------------------------------------- ranking


@d.guarded("margin_ranking_loss")
def margin_ranking_loss(
    input1: ArrayLike, input2: ArrayLike, target: ArrayLike, margin: ArrayLike = 0.0, name: str | None = None
) -> Tensor:
    """Elementwise max(-z (x - y) + margin, 0).

    Args:
        input1: x, scores.
        input2: y, scores.
        target: z, 1 where x should be the greater and -1 where y should.
        margin: by how much they should differ.
        name: of the result.

    Returns:
        The losses of the pairs.

    Raises:
        ShapeError: the shapes do not broadcast.

    Examples:
        >>> sg.margin_ranking_loss(np.array([1.0]), np.array([3.0]), np.array([1.0]))
        array([2.])
    """
    x, y, z, m = floating(input1, input2, target, margin)
    gain = multiply(wide(z), subtract(wide(x), wide(y)))
    return cast(relu(subtract(wide(m), gain)), d.type_of(x).dtype, name)


def _last(x: ArrayLike, axis: int | None) -> Tensor:
    """*x* with this axis moved to the end."""
    ndim = d.type_of(x).ndim
    place = d.normal_axis(axis, ndim)
    return x if place == ndim - 1 else transpose(x, (*(i for i in range(ndim) if i != place), place))


def _lists(labels: ArrayLike, scores: ArrayLike, axis: int | None) -> tuple[Any, Tensor, Tensor]:
    """The dtype, and labels and scores with the axis of the lists last."""
    z, s = floating(labels, scores)
    if d.type_of(z).ndim != d.type_of(s).ndim:
        raise ShapeError(f"labels {d.type_of(z)!r} and scores {d.type_of(s)!r} must have as many axes")
    return d.type_of(z).dtype, _last(wide(z), axis), _last(wide(s), axis)


@d.guarded("pairwise_logistic_loss")
def pairwise_logistic_loss(
    labels: ArrayLike, scores: ArrayLike, axis: int = -1, name: str | None = None
) -> Tensor:
    """Mean of log(1 + exp(-(sᵢ - sⱼ))) over the pairs of a list in which i should rank before j.

    Args:
        labels: how relevant each item is.
        scores: s, the scores of the items.
        axis: that of the lists.
        name: of the result.

    Returns:
        The losses of the lists, without that axis; 0 for a list of items that are equally relevant.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis does not exist.

    References:
        Burges et al. 2005, "Learning to rank using gradient descent" (RankNet).

    Examples:
        >>> sg.pairwise_logistic_loss(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
        array(0.69314718)
    """
    dtype, z, s = _lists(labels, scores, axis)
    counts = greater(expand_dims(z, -1), expand_dims(z, -2))
    losses = where(counts, softplus(subtract(expand_dims(s, -2), expand_dims(s, -1))), 0)
    pairs = cast(counts, d.type_of(s).dtype)
    pairs = maximum(reduce_sum(pairs, (-2, -1)), 1.0)
    return cast(divide(reduce_sum(losses, (-2, -1)), pairs), dtype, name)


@d.guarded("listnet_loss")
def listnet_loss(labels: ArrayLike, scores: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """-Σ softmax(labels) · log softmax(scores), over the probabilities that items rank first.

    Args:
        labels: how relevant each item is.
        scores: those of the items.
        axis: that of the lists.
        name: of the result.

    Returns:
        The losses of the lists, without that axis.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis does not exist.

    References:
        Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach".

    Examples:
        >>> sg.listnet_loss(np.array([0.0, 0.0]), np.array([0.0, 0.0]))
        array(0.69314718)
    """
    dtype, z, s = _lists(labels, scores, axis)
    return cast(negative(reduce_sum(multiply(softmax(z), log_softmax(s)), -1)), dtype, name)


@d.guarded("listmle_loss")
def listmle_loss(labels: ArrayLike, scores: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """-log of the probability that items drawn one by one, by their scores, come in their true order.

    Args:
        labels: how relevant each item is; items that tie keep their order.
        scores: those of the items.
        axis: that of the lists.
        name: of the result.

    Returns:
        The losses Σᵢ (log Σ_{j ≥ i} exp(sⱼ) - sᵢ) of the lists, items by decreasing label, without that axis.

    Raises:
        ShapeError: the shapes do not fit, or the axis does not exist.

    References:
        Xia et al. 2008, "Listwise approach to learning to rank: theory and algorithm".

    Examples:
        >>> sg.listmle_loss(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 0.0]))
        array(1.79175947)
    """
    dtype, z, s = _lists(labels, scores, axis)
    shape = d.type_of(s).shape
    order = argsort(negative(z), axis=-1)
    ordered = take_along_axis(s, order, -1)
    places = positions(shape[-1], s)
    left = greater_equal(places, expand_dims(places, 1))
    wide_scores = broadcast_to(expand_dims(ordered, -2), (*shape, shape[-1]))
    totals = reduce_logsumexp(where(left, wide_scores, -math.inf), -1)
    return cast(reduce_sum(subtract(totals, ordered), -1), dtype, name)
