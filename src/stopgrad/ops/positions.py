"""Positions along an axis: indices that may count from its end, as such that count from its front."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.batch_rules import ELEMENTWISE
from stopgrad.build import apply
from stopgrad.graph import Operation, Output
from stopgrad.op import Op, not_differentiable
from stopgrad.operands import Tensor, as_array, type_of
from stopgrad.ops.inference import check_dtype
from stopgrad.public import builds
from stopgrad.samples import ints, sample
from stopgrad.types import DType, Size, TensorType, int8, int32, int64, shape_of, tensor_type

__all__: list[str] = []


class IndexFromFront(Op):
    """Indices counted from the front of an axis, from such as count from its end where they are negative.

    Args:
        indices: the indices.
        size: the axis's size, which may be symbolic.

    Returns:
        The indices as int32, or int64 if they are that: negative ones with the size added.

    Constraints:
        (C1) The indices are signed integers.

    Examples:
        >>> sg.ops.IndexFromFront.function(np.array([0, -1, -4]), 3)
        array([ 0,  2, -1])
    """

    @staticmethod
    def infer(indices: TensorType, *, size: Size) -> TensorType:
        check_dtype(indices, _is_signed, "signed integers as indices")
        return tensor_type(int64 if indices.dtype is int64 else int32, indices.shape)

    gradient = not_differentiable("an index has no derivative")
    batch = ELEMENTWISE

    @staticmethod
    def lower(xp: Any, indices: Any, size: int) -> Any:
        at = indices.astype(np.int64 if indices.dtype.itemsize == 8 else np.int32)
        return xp.where(at < 0, at + xp.asarray(size, at.dtype), at)

    samples = [sample(ints(4, low=-3, high=3), size=3), sample(ints("n", dtype=int8), size=300)]


def _is_signed(dtype: DType) -> bool:
    return dtype.is_integer and dtype.name.startswith("i")


@builds(IndexFromFront)
def index_from_front(indices: Any, size: Any, name: str | None = None) -> Tensor:
    return apply(IndexFromFront, (indices,), (shape_of(size)[0],), name)


def as_indices(indices: Any) -> Any:
    """Python numbers and lists as int32, whatever the tensor that they index holds."""
    if hasattr(indices, "dtype") or hasattr(indices, "as_output"):
        return indices
    array = as_array(indices)
    return array if array.size else array.astype(np.int32)


def from_front(indices: Any, size: Size) -> Any:
    """Indices counted from the front of an axis of this size, from such as may count from its end."""
    kind = type_of(indices).dtype
    if not kind.is_integer or kind.name.startswith("u"):
        return indices
    if not isinstance(indices, (Output, Operation)):
        indices = as_array(indices)
        if not (indices < 0).any():
            return indices
    return apply(IndexFromFront, (indices,), (size,))
