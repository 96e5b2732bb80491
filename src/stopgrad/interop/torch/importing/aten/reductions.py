"""Operators along axes: sums, extrema, statistics, sorting, cumulative results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import along, axes_of, axis_of, brought, static
from stopgrad.interop.shared.normalizations import variance
from stopgrad.interop.torch.importing.aten.calling import Call, Table, Translation, table


def reduced(function: Callable[..., sg.Output]) -> Translation:
    """A reduction over some axes, computed in the result's element type."""

    def translated(
        call: Call, x: sg.Output, dim: Sequence[int] | None = None, keepdim: bool = False, **_: object
    ) -> sg.Output:
        axes = axes_of(dim, x.ndim)
        x = brought(x, call.dtype)
        return function(x, axis=axes, keepdims=keepdim) if axes else x

    return translated


def _any_all(function: Callable[..., sg.Output]) -> Translation:
    def translated(call: Call, x: sg.Output, dim: int | None = None, keepdim: bool = False) -> sg.Output:
        axes = axes_of(dim, x.ndim)
        x = brought(x, sg.bool_)
        return brought(function(x, axis=axes, keepdims=keepdim) if axes else x, call.dtype)

    return translated


def _extreme(function: Callable[..., Tensor], truth: Callable[..., Tensor]) -> Translation:
    """amax and amin: elements that tie share the gradient."""

    def translated(call: Call, x: sg.Output, dim: Sequence[int] = (), keepdim: bool = False) -> sg.Output:
        axes = axes_of(dim, x.ndim)
        if not axes:
            return x
        return (truth if x.dtype.is_bool else function)(x, axis=axes, keepdims=keepdim)

    return translated


def _place(function: Callable[..., sg.Output], x: sg.Output, dim: int | None, keepdim: bool) -> sg.Output:
    """The index of the extreme element along an axis."""
    ndim = x.ndim
    x = sg.cast(x, sg.uint8) if x.dtype.is_bool else x
    if dim is None or not ndim:
        place = function(sg.reshape(x, [-1]), 0, sg.int64)
        return sg.reshape(place, [1] * ndim) if keepdim else place
    place = function(x, axis_of(dim, ndim), sg.int64)
    return sg.expand_dims(place, axis_of(dim, ndim)) if keepdim else place


def _place_of(function: Callable[..., sg.Output]) -> Translation:
    return lambda call, x, dim=None, keepdim=False: _place(function, x, dim, keepdim)


def _extreme_with_place(function: Callable[..., Tensor]) -> Translation:
    """max.dim and min.dim: of elements that tie, the first takes the whole gradient."""

    def translated(call: Call, x: sg.Output, dim: int, keepdim: bool = False) -> tuple[sg.Output, Tensor]:
        if not x.ndim:
            return x, sg.zeros((), sg.int64)
        axis = axis_of(dim, x.ndim)
        place = _place(function, x, axis, True)
        value = sg.take_along_axis(x, place, axis)
        return (value, place) if keepdim else (sg.squeeze(value, axis), sg.squeeze(place, axis))

    return translated


def _mean(
    call: Call, x: sg.Output, dim: Sequence[int] | None = None, keepdim: bool = False, **_: object
) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    x = brought(x, call.dtype)
    return sg.reduce_mean(x, axis=axes, keepdims=keepdim) if axes else x


def _product(
    call: Call, x: sg.Output, dim: int | None = None, keepdim: bool = False, **_: object
) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    x = brought(x, call.dtype)
    return sg.reduce_prod(x, axis=axes, keepdims=keepdim) if axes else x


def _variance_corrected(
    call: Call,
    x: sg.Output,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> sg.Output:
    return variance(x, axes_of(dim, x.ndim), 1 if correction is None else correction, keepdim)


def _deviation(
    call: Call,
    x: sg.Output,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> sg.Output:
    """Where it is 0, so is its gradient."""
    var = _variance_corrected(call, x, dim, correction=correction, keepdim=keepdim)
    zero, one = brought(0, var.dtype), brought(1, var.dtype)
    is_zero = sg.equal(var, zero)
    return sg.where(is_zero, zero, sg.sqrt(sg.where(is_zero, one, var)))


def _distance(huber: bool) -> Translation:
    """smooth_l1_loss, or huber_loss: half the square up to a limit, and straight beyond."""

    def translated(
        call: Call, x: sg.Output, y: sg.Output, reduction: int = 1, limit: float = 1.0
    ) -> sg.Output:
        apart = sg.abs(sg.subtract(brought(x, call.dtype), brought(y, call.dtype)))
        near = sg.minimum(apart, brought(limit, apart.dtype))
        square = sg.multiply(sg.square(near), brought(0.5, apart.dtype))
        if huber:
            straight = sg.multiply(sg.subtract(apart, near), brought(limit, apart.dtype))
        else:
            straight = sg.subtract(apart, near)
            square = sg.realdiv(square, brought(limit or 1.0, apart.dtype))
        losses = sg.add(square, straight)
        return (
            losses if not reduction else sg.reduce_mean(losses) if reduction == 1 else sg.reduce_sum(losses)
        )

    return translated


def _variance_mean(
    call: Call,
    x: sg.Output,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[sg.Output, sg.Output]:
    axes = axes_of(dim, x.ndim)
    mean = sg.reduce_mean(x, axis=axes, keepdims=keepdim) if axes else x
    return _variance_corrected(call, x, dim, correction=correction, keepdim=keepdim), mean


def _norm(
    call: Call,
    x: sg.Output,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    if x.dtype.is_complex:
        x = sg.abs(x)
    x = brought(x, call.dtype)
    if not axes:
        return sg.cast(sg.not_equal(x, brought(0, x.dtype)), x.dtype) if ord == 0 else sg.abs(x)
    return sg.vector_norm(x, axis=axes, keepdims=keepdim, ord=ord)


# --------------------------------------------------------------------------------------------- in order


def _sorted(call: Call, x: sg.Output, *args: int, **kwargs: Any) -> tuple[sg.Output, Tensor]:
    stated = {"dim": -1, "descending": False, **kwargs}
    # sort(x, dim, descending), sort.stable(x, *, stable, dim, descending)
    stated.update(zip(("dim", "descending"), args, strict=False))
    if not x.ndim:
        return x, sg.zeros((), sg.int64)
    axis = axis_of(stated["dim"], x.ndim)
    number = sg.cast(x, sg.uint8) if x.dtype.is_bool else x
    order = sg.argsort(number, axis, "DESCENDING" if stated["descending"] else "ASCENDING", stable=True)
    return sg.take_along_axis(x, order, axis), sg.cast(order, sg.int64)


def _top(
    call: Call, x: sg.Output, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[sg.Output, Tensor]:
    if not x.ndim:
        return x, sg.zeros((), sg.int64)
    axis = axis_of(dim, x.ndim)
    number = sg.cast(x, sg.uint8) if x.dtype.is_bool else x
    order = sg.argsort(number, axis, "DESCENDING" if largest else "ASCENDING", stable=True)
    order = order[(slice(None),) * axis + (slice(0, k),)]
    return sg.take_along_axis(x, order, axis), sg.cast(order, sg.int64)


def _nth(call: Call, x: sg.Output, k: int, dim: int = -1, keepdim: bool = False) -> tuple[sg.Output, Tensor]:
    """The k-th smallest element, counted from 1, and its index."""
    if not x.ndim:
        return x, sg.zeros((), sg.int64)
    axis = axis_of(dim, x.ndim)
    place = sg.argsort(x, axis, stable=True)[(slice(None),) * axis + (slice(k - 1, k),)]
    value, place = sg.take_along_axis(x, place, axis), sg.cast(place, sg.int64)
    return (value, place) if keepdim else (sg.squeeze(value, axis), sg.squeeze(place, axis))


def _median(
    call: Call, x: sg.Output, dim: int | None = None, keepdim: bool = False
) -> sg.Output | tuple[sg.Output, Tensor]:
    """The median: the lower of the two in the middle; NaN if any element is NaN."""
    if dim is None:
        return _nth_or_nan(sg.reshape(x, [-1]), 0)[0]
    if not x.ndim:
        return x, sg.zeros((), sg.int64)
    axis = axis_of(dim, x.ndim)
    value, place = _nth_or_nan(x, axis, True)
    return (value, place) if keepdim else (sg.squeeze(value, axis), sg.squeeze(place, axis))


def _nth_or_nan(x: sg.Output, axis: int, keepdim: bool = False) -> tuple[Any, Any]:
    (count,) = static([x.shape[axis]], "a median")
    order = sg.argsort(x, axis, stable=True)
    place = order[(slice(None),) * axis + (slice((count - 1) // 2, (count - 1) // 2 + 1),)]
    if x.dtype.is_floating:
        worst = sg.expand_dims(sg.argmax(sg.isnan(x), axis, sg.int32), axis)
        has_nan = sg.reduce_any(sg.isnan(x), axis=axis, keepdims=True)
        place = sg.where(has_nan, worst, place)
    value, place = sg.take_along_axis(x, place, axis), sg.cast(place, sg.int64)
    return (value, place) if keepdim else (sg.squeeze(value, axis), sg.squeeze(place, axis))


# ---------------------------------------------------------------------------------------------- running


def running(function: Callable[..., sg.Output]) -> Translation:
    """A cumulative function along an axis, in the result's element type."""

    def translated(call: Call, x: sg.Output, dim: int, **_: object) -> sg.Output:
        x = brought(x, call.dtype)
        return function(x, axis_of(dim, x.ndim)) if x.ndim else x

    return translated


def _running_extreme(function: Callable[..., Tensor]) -> Translation:
    """cummax and cummin with indices: of elements that tie, that of the last."""

    def translated(call: Call, x: sg.Output, dim: int) -> tuple[sg.Output, Tensor]:
        if not x.ndim:
            return x, sg.zeros((), sg.int64)
        axis = axis_of(dim, x.ndim)
        number = sg.cast(x, sg.uint8) if x.dtype.is_bool else x
        value = function(number, axis)
        steps = along(sg.range(0, x.shape[axis], dtype=sg.int64), axis, x.ndim)
        here = sg.equal(number, value)
        if x.dtype.is_floating:
            here = sg.logical_or(here, sg.isnan(x))
        place = sg.cummax(sg.where(here, steps, brought(-1, sg.int64)), axis)
        return sg.take_along_axis(x, place, axis), place

    return translated


# ---------------------------------------------------------------------------------------------- softmax


def _soft(function: Callable[..., sg.Output]) -> Translation:
    def translated(call: Call, x: sg.Output, dim: int, *_: object, **__: object) -> sg.Output:
        x = brought(x, call.dtype)
        if not x.ndim:
            return sg.reshape(function(sg.reshape(x, [1]), axis=0), [])
        return function(x, axis=axis_of(dim, x.ndim))

    return translated


def _distances(x: sg.Output, y: sg.Output, p: float) -> sg.Output:
    """The distances between all rows of x and all rows of y, with batches broadcast."""
    apart = sg.subtract(x, y)
    if p == 0:
        return sg.reduce_sum(sg.cast(sg.not_equal(apart, brought(0, apart.dtype)), apart.dtype), axis=-1)
    return sg.vector_norm(apart, axis=-1, ord=math.inf if p == math.inf else p)


def _safely_soft(call: Call, x: sg.Output, dim: int, dtype: torch.dtype | None = None) -> sg.Output:
    """A softmax in which a row of -∞ alone becomes 0 and takes no gradient."""
    x = brought(x, call.dtype)
    if not x.ndim:
        return sg.where(sg.equal(x, brought(-math.inf, x.dtype)), brought(0, x.dtype), sg.ones_like(x))
    axis = axis_of(dim, x.ndim)
    none = sg.reduce_all(sg.equal(x, brought(-math.inf, x.dtype)), axis=axis, keepdims=True)
    y = sg.softmax(sg.where(none, brought(0, x.dtype), x), axis=axis)
    return sg.where(none, brought(0, x.dtype), y)


def _all_distances(
    call: Call, x: sg.Output, y: sg.Output, p: float, compute_mode: int | None = None
) -> sg.Output:
    return _distances(sg.expand_dims(x, -2), sg.expand_dims(y, -3), p)


def _own_distances(call: Call, x: sg.Output, p: float = 2.0) -> Tensor:
    (count,) = static([x.shape[0]], "pdist")
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = ([pair[i] for pair in pairs] for i in (0, 1))
    if not pairs:
        return sg.zeros([0], x.dtype)
    return _distances(sg.take(x, first, 0), sg.take(x, second, 0), p)


REDUCTIONS: Table = dict(
    table(
        {
            "sum.dim_IntList": reduced(sg.reduce_sum),
            "mean mean.dim": _mean,
            "prod prod.dim_int": _product,
            "amax max": _extreme(sg.reduce_max, sg.reduce_any),
            "amin min": _extreme(sg.reduce_min, sg.reduce_all),
            "any any.dim any.dims": _any_all(sg.reduce_any),
            "argmax": _place_of(sg.argmax),
            "argmin": _place_of(sg.argmin),
            "max.dim": _extreme_with_place(sg.argmax),
            "min.dim": _extreme_with_place(sg.argmin),
            "var.correction": _variance_corrected,
            "std.correction": _deviation,
            "smooth_l1_loss": _distance(huber=False),
            "huber_loss": _distance(huber=True),
            "var_mean.correction": _variance_mean,
            "linalg_vector_norm": _norm,
            "sort sort.stable": _sorted,
            "topk": _top,
            "kthvalue": _nth,
            "median median.dim": _median,
            "cumsum": running(sg.cumsum),
            "cumprod": running(sg.cumprod),
            "logcumsumexp": running(sg.cumulative_logsumexp),
            "cummax": _running_extreme(sg.cummax),
            "cummin": _running_extreme(sg.cummin),
            "_softmax": _soft(sg.softmax),
            "_log_softmax": _soft(sg.log_softmax),
            "_safe_softmax": _safely_soft,
            "_cdist_forward": _all_distances,
            "_pdist_forward": _own_distances,
        }
    )
)
