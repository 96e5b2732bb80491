"""The positions of pooling windows, and of the maxima in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared.conversions import bounded, brought, static
from stopgrad.ops.shapes.reshape import reshape


def places(
    counts: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    before: Sequence[int],
) -> list[Any]:
    """For each spatial axis, the index in the input of each element of each window: [windows, window].

    Indices in the padding are negative, or beyond the last.
    """
    bounded(math.prod(counts) * math.prod(window), "the places of windows")
    return [
        np.arange(n)[:, None] * step + np.arange(k) * far - pad
        for n, step, k, far, pad in zip(counts, stride, window, dilation, before, strict=True)
    ]


def max_places(x: sg.Output, windows: Sequence[Any], turned: bool = False) -> Any:
    """The index in its plane of the largest element of each window; the first, if several tie.

    Args:
        x: [batch, channels, sizes].
        windows: from :func:`places`.
        turned: whether indices count with the first spatial axis running fastest.
    """
    spatial = len(windows)
    sizes = static(x.shape[2:], "the places of maxima")
    numbers: Any = np.zeros((1,) * (2 * spatial), np.int64)
    outside: Any = np.zeros((1,) * (2 * spatial), bool)
    step = 1 if turned else int(np.prod(sizes))
    for i, (places, size) in enumerate(zip(windows, sizes, strict=True)):
        step = step if turned else step // size
        shape = [1] * (2 * spatial)
        shape[2 * i], shape[2 * i + 1] = places.shape
        x = sg.take(x, np.clip(places, 0, size - 1), 2 + 2 * i)
        numbers = numbers + places.reshape(shape) * step
        outside = outside | ((places < 0) | (places >= size)).reshape(shape)
        step = step * size if turned else step
    least = -math.inf if x.dtype.is_floating else np.iinfo(x.dtype.numpy).min
    x = sg.where(outside, brought(least, x.dtype), x)
    order = (*range(2, x.ndim, 2), *range(3, x.ndim, 2))
    counts = [places.shape[0] for places in windows]
    elements = int(np.prod([places.shape[1] for places in windows]))
    x = reshape(sg.transpose(x, (0, 1, *order)), [*x.shape[:2], *counts, elements])
    numbers = np.transpose(numbers, [axis - 2 for axis in order]).reshape(*counts, elements)
    best = sg.expand_dims(sg.argmax(x, x.ndim - 1, sg.int64), -1)
    wide = sg.broadcast_to(sg.constant(numbers), [*x.shape[:2], *numbers.shape])
    return sg.squeeze(sg.take_along_axis(wide, best, x.ndim - 1), -1)


def shares(windows: Sequence[Any], sizes: Sequence[int], margins: Sequence[tuple[int, int]]) -> Any:
    """The factor for the sum of each window that makes it the mean of the elements that count.

    Args:
        windows: from :func:`places`.
        sizes: of the spatial axes.
        margins: how many elements of the padding count, before and after each axis.
    """
    counted: Any = np.ones((1,) * len(sizes))
    for i, (places, size, (before, after)) in enumerate(zip(windows, sizes, margins, strict=True)):
        inside = ((places >= -before) & (places < size + after)).sum(axis=1)
        shape = [1] * len(sizes)
        shape[i] = -1
        counted = counted * inside.reshape(shape)
    return 1.0 / counted
