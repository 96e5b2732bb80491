"""Windows over the spatial axes of [batch, spatial..., channels], for what no operator of ONNX computes.

Along one axis, windows of size k are gathered by a matrix of indices, [count, k]. The reverse, which adds
them up where they came from, is a product with a matrix of zeros and ones. Both go axis by axis. Where the
size of the windows is known, their elements can also be taken by slices, one for each position.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size, at_least, product
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import reshaped, transposed
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.ops.neural.windows import Geometry, output_shape, reach


def around(spatial: Sequence[Any], ksize: Sequence[Any], geometry: Geometry) -> list[tuple[Any, Any]]:
    """How many elements are added before and after each spatial axis; sizes may be symbolic."""
    strides, padding, dilations = geometry
    if padding == "VALID":
        return [(0, 0)] * len(spatial)
    if padding != "SAME":
        return list(padding)
    counts = counted(spatial, ksize, geometry)
    pairs = []
    for n, k, s, d, o in zip(spatial, ksize, strides, dilations, counts, strict=True):
        total = at_least((o - 1) * s + reach(k, d) - n, 0)
        pairs.append((total // 2, total - total // 2))
    return pairs


def counted(spatial: Sequence[Any], ksize: Sequence[Any], geometry: Geometry) -> tuple[Any, ...]:
    """How many windows there are along each axis."""
    return output_shape(tuple(spatial), tuple(ksize), geometry)


def _positions(xp: Writing, count: Size, k: Size, stride: int, dilation: int) -> Any:
    """The elements of each window along an axis: [count, k]."""
    first = xp.multiply(xp.arange(count, dtype=np.int64), np.int64(stride))
    inside = xp.multiply(xp.arange(k, dtype=np.int64), np.int64(dilation))
    return xp.add(reshaped(xp, first, (count, 1)), reshaped(xp, inside, (1, k)))


def windows(
    xp: Writing, x: Array, ksize: Sequence[Any], geometry: Geometry, value: Array | None = None
) -> Any:
    """All windows, [batch, count, k, count, k, ..., channels]."""
    strides, _, dilations = geometry
    counts = counted(x.shape[1:-1], ksize, geometry)
    x = xp.padded(x, [(0, 0), *around(x.shape[1:-1], ksize, geometry), (0, 0)], value)
    for i, (o, k, s, d) in enumerate(zip(counts, ksize, strides, dilations, strict=True)):
        x = xp.take(x, _positions(xp, o, k, s, d), 1 + 2 * i)
    return x


def inside_axes(rank: int) -> tuple[int, ...]:
    """The axes of :func:`windows` that index elements inside a window."""
    return tuple(range(2, 2 + 2 * rank, 2))


def apart(xp: Writing, x: Array, rank: int) -> Any:
    """Transposes [batch, count, k, ..., channels] to [batch, counts..., ks..., channels]."""
    return transposed(xp, x, (0, *range(1, 1 + 2 * rank, 2), *inside_axes(rank), 1 + 2 * rank))


def _matrix(xp: Writing, n: Size, low: Size, positions: Array, dtype: np.dtype[Any]) -> Any:
    """Ones where an element of an axis is an element of a window, else zeros: [n, count, k]."""
    places = xp.add(xp.arange(n, dtype=np.int64), xp.asarray(low, np.int64))
    return xp.astype(xp.equal(reshaped(xp, places, (n, 1, 1)), xp.expand_dims(positions, 0)), dtype)


def added(xp: Writing, x: Array, spatial: Sequence[Any], ksize: Sequence[Any], geometry: Geometry) -> Any:
    """Adds up windows [batch, count, k, ..., channels] to [batch, spatial..., channels]."""
    batch, channels, rest = x.shape[0], x.shape[-1], x.shape[1:-1]
    pads = around(spatial, ksize, geometry)
    for i, (n, k, s, d) in enumerate(zip(spatial, ksize, geometry[0], geometry[2], strict=True)):
        o = rest[2 * i]
        matrix = _matrix(xp, n, pads[i][0], _positions(xp, o, k, s, d), x.dtype)
        inner = product(rest[2 * i + 2 :]) * channels
        flat = reshaped(xp, x, (batch, *spatial[:i], o * k, inner))
        x = xp.matmul(reshaped(xp, matrix, (n, o * k)), flat)
    return reshaped(xp, x, (batch, *spatial, channels))


def spread(xp: Writing, g: Array, spatial: Sequence[Any], ksize: Sequence[Any], geometry: Geometry) -> Any:
    """Adds each window's number to all its elements: [batch, counts..., channels] to [batch, spatial...]."""
    batch, channels, counts = g.shape[0], g.shape[-1], g.shape[1:-1]
    pads = around(spatial, ksize, geometry)
    per_axis = zip(spatial, ksize, geometry[0], geometry[2], counts, pads, strict=True)
    if all(s == k and d == 1 and low == 0 and n == o * k for n, k, s, d, o, (low, _) in per_axis):
        many = tuple(n for pair in zip(counts, ksize, strict=True) for n in pair)
        single = reshaped(xp, g, (batch, *(n for o in counts for n in (o, 1)), channels))
        return reshaped(xp, xp.broadcast_to(single, (batch, *many, channels)), (batch, *spatial, channels))
    for i, (n, k, s, d) in enumerate(zip(spatial, ksize, geometry[0], geometry[2], strict=True)):
        matrix = _matrix(xp, n, pads[i][0], _positions(xp, counts[i], k, s, d), g.dtype)
        inner = product(counts[i + 1 :]) * channels
        g = xp.matmul(xp.sum(matrix, axis=2), reshaped(xp, g, (batch, *spatial[:i], counts[i], inner)))
    return reshaped(xp, g, (batch, *spatial, channels))


# -------------------------------------------------------------------------------------- along one axis


class Along(NamedTuple):
    """Windows along one axis of a value.

    Attributes:
        axis: the number of the axis.
        size: of the axis.
        count: of windows.
        low: how many elements are added before the first.
        ksize, stride, dilation: of the windows.
    """

    axis: int
    size: Any
    count: Any
    low: Any
    ksize: int
    stride: int
    dilation: int

    def reaching(self) -> tuple[Any, Any]:
        """How many elements to add before and after the axis, so that all windows lie in it."""
        full = (self.count - 1) * self.stride + reach(self.ksize, self.dilation)
        return self.low, full - self.low - self.size


def elements(xp: Writing, x: Array, along: Along) -> list[Any]:
    """The elements of all windows of a padded value, by their position in the window."""
    places = [i * along.dilation for i in range(along.ksize)]
    return [xp.part(x, along.axis, place, along.count, along.stride) for place in places]


def summed(xp: Writing, parts: Sequence[Array], along: Along) -> Any:
    """Adds up the elements of all windows where they came from, along an axis of the first size.

    Elements whose places have the same remainder by the stride are neighbours there: they are added up
    shifted, and then the remainders take turns.
    """
    stride, axis, ndim = along.stride, along.axis, len(parts[0].shape)
    most = (along.ksize - 1) * along.dilation // stride
    turns: list[list[Any]] = [[] for _ in range(stride)]
    for i, part in enumerate(parts):
        shift, turn = divmod(i * along.dilation, stride)
        turns[turn].append(
            xp.padded(part, [(shift, most - shift) if a == axis else (0, 0) for a in range(ndim)])
        )
    length = along.count + most
    shape = tuple(length if a == axis else n for a, n in enumerate(parts[0].shape))
    none = xp.zeros(shape, parts[0].dtype) if not all(turns) else None
    sums = [functools.reduce(xp.add, turn) if turn else none for turn in turns]
    x = sums[0]
    if stride > 1:
        x = reshaped(xp, xp.stack(sums, axis + 1), (*shape[:axis], length * stride, *shape[axis + 1 :]))
    rest = (-along.low, along.size + along.low - length * stride)
    return xp.padded(x, [rest if a == axis else (0, 0) for a in range(ndim)])
