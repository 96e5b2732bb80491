"""Which elements there are: where conditions hold, which values occur, and which of them elsewhere.

The shape of such a result depends on data. Of arrays it is known at once; for tensors of a graph, ``size`` says how
many elements the result has: what is too much is left out, and ``fill_value`` stands where there are none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stopgrad.build import constant_in, graph_for, together
from stopgrad.errors import ArgumentError, DTypeError, ShapeError
from stopgrad.graph import Output
from stopgrad.operands import Tensor, as_array, is_python, show_shape, type_of
from stopgrad.ops import convert
from stopgrad.ops.arithmetic import add, subtract
from stopgrad.ops.bins import searchsorted
from stopgrad.ops.compare import equal, less, logical_and, logical_not, logical_or, not_equal
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.convert import SelectV2, cast
from stopgrad.ops.data import constant, fill, range as numbers, size_as
from stopgrad.ops.index import gather
from stopgrad.ops.inference import check_dtype, is_any, is_real, normal_axis, same_shape
from stopgrad.ops.join import concat, stack
from stopgrad.ops.moving import moveaxis, unravel_index
from stopgrad.ops.order import argsort
from stopgrad.ops.running import cumsum
from stopgrad.ops.scatters import scatter_update
from stopgrad.ops.shape import reduce_sum, reshape
from stopgrad.ops.slices import part_of
from stopgrad.plain import flag
from stopgrad.promotion import Promotion
from stopgrad.public import builds, guarded
from stopgrad.types import DTypeLike, Size, dtype_of, int32, product, shape_of

__all__ = [
    "argwhere",
    "boolean_mask",
    "intersect1d",
    "isin",
    "nonzero",
    "setdiff1d",
    "unique",
    "unique_with_counts",
    "where",
]


# ------------------------------------------------------------------------------------- where conditions hold


def _places(hit: Any, size: Any, fill_value: Any) -> Tensor:
    """The places in row-major order where a vector of conditions holds, as int32."""
    count = shape_of(size)[0]
    target = convert.where(hit, subtract(cumsum(cast(hit, int32)), 1), np.int32(-1))
    empty = fill((count,), np.int32(fill_value))
    return scatter_update(empty, target, numbers(type_of(hit).shape[0]))


def _found(x: Any, size: Any, fill_value: Any, what: str) -> list[Tensor]:
    """For each axis, the indices of the elements that are not 0."""
    kind = type_of(x)
    if size is None:
        if is_traced(x):
            raise needs_size(what, "size=, as many as there may be")
        return [constant(at.astype(np.int32)) for at in np.nonzero(np.atleast_1d(as_array(x)))][: kind.ndim]
    hit = reshape(cast(tensor(x), "bool"), (product(kind.shape),))
    places = _places(hit, size, -1)
    missing, found, behind = less(places, 0), [], places
    for axis_size in kind.shape[::-1]:
        number = size_as(axis_size, int32, places) if not isinstance(axis_size, int) else max(axis_size, 1)
        found.append(convert.where(missing, np.int32(fill_value), behind % number))
        behind = behind // number
    return found[::-1]
