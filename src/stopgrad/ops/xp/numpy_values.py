"""NumPy's reductions, elementwise functions and choices of elements, on outputs."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DTypeLike, Tensor
from stopgrad.ops.elementwise.arithmetic import abs, add, divide, multiply, subtract
from stopgrad.ops.elementwise.compare import equal, less_equal, logical_and, logical_or
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.rounding import round as _round
from stopgrad.ops.indexing.masks import where
from stopgrad.ops.order.sorting import argsort as _argsort, sort as _sort
from stopgrad.ops.structural.sources import identity
from stopgrad.ops.xp import creation, elementwise, manipulation, statistical
from stopgrad.ops.xp.numpy_form import FORMS, form, without
from stopgrad.ops.xp.support import flat, of_dtype

# --------------------------------------------------------------------------------------------- reductions


@form
def sum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Tensor:
    return statistical.sum(a, axis, dtype, keepdims)


@form
def prod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Tensor:
    return statistical.prod(a, axis, dtype, keepdims)


@form
def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Tensor:
    return statistical.mean(of_dtype(a, dtype), axis, keepdims)


@form
def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    return statistical.var(of_dtype(a, dtype), axis, ddof if correction is None else correction, keepdims)


@form
def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    return statistical.std(of_dtype(a, dtype), axis, ddof if correction is None else correction, keepdims)


@form
def max(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False
) -> Tensor:
    return statistical.max(a, axis, keepdims)


@form
def min(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False
) -> Tensor:
    return statistical.min(a, axis, keepdims)


@form
def ptp(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False
) -> Tensor:
    return subtract(statistical.max(a, axis, keepdims), statistical.min(a, axis, keepdims))


@form
def all(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False
) -> Tensor:
    return statistical.all(a, axis, keepdims)


@form
def any(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False
) -> Tensor:
    return statistical.any(a, axis, keepdims)


@form
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Tensor:
    return statistical.argmax(a, axis, keepdims)


@form
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Tensor:
    return statistical.argmin(a, axis, keepdims)


@form
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Tensor:
    return statistical.cumulative_sum(flat(a) if axis is None else a, axis, dtype)


@form
def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Tensor:
    return statistical.cumulative_prod(flat(a) if axis is None else a, axis, dtype)


@form
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
) -> Tensor:
    if d.flag(returned, "returned"):
        raise ArgumentError("returned=True cannot be had on outputs; sum the weights by themselves")
    if weights is None:
        return statistical.mean(a, axis)
    if d.type_of(weights).ndim != d.type_of(a).ndim:  # As in NumPy: weights along one axis.
        axis = d.normal_axis(axis, d.type_of(a).ndim)
        weights = manipulation.expand_dims(weights, tuple(range(1, d.type_of(a).ndim - axis)))
    weights = multiply(weights, creation.ones_like(a))
    return divide(statistical.sum(multiply(a, weights), axis), statistical.sum(weights, axis))


@form
def nansum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Tensor:
    return statistical.sum(where(elementwise.isnan(a), 0, a), axis, dtype, keepdims)


@form
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    limits = np.finfo(d.type_of(x).dtype.real.numpy) if d.type_of(x).dtype.is_floating else None
    if limits is None:
        return identity(x)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    finite = where(equal(x, math.inf), high, where(equal(x, -math.inf), low, x))
    return where(elementwise.isnan(x), nan, finite)


# ------------------------------------------------------------------------------------------- elementwise


@form
def clip(
    a: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    out: None = None,
    *,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> Tensor:
    return elementwise.clip(a, a_min if min is None else min, a_max if max is None else max)


@form
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Tensor:
    places = d.whole(decimals)
    dtype = d.type_of(a).dtype
    if not places or (not dtype.is_differentiable and (places > 0 or dtype is d.bool_)):
        return _round(a)
    if not dtype.is_differentiable:
        return cast(round(cast(a, d.float64), places), dtype)
    scale = 10.0 ** builtins.abs(places)
    up, down = (multiply, divide) if places > 0 else (divide, multiply)
    return down(_round(up(a, scale)), scale)


@form
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    near = less_equal(abs(subtract(a, b)), add(atol, multiply(rtol, abs(b))))
    near = logical_or(equal(a, b), logical_and(near, elementwise.isfinite(b)))
    if not equal_nan:
        return near
    return logical_or(near, logical_and(elementwise.isnan(a), elementwise.isnan(b)))


@form
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    return statistical.all(isclose(a, b, rtol, atol, equal_nan))


@form
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Tensor:
    return (
        statistical.all(equal(a1, a2))
        if d.type_of(a1).shape == d.type_of(a2).shape
        else creation.asarray(False)
    )


@form
def iscomplexobj(x: ArrayLike) -> bool:
    return d.type_of(x).dtype.is_complex


@form
def isrealobj(x: ArrayLike) -> bool:
    return not d.type_of(x).dtype.is_complex


# --------------------------------------------------------------------------------------------- positions


@form
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> Tensor:
    without("sort", {"kind": kind, "order": order})
    return _sort(flat(a) if axis is None else a, -1 if axis is None else axis)


@form
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> Tensor:
    without("argsort", {"kind": kind, "order": order})
    return _argsort(flat(a) if axis is None else a, -1 if axis is None else axis)


@form
def take(
    a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None, mode: str = "raise"
) -> Tensor:
    without("take", {"mode": mode})
    return manipulation.take(a, indices, axis)


@form
def where_(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /) -> Tensor:
    return where(condition, x, y)


@form
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = where(condition, choice, result)
    return result


FORMS |= {"amax": FORMS["max"], "amin": FORMS["min"], "around": FORMS["round"]}
