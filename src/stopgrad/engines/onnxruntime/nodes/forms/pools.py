"""Pooling: MaxPool and AveragePool, which take [batch, channels, spatial...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, Size, product
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import number
from stopgrad.engines.onnxruntime.nodes.forms.convolutions import first, last, pads_of, steps
from stopgrad.engines.onnxruntime.nodes.forms.windows import (
    Along,
    around,
    counted,
    elements,
    inside_axes,
    spread,
    summed,
    windows,
)
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.graph.op import Op
from stopgrad.ops.neural.pooling import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad, MaxPoolGradGrad
from stopgrad.ops.neural.windows import Geometry, Padding

_AVERAGED = frozenset(map(np.dtype, ("float32", "float16")))
"""The dtypes for which the runtime has AveragePool."""


def _read(
    xp: Writing, x: Array, ksize: Sequence[Size], geometry: Geometry, value: float
) -> tuple[Any, dict[str, Any]]:
    """The operand, padded where no attribute can express the padding, and the attributes."""
    strides, _, dilations = geometry
    pairs = around(x.shape[1:-1], ksize, geometry)
    attributes = {"kernel_shape": list(ksize), **steps(strides, dilations)}
    pads = pads_of(pairs, dilations)
    beyond = any(n >= k for pair, k in zip(pairs, ksize, strict=True) for n in pair if not isinstance(n, Dim))
    if pads is None or beyond:
        return xp.padded(x, [(0, 0), *pairs, (0, 0)], number(value, x.dtype)), attributes
    return x, attributes | pads


def _most(xp: Writing, x: Array, geometry: Mapping[str, Any]) -> Any:
    """The largest elements, channels first."""
    ksize, steps_ = geometry["ksize"], _geometry(geometry)
    shape = (x.shape[0], x.shape[-1], *counted(x.shape[1:-1], ksize, steps_))
    x, attributes = _read(xp, x, ksize, steps_, -np.inf)
    return xp.write("MaxPool", [first(xp, x)], [(np.dtype(x.dtype), shape)], **attributes)[0]


def _max_pool(xp: Writing, x: Array, **geometry: Any) -> Any:
    return last(xp, _most(xp, x, geometry))


def _geometry(attributes: Mapping[str, Any]) -> Geometry:
    return attributes["strides"], attributes["padding"], attributes["dilations"]


def _of_one_axis(attributes: Mapping[str, Any], i: int) -> dict[str, Any]:
    """The attributes of pooling along one spatial axis alone."""
    padding = attributes["padding"]
    if not isinstance(padding, str):
        padding = tuple(pair if j == i else (0, 0) for j, pair in enumerate(padding))
    per_axis = {name: attributes[name] for name in ("ksize", "strides", "dilations")}
    return {"padding": padding} | {
        name: tuple(n if j == i else 1 for j, n in enumerate(numbers)) for name, numbers in per_axis.items()
    }


def _by_axis(xp: Writing, x: Array, attributes: Mapping[str, Any]) -> list[tuple[Along, list[Any], Any]]:
    """Pooling as one spatial axis after another, the last axis first.

    The first of the largest elements of a window, row by row, is the first in the first of the rows that hold
    one. So it can be found along one axis after another, by comparisons. MaxPool itself could say where it
    is, but not on WebGPU.

    Returns:
        For each axis, from the first on: its windows, their elements by the position in the window, and the
        largest of these.
    """
    by_axis: list[tuple[Along, list[Any], Any]] = []
    whole = _most(xp, x, attributes)
    for i in reversed(range(len(attributes["ksize"]))):
        axis_attributes = _of_one_axis(attributes, i)
        counts = counted(x.shape[1:-1], axis_attributes["ksize"], _geometry(axis_attributes))
        low, high = around(x.shape[1:-1], axis_attributes["ksize"], _geometry(axis_attributes))[i]
        sizes = {name: axis_attributes[name][i] for name in ("ksize", "strides", "dilations")}
        along = Along(i + 2, x.shape[i + 1], counts[i], low, *sizes.values())
        wide = first(xp, x)
        ahead = [(low, high) if axis == along.axis else (0, 0) for axis in range(len(wide.shape))]
        wide = xp.padded(wide, ahead, number(np.nan, x.dtype))  # Padding is no element, and equals nothing.
        most = _most(xp, x, axis_attributes) if i else whole
        by_axis.append((along, elements(xp, wide, along), most))
        x = last(xp, most)
    return by_axis[::-1]


def _max_pool_grad(xp: Writing, x: Array, g: Array, **attributes: Any) -> Any:
    if 0 in (*x.shape, *g.shape):
        return xp.zeros(x.shape, g.dtype)
    g = first(xp, g)
    for along, parts, most in _by_axis(xp, x, attributes):
        shares, free = [], number(1, g.dtype)  # Of elements that tie, the first takes all.
        for part in parts:  # Products, of which the runtime makes six in the time of one Where.
            chosen = xp.astype(xp.equal(part, most), g.dtype) * free
            shares.append(chosen * g)
            free = free - chosen
        g = summed(xp, shares, along)
    return last(xp, g)


def _max_pool_grad_grad(xp: Writing, x: Array, h: Array, **attributes: Any) -> Any:
    h, zero = first(xp, h), number(0, h.dtype)
    for along, parts, most in reversed(_by_axis(xp, x, attributes)):
        ahead = along.reaching()
        wide = xp.padded(h, [ahead if axis == along.axis else (0, 0) for axis in range(len(h.shape))])
        chosen: Any = zero
        for part, other in zip(reversed(parts), reversed(elements(xp, wide, along)), strict=True):
            chosen = xp.where(xp.equal(part, most), other, chosen)
        h = chosen
    return last(xp, h)


# --------------------------------------------------------------------------------------------- averages


def _numbers(
    xp: Writing, spatial: Sequence[Size], ksize: Sequence[Size], geometry: Geometry, dtype: np.dtype[Any]
) -> Any:
    """The number of elements of each window that are not padding: a scalar, or [1, counts..., 1]."""
    if not any(isinstance(n, Dim) or n for pair in around(spatial, ksize, geometry) for n in pair):
        return number(product(ksize), dtype)
    inside = windows(xp, xp.value(xp.ones((1, *spatial, 1), dtype)), ksize, geometry)
    return xp.sum(inside, axis=inside_axes(len(ksize)))


def _avg_pool(
    xp: Writing,
    x: Array,
    *,
    ksize: Sequence[Size],
    strides: tuple[int, ...],
    padding: Padding,
    dilations: tuple[int, ...],
) -> Any:
    geometry = (strides, padding, dilations)
    counts = counted(x.shape[1:-1], ksize, geometry)
    if x.dtype in _AVERAGED and (set(dilations) == {1} or xp.opset >= 19) and 0 not in x.shape:
        wide, attributes = _read(xp, x, ksize, geometry, 0)
        if wide is x:
            shape = (x.shape[0], x.shape[-1], *counts)
            return last(xp, xp.node("AveragePool", [first(xp, x)], x.dtype, shape, **attributes))
    total = xp.sum(windows(xp, x, ksize, geometry), axis=inside_axes(len(ksize)))
    return xp.divide(total, _numbers(xp, x.shape[1:-1], ksize, geometry, x.dtype))


def _avg_pool_grad(
    xp: Writing,
    g: Array,
    *,
    shape: Sequence[Size],
    ksize: Sequence[Size],
    strides: tuple[int, ...],
    padding: Padding,
    dilations: tuple[int, ...],
) -> Any:
    geometry = (strides, padding, dilations)
    if 0 in (*shape, *g.shape):
        return xp.zeros(shape, g.dtype)
    share = xp.divide(g, _numbers(xp, shape[1:-1], ksize, geometry, g.dtype))
    return spread(xp, share, shape[1:-1], ksize, geometry)


POOLS: Mapping[type[Op], Callable[..., Any]] = {
    MaxPool: _max_pool,
    MaxPoolGrad: _max_pool_grad,
    MaxPoolGradGrad: _max_pool_grad_grad,
    AvgPool: _avg_pool,
    AvgPoolGrad: _avg_pool_grad,
}
