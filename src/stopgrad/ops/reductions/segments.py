"""Sums, means, products and extremes of the elements that belong to the same segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    NumpyArray,
    Op,
    Output,
    ShapeError,
    Size,
    Tensor,
)
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.elementwise.arithmetic import divide, maximum
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.powers import sqrt
from stopgrad.ops.indexing.gather import TensorScatterAdd
from stopgrad.ops.indexing.positions import as_indices
from stopgrad.ops.indexing.scatters import TensorScatterMax, TensorScatterMin, TensorScatterMul
from stopgrad.ops.reductions.reduce import highest, lowest
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import fill

__all__ = [
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
]


# ------------------------------------------------------------------------------------------------- segments


def _joined(definition: type[Op], data: ArrayLike, ids: ArrayLike, count: Size, start: complex) -> Tensor:
    """The data of each segment reduced by a scatter operation that begins with *start*."""
    kind, of = d.type_of(data), d.type_of(ids)
    d.check_dtype(of, d.is_integer, "integers as segment_ids")
    if not d.same_shape(kind.shape[: of.ndim], of.shape):
        raise ShapeError(
            f"(C2) the segment_ids {of!r} must have the shape of the data's leading axes, and the data is "
            f"{kind!r}"
        )
    empty = fill((count, *kind.shape[of.ndim :]), np.asarray(start, kind.dtype.numpy))
    return d.apply(definition, (empty, ids, data), (0, 0))


def _sum(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return _joined(TensorScatterAdd, data, ids, count, 0)


def _counted(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    """The number of elements in each segment, at least 1, in a shape and dtype that fit the segments."""
    shape, dtype = d.type_of(ids).shape, d.type_of(data).dtype
    sizes = maximum(_sum(fill(shape, np.int32(1)), ids, count), 1)
    sizes = cast(sizes, dtype if dtype.is_differentiable else d.float32 if dtype.itemsize < 4 else d.float64)
    return reshape(sizes, (count, *(1,) * (d.type_of(data).ndim - len(shape))))


def _mean(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return divide(_sum(data, ids, count), _counted(data, ids, count))


def _sqrt_n(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return divide(_sum(data, ids, count), sqrt(_counted(data, ids, count)))


def _max(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return _joined(TensorScatterMax, data, ids, count, _limit(lowest, data))


def _min(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return _joined(TensorScatterMin, data, ids, count, _limit(highest, data))


def _limit(limit: Callable[[Any], Any], data: ArrayLike) -> Any:
    d.check_dtype(d.type_of(data), d.is_real, "real numbers as data", "C1")
    return limit(d.type_of(data).dtype.numpy)


def _prod(data: ArrayLike, ids: ArrayLike, count: Size) -> Tensor:
    return _joined(TensorScatterMul, data, ids, count, 1)


_UNSORTED = """The {what} of the data of each segment.

Args:
    data: {data}.
    segment_ids: integers in the shape of the data's leading axes: the segment each part belongs to. Parts
        with a negative id, or one of at least num_segments, are dropped.
    num_segments: the number of segments.

Returns:
    A tensor of shape [num_segments, *data.shape[segment_ids.ndim:]]; {empty} for a segment without
    parts.{note}

Constraints:
    (C1) The segment_ids are integers{dtypes}.
    (C2) They have the shape of the data's leading axes.

Examples:
    >>> sg.{name}(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), 3)
    {example}
"""

_SORTED = """The {what} of the data of each segment, for segments of consecutive rows.

Args:
    data: {data}.
    segment_ids: a vector of integers that do not decrease: the segment each row of the data belongs to.
    num_segments: the number of segments; by default one more than the last of the segment_ids, which must
        then be known when the graph is built.

Returns:
    A tensor of shape [num_segments, *data.shape[1:]]; {empty} for a segment without rows.{note}

Constraints:
    (C1) The segment_ids are integers{dtypes}.
    (C2) They are a vector, as long as the data, and do not decrease where that is known when the graph is
        built.
    (C3) The number of segments is known when the graph is built.

Examples:
    >>> sg.{name}(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]))
    {example}
"""


def _unsorted(join: Callable[..., Tensor], name: str, **parts: str) -> Callable[..., Tensor]:
    @d.guarded(name)
    def function(
        data: ArrayLike, segment_ids: ArrayLike, num_segments: Size | str, name: str | None = None
    ) -> Tensor:
        data = tensor(data)
        return named(join(data, as_indices(segment_ids), d.shape_of(num_segments)[0]), name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _UNSORTED.format(name=name, **parts)
    return function


def _sorted(
    join: Callable[..., Tensor], otherwise: int | None, name: str, **parts: str
) -> Callable[..., Tensor]:
    @d.guarded(name)
    def function(
        data: ArrayLike,
        segment_ids: ArrayLike,
        name: str | None = None,
        *,
        num_segments: Size | str | None = None,
    ) -> Tensor:
        data, ids = tensor(data), as_indices(segment_ids)
        count = _how_many(data, ids, num_segments)
        joined = join(data, ids, count)
        if otherwise is not None:  # TensorFlow's sorted extremes are 0 there.
            occupied = greater(_sum(fill(d.type_of(ids).shape, np.int32(1)), ids, count), 0)
            joined = where(reshape(occupied, (count, *(1,) * (d.type_of(data).ndim - 1))), joined, otherwise)
        return named(joined, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _SORTED.format(name=name, **parts)
    return function


def _how_many(data: ArrayLike, ids: Output | NumpyArray, num_segments: Size | str | None) -> Size:
    kind = d.type_of(ids)
    d.check_dtype(kind, d.is_integer, "integers as segment_ids")
    if kind.ndim != 1 or not d.type_of(data).ndim:
        raise ShapeError(
            f"(C2) the segment_ids must be a vector and the data have an axis, not {kind!r} and "
            f"{d.type_of(data)!r}"
        )
    if is_traced(ids):
        if num_segments is None:
            raise needs_size("(C3) how many segments there are", "num_segments=")
        return d.shape_of(num_segments)[0]
    if (np.diff(ids) < 0).any():
        raise ArgumentError(
            "(C2) the segment_ids must not decrease; take unsorted_segment_... for those that do"
        )
    return d.shape_of(num_segments)[0] if num_segments is not None else int(ids[-1]) + 1 if ids.size else 0


_NUMBERS = {"data": "numbers", "dtypes": ", and the data numbers"}
_REALS = {
    "data": "real numbers",
    "dtypes": ", and the data real numbers",
    "note": " Elements that tie share the gradient evenly.",
}
_MEANS = {
    "data": "floating-point or complex numbers; integers become float64",
    "dtypes": ", and the data numbers",
    "note": "",
}
_PRODUCTS = {**_NUMBERS, "note": " The gradient is right even where factors are 0."}
_SUMS = {**_NUMBERS, "note": ""}

unsorted_segment_sum: Callable[..., Tensor] = _unsorted(
    _sum, "unsorted_segment_sum", what="sum", empty="0", example="array([2., 5., 0.])", **_SUMS
)
unsorted_segment_mean: Callable[..., Tensor] = _unsorted(
    _mean, "unsorted_segment_mean", what="mean", empty="0", example="array([2. , 2.5, 0. ])", **_MEANS
)
unsorted_segment_sqrt_n: Callable[..., Tensor] = _unsorted(
    _sqrt_n,
    "unsorted_segment_sqrt_n",
    what="sum, divided by the square root of their number,",
    empty="0",
    example="array([2.        , 3.53553391, 0.        ])",
    **_MEANS,
)
unsorted_segment_max: Callable[..., Tensor] = _unsorted(
    _max,
    "unsorted_segment_max",
    what="largest",
    empty="the dtype's lowest value (-∞ for floats)",
    example="array([  2.,   4., -inf])",
    **_REALS,
)
unsorted_segment_min: Callable[..., Tensor] = _unsorted(
    _min,
    "unsorted_segment_min",
    what="smallest",
    empty="the dtype's highest value (∞ for floats)",
    example="array([ 2.,  1., inf])",
    **_REALS,
)
unsorted_segment_prod: Callable[..., Tensor] = _unsorted(
    _prod, "unsorted_segment_prod", what="product", empty="1", example="array([2., 4., 1.])", **_PRODUCTS
)
segment_sum: Callable[..., Tensor] = _sorted(
    _sum, None, "segment_sum", what="sum", empty="0", example="array([3., 4.])", **_SUMS
)
segment_mean: Callable[..., Tensor] = _sorted(
    _mean, None, "segment_mean", what="mean", empty="0", example="array([1.5, 4. ])", **_MEANS
)
segment_max: Callable[..., Tensor] = _sorted(
    _max, 0, "segment_max", what="largest", empty="0", example="array([2., 4.])", **_REALS
)
segment_min: Callable[..., Tensor] = _sorted(
    _min, 0, "segment_min", what="smallest", empty="0", example="array([1., 4.])", **_REALS
)
segment_prod: Callable[..., Tensor] = _sorted(
    _prod, None, "segment_prod", what="product", empty="1", example="array([2., 4.])", **_PRODUCTS
)
