"""Images of other sizes, patches and crops.

Which old pixels make up each new one, and their weights, are known while the graph is built. Positions are
computed in float32, as TensorFlow does, so that they round alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import Dim
from stopgrad.interop.shared.conversions import Refused, bounded, brought, pulled, static
from stopgrad.interop.shared.convolutions import to_columns
from stopgrad.interop.shared.image_sampling import Sampling, Weights, between, cubic_weights, weighted
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.ops.neural.resize import Kernel, cubic, gaussian, lanczos, triangle

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

    old: int
    new: int
    aligned: bool
    half: bool
    scale: np.float32

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

    def clipped(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
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


def _resized(
    node: Call, x: sg.Output, size: tuple[Any, ...] | tuple[int | Dim, ...], find: Callable[[Axis], Weights]
) -> sg.Output:
    if x.ndim != 4 or len(size) != 2:
        node.fail("it takes [batch, height, width, channels], and two sizes")
    for place, new in zip((1, 2), size, strict=True):
        old = x.shape[place]
        if isinstance(old, sg.Dim) or isinstance(new, sg.Dim):
            x = _repeated(node, x, place, new, find)
            continue
        x = weighted(x, place, *find(Axis(node, int(old), int(new))))
    return x


def _repeated(
    node: Call, x: sg.Output, place: int, new: int | Dim, find: Callable[[Axis], Weights]
) -> sg.Output:
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
    def rule(node: Call, x: sg.Output, size: sg.Output | Known) -> sg.Output:
        values = x if keeps_dtype else brought(x, sg.float32)
        return _resized(node, values, node.sizes(size), find)

    return rule


class Scaling:
    """How an axis is scaled and moved, by a kernel that may be widened so that every pixel counts."""

    kernel: Kernel
    radius: float
    step: np.float32
    move: np.float32
    wide: np.float32

    def __init__(self, node: Call, scale: float, move: float) -> None:
        kernel = str(node.attribute("kernel_type", "lanczos3"))
        if kernel not in _KERNELS:
            node.fail(f"its kernel_type is {kernel!r}, which is unknown")
        self.radius, self.kernel = _KERNELS[kernel]
        if not scale > 0:
            node.fail("it scales by a number above 0")
        self.step, self.move = np.float32(1.0) / np.float32(scale), np.float32(move)
        self.wide = max(self.step, np.float32(1.0)) if node.attribute("antialias", True) else np.float32(1.0)

    def weights(self, old: int, new: int) -> Weights:
        bounded(new, "so large a size")
        centres = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * self.step - self.move * self.step
        reach = np.float32(self.radius) * self.wide
        first = np.maximum(np.ceil(centres - reach - np.float32(0.5)), 0)
        last = np.minimum(np.floor(centres + reach - np.float32(0.5)), old - 1)
        most = max(int((last - first).max()) + 1, 1)
        bounded(most * new, "so small a scale")
        numbers = first[:, None] + np.arange(most)
        away = np.abs((numbers + 0.5 - centres[:, None]) / self.wide)
        weights = np.where(numbers <= last[:, None], self.kernel(away), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
        weights[(centres < 0) | (centres > old)] = 0.0
        return np.clip(numbers.astype(np.int64), 0, old - 1), weights


_KERNELS: dict[str, tuple[float, Kernel]] = {
    **{f"lanczos{radius}": (radius, functools.partial(lanczos, radius=radius)) for radius in (1, 3, 5)},
    "gaussian": (1.5, gaussian),
    "box": (1, lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))),
    "triangle": (1, triangle),
    "keyscubic": (2, functools.partial(cubic, b=0.0, c=0.5)),
    "mitchellcubic": (2, functools.partial(cubic, b=1 / 3, c=1 / 3)),
}
"""How far kernels reach, and their values at distances from their middle."""


def _scaled(node: Call, x: sg.Output, sizes: Sequence[Any], scale: Any, move: Any) -> sg.Output:
    """What ``tf.image.resize`` writes for its smooth kernels, and with antialiasing."""
    factors, moves = node.known(scale).reshape(-1), node.known(move).reshape(-1)
    old = static([x.shape[1], x.shape[2], *sizes], "ScaleAndTranslate")
    for i in (0, 1):
        numbers, weights = Scaling(node, float(factors[i]), float(moves[i])).weights(old[i], old[2 + i])
        x = weighted(x, 1 + i, numbers, weights)
    return x


@knows(1, 2, 3)
def _scale_and_translate(node: Call, x: sg.Output, size: Any, scale: Any, move: Any) -> sg.Output:
    return _scaled(node, brought(x, sg.float32), node.sizes(size), scale, move)


@knows(2, 3)
def _scale_and_translate_grad(node: Call, g: sg.Output, image: sg.Output, scale: Any, move: Any) -> Any:
    start = sg.zeros(list(image.shape), g.dtype)
    (back,) = pulled(lambda x: _scaled(node, x, g.shape[1:3], scale, move), [start], [g])
    return back


def _resizing_grad(find: Callable[[Axis], Weights]) -> Rule:
    def rule(node: Call, g: sg.Output, image: sg.Output) -> sg.Output:
        start = sg.zeros(list(image.shape), g.dtype)
        (back,) = pulled(lambda x: _resized(node, x, g.shape[1:3], find), [start], [g])
        return brought(back, image.dtype)

    return rule


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


@knows(3)
def _cropped(
    node: Call, x: sg.Output, boxes: sg.Output, which: sg.Output, size: sg.Output | Known
) -> sg.Output:
    """Boxes cut out of images, each resized; 0 and 1 are the middles of the outermost pixels."""
    sizes = static(node.sizes(size), "CropAndResize")
    spots: list[Any] = []
    inside: Any = None
    for i, count in enumerate(sizes):
        bounded(count, "so large a crop")
        start, end = (sg.expand_dims(boxes[:, i + 2 * j], 1) for j in (0, 1))
        zero, last = brought(0, boxes.dtype), brought(x.shape[1 + i] - 1, boxes.dtype, x)
        share = np.linspace(0.0, 1.0, count) if count != 1 else np.full(1, 0.5)
        far = sg.multiply(sg.subtract(end, start), brought(share, boxes.dtype))
        place = sg.expand_dims(sg.multiply(sg.add(start, far), last), 2 - i)
        spots.append(sg.broadcast_to(place, [boxes.shape[0], *sizes]))
        here = sg.logical_and(sg.greater_equal(place, zero), sg.less_equal(place, last))
        inside = here if inside is None else sg.logical_and(inside, here)
    images = Sampling(sg.transpose(brought(sg.gather(x, which), boxes.dtype), (0, 3, 1, 2)), 0, True)
    nearest = str(node.attribute("method", "bilinear")) == "nearest"
    pixels = images.at([sg.round(spot) for spot in spots]) if nearest else between(images, spots)
    beyond = brought(float(node.attribute("extrapolation_value", 0.0)), boxes.dtype)
    return sg.where(sg.expand_dims(inside, 3), sg.transpose(pixels, (0, 2, 3, 1)), beyond)


_PATCHES = ("ksizes", "strides", "rates")

IMAGES: Table = {
    "ResizeBilinear": _resizing(_linear),
    "ResizeNearestNeighbor": _resizing(_nearest, keeps_dtype=True),
    "ResizeBicubic": _resizing(_cubic),
    "ResizeArea": _resizing(_area),
    "ResizeBilinearGrad": _resizing_grad(_linear),
    "ResizeBicubicGrad": _resizing_grad(_cubic),
    "ResizeNearestNeighborGrad": _nearest_grad,
    "ScaleAndTranslate": _scale_and_translate,
    "ScaleAndTranslateGrad": _scale_and_translate_grad,
    "CropAndResize": _cropped,
    "ExtractImagePatches": _patches,
}
