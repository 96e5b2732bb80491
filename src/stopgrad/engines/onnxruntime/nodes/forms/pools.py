"""Pooling: MaxPool and AveragePool, which take [batch, channels, spatial...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, Size, product
from stopgrad.engines.onnxruntime.nodes.forms.convolutions import first, last, pads_of, steps
from stopgrad.engines.onnxruntime.nodes.forms.parts import number, reshaped
from stopgrad.engines.onnxruntime.nodes.forms.windows import around, counted, inside_axes, spread, windows
from stopgrad.engines.onnxruntime.nodes.writing import Writing
from stopgrad.graph.op import Op
from stopgrad.ops.neural.pooling import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad, MaxPoolGradGrad
from stopgrad.ops.neural.windows import Geometry, Padding

_AVERAGED = frozenset(map(np.dtype, ("float32", "float16")))
"""The dtypes for which the runtime has AveragePool."""

_INT64 = np.dtype(np.int64)


def _read(
    xp: Writing, x: Array, ksize: Sequence[Size], geometry: Geometry, value: float
) -> tuple[Any, dict[str, Any]]:
    """The operand, padded where no attribute can express the padding, and the attributes."""
    strides, _, dilations = geometry
    pairs = around(x.shape[1:-1], ksize, geometry)
    found = {"kernel_shape": list(ksize), **steps(strides, dilations)}
    pads = pads_of(pairs, dilations)
    beyond = any(n >= k for pair, k in zip(pairs, ksize, strict=True) for n in pair if not isinstance(n, Dim))
    if pads is None or beyond:
        return xp.padded(x, [(0, 0), *pairs, (0, 0)], number(value, x.dtype)), found
    return x, found | pads


def _most(xp: Writing, x: Array, geometry: Mapping[str, Any], places: bool) -> list[Any]:
    """The largest elements, channels first, and, with *places*, their positions in the operand."""
    ksize, steps_ = geometry["ksize"], (geometry["strides"], geometry["padding"], geometry["dilations"])
    shape = (x.shape[0], x.shape[-1], *counted(x.shape[1:-1], ksize, steps_))
    x, attributes = _read(xp, x, ksize, steps_, -np.inf)
    kinds = [(np.dtype(x.dtype), shape), (_INT64, shape)]
    made: list[Any] = xp.write("MaxPool", [first(xp, x)], kinds if places else kinds[:1], **attributes)
    return made


def _places(xp: Writing, x: Array, geometry: Mapping[str, Any]) -> tuple[Any, Any]:
    """The operand, padded if no attribute can express it, and for each window the position of its maximum.

    Positions count channels first; of equal elements the first is chosen.
    """
    steps_ = (geometry["strides"], geometry["padding"], geometry["dilations"])
    wide, _ = _read(xp, x, geometry["ksize"], steps_, -np.inf)
    at = _most(xp, x, geometry, True)[1]
    return wide, at


def _max_pool(xp: Writing, x: Array, **geometry: Any) -> Any:
    return last(xp, _most(xp, x, geometry, False)[0])


def _max_pool_grad(xp: Writing, x: Array, g: Array, **geometry: Any) -> Any:
    wide, at = _places(xp, x, geometry)
    shape = (wide.shape[0], wide.shape[-1], *wide.shape[1:-1])
    count = product(shape)
    flat, at = xp.zeros((count,), g.dtype), reshaped(xp, at, (product(at.shape), 1))
    g = reshaped(xp, first(xp, g), (product(g.shape),))
    made = xp.node("ScatterND", [flat, at, g], g.dtype, (count,), reduction="add")
    made = last(xp, reshaped(xp, made, shape))
    return made if wide is x else _trimmed(xp, made, x, geometry)


def _trimmed(xp: Writing, made: Array, x: Array, geometry: Mapping[str, Any]) -> Any:
    steps_ = (geometry["strides"], geometry["padding"], geometry["dilations"])
    pairs = around(x.shape[1:-1], geometry["ksize"], steps_)
    return xp.padded(made, [(0, 0), *((-low, -high) for low, high in pairs), (0, 0)])


def _max_pool_grad_grad(xp: Writing, x: Array, h: Array, **geometry: Any) -> Any:
    wide, at = _places(xp, x, geometry)
    if wide is not x:
        steps_ = (geometry["strides"], geometry["padding"], geometry["dilations"])
        h = xp.padded(h, [(0, 0), *around(x.shape[1:-1], geometry["ksize"], steps_), (0, 0)])
    flat = reshaped(xp, first(xp, h), (product(h.shape),))
    return last(xp, xp.take(flat, at, 0))


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
