"""Embeddings, and whether a class is among the k likeliest."""

from __future__ import annotations

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, ShapeError, Tensor
from stopgrad.ops.composing import floating
from stopgrad.ops.elementwise.arithmetic import maximum, multiply, square
from stopgrad.ops.elementwise.compare import greater, greater_equal, is_finite, less, logical_and
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.elementwise.powers import rsqrt
from stopgrad.ops.indexing.gather import gather, take_along_axis
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum, squeeze
from stopgrad.ops.structural.sources import size_as

__all__ = ["embedding_lookup", "in_top_k"]


@d.guarded("embedding_lookup")
def embedding_lookup(
    params: ArrayLike, ids: ArrayLike, max_norm: ArrayLike | None = None, name: str | None = None
) -> Tensor:
    """Rows of a table: ``params[ids]``, each scaled down to a maximum norm if one is given.

    Args:
        params: the table, [rows, ...]; one tensor (TensorFlow also takes a list of parts: join them with
            :func:`concat`).
        ids: numbers of rows.
        max_norm: the largest Euclidean norm of a row; None for any. Shorter rows do not change.
        name: of the operation.

    Returns:
        The rows, of shape ids.shape + params.shape[1:]. The gradient adds up at rows that are looked up more
        than once.

    Raises:
        ArgumentError, DTypeError, ShapeError: params is no tensor with rows; ids are no integers.

    Examples:
        >>> table = np.array([[1.0, 0.0], [3.0, 4.0]])
        >>> sg.embedding_lookup(table, np.array([1, 0, 1]), max_norm=1.0)
        array([[0.6, 0.8],
               [1. , 0. ],
               [0.6, 0.8]])
    """
    if isinstance(params, (list, tuple)) and any(hasattr(p, "shape") for p in params):
        raise ArgumentError("params is one tensor; join the parts of a table with sg.concat")
    if not d.type_of(params).ndim:
        raise ShapeError(f"takes a table [rows, ...], not {d.type_of(params)!r}")
    if max_norm is None:
        return gather(params, ids, name=name)
    (table,) = floating(params)
    rows = gather(table, ids)
    kind = d.type_of(rows)
    values, axes = wide(rows), tuple(range(d.type_of(ids).ndim, kind.ndim))
    squares = reduce_sum(square(values), axes, True)
    most = min(d.real(max_norm) ** 2, float(np.finfo(d.type_of(values).dtype.numpy).max))
    # The norm of a row of zeros has no derivative; the other branch is taken for it.
    factor = where(greater(squares, most), multiply(rsqrt(maximum(squares, most)), max_norm), 1.0)
    return cast(multiply(values, factor), kind.dtype, name)


@d.guarded("in_top_k")
def in_top_k(targets: ArrayLike, predictions: ArrayLike, k: int, name: str | None = None) -> Tensor:
    """Whether the prediction for each target is among the k greatest.

    Args:
        targets: numbers of classes, [batch].
        predictions: [batch, classes].
        k: how many predictions count as the greatest.
        name: of the operation.

    Returns:
        Booleans, [batch]: whether fewer than k predictions are greater than that for the target, so classes
        that tie for place k all count. False where the target is no class, or its prediction is not finite.

    Raises:
        DTypeError, ShapeError: targets are no integers; the shapes do not fit.

    Examples:
        >>> sg.in_top_k(np.array([0, 1]), np.array([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]), 2)
        array([False,  True])
    """
    kind, numbers = d.type_of(predictions), d.type_of(targets)
    d.check_dtype(numbers, d.is_integer, "integers as targets")
    if kind.ndim != 2 or numbers.ndim != 1:
        raise ShapeError(f"takes targets [batch] and predictions [batch, classes], not {numbers!r}, {kind!r}")
    (values,) = floating(predictions)
    classes = size_as(kind.shape[1], numbers.dtype, predictions)
    inside = logical_and(greater_equal(targets, 0), less(targets, classes))
    own = take_along_axis(values, expand_dims(where(inside, targets, 0), 1), 1)
    above = reduce_sum(cast(greater(values, own), d.int32), 1)
    valid = logical_and(inside, is_finite(squeeze(own, 1)))
    return logical_and(valid, less(above, d.whole(k)), name)
