"""Sorting, and the k largest elements."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Axis,
    DType,
    DTypeLike,
    Namespace,
    Op,
    ShapeError,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.indexing.gather import scatter_add_along_axis, take_along_axis
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "argsort",
    "sort",
    "top_k",
]


def _order(xp: Namespace, x: Array, axis: int, descending: bool) -> Array:
    """The positions in sorted order; equal elements keep their order, in both directions."""
    if not descending:
        return xp.argsort(x, axis=axis, stable=True)
    return xp.flip(x.shape[axis] - 1 - xp.argsort(xp.flip(x, axis), axis=axis, stable=True), axis)


def _along(x: TensorType, axis: int) -> None:
    d.check_dtype(x, d.is_real, "real numbers")
    d.normal_axis(axis, x.ndim)


@d.reads_arguments
def _read(definition: type[Op], x: ArrayLike, axis: int, direction: str) -> tuple[int, bool]:
    """The attributes *axis* and *descending*, from a function's arguments."""
    if not isinstance(direction, str) or direction.upper() not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(f"{direction!r} is no direction; take 'ASCENDING' or 'DESCENDING'")
    with d.about(definition, x):
        return d.normal_axis(axis, d.type_of(x).ndim), direction.upper() == "DESCENDING"


class Argsort(Op):
    """The positions of the elements in sorted order, along an axis. Equal elements keep their order.

    Args:
        x: the numbers to sort; NaN counts as larger than all others.
        axis: the axis along which to sort.
        descending: whether the largest comes first.

    Returns:
        The positions as int32, in x's shape.

    Constraints:
        (C1) x holds real numbers.
        (C2) The axis exists in x.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, descending: bool) -> TensorType:
        _along(x, axis)
        return d.tensor_type(d.int32, x.shape)

    gradient: d.Gradient = d.not_differentiable("a position has no derivative")
    batch = d.ALONG
    rounds_once = True
    lower: d.Lowering = lambda xp, x, axis, descending: _order(xp, x, axis, descending).astype(np.int32)
    samples: d.Samples = [
        d.sample(d.floats(2, 4), axis=1, descending=False),
        d.sample(d.ints("n", 3, low=0, high=3), axis=0, descending=True),
        d.sample(d.floats(0), axis=0, descending=True),
    ]
    extremes = (([[1.0, math.nan, -math.inf, math.inf]],),)


@d.builds(Argsort, by_type=True)
def argsort(
    values: ArrayLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """The positions of the elements in sorted order, along an axis. Equal elements keep their order.

    Args:
        values: the numbers to sort; NaN counts as larger than all others.
        axis: the axis along which to sort; the last by default.
        direction: "ASCENDING" or "DESCENDING".
        stable: whether equal elements must keep their order; they always do.

    Returns:
        The positions as int32, in the values' shape.

    Constraints:
        (C1) values holds real numbers.
        (C2) The axis exists in values.

    Examples:
        >>> sg.argsort(np.array([3.0, 1.0, 3.0, 2.0]), direction="DESCENDING")
        array([0, 2, 3, 1], dtype=int32)
    """
    d.flag(stable, "stable")
    return d.apply(Argsort, (values,), _read(Argsort, values, axis, direction), name)


class Sort(Op):
    """The elements in sorted order, along an axis.

    Args:
        x: the numbers to sort; NaN counts as larger than all others.
        axis: the axis along which to sort.
        descending: whether the largest comes first.

    Returns:
        The sorted numbers. The gradient goes back to where each element came from; equal elements keep their
        order, so that each gets its own gradient.

    Constraints:
        (C1) x holds real numbers.
        (C2) The axis exists in x.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, descending: bool) -> TensorType:
        _along(x, axis)
        return x

    # The order that sorts a permutation is its inverse, so that no scatter is needed.
    gradient: d.Gradient = {
        "x": lambda g, op: take_along_axis(
            g, _argsort(_argsort(op.x, op.axis, op.descending), op.axis, False), op.axis
        )
    }

    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: int, descending: bool) -> Array:
        ordered = xp.sort(x, axis=axis)
        return xp.flip(ordered, axis) if descending else ordered

    samples: d.Samples = [
        d.sample(d.floats(2, 4, distinct=True), axis=1, descending=False),
        d.sample(d.floats("n", 3, distinct=True), axis=0, descending=True),
        d.sample(d.floats(0), axis=0, descending=False),
    ]
    extremes = (([[1.0, math.nan, -math.inf, math.inf]],),)


@d.builds(Sort, by_type=True)
def sort(values: ArrayLike, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The elements in sorted order, along an axis.

    Args:
        values: the numbers to sort; NaN counts as larger than all others.
        axis: the axis along which to sort; the last by default.
        direction: "ASCENDING" or "DESCENDING".

    Returns:
        The sorted numbers. The gradient goes back to where each element came from; equal elements keep their
        order, so that each gets its own gradient.

    Constraints:
        (C1) values holds real numbers.
        (C2) The axis exists in values.

    Examples:
        >>> sg.sort(np.array([3.0, 1.0, 2.0]))
        array([1., 2., 3.])
    """
    return d.apply(Sort, (values,), _read(Sort, values, axis, direction), name)


def _argsort(x: ArrayLike, axis: int, descending: bool) -> Tensor:
    return d.apply(Argsort, (x,), (axis, descending))


class TopKV2(Op):
    """The k largest elements along the last axis, largest first, and their positions.

    Args:
        x: the numbers to choose from; NaN counts as larger than all others.
        k: the number of elements.
        dtype: the dtype of the positions.

    Returns:
        The values and their positions. Of equal elements the first is taken first; only the elements that
        are taken get a gradient.

    Constraints:
        (C1) x holds real numbers.
        (C2) x has at least one axis.
        (C3) The last axis has at least k elements.
        (C4) dtype is a dtype of integers.
    """

    @staticmethod
    def infer(x: TensorType, *, k: Size, dtype: DType) -> tuple[TensorType, TensorType]:
        _along(x, -1)
        if isinstance(k, int) and isinstance(x.shape[-1], int) and k > x.shape[-1]:
            raise ShapeError(f"(C3) the last axis of {x!r} has fewer than {k} elements")
        d.check_dtype(d.tensor_type(dtype, ()), d.is_integer, "a dtype of integers", "C4")
        shape = (*x.shape[:-1], k)
        return d.tensor_type(x.dtype, shape), d.tensor_type(dtype, shape)

    gradient: d.Gradient = {
        "x": lambda g, op: scatter_add_along_axis(zeros_like(op.x), op.outputs[1], g[0], -1)
    }

    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, k: int, dtype: DType) -> tuple[Array, Array]:
        order = _order(xp, x, x.ndim - 1, True)[..., :k]
        return xp.take_along_axis(x, order, -1), order.astype(dtype.numpy)

    samples: d.Samples = [
        d.sample(d.floats(2, 4, distinct=True), k=2, dtype=d.int32),
        d.sample(d.floats("n", 3, distinct=True), k=3, dtype=d.int64),
        d.sample(d.floats(3), k=0, dtype=d.int32),
    ]
    extremes = (([1.0, math.nan, -math.inf, math.inf],),)


class TopK(NamedTuple):
    """The largest elements, and their positions."""

    values: Tensor
    indices: Tensor


@d.builds(TopKV2)
def top_k(
    input: ArrayLike,
    k: Size | str = 1,
    sorted: bool = True,
    index_type: DTypeLike = "int32",
    name: str | None = None,
) -> TopK:
    """The k largest elements along the last axis, largest first, and their positions.

    Args:
        input: the numbers to choose from; NaN counts as larger than all others.
        k: the number of elements.
        sorted: whether the largest must come first; they always come in that order.
        index_type: the dtype of the positions.

    Returns:
        A named tuple of the values and their positions (indices). NaN counts as the largest, as in JAX; in
        TensorFlow its position is undefined. Of equal elements the first is taken first; only the elements
        that are taken get a gradient.

    Constraints:
        (C1) The input holds real numbers.
        (C2) The input has at least one axis.
        (C3) The last axis has at least k elements.
        (C4) index_type is a dtype of integers.

    Examples:
        >>> sg.top_k(np.array([3.0, 1.0, 4.0, 1.0]), 2)
        TopK(values=array([4., 3.]), indices=array([2, 0], dtype=int32))
    """
    d.flag(sorted, "sorted")
    return TopK(*d.apply(TopKV2, (input,), (d.shape_of(k)[0], d.dtype_of(index_type)), name))
