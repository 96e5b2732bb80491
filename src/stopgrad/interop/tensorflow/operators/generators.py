"""Operations that make tensors: shapes, constants, ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import LARGEST
from stopgrad.base.types import DType, Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import bounded, brought, product
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import ungraded, wanted_dtype

# ------------------------------------------------------------------------------------------------- shapes


def sizes_known(sizes: list[Any], dtype: DType) -> Known:
    """Sizes as a known vector; numbers, unless a symbolic one is among them."""
    array = np.empty(len(sizes), object)
    array[:] = sizes
    if any(isinstance(size, sg.Dim) for size in sizes):
        return Known(array, dtype)
    return Known(array.astype(dtype.numpy), dtype)


def _shape(node: Call, x: sg.Output) -> Known:
    return sizes_known(list(x.shape), wanted_dtype(node, "out_type", sg.int32))


def _shapes(node: Call, *xs: sg.Output) -> tuple[Known, ...]:
    return tuple([_shape(node, x) for x in xs])


def _size(node: Call, x: sg.Output) -> Known:
    count = sizes_known([product(x.shape)], wanted_dtype(node, "out_type", sg.int32))
    return Known(count.array.reshape(()), count.dtype)


def _rank(node: Call, x: sg.Output) -> Known:
    return Known(np.asarray(x.ndim, np.int32))


@knows(0, 1)
def _broadcast_shapes(node: Call, x: sg.Output | Known, y: sg.Output | Known) -> Known:
    dtype = wanted_dtype(node, "T", sg.int32)
    return sizes_known(list(sg.broadcast_static_shape(node.sizes(x), node.sizes(y))), dtype)


@knows(0, 1)
def _broadcast_gradient_axes(node: Call, x: sg.Output | Known, y: sg.Output | Known) -> tuple[Known, ...]:
    """The axes over which the gradient of each operand of a broadcast is summed.

    Where both sizes are 1, the axis is among both, as TensorFlow has it, unless the shapes are equal.
    """
    dtype = wanted_dtype(node, "T", sg.int32)
    shapes = [node.sizes(x), node.sizes(y)]
    ndim = max(map(len, shapes))
    left, right = ([1] * (ndim - len(shape)) + list(shape) for shape in shapes)
    summed: tuple[list[int], list[int]] = ([], [])
    if shapes[0] == shapes[1]:
        left = right = []
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        ones = [not isinstance(n, sg.Dim) and n == 1 for n in (a, b)]
        for axes, is_one, other_is_one in zip(summed, ones, reversed(ones), strict=True):
            if is_one and (not other_is_one or ones[0] == ones[1]):
                axes.append(i)
    return tuple([Known(np.asarray(axes, dtype.numpy), dtype) for axes in summed])


def _concat_offsets(node: Call, axis: sg.Output | Known, *shapes: sg.Output | Known) -> tuple[Any, ...]:
    """Where each of several tensors begins in their concatenation."""
    along = int(node.known(axis))
    start: Size = 0
    offsets = []
    for shape in shapes:
        sizes = node.sizes(shape)
        place: list[Any] = [0] * len(sizes)
        place[along] = start
        start = start + sizes[along]
        offsets.append(sizes_known(place, sg.int32))
    return tuple(offsets)


# --------------------------------------------------------------------------------------------- constants


@knows(0)
def _filled(node: Call, shape: sg.Output | Known, value: sg.Output) -> sg.Output:
    return sg.broadcast_to(sg.reshape(value, []), list(node.sizes(shape)))


def _zeros_like(node: Call, x: sg.Output) -> sg.Output:
    return sg.zeros_like(x)


def _ones_like(node: Call, x: sg.Output) -> sg.Output:
    return sg.ones_like(x)


@knows(0)
def _empty(node: Call, shape: sg.Output | Known) -> Tensor:
    """``Empty``: what it holds is not defined, so it may be zeros."""
    return sg.zeros(list(node.sizes(shape)), wanted_dtype(node, "dtype"))


@knows(0, 1, 2)
def _range(node: Call, start: Any, limit: Any, delta: Any) -> sg.Output:
    dtype = wanted_dtype(node, "Tidx", sg.int32)
    first, last, step = (_number(node, x) for x in (start, limit, delta))
    if not any(isinstance(x, sg.Dim) for x in (first, last, step)):
        if step == 0 or not all(map(math.isfinite, (first, last, step))):
            node.fail("a range has steps that are not 0, and finite limits")
        count: Any = max(-((first - last) // step), 0)
        if dtype.is_floating:  # Rounded as numbers of this type.
            ends = np.asarray([first, last, step], dtype.numpy)
            count = max(np.ceil((ends[1] - ends[0]) / ends[2]), 0)
        if not count <= LARGEST:
            node.fail(f"a range has no {count:.1e} elements")
        places = brought(sg.range(0, int(count), dtype=sg.int64), dtype)
        return sg.add(brought(first, dtype), sg.multiply(places, brought(step, dtype)))
    return sg.range(first, last, step, dtype=dtype)


def _number(node: Call, x: sg.Output | Known) -> sg.Output:
    """The one number or symbolic size that an operand holds."""
    if isinstance(x, Known) and not x.is_symbolic:
        return x.array.reshape(-1)[0].item()
    return node.sizes(x)[0]


@knows(2)
def _linspace(node: Call, start: sg.Output, stop: sg.Output, count: sg.Output | Known) -> sg.Output:
    number = int(node.known(count))
    bounded(number, "so many numbers")
    return sg.linspace(ungraded(start), ungraded(stop), number)


GENERATORS: Table = {
    "Shape": _shape,
    "ShapeN": _shapes,
    "Size": _size,
    "Rank": _rank,
    "BroadcastArgs": _broadcast_shapes,
    "BroadcastGradientArgs": _broadcast_gradient_axes,
    "ConcatOffset": knows(*range(64))(_concat_offsets),
    "Fill": _filled,
    "ZerosLike": _zeros_like,
    "OnesLike": _ones_like,
    "Empty": _empty,
    "Range": _range,
    "LinSpace": _linspace,
}
