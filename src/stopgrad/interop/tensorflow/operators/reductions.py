"""Reductions, cumulative operations, and reductions by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import brought, product
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import wanted_dtype
from stopgrad.interop.tensorflow.operators.moving import axes_in, axis_in


def _reduced(function: Callable[..., Tensor]) -> Rule:
    """A reduction; its axes are an operand, and none of them means that nothing is reduced."""

    @knows(1)
    def rule(node: Call, x: sg.Output, axes: sg.Output | Known) -> sg.Output:
        chosen = axes_in(node, axes, x.ndim)
        return (
            function(x, chosen, bool(node.attribute("keep_dims", False))) if chosen else _alone(function, x)
        )

    return rule


def _alone(function: Callable[..., sg.Output], x: sg.Output) -> sg.Output:
    """A reduction over no axes: of each element by itself."""
    return sg.squeeze(function(sg.expand_dims(x, 0), (0,), True), 0)


def _mean(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    if not x.dtype.is_integer:
        return sg.reduce_mean(x, axes, keepdims)
    count = product([x.shape[a] for a in axes])
    return sg.truncatediv(sg.reduce_sum(x, axes, keepdims), brought(count, x.dtype, x))


def _euclidean_norm(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    """The root of the sum of squares, whose gradient at 0 is NaN, as in TensorFlow."""
    return sg.sqrt(sg.reduce_sum(sg.square(x), axes, keepdims))


def _extreme(function: Callable[..., Tensor], high: bool) -> Callable[..., Tensor]:
    def extreme(x: sg.Output, axes: Sequence[int], keepdims: bool) -> Tensor:
        if any(not isinstance(x.shape[a], sg.Dim) and x.shape[a] == 0 for a in axes):
            shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes]
            return sg.fill(shape, lowest(x.dtype) if high else highest(x.dtype))
        return function(x, axes, keepdims)

    return extreme


def lowest(dtype: DType) -> np.ndarray[Any, Any]:
    """The neutral element of a maximum."""
    return np.asarray(-np.inf if dtype.is_floating else np.iinfo(dtype.numpy).min, dtype.numpy)


def highest(dtype: DType) -> np.ndarray[Any, Any]:
    """The neutral element of a minimum."""
    return np.asarray(np.inf if dtype.is_floating else np.iinfo(dtype.numpy).max, dtype.numpy)


def _place(function: Callable[..., sg.Output]) -> Rule:
    """The index of the largest or smallest element along an axis; the first of several."""

    @knows(1)
    def rule(node: Call, x: sg.Output, axis: sg.Output | Known) -> sg.Output:
        dtype = wanted_dtype(node, "output_type", sg.int64)
        if x.dtype.is_bool:
            x = sg.cast(x, sg.int32)
        return function(x, axis_in(node, axis, x.ndim), dtype)

    return rule


@knows(1)
def _top_k(node: Call, x: sg.Output, k: sg.Output | Known | None = None) -> tuple[Any, sg.Output]:
    count = node.attribute("k") if k is None else node.sizes(k)[0]
    dtype = wanted_dtype(node, "index_type", sg.int32)
    values, places = sg.top_k(x, count)
    return values, brought(places, dtype)


def _in_top_k(
    node: Call, predictions: sg.Output, targets: sg.Output, k: sg.Output | Known | None = None
) -> sg.Output:
    count = node.attribute("k") if k is None else node.sizes(k)[0]
    return sg.in_top_k(targets, predictions, int(count))


def _l2_loss(node: Call, x: sg.Output) -> sg.Output:
    return sg.l2_loss(x)


# --------------------------------------------------------------------------------------------- cumulative


def _running(function: Callable[..., sg.Output]) -> Rule:
    @knows(1)
    def rule(node: Call, x: sg.Output, axis: sg.Output | Known) -> sg.Output:
        exclusive, reverse = (bool(node.attribute(name, False)) for name in ("exclusive", "reverse"))
        return function(x, axis_in(node, axis, x.ndim), exclusive, reverse)

    return rule


# ----------------------------------------------------------------------------------------------- segments


def _segments(function: Callable[..., sg.Output]) -> Rule:
    """Of sorted segments, as many as the last one's number says, which must be known."""

    @knows(1)
    def rule(node: Call, x: sg.Output, ids: sg.Output | Known) -> sg.Output:
        numbers = node.known(ids)
        return function(x, node.tensor(ids), num_segments=int(numbers[-1]) + 1 if len(numbers) else 0)

    return rule


def _unsorted(function: Callable[..., sg.Output]) -> Rule:
    @knows(2)
    def rule(node: Call, x: sg.Output, ids: sg.Output, count: sg.Output | Known) -> sg.Output:
        return function(x, ids, node.sizes(count)[0])

    return rule


def _sparse_segments(function: Callable[..., sg.Output]) -> Rule:
    """Reductions by segment of chosen rows."""

    @knows(2, 3)
    def rule(
        node: Call, x: sg.Output, rows: sg.Output, ids: sg.Output | Known, count: Any = None
    ) -> sg.Output:
        if count is None:
            numbers = node.known(ids)
            number: Any = int(numbers[-1]) + 1 if len(numbers) else 0
        else:
            number = node.sizes(count)[0]
        return function(sg.gather(x, rows), node.tensor(ids), number)

    return rule


@knows(1)
def _bincount(
    node: Call, x: sg.Output, size: sg.Output | Known, weights: sg.Output | None = None
) -> sg.Output:
    length = node.sizes(size)[0]
    dtype = wanted_dtype(node, "T", sg.int32)
    if node.attribute("binary_output", False) or x.ndim > 1:
        node.fail("counts are made of one vector here, and are not binary")
    flat = sg.reshape(x, [-1])
    flat_weights: sg.Output | None = None
    if weights is not None and all(isinstance(n, sg.Dim) or n != 0 for n in weights.shape):
        flat_weights = sg.reshape(weights, [-1])
    return brought(sg.bincount(flat, flat_weights, length, length, dtype), dtype)


REDUCTIONS: Table = {
    "Sum": _reduced(sg.reduce_sum),
    "Prod": _reduced(sg.reduce_prod),
    "Mean": _reduced(_mean),
    "Max": _reduced(_extreme(sg.reduce_max, True)),
    "Min": _reduced(_extreme(sg.reduce_min, False)),
    "All": _reduced(sg.reduce_all),
    "Any": _reduced(sg.reduce_any),
    "EuclideanNorm": _reduced(_euclidean_norm),
    "ArgMax": _place(sg.argmax),
    "ArgMin": _place(sg.argmin),
    "TopK": _top_k,
    "TopKV2": _top_k,
    "InTopK": _in_top_k,
    "InTopKV2": knows(2)(_in_top_k),
    "L2Loss": _l2_loss,
    "Cumsum": _running(sg.cumsum),
    "Cumprod": _running(sg.cumprod),
    "CumulativeLogsumexp": _running(sg.cumulative_logsumexp),
    "SegmentSum": _segments(sg.segment_sum),
    "SegmentMean": _segments(sg.segment_mean),
    "SegmentProd": _segments(sg.segment_prod),
    "SegmentMax": _segments(sg.segment_max),
    "SegmentMin": _segments(sg.segment_min),
    "UnsortedSegmentSum": _unsorted(sg.unsorted_segment_sum),
    "UnsortedSegmentProd": _unsorted(sg.unsorted_segment_prod),
    "UnsortedSegmentMax": _unsorted(sg.unsorted_segment_max),
    "UnsortedSegmentMin": _unsorted(sg.unsorted_segment_min),
    "SparseSegmentSum": _sparse_segments(sg.unsorted_segment_sum),
    "SparseSegmentMean": _sparse_segments(sg.unsorted_segment_mean),
    "SparseSegmentSqrtN": _sparse_segments(sg.unsorted_segment_sqrt_n),
    "SparseSegmentSumWithNumSegments": _sparse_segments(sg.unsorted_segment_sum),
    "SparseSegmentMeanWithNumSegments": _sparse_segments(sg.unsorted_segment_mean),
    "SparseSegmentSqrtNWithNumSegments": _sparse_segments(sg.unsorted_segment_sqrt_n),
    "Bincount": _bincount,
    "DenseBincount": _bincount,
}
