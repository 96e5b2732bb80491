"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Shape, ShapeError, Tensor
from stopgrad.ops.composing import floating, positions
from stopgrad.ops.elementwise.arithmetic import add, multiply
from stopgrad.ops.elementwise.compare import greater_equal, logical_and, logical_not, logical_or
from stopgrad.ops.elementwise.composite import softmax
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.random.sampling import dropout
from stopgrad.ops.reductions.reduce import reduce_any
from stopgrad.ops.shapes.reshape import expand_dims, reshape

__all__ = ["scaled_dot_product_attention"]


@d.guarded("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: ArrayLike = 0.0,
    is_causal: bool = False,
    scale: ArrayLike | None = None,
    enable_gqa: bool = False,
    *,
    dropout_key: ArrayLike | None = None,
    name: str | None = None,
) -> Tensor:
    """softmax(query · keyᵀ · scale + mask) · value, with the arguments of PyTorch's function.

    Args:
        query: [..., heads, queries, features], floating-point; axes in front of the last two are optional.
        key: [..., heads, keys, features].
        value: [..., heads, keys, features of values].
        attn_mask: of a shape that broadcasts to [..., heads, queries, keys]: booleans, True where a query may
            attend to a key; or numbers that are added to the products. None for no mask.
        dropout_p: the probability with which a weight is set to 0; needs dropout_key unless it is 0.
        is_causal: whether query i attends to keys 0 to i only.
        scale: what the products are multiplied by; None for 1 / √features.
        enable_gqa: whether the number of the query's heads may be a multiple of the key's and value's. Then
            neighbouring heads of the query share a key and value (grouped queries).
        dropout_key: the random key of the dropout.
        name: of the operation.

    Returns:
        The weighted means of the values, [..., heads, queries, features of values]. A query that may attend
        to no key gets zeros, and has no gradient.

    Raises:
        ShapeError: the shapes do not fit; heads differ without enable_gqa.
        ArgumentError: there is dropout without a key.

    References:
        Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245, on grouped queries.

    Examples:
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> sg.scaled_dot_product_attention(x, x, x, is_causal=True)
        array([[1.        , 0.        ],
               [0.33023845, 0.66976155]])
    """
    q, k, v = floating(query, key, value)
    shapes = [d.type_of(x).shape for x in (q, k, v)]
    groups = _groups(shapes, d.flag(enable_gqa))
    if groups > 1:  # The queries of the heads of a group are concatenated.
        q = reshape(q, (*shapes[0][:-3], shapes[1][-3], groups * shapes[0][-2], shapes[0][-1]))
    factor = 1 / math.sqrt(_features(shapes[0])) if scale is None else scale
    scores = multiply(matmul(q, k, transpose_b=True), factor)
    if groups > 1:
        scores = reshape(scores, (*shapes[0][:-1], shapes[1][-2]))
    weights = _dropped(_weights(scores, attn_mask, d.flag(is_causal)), dropout_p, dropout_key)
    if groups > 1:
        weights = reshape(weights, (*d.type_of(q).shape[:-1], shapes[1][-2]))
        return reshape(matmul(weights, v), (*shapes[0][:-1], shapes[2][-1]), name)
    return matmul(weights, v, name=name)


def _features(shape: Shape) -> int:
    if not isinstance(shape[-1], int):
        raise ShapeError(f"the number of features, {shape[-1]}, must be known; or give the scale")
    return max(shape[-1], 1)


def _groups(shapes: Sequence[Shape], grouped: bool) -> int:
    """How many heads of the query share one head of the key."""
    if min(map(len, shapes)) < 2 or len({len(s) for s in shapes}) > 1:
        raise ShapeError(
            "query, key and value have as many axes, at least two: [..., heads, length, features]"
        )
    query, key, _ = shapes
    if len(query) < 3 or d.same_size(query[-3], key[-3]) or 1 in (query[-3], key[-3]):
        return 1
    if not isinstance(query[-3], int) or not isinstance(key[-3], int) or query[-3] % key[-3]:
        raise ShapeError(f"{query[-3]} heads of the query are no multiple of {key[-3]} of the key")
    if not grouped:
        raise ShapeError(
            f"the query has {query[-3]} heads, the key {key[-3]}; for groups of heads, enable_gqa=True"
        )
    return query[-3] // key[-3]


def _weights(scores: ArrayLike, mask: ArrayLike | None, causal: bool) -> Tensor:
    """The softmax of the scores that the mask allows, and 0 elsewhere."""
    allowed = _lower(scores) if causal else None
    if mask is not None:
        kind = d.type_of(mask)
        if kind.dtype.is_bool:
            allowed = mask if allowed is None else logical_and(allowed, mask)
        else:
            scores = add(scores, cast(mask, d.type_of(scores).dtype) if kind.dtype.is_floating else mask)
    if allowed is None:
        return softmax(scores)
    some = reduce_any(allowed, -1, True)
    # A row that allows nothing is computed as if it allowed all, and then replaced by 0: so neither its value
    # nor its gradient is NaN.
    filled = where(logical_or(allowed, logical_not(some)), scores, -math.inf)
    return where(some, softmax(filled), 0)


@d.reads_arguments
def _dropped(weights: ArrayLike, rate: ArrayLike, key: ArrayLike | None) -> Tensor:
    """The weights after dropout."""
    if isinstance(rate, (int, float)) and rate == 0:
        return weights
    if key is None:
        raise ArgumentError("dropout needs a random key; give dropout_key=sg.random_key(...)")
    return dropout(weights, rate=rate, key=key)


def _lower(scores: ArrayLike) -> Tensor:
    """For each query, which keys come no later than it."""
    shape = d.type_of(scores).shape
    rows, columns = positions(shape[-2], scores), positions(shape[-1], scores)
    return greater_equal(expand_dims(rows, 1), columns)
