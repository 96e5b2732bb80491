"""Operators that read or write at given indices, or find indices."""

from __future__ import annotations

from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.moving import checked_axis
from stopgrad.interop.shared.conversions import along, axis_of, brought
from stopgrad.interop.shared.slices import part

# ------------------------------------------------------------------------------------------------- reading


def _gathered(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    return sg.gather(x, indices, axis=axis)


def _features(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    return sg.take(x, sg.reshape(indices, [-1]), x.ndim - 1)


def _gathered_elements(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    if indices.ndim != x.ndim:
        node.fail(f"its indices have {indices.ndim} axes, and its data {x.ndim}")
    return sg.take_along_axis(_cut(x, indices, axis), indices, axis)


def _cut(x: sg.Output, index: sg.Output, axis: int) -> sg.Output:
    """x cut to the sizes of the index along all axes but one."""
    for i in range(x.ndim):
        if i != axis and x.shape[i] is not index.shape[i] and x.shape[i] != index.shape[i]:
            x = part(x, i, 0, index.shape[i])
    return x


def _gathered_nd(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    return sg.gather_nd(
        x, _from_front(x, indices, node.attribute("batch_dims", 0)), node.attribute("batch_dims", 0)
    )


def _from_front(x: sg.Output, indices: sg.Output, first: int = 0) -> sg.Output:
    """Vectors of indices, negative ones counted from the front."""
    depth = indices.shape[-1]
    if isinstance(depth, sg.Dim):
        return indices
    sizes = sg.stack([sg.size(x, indices.dtype, axis=first + i) for i in range(depth)])
    return sg.where(sg.less(indices, brought(0, indices.dtype)), indices + sizes, indices)


# ------------------------------------------------------------------------------------------------- writing

_METHODS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _method(node: Call) -> str:
    reduction = node.attribute("reduction", "none")
    if reduction not in _METHODS:
        node.fail(f"its reduction is one of {', '.join(_METHODS)}, not {reduction!r}")
    return _METHODS[reduction]


def _scattered_elements(node: Call, x: sg.Output, indices: sg.Output, updates: sg.Output) -> sg.Output:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    if indices.ndim != x.ndim or updates.ndim != x.ndim:
        node.fail(
            f"its indices and updates have {indices.ndim} and {updates.ndim} axes, and its data {x.ndim}"
        )
    if any(not isinstance(size, sg.Dim) and size == 0 for size in indices.shape):
        return x
    places = tuple(
        indices if i == axis else along(sg.range(0, indices.shape[i], dtype=indices.dtype), i, x.ndim)
        for i in range(x.ndim)
    )
    return getattr(sg.at(x)[places], _method(node))(updates)


def _scattered_nd(node: Call, x: sg.Output, indices: sg.Output, updates: sg.Output) -> sg.Output:
    depth = indices.shape[-1]
    if isinstance(depth, sg.Dim):
        node.fail("the last axis of its indices has a size that is a number")
    if any(not isinstance(size, sg.Dim) and size == 0 for size in indices.shape):
        return x
    places = tuple([indices[..., i] for i in range(depth)])
    return getattr(sg.at(x)[places], _method(node))(updates)


def _cache_written(node: Call, cache: sg.Output, update: sg.Output, starts: Any = None) -> sg.Output:
    """A cache with new entries written into it, for each example from its own position on."""
    axis = checked_axis(node, node.attribute("axis", -2), cache.ndim)
    if starts is None:
        starts = sg.zeros([cache.shape[0]], sg.int64)
    steps = along(sg.range(0, update.shape[axis], dtype=sg.int64), axis, cache.ndim)
    places = along(brought(starts, sg.int64), 0, cache.ndim) + steps
    if node.attribute("mode", "linear") == "circular":
        places = sg.floormod(places, sg.size(cache, sg.int64, axis=axis))
    indices = tuple(
        places if i == axis else along(sg.range(0, update.shape[i], dtype=sg.int64), i, cache.ndim)
        for i in range(cache.ndim)
    )
    return sg.at(cache)[indices].set(update)


# ------------------------------------------------------------------------------------------------- finding


@knows(1)
def _largest(node: Call, x: sg.Output, k: sg.Output | Known) -> tuple[sg.Output, sg.Output]:
    axis = checked_axis(node, node.attribute("axis", -1), x.ndim)
    count = node.number(1, k)
    direction = "DESCENDING" if node.attribute("largest", 1) else "ASCENDING"
    if axis == x.ndim - 1 and direction == "DESCENDING":
        values, places = sg.top_k(x, count)
        return values, brought(places, sg.int64)
    order = part(sg.argsort(x, axis, direction, stable=True), axis, 0, count)
    return sg.take_along_axis(x, order, axis), brought(order, sg.int64)


@knows(1)
def _one_hot(node: Call, indices: sg.Output, depth: sg.Output | Known, values: sg.Output) -> sg.Output:
    size = node.number(1, depth)
    size = size if isinstance(size, sg.Dim) else int(size)
    places = brought(indices, sg.int64)
    length = sg.size(sg.fill([size], np.int64(0)), sg.int64)
    places = sg.where(sg.less(places, brought(0, sg.int64)), places + length, places)
    axis = node.attribute("axis", -1)
    hot = sg.one_hot(places, size, axis=axis_of(axis, indices.ndim + 1), dtype=sg.float32)
    return sg.where(sg.cast(hot, sg.bool_), values[1], values[0])


@knows(1)
def _compressed(node: Call, x: sg.Output, condition: sg.Output | Known) -> sg.Output:
    indices = np.flatnonzero(node.known(1, condition))
    axis = node.attribute("axis")
    if axis is None:
        x, axis = sg.reshape(x, [-1]), 0
    return sg.take(x, indices, checked_axis(node, axis, x.ndim))


@knows(0)
def _nonzero(node: Call, x: sg.Output | Known) -> Known:
    array = node.known(0, x)
    return Known(np.array(np.nonzero(array), np.int64).reshape(array.ndim, -1))


@knows(0)
def _unique(node: Call, x: sg.Output | Known) -> tuple[Known, ...]:
    array = node.known(0, x)
    axis = node.attribute("axis")
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.attribute("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return Known(values), *[Known(numbers.astype(np.int64)) for numbers in (first, inverse, counts)]


INDEXING: Table = {
    "Gather": _gathered,
    "GatherElements": _gathered_elements,
    "GatherND": _gathered_nd,
    "ScatterElements": _scattered_elements,
    "ScatterND": _scattered_nd,
    "TensorScatter": _cache_written,
    "TopK": _largest,
    "OneHot": _one_hot,
    "Compress": _compressed,
    "NonZero": _nonzero,
    "Unique": _unique,
    "ai.onnx.ml::ArrayFeatureExtractor": _features,
}
