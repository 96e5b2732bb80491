"""Sorting by TopK, which is stable, but puts NaN anywhere.

To sort NaN last, numbers of at most 32 bits are cast to float64, where NaN is replaced by a number that is
larger than all of them. For float64, a first pass sorts the numbers, and a second moves NaN to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import DType, Size
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import number, reshaped
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.graph.op import Op
from stopgrad.ops.order.sorting import Argsort, Sort, TopKV2

_BEYOND = 1e39
"""Greater than every finite number of 32 bits."""


def _ordered(xp: Writing, x: Array, k: Size, axis: int, largest: bool) -> tuple[Any, Any]:
    """The first *k* along an axis in sorted order, and their positions. There must be no NaN."""
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    kinds = [(x.dtype, shape), (np.dtype(np.int64), shape)]
    values, places = xp.write("TopK", [x, xp.ints([k])], kinds, axis=axis, largest=int(largest), sorted=1)
    return values, places


def _integers(xp: Writing, x: Array) -> Any:
    """Integers and booleans as integers that TopK takes, in the same order."""
    dtype = np.dtype(x.dtype)
    if dtype != np.uint64:
        return xp.astype(x, np.int64 if dtype in (np.uint32, np.int64) else np.int32)
    half = number(2**63, np.uint64)
    high = xp.greater_equal(x, half)
    low = xp.astype(xp.where(high, xp.subtract(x, half), x), np.int64)
    return xp.where(high, low, xp.add(low, number(-(2**63), np.int64)))


def _places(xp: Writing, x: Array, k: Size, axis: int, largest: bool) -> Any:
    """The positions of the first *k* in sorted order; NaN counts as the largest."""
    dtype = np.dtype(x.dtype)
    if dtype.kind in "biu":
        return _ordered(xp, _integers(xp, x), k, axis, largest)[1]
    is_nan = xp.isnan(x)
    if dtype.itemsize < 8:
        low, high = number(-_BEYOND, np.float64), number(_BEYOND, np.float64)
        keys = xp.minimum(xp.maximum(xp.astype(x, np.float64), low), high)
        keys = xp.where(is_nan, number(2 * _BEYOND, np.float64), keys)
        return _ordered(xp, keys, k, axis, largest)[1]
    keys = xp.where(is_nan, number(np.inf, dtype), x)
    first = _ordered(xp, keys, x.shape[axis], axis, largest)[1]
    late = xp.node("GatherElements", [xp.astype(is_nan, np.int32), first], np.int32, x.shape, axis=axis)
    second = _ordered(xp, late, k, axis, largest)[1]
    return xp.node("GatherElements", [first, second], np.int64, second.shape, axis=axis)


def _argsort(xp: Writing, x: Array, *, axis: int, descending: bool) -> Any:
    return xp.astype(_places(xp, x, x.shape[axis], axis, descending), np.int32)


def _sort(xp: Writing, x: Array, *, axis: int, descending: bool) -> Any:
    """Sorts floating-point numbers with infinity for NaN; then as many of the largest become NaN."""
    dtype, size = np.dtype(x.dtype), x.shape[axis]
    if dtype.kind in "biu":
        return xp.astype(_elements_at(xp, x, _places(xp, x, size, axis, descending), axis), dtype)
    is_nan = xp.isnan(x)
    values, _ = _ordered(xp, xp.where(is_nan, number(np.inf, dtype), x), size, axis, descending)
    count = xp.sum(xp.astype(is_nan, np.int32), axis=axis, keepdims=True, dtype=np.int32)
    places = reshaped(xp, xp.arange(size, dtype=np.int32), (size, *(1,) * (x.ndim - axis - 1)))
    if descending:
        becomes_nan = xp.less(places, count)
    else:
        becomes_nan = xp.greater_equal(places, xp.subtract(xp.value(size, np.int32), count))
    return xp.where(becomes_nan, number(np.nan, dtype), values)


def _top_k(xp: Writing, x: Array, *, k: Size, dtype: DType) -> tuple[Any, Any]:
    places = _places(xp, x, k, x.ndim - 1, True)
    return _elements_at(xp, x, places, x.ndim - 1), xp.astype(places, dtype.numpy)


def _elements_at(xp: Writing, x: Array, places: Array, axis: int) -> Any:
    return xp.node("GatherElements", [x, places], x.dtype, places.shape, axis=axis)


ORDER: Mapping[type[Op], Callable[..., Any]] = {Argsort: _argsort, Sort: _sort, TopKV2: _top_k}
