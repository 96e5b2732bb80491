"""Calls for test_numpy_numbers.py of what indexes, joins, orders, counts, repeats, moves and searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Parameters that take tensors, functions or types, by whichever function.
TENSORS = {
    "append",
    "arr",
    "bins",
    "dtype_hint",
    "func",
    "index_type",
    "input_",
    "lengths",
    "m",
    "mask",
    "multi_index",
    "operand",
    "out_idx",
    "prepend",
    "segment_ids",
    "sorted_sequence",
    "start_indices",
    "stop",
    "structure",
    "update",
    "value_range",
    "values",
    "weights",
}
# What is kept where nothing else is, in the dtype of the rest; and the only value there is, None.
SETS = ("intersect1d", "setdiff1d", "union1d")
UNIQUE = ("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unique_with_counts")
ELSEWHERE = {
    *((name, "fill_value") for name in ("boolean_mask", "full_like", *SETS, *UNIQUE)),
    ("gather", "validate_indices"),
    ("strided_slice", "var"),
}


def calls(call: Callable[..., Any], tensor: Callable[..., Any]) -> list[Any]:
    """The calls, made of the constructors of test_numpy_numbers.py."""
    x, xx, truth = tensor(4), tensor(4, 6), tensor(4, dtype="bool")
    numbers, at = tensor(4, dtype="int32"), tensor(2, 1, dtype="int32")
    sizes = {"size": 3}
    pairs = (numbers, numbers)
    segments = [f"segment_{kind}" for kind in ("max", "mean", "min", "prod", "sum")]
    scatters = [f"scatter_{kind}" for kind in ("max", "min", "multiply", "update")]
    updates = [f"tensor_scatter_nd_{kind}" for kind in ("add", "max", "min", "sub")]
    return [
        *[call(name, xx, axis=1, reverse=True) for name in ("cummax", "cummin")],
        *[call(name, x, numbers, num_segments=3) for name in segments],
        *[call(f"unsorted_{name}", x, numbers, 3) for name in (*segments, "segment_sqrt_n")],
        *[call(name, xx, at, tensor(4, 2, 1), axis=1, batch_dims=0) for name in scatters],
        *[call(name, x, at, tensor(2), bad_indices_policy="IGNORE") for name in updates],
        *[call(name, numbers, **sizes) for name in UNIQUE],
        *[call(name, *pairs, assume_unique=True, **sizes) for name in ("intersect1d", "setdiff1d")],
        call("union1d", *pairs, **sizes),
        call("isin", *pairs, assume_unique=False, invert=True),
        call("cumulative_logsumexp", xx, axis=-1, exclusive=True, reverse=True),
        call("associative_scan", lambda a, b: a + b, xx, axis=1, reverse=True),
        call("bincount", numbers, None, minlength=3, maxlength=3),
        call("bincount", xx._replace(dtype="int32"), None, axis=-1, binary_output=True, size=5),
        call("confusion_matrix", *pairs, 3),
        call("digitize", x, x, right=True),
        call("histogram_fixed_width", x, tensor(2), nbins=7),
        call("histogram_fixed_width_bins", x, tensor(2), nbins=7),
        call("searchsorted", x, x, side="right"),
        call("dynamic_slice", xx, tensor(2, dtype="int32"), [2, 3]),
        call("dynamic_update_slice", xx, tensor(2, 3), tensor(2, dtype="int32")),
        call("slice", xx, [1, 2], [2, -1]),
        call(
            "strided_slice",
            xx,
            [0, 1],
            [4, -1],
            begin_mask=1,
            end_mask=1,
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=2,
        ),
        call("linspace", 0.5, 2.0, 5),
        call("linspace", x, 2.0, num=3, axis=-1),
        call("meshgrid", x, x, indexing="ij"),
        call("sequence_mask", numbers, maxlen=5),
        call("split", xx, 2, 1, num=2),
        call("unstack", xx, num=4, axis=0),
        call("argwhere", truth, size=3, fill_value=-1),
        call("nonzero", truth, size=3, fill_value=-1),
        call("where", truth, size=3, fill_value=-1),
        call("boolean_mask", xx, truth, axis=0, **sizes),
        call("broadcast_static_shape", [2, 1], [1, 3]),
        call("diff", xx, n=2, axis=0),
        call("flip", xx, axis=[0, 1]),
        call("flip", xx, axis=-1),
        call("moveaxis", xx, 0, 1),
        call("moveaxis", xx, source=[0, 1], destination=[1, 0]),
        call("repeat", xx, 2, axis=1),
        call("repeat", xx, numbers, axis=0, total_repeat_length=6),
        call("roll", xx, 1, axis=0),
        call("roll", xx, [1, -2], axis=[0, 1]),
        call("rot90", xx, k=3, axes=(1, 0)),
        call("swapaxes", xx, 0, axis2=1),
        call("take", xx, numbers, axis=1),
        call("unravel_index", numbers, dims=[2, 3]),
        call("ravel_multi_index", [numbers, numbers], dims=[2, 3]),
        call("argsort", xx, stable=True),
        call("top_k", xx, k=2, sorted=True),
        call("gather_nd", xx, tensor(4, 1, dtype="int32"), batch_dims=1, bad_indices_policy="IGNORE"),
        call("scatter_nd", at, tensor(2), [5], bad_indices_policy="IGNORE"),
        call("count_nonzero", xx, axis=[0, 1], keepdims=True),
    ]
