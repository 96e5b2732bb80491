"""The windows of pooling operators: where they lie, their means, and the places of their maxima."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import Refused, bounded, brought, static
from stopgrad.interop.shared.convolutions import LAYOUTS
from stopgrad.interop.shared.slices import padded
from stopgrad.ops.shapes.reshape import reshape


class Windows:
    """The windows of a pooling operator over the axes behind batch and channels.

    Args:
        sizes: of these axes.
        window, stride, dilation: for each axis, how many elements a window has, how far the next one is, and
            how far its elements are from each other.
        pads: the padding before and after each axis.
        upwards: whether the number of windows is rounded up.

    Attributes:
        counts: the number of windows along each axis.
        wide: the pads, widened for the last windows.

    Raises:
        Refused: the number of windows depends on symbolic sizes.
    """

    sizes: tuple[Any, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: list[tuple[Any, Any]]
    layout: str

    def __init__(
        self,
        sizes: Sequence[Any],
        window: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        pads: Sequence[tuple[Any, Any]],
        upwards: bool = False,
    ) -> None:
        self.sizes, self.pads = tuple(sizes), [*pads]
        self.window, self.stride, self.dilation = tuple(window), tuple(stride), tuple(dilation)
        self.layout = LAYOUTS[len(self.window)]
        self.counts: list[Any] = []
        self.wide: list[tuple[Any, Any]] = []
        for size, n, step, far, (before, after) in zip(sizes, window, stride, dilation, pads, strict=True):
            reach = far * (n - 1) + 1
            room = size + before + after - reach
            count = room // step + 1
            if upwards and step > 1:
                if isinstance(size, sg.Dim):
                    raise Refused("ceil_mode needs sizes that are numbers; fix the sizes of its input")
                count = -(-room // step) + 1
                if (count - 1) * step >= size + before:
                    count -= 1  # No window starts in the padding at the end.
                after = max((count - 1) * step + reach - size - before, after)
            self.counts.append(count)
            self.wide.append((before, after))

    @property
    def elements(self) -> int:
        """How many elements a window has."""
        return math.prod(self.window)

    def places(self, what: str) -> list[Any]:
        """For each axis, the index in the input of each element of each window: [windows, window].

        Indices in the padding are negative, or beyond the last.
        """
        counts = static(self.counts, what)
        bounded(math.prod(counts) * self.elements, "the places of windows")
        return [
            np.arange(count)[:, None] * step + np.arange(n) * far - before
            for count, step, n, far, (before, _) in zip(
                counts, self.stride, self.window, self.dilation, self.pads, strict=True
            )
        ]

    def pooled(
        self,
        function: Callable[..., sg.Output],
        x: sg.Output,
        around: Sequence[tuple[Size, Size]] | str | None = None,
    ) -> sg.Output:
        """x pooled by a function of ours; to the mean of a window its padding does not count."""
        padding = self.wide if around is None else around
        options = {"data_format": self.layout, "dilations": list(self.dilation)}
        return function(x, list(self.window), list(self.stride), padding, **options)

    def means(self, x: sg.Output) -> sg.Output:
        """The means of the windows of x, in which all zeros around it count."""
        return self.pooled(sg.avg_pool, padded(x, [(0, 0), (0, 0), *self.wide]), "VALID")

    def padded_means(self, x: sg.Output, what: str) -> sg.Output:
        """The means of the windows of x, in which the zeros of its pads count, and none beyond."""
        y = self.means(x)
        if self.wide == self.pads:
            return y
        share = _shares(self.places(what), static(self.sizes, what), self.pads)
        return sg.multiply(y, brought(share * self.elements, x.dtype))


def max_places(x: sg.Output, windows: Sequence[Any], turned: bool = False) -> sg.Output:
    """The index in its plane of the largest element of each window; the first, if several tie.

    Args:
        x: [batch, channels, sizes].
        windows: from :meth:`Windows.places`.
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


def _shares(
    windows: Sequence[Any], sizes: Sequence[int], margins: Sequence[tuple[int, int]]
) -> np.ndarray[Any, Any]:
    """The factor for the sum of each window that makes it the mean of the elements that count.

    Args:
        windows: from :meth:`Windows.places`.
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
