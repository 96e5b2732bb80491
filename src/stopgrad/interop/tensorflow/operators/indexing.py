"""Operations that read or write at given indices, or find indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared.conversions import bounded, brought
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import ungraded, wanted_dtype
from stopgrad.interop.tensorflow.operators.moving import axis_in, checked_axis

# ------------------------------------------------------------------------------------------------- reading


def _gathered_rows(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    return sg.gather(x, indices, axis=0)


@knows(2)
def _gathered(node: Call, x: sg.Output, indices: sg.Output, axis: sg.Output | Known) -> sg.Output:
    place, batch = axis_in(node, axis, x.ndim), int(node.attribute("batch_dims", 0))
    return sg.gather(x, indices, axis=place, batch_dims=batch)


def _gathered_nd(node: Call, x: sg.Output, indices: sg.Output) -> sg.Output:
    return sg.gather_nd(x, indices)


# ------------------------------------------------------------------------------------------------- writing


@knows(2)
def _scattered(node: Call, indices: sg.Output, updates: sg.Output, shape: sg.Output | Known) -> sg.Output:
    """Updates at their places in zeros; those for the same place add up."""
    return sg.scatter_nd(indices, updates, list(node.sizes(shape)))


def _written(function: Callable[..., sg.Output]) -> Rule:
    return lambda node, x, indices, updates: function(x, indices, updates)


@knows(*range(64))
def _stitched(node: Call, *operands: Any) -> sg.Output:
    """Rows put where their indices say, which are known; of several for one place the last counts."""
    half = len(operands) // 2
    places = [node.known(x).reshape(-1) for x in operands[:half]]
    shapes = [node.known(x).shape for x in operands[:half]]
    rows = [node.tensor(x) for x in operands[half:]]
    rows = [
        sg.reshape(x, [indices.size, *x.shape[len(shape) :]])
        for x, indices, shape in zip(rows, places, shapes, strict=True)
    ]
    where = np.concatenate(places)
    count = int(where.max()) + 1 if where.size else 0
    bounded(count, "so many rows")
    source = np.full(count, -1, np.int64)
    source[where] = np.arange(where.size)
    together = sg.concat(rows, 0) if len(rows) > 1 else rows[0]
    return sg.gather(together, np.maximum(source, 0), axis=0) if count else together


def _inverted(node: Call, x: sg.Output) -> sg.Output:
    return sg.invert_permutation(x)


# ------------------------------------------------------------------------------------------------- finding


@knows(1)
def _one_hot(
    node: Call, indices: sg.Output, depth: sg.Output | Known, on: sg.Output, off: sg.Output
) -> sg.Output:
    axis = checked_axis(node, int(node.attribute("axis", -1)), indices.ndim + 1)
    hits = brought(indices, sg.int64) if indices.dtype.kind == "u" else indices
    yes, no = (sg.reshape(ungraded(x), []) for x in (on, off))
    return sg.one_hot(hits, node.sizes(depth)[0], yes, no, axis)


@knows(0)
def _where(node: Call, x: sg.Output | Known) -> Known:
    """The places of what is not 0, as many as there are: known values alone have a known number of them."""
    values = node.known(x)
    return Known(np.argwhere(values).astype(np.int64))


@knows(0, 1)
def _unique(node: Call, x: sg.Output | Known, axis: sg.Output | Known | None = None) -> tuple[Known, ...]:
    """The different values of known ones, in the order in which they appear first."""
    values, dtype = node.known(x), wanted_dtype(node, "out_idx", sg.int32)
    axes = [] if axis is None else node.known(axis).reshape(-1).tolist()
    place = checked_axis(node, int(axes[0]), values.ndim) if axes else None
    _, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, axis=place
    )
    order = np.argsort(first)
    unique = np.take(values, first[order], place)
    results = [Known(unique), Known(np.argsort(order)[inverse.reshape(-1)].astype(dtype.numpy))]
    if node.op_type.startswith("UniqueWithCounts"):
        results.append(Known(counts[order].astype(dtype.numpy)))
    return tuple(results)


@knows(0, 1)
def _difference(node: Call, x: sg.Output | Known, y: sg.Output | Known) -> tuple[Known, Known]:
    """The known values that are not among others, and where they stand."""
    values = node.known(x)
    positions = np.flatnonzero(~np.isin(values, node.known(y)))
    return Known(values[positions]), Known(positions.astype(wanted_dtype(node, "out_idx", sg.int32).numpy))


def _searched(side: str) -> Rule:
    """For each row of sorted numbers, where values would be put in."""

    def rule(node: Call, rows: sg.Output, values: sg.Output) -> sg.Output:
        return sg.searchsorted(rows, values, side, wanted_dtype(node, "out_type", sg.int32))

    return rule


def _bucketized(node: Call, x: sg.Output) -> sg.Output:
    bounds = np.asarray(node.attribute("boundaries"), np.float32)
    values = x if x.dtype.is_floating else sg.cast(x, sg.float64)
    return brought(sg.digitize(values, brought(bounds, values.dtype)), sg.int32)


INDEXING: Table = {
    "Gather": _gathered_rows,
    "GatherV2": _gathered,
    "GatherNd": _gathered_nd,
    "ScatterNd": _scattered,
    "TensorScatterUpdate": _written(sg.tensor_scatter_nd_update),
    "TensorScatterAdd": _written(sg.tensor_scatter_nd_add),
    "TensorScatterSub": _written(sg.tensor_scatter_nd_sub),
    "TensorScatterMax": _written(sg.tensor_scatter_nd_max),
    "TensorScatterMin": _written(sg.tensor_scatter_nd_min),
    "DynamicStitch": _stitched,
    "ParallelDynamicStitch": _stitched,
    "InvertPermutation": _inverted,
    "OneHot": _one_hot,
    "Where": _where,
    "Unique": _unique,
    "UniqueV2": _unique,
    "UniqueWithCounts": _unique,
    "UniqueWithCountsV2": _unique,
    "ListDiff": _difference,
    "LowerBound": _searched("left"),
    "UpperBound": _searched("right"),
    "Bucketize": _bucketized,
}
