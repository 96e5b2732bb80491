"""Positions along axes: indices that may count from the end become numbers that count from the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Dim,
    DType,
    Namespace,
    Op,
    Operation,
    Output,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Sizes,
    Tensor,
    TensorType,
)

__all__ = [
    "ravel_multi_index",
]


class RavelMultiIndex(Op):
    """The number, in row-major order, of each element that indices along several axes choose.

    Args:
        indices: for each axis, which element; the function takes them as a list. Negative ones count from the
            axis's end.
        sizes: the sizes of the axes, which may be symbolic.
        dtype: of the result; the function takes int32, or int64 where int32 might not hold the numbers.

    Returns:
        The numbers, of the shape that the indices broadcast to; -1 where one of them lies outside of its
        axis.

    Constraints:
        (C1) The indices are integers.
        (C2) There is one tensor of indices for each size, and at least one.
        (C3) The indices' shapes broadcast.

    Examples:
        >>> sg.ravel_multi_index([np.array([0, 1, -1, 2]), np.array([2, 0, 2, 0])], [2, 3])
        array([ 2,  3,  5, -1], dtype=int32)
    """

    @staticmethod
    def infer(*indices: TensorType, sizes: Sizes, dtype: DType) -> TensorType:
        for index in indices:
            d.check_dtype(index, d.is_integer, "integers as indices")
        if len(indices) != len(sizes) or not indices:
            raise ShapeError(
                f"(C2) {len(indices)} tensors of indices for the sizes {d.show_shape(sizes)}; give one for "
                "each, and at "
                "least one"
            )
        try:
            shape = d.broadcast_shapes(*[one.shape for one in indices])
        except ShapeError as error:
            raise ShapeError(f"(C3) {error.message}") from None
        return d.tensor_type(dtype, shape)

    gradient: d.Gradient = d.not_differentiable("an index has no derivative")
    batch = d.ELEMENTWISE

    @staticmethod
    def lower(xp: Namespace, *indices: Array, sizes: tuple[int, ...], dtype: DType) -> Array:
        target = dtype.numpy
        number = inside = None
        for at, size in zip(indices, sizes, strict=True):
            if isinstance(size, Dim):  # Sizes are not known where the graph is only written, not run.
                place, number_of = at.astype(np.int64), xp.asarray(size, np.int64)
                here = (place < number_of) & (place >= -number_of)
            else:
                here = at < size if size <= np.iinfo(at.dtype).max else at == at
                if at.dtype.kind == "i":
                    here = here & (at >= max(-size, np.iinfo(at.dtype).min))
            front = at.astype(np.int64 if at.dtype.itemsize == 8 else np.int32)
            if at.dtype.kind == "i":
                front = xp.where(front < 0, front + xp.asarray(size, front.dtype), front)
            front = front.astype(target)
            number = front if number is None else number * xp.asarray(size, target) + front
            inside = here if inside is None else inside & here
        return xp.where(inside, number, xp.asarray(-1, target))

    samples: d.Samples = [
        d.sample(d.ints(4, low=-4, high=5), sizes=(3,), dtype=d.int32),
        d.sample(d.ints("n", dtype=d.int8), sizes=(300,), dtype=d.int32),
        d.sample(
            d.ints("n", 1, low=-4, high=4),
            d.ints(2, low=-3, high=3, dtype=d.int64),
            sizes=(3, 2),
            dtype=d.int64,
        ),
        d.sample(d.ints(0), d.ints(1), sizes=(3, 2), dtype=d.int32),
    ]


def _numbering(sizes: Sequence[Any]) -> DType:
    """The dtype for the numbers of elements."""
    count = d.product(sizes)
    return d.int32 if isinstance(count, int) and count < 2**31 else d.int64


@d.builds(RavelMultiIndex)
def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: ShapeLike, name: str | None = None) -> Tensor:
    return raveled(tuple(map(as_indices, d.as_list(multi_index))), d.shape_of(dims), name)


def raveled(indices: Sequence[Any], sizes: Shape, name: str | None = None) -> Tensor:
    """The numbers of the elements that *indices* choose."""
    return d.apply(RavelMultiIndex, indices, (sizes, _numbering(sizes)), name)


def as_indices(indices: ArrayLike) -> Tensor:
    """Python numbers and lists as int32, whatever the dtype of the tensor that they index."""
    if hasattr(indices, "dtype") or hasattr(indices, "as_output"):
        return indices
    array = d.as_array(indices)
    return array if array.size else array.astype(np.int32)


def from_front(indices: ArrayLike, size: Size) -> Tensor:
    """Indices along an axis of this size, negative ones replaced by those that count from the front."""
    kind = d.type_of(indices).dtype
    if not kind.is_integer or kind.name.startswith("u"):
        return indices
    if not isinstance(indices, (Output, Operation)):
        indices = d.as_array(indices)
        if not (indices < 0).any():
            return indices
    return d.apply(RavelMultiIndex, (indices,), ((size,), d.int64 if kind is d.int64 else d.int32))
