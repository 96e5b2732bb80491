"""Images of other sizes, patches and crops.

Which old pixels make up each new one, and their weights, are known while the graph is built. Positions are
computed in float32, as TensorFlow does, so that they round alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared.conversions import Refused, bounded, brought, pulled, static
from stopgrad.interop.shared.convolutions import to_columns
from stopgrad.interop.shared.sampling import cubic_weights, weighted
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows

Weights = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Which old pixels make up each new one, and their weights: both [new, old ones]."""

_STEPS = 1024
"""TensorFlow rounds positions for cubic interpolation to so many parts of a pixel."""


class Axis:
    """An axis that is resized, with the attributes that say how.

    Attributes:
        old, new: its sizes.
        aligned: whether the middles of the outermost pixels stay where they are.
        half: whether pixels are at halves, so that images do not shift.
        scale: how many old pixels a new one takes.
    """

    def __init__(self, node: Call, old: int, new: int) -> None:
        bounded(new, "so large a size")
        if old < 1 or new < 1:
            node.fail("images with no pixels have no other size")
        self.old, self.new = old, new
        self.aligned = bool(node.attribute("align_corners", False))
        self.half = bool(node.attribute("half_pixel_centers", False))
        inner = self.aligned and new > 1
        self.scale = np.float32(old - 1) / np.float32(new - 1) if inner else np.float32(old) / np.float32(new)

    @property
    def places(self) -> np.ndarray[Any, Any]:
        """The position of each new pixel among the old ones."""
        numbers = np.arange(self.new, dtype=np.float32)
        if self.half:
            return (numbers + np.float32(0.5)) * self.scale - np.float32(0.5)
        return numbers * self.scale

    def clipped(self, numbers: np.ndarray[Any, Any]) -> Any:
        return np.clip(numbers.astype(np.int64), 0, self.old - 1)


def _nearest(axis: Axis) -> Weights:
    numbers = np.arange(axis.new, dtype=np.float32)
    where = (numbers + np.float32(0.5)) * axis.scale if axis.half else numbers * axis.scale
    rounded = np.trunc(where + np.float32(0.5)) if axis.aligned else np.floor(where)
    return axis.clipped(rounded)[:, None], np.ones((axis.new, 1))


def _linear(axis: Axis) -> Weights:
    where = axis.places
    lower = np.floor(where)
    share = where - lower
    return axis.clipped(np.stack([lower, np.ceil(where)], 1)), np.stack([1 - share, share], 1)


def _cubic(axis: Axis) -> Weights:
    """Keys's kernel. Pixels outside count as the outermost ones; with half pixels, not at all."""
    where = axis.places
    lower = np.floor(where)
    share = np.rint((where - lower) * _STEPS) / _STEPS
    weights = np.stack(cubic_weights(share, -0.5 if axis.half else -0.75), 1)
    numbers = lower[:, None] + np.arange(-1, 3)
    if axis.half:
        weights = np.where(axis.clipped(numbers) == numbers, weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return axis.clipped(numbers), weights


def _area(axis: Axis) -> Weights:
    """The mean of the old pixels that a new one covers."""
    if axis.scale == 0:
        raise Refused("one pixel has no mean of the pixels between its middle and itself")
    starts = np.arange(axis.new, dtype=np.float32) * axis.scale
    ends = np.arange(1, axis.new + 1, dtype=np.float32) * axis.scale
    first = np.floor(starts)
    most = int(np.max(np.ceil(ends) - first))
    bounded(most * axis.new, "so small a scale")
    numbers = first[:, None] + np.arange(most)
    inside = np.minimum(numbers + 1, ends[:, None]) - np.maximum(numbers, starts[:, None])
    return axis.clipped(numbers), np.maximum(inside, 0) / axis.scale


def _resized(node: Call, x: sg.Output, size: Any, find: Callable[[Axis], Weights]) -> Any:
    if x.ndim != 4 or len(size) != 2:
        node.fail("it takes [batch, height, width, channels], and two sizes")
    for place, new in zip((1, 2), size, strict=True):
        old = x.shape[place]
        if isinstance(old, sg.Dim) or isinstance(new, sg.Dim):
            x = _repeated(node, x, place, new, find)
            continue
        numbers, weights = find(Axis(node, int(old), int(new)))
        one = weights.shape[1] == 1
        x = sg.take(x, numbers[:, 0], place) if one else weighted(x, place, numbers, weights)
    return x


def _repeated(node: Call, x: sg.Output, place: int, new: Any, find: Callable[[Axis], Weights]) -> Any:
    """An axis of symbolic size, which may stay, or be made of pixels that are repeated."""
    old = x.shape[place]
    if old is new or old == new:
        return x
    times = new // old
    whole = find is _nearest and not node.attribute("align_corners", False) and isinstance(times, int)
    if not whole or times * old != new:
        node.fail(f"it resizes {old} to {new}, and such sizes are numbers here; fix those of its input")
    return sg.repeat(x, int(times), place)


def _resizing(find: Callable[[Axis], Weights], keeps_dtype: bool = False) -> Rule:
    @knows(1)
    def rule(node: Call, x: sg.Output, size: sg.Output | Known) -> Any:
        values = x if keeps_dtype else brought(x, sg.float32)
        return _resized(node, values, node.sizes(size), find)

    return rule


def _linear_grad(node: Call, g: sg.Output, image: sg.Output) -> Any:
    start = sg.zeros(list(image.shape), g.dtype)
    (back,) = pulled(lambda x: _resized(node, x, g.shape[1:3], _linear), [start], [g])
    return brought(back, image.dtype)


def _cubic_grad(node: Call, g: sg.Output, image: sg.Output) -> Any:
    start = sg.zeros(list(image.shape), g.dtype)
    (back,) = pulled(lambda x: _resized(node, x, g.shape[1:3], _cubic), [start], [g])
    return brought(back, image.dtype)


@knows(1)
def _nearest_grad(node: Call, g: sg.Output, size: sg.Output | Known) -> Any:
    start = sg.zeros([g.shape[0], *node.sizes(size), g.shape[3]], g.dtype)
    (back,) = pulled(lambda x: _resized(node, x, g.shape[1:3], _nearest), [start], [g])
    return back


def _patches(node: Call, x: sg.Output) -> Any:
    """The windows of images, each as one vector: [batch, rows, columns, window · channels]."""
    window, stride, dilation = ([int(n) for n in node.attribute(name)[1:3]] for name in _PATCHES)
    sizes = static(x.shape[1:3], "patches")
    reach = [(n - 1) * far + 1 for n, far in zip(window, dilation, strict=True)]
    pads = [(0, 0), (0, 0)]
    if str(node.attribute("padding")) == "SAME":
        totals = [
            max((-(-size // step) - 1) * step + n - size, 0)
            for size, step, n in zip(sizes, stride, reach, strict=True)
        ]
        pads = [(total // 2, total - total // 2) for total in totals]
    counts = [
        (size + sum(pad) - n) // step + 1
        for size, pad, n, step in zip(sizes, pads, reach, stride, strict=True)
    ]
    channels = x.shape[3]
    columns = to_columns(sg.transpose(x, (0, 3, 1, 2)), window, dilation, pads, stride)
    y = sg.reshape(columns, [x.shape[0], channels, window[0] * window[1], *counts])
    return sg.reshape(
        sg.transpose(y, (0, 3, 4, 2, 1)), [x.shape[0], *counts, window[0] * window[1] * channels]
    )


_PATCHES = ("ksizes", "strides", "rates")

IMAGES: Table = {
    "ResizeBilinear": _resizing(_linear),
    "ResizeNearestNeighbor": _resizing(_nearest, keeps_dtype=True),
    "ResizeBicubic": _resizing(_cubic),
    "ResizeArea": _resizing(_area),
    "ResizeBilinearGrad": _linear_grad,
    "ResizeBicubicGrad": _cubic_grad,
    "ResizeNearestNeighborGrad": _nearest_grad,
    "ExtractImagePatches": _patches,
}
