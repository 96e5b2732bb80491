"""Reductions, and cumulative operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.onnx.operators.moving import checked_axes, checked_axis
from stopgrad.interop.shared.conversions import brought, product


def _reduced(function: Callable[..., Tensor]) -> Rule:
    """A reduction; its axes are an operand, in older opsets an attribute."""

    @knows(1)
    def rule(node: Call, x: sg.Output, axes: sg.Output | Known | None = None) -> sg.Output:
        listed = node.attribute("axes") if axes is None else node.known(1, axes).reshape(-1).tolist()
        if not listed and node.attribute("noop_with_empty_axes", 0):
            return x
        chosen = checked_axes(node, listed, x.ndim) if listed else tuple(range(x.ndim))
        return function(x, chosen, bool(node.attribute("keepdims", 1)))

    return rule


def _mean(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    if x.dtype.is_floating:
        return sg.reduce_mean(x, axes, keepdims)
    count = product([x.shape[a] for a in axes])
    return sg.truncatediv(sg.reduce_sum(x, axes, keepdims), brought(count, x.dtype, x))


def _largest(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    return _extreme(x, axes, keepdims, sg.reduce_max, sg.reduce_any, True)


def _smallest(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    return _extreme(x, axes, keepdims, sg.reduce_min, sg.reduce_all, False)


def _extreme(
    x: sg.Output,
    axes: Sequence[int],
    keepdims: bool,
    function: Callable[..., Tensor],
    of_bools: Callable[..., Tensor],
    high: bool,
) -> Tensor:
    if x.dtype.is_bool:
        return of_bools(x, axes, keepdims)
    if any(not isinstance(x.shape[a], sg.Dim) and x.shape[a] == 0 for a in axes):
        shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes]
        return sg.fill(shape, _neutral(x.dtype, high))
    return function(x, axes, keepdims)


def _neutral(dtype: DType, high: bool) -> np.ndarray[Any, Any]:
    """The neutral element of a maximum (*high*) or minimum."""
    if dtype.is_floating:
        return np.asarray(-np.inf if high else np.inf, dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return np.asarray(limits.min if high else limits.max, dtype.numpy)


def _sum_of_squares(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    return sg.reduce_sum(sg.square(x), axes, keepdims)


def _norm(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    total = _sum_of_squares(x, axes, keepdims)
    return sg.sqrt(total) if x.dtype.is_floating else sg.cast(sg.sqrt(sg.cast(total, sg.float64)), x.dtype)


def _logarithm(x: sg.Output) -> sg.Output:
    return sg.log(x) if x.dtype.is_floating else sg.cast(sg.log(sg.cast(x, sg.float64)), x.dtype)


def _log_of_sum(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    return _logarithm(sg.reduce_sum(x, axes, keepdims))


def _log_of_exponentials(x: sg.Output, axes: tuple[int, ...], keepdims: bool) -> sg.Output:
    if any(not isinstance(x.shape[a], sg.Dim) and x.shape[a] == 0 for a in axes):
        return _log_of_sum(sg.exp(x), axes, keepdims)
    return sg.reduce_logsumexp(x, axes, keepdims)


# -------------------------------------------------------------------------------------------- places


def _place(function: Callable[..., Tensor]) -> Rule:
    """The index of the largest or smallest element along an axis."""

    def rule(node: Call, x: sg.Output) -> Any:
        axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
        if node.attribute("select_last_index", 0):
            index = function(sg.flip(x, axis), axis, sg.int64)
            index = sg.subtract(sg.size(x, sg.int64, axis=axis) - 1, index)
        else:
            index = function(x, axis, sg.int64)
        return sg.expand_dims(index, axis) if node.attribute("keepdims", 1) else index

    return rule


def _hardmax(node: Call, x: sg.Output) -> sg.Output:
    axis = checked_axis(node, node.attribute("axis", -1), x.ndim)
    return sg.one_hot(sg.argmax(x, axis, sg.int64), x.shape[axis], axis=axis, dtype=x.dtype)


def _running(function: Callable[..., Tensor]) -> Rule:
    """Cumulative sums or products."""

    @knows(1)
    def rule(node: Call, x: sg.Output, axis: sg.Output | Known) -> sg.Output:
        along = checked_axis(node, int(node.number(1, axis)), x.ndim)
        exclusive, reverse = (bool(node.attribute(name, 0)) for name in ("exclusive", "reverse"))
        return function(x, along, exclusive, reverse)

    return rule


REDUCTIONS: Table = {
    "ReduceSum": _reduced(sg.reduce_sum),
    "ReduceProd": _reduced(sg.reduce_prod),
    "ReduceMean": _reduced(_mean),
    "ReduceMax": _reduced(_largest),
    "ReduceMin": _reduced(_smallest),
    "ReduceL1": _reduced(lambda x, axes, keepdims: sg.reduce_sum(sg.abs(x), axes, keepdims)),
    "ReduceL2": _reduced(_norm),
    "ReduceSumSquare": _reduced(_sum_of_squares),
    "ReduceLogSum": _reduced(_log_of_sum),
    "ReduceLogSumExp": _reduced(_log_of_exponentials),
    "ArgMax": _place(sg.argmax),
    "ArgMin": _place(sg.argmin),
    "Hardmax": _hardmax,
    "CumSum": _running(sg.cumsum),
    "CumProd": _running(sg.cumprod),
}
