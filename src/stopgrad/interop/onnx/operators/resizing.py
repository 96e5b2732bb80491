"""Resize in all its modes, and Upsample.

Interpolation goes one axis at a time. Unless sizes are symbolic, the old elements that make up each new one,
and their weights, are known while the graph is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.shared.conversions import along, axis_of, bounded, brought
from stopgrad.interop.shared.image_sampling import cubic_weights, far, near, weighted


class Axis:
    """An axis that is resized.

    Attributes:
        old, new: its sizes.
        scale: the factor by which it grows.
        start, end: the part of it to resize, from 0 to 1.
    """

    old: int
    new: int
    scale: float
    start: float
    end: float

    def __init__(self, old: int, new: int, scale: float, start: float = 0.0, end: float = 1.0) -> None:
        self.old, self.new, self.scale, self.start, self.end = old, new, scale, start, end

    @property
    def width(self) -> float:
        """The new size before rounding."""
        return self.scale * self.old

    @property
    def is_same(self) -> bool:
        return self.old == self.new and math.isclose(self.scale, 1.0) and (self.start, self.end) == (0.0, 1.0)


def _if_one(width: sg.Output | float, alone: float, other: sg.Output | float) -> Any:
    """*alone* if a size, which may be an output, is 1, else *other*."""
    if isinstance(width, sg.Output):
        return sg.where(sg.equal(width, 1.0), alone, other)
    return alone if width == 1 else other


def _half_pixel(x: sg.Output | np.ndarray[Any, Any], axis: Axis | OpenAxis) -> Any:
    return (x + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(x: sg.Output | np.ndarray[Any, Any], axis: Axis | OpenAxis) -> Any:
    return (x + 0.5) / axis.scale * _if_one(axis.width, 0.0, 1.0) - 0.5


def _symmetric(x: sg.Output | np.ndarray[Any, Any], axis: Axis | OpenAxis) -> Any:
    return axis.old / 2 * (1 - axis.new / axis.width) + _half_pixel(x, axis)


def _align_corners(x: sg.Output | np.ndarray[Any, Any], axis: Axis | OpenAxis) -> Any:
    return x * (axis.old - 1) / _if_one(axis.width, 1.0, axis.width - 1)


def _cropped(x: np.ndarray[Any, Any], axis: Axis) -> Any:
    span = (axis.end - axis.start) * (axis.old - 1)
    inner = x * 0.0 + span / 2 if axis.width == 1 else x * span / (axis.width - 1)
    return inner + axis.start * (axis.old - 1)


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda x, axis: x / axis.scale,
    "tf_crop_and_resize": _cropped,
}
"""The position of each new element in the old axis, by ``coordinate_transformation_mode``."""

NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda ratio: ratio > 0.5,
    "round_prefer_ceil": lambda ratio: ratio >= 0.5,
    "floor": lambda ratio: ratio >= 1.0,
    "ceil": lambda ratio: ratio > 0.0,
}
"""Whether to take the upper neighbour, by ``nearest_mode``; a function of the position in (0, 1]."""


def _triangle(distance: np.ndarray[Any, Any]) -> Any:
    return np.clip(1 - np.abs(distance), 0, 1)


def _cubic(a: float) -> Callable[[Any], Any]:
    def kernel(distance: np.ndarray[Any, Any]) -> Any:
        x = np.abs(distance)
        return np.where(x <= 1, near(x, a), np.where(x < 2, far(x, a), 0.0))

    return kernel


def _smoothed(kernel: Callable[[Any], Any], radius: int, ratio: np.ndarray[Any, Any], scale: float) -> Any:
    """The weights of a kernel widened to the extent of a new element in the old axis: [new, old ones]."""
    scale = min(scale, 1.0)
    bounded(2 * radius / scale * max(len(ratio), 1), "so small a scale")
    first = math.floor(-radius / scale) + 1
    steps = np.arange(first, 2 - first)
    weights = kernel((steps - ratio[:, None]) * scale)
    return weights / weights.sum(axis=1, keepdims=True)


class Interpolation:
    """The attributes of a Resize about interpolation."""

    mode: str
    transform: str
    nearest: str
    a: float
    smooth: bool
    inside: bool
    beyond: float

    def __init__(self, node: Call) -> None:
        self.mode = str(node.attribute("mode", "nearest"))
        self.transform = str(node.attribute("coordinate_transformation_mode", "half_pixel"))
        self.nearest = str(node.attribute("nearest_mode", "round_prefer_floor"))
        self.a = float(node.attribute("cubic_coeff_a", -0.75))
        self.smooth = bool(node.attribute("antialias", 0))
        self.inside = bool(node.attribute("exclude_outside", 0))
        self.beyond = float(node.attribute("extrapolation_value", 0.0))
        for name, table in ((self.transform, PLACES), (self.nearest, NEAREST)):
            if name not in table:
                node.fail(f"{name!r} is unknown; it is one of {', '.join(table)}")
        if self.mode not in ("nearest", "linear", "cubic"):
            node.fail(f"mode={self.mode!r} is unknown; it is nearest, linear or cubic")

    def places(self, axis: Axis) -> Any:
        return PLACES[self.transform](np.arange(axis.new, dtype=np.float64), axis)

    def weights(self, ratio: np.ndarray[Any, Any], scale: float) -> Any:
        """The weights of the old elements around each new one, [new, old ones], by their distance."""
        if self.mode == "nearest":
            upper = NEAREST[self.nearest](ratio) | (ratio == 1.0)
            return np.stack([~upper, upper], 1).astype(np.float64)
        if self.mode == "linear":
            return _smoothed(_triangle, 1, ratio, scale) if self.smooth else np.stack([1 - ratio, ratio], 1)
        if self.smooth:
            return _smoothed(_cubic(self.a), 2, ratio, scale)
        return np.stack(cubic_weights(ratio, self.a), 1)

    def along(self, axis: Axis) -> tuple[Any, Any]:
        """The indices and weights of the old elements that make up each new one: both [new, old ones]."""
        bounded(axis.new, "so large a size")
        where = self.places(axis)
        # A position on an element counts as a distance of 1 from its lower neighbour.
        lower = np.ceil(where).astype(np.int64) - 1
        weights = self.weights(where - lower, axis.scale)
        count = weights.shape[1]
        numbers = lower[:, None] + np.arange(1 - count // 2, 1 + count // 2)
        if self.inside:
            weights = np.where((numbers < 0) | (numbers >= axis.old), 0.0, weights)
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1.0, total)
        return np.clip(numbers, 0, axis.old - 1), weights


def interpolated(x: sg.Output, place: int, axis: Axis, how: Interpolation) -> Any:
    """A tensor resized along one axis."""
    numbers, weights = how.along(axis)
    if how.mode == "nearest":
        x = sg.take(x, np.take_along_axis(numbers, weights.argmax(axis=1)[:, None], 1)[:, 0], place)
    else:
        x = weighted(x, place, numbers, weights)
    if how.transform != "tf_crop_and_resize":
        return x
    where = how.places(axis)
    beyond = along((where < 0) | (where > axis.old - 1), place, x.ndim)
    return sg.where(beyond, brought(how.beyond, x.dtype), x) if beyond.any() else x


class OpenAxis:
    """As :class:`Axis`, for symbolic sizes: the sizes are outputs."""

    count: Size
    last: sg.Output
    old: sg.Output
    new: sg.Output
    scale: Any
    width: Any

    def __init__(self, x: sg.Output, place: int, new: Size, scale: float | None) -> None:
        old = x.shape[place]
        self.count, self.last = new, brought(old - 1, sg.int64, x)
        self.old, self.new = (brought(size, sg.float64, x) for size in (old, new))
        self.scale = sg.realdiv(self.new, self.old) if scale is None else brought(scale, sg.float64)
        self.width = sg.multiply(self.scale, self.old)


def _opened(node: Call, x: sg.Output, place: int, axis: OpenAxis, how: Interpolation) -> Any:
    """As :func:`interpolated`, for symbolic sizes: indices and weights are computed in the graph."""
    if how.smooth or how.transform == "tf_crop_and_resize":
        node.fail(
            "with antialias, or where it crops, it needs sizes that are numbers; fix those of its input"
        )
    where = PLACES[how.transform](sg.cast(sg.range(0, axis.count, dtype=sg.int64), sg.float64), axis)
    before = sg.ceil(where) - 1.0
    ratio, lower = where - before, sg.cast(before, sg.int64)
    if how.mode == "nearest":
        upper = sg.logical_or(NEAREST[how.nearest](ratio), sg.equal(ratio, 1.0))
        return sg.take(x, _clipped(lower + sg.cast(upper, sg.int64), axis), place)
    weights = [1.0 - ratio, ratio] if how.mode == "linear" else cubic_weights(ratio, how.a)
    numbers = [lower + (i + 1 - len(weights) // 2) for i in range(len(weights))]
    if how.inside:
        within = [sg.equal(number, _clipped(number, axis)) for number in numbers]
        weights = [sg.where(inside, w, 0.0) for inside, w in zip(within, weights, strict=True)]
        total = sg.add_n(weights)
        weights = [sg.divide_no_nan(w, total) for w in weights]
    shares = [brought(along(w, place, x.ndim), x.dtype) for w in weights]
    neighbours = [sg.take(x, _clipped(number, axis), place) for number in numbers]
    return sg.add_n([sg.multiply(pixels, w) for pixels, w in zip(neighbours, shares, strict=True)])


def _clipped(numbers: sg.Output, axis: OpenAxis) -> Any:
    """Indices of elements, clipped to the axis."""
    return sg.minimum(sg.maximum(numbers, 0), axis.last)


def _repeats(old: Size, new: Size, how: Interpolation) -> int | None:
    """How often each element is repeated, if resizing only repeats; for symbolic sizes."""
    times = new // old
    modes = (how.transform, how.nearest)
    plain = modes == ("asymmetric", "floor") or (
        how.transform in ("half_pixel", "pytorch_half_pixel") and how.nearest.startswith("round")
    )
    whole = isinstance(times, int) and old * times == new
    return int(times) if how.mode == "nearest" and plain and whole else None


def resized(
    node: Call,
    x: sg.Output,
    new: Sequence[Any],
    scales: Sequence[float | None],
    roi: Sequence[Sequence[float]],
    how: Interpolation,
) -> Any:
    dtype = x.dtype
    if how.mode != "nearest" and (not dtype.is_floating or dtype.itemsize == 2):
        x = sg.cast(x, sg.float32)
    for place, (size, scale) in enumerate(zip(new, scales, strict=True)):
        old = x.shape[place]
        if isinstance(old, sg.Dim) or isinstance(size, sg.Dim):
            if old is size or old == size:
                continue
            times = _repeats(old, size, how)
            if times is not None:
                x = sg.repeat(x, times, place)
                continue
            x = _opened(node, x, place, OpenAxis(x, place, size, scale), how)
            continue
        axis = Axis(int(old), int(size), size / old if scale is None else float(scale), *roi[place])
        if not axis.is_same:
            x = interpolated(x, place, axis, how)
    return brought(x, dtype)


def _spread(values: Sequence[Any], axes: Sequence[int], whole: Sequence[Any]) -> list[Any]:
    full = list(whole)
    for axis, value in zip(axes, values, strict=True):
        full[axis] = value
    return full


def _kept_ratio(
    node: Call, x: sg.Output, sizes: list[Any], axes: Sequence[int], policy: str
) -> tuple[Any, Any]:
    """Sizes and scales if all axes get the same scale."""
    if any(isinstance(sizes[axis], sg.Dim) or isinstance(x.shape[axis], sg.Dim) for axis in axes):
        node.fail("keep_aspect_ratio_policy needs sizes that are numbers")
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    if choose is None:
        node.fail(f"keep_aspect_ratio_policy={policy!r} is unknown")
    scale = choose(sizes[axis] / x.shape[axis] for axis in axes)
    new = [math.floor(scale * x.shape[axis] + 0.5) for axis in axes]
    return _spread(new, axes, x.shape), _spread([scale] * len(axes), axes, [1.0] * x.ndim)


@knows(1, 2, 3)
def resize(
    node: Call,
    x: sg.Output,
    roi: Any = None,
    scales: sg.Output | Known | None = None,
    sizes: sg.Output | Known | None = None,
) -> Any:
    how = Interpolation(node)
    axes = [axis_of(int(axis), x.ndim) for axis in node.attribute("axes") or range(x.ndim)]
    parts: list[tuple[float, float]] = [(0.0, 1.0)] * x.ndim
    if how.transform == "tf_crop_and_resize":
        region = np.asarray(node.known(1, roi), np.float64)
        ends = list(zip(region[: len(axes)].tolist(), region[len(axes) :].tolist(), strict=True))
        parts = _spread(ends, axes, parts)
    if sizes is not None and sizes.shape != (0,):
        new = _spread(node.sizes(sizes, 3), axes, x.shape)
        policy = str(node.attribute("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            return resized(node, x, *_kept_ratio(node, x, new, axes, policy), parts, how)
        return resized(node, x, new, [None] * x.ndim, parts, how)
    if scales is None:
        node.fail("it has neither scales nor sizes")
    ratios = [_meant(factor) for factor in np.asarray(node.known(2, scales), np.float64).tolist()]
    factors = _spread(ratios, axes, [1.0] * x.ndim)
    return resized(node, x, _scaled(node, x, factors, parts), factors, parts, how)


def _meant(factor: float) -> float:
    """One of 1/2, 1/3, ... where a factor of float32 is the nearest to that: places are counted by it."""
    parts = round(1 / factor) if factor > 0 else 0
    return 1 / parts if parts and np.float32(1 / parts) == np.float32(factor) else factor


def _scaled(
    node: Call, x: sg.Output, factors: Sequence[float], parts: Sequence[tuple[float, float]]
) -> list[Any]:
    """The sizes that result from factors."""
    new: list[Any] = []
    for size, factor, (start, end) in zip(x.shape, factors, parts, strict=True):
        if not isinstance(size, sg.Dim):
            new.append(math.floor(size * (end - start) * factor))
        elif (start, end) != (0.0, 1.0):
            node.fail(f"the size {size} is symbolic, and part of it is cropped: fix the size")
        elif factor == int(factor):
            new.append(size * int(factor))
        elif math.isclose(1 / factor, round(1 / factor), rel_tol=1e-6):
            new.append(size // round(1 / factor))
        else:
            node.fail(
                f"the size {size} is symbolic, and neither {factor} nor its inverse is whole: fix the size"
            )
    return new


@knows(1)
def upsample(node: Call, x: sg.Output, scales: sg.Output | Known) -> Any:
    """Opset 9's: from the elements at or below each position."""
    how = Interpolation(node)
    how.transform, how.nearest = "asymmetric", "floor"
    factors = np.asarray(node.known(1, scales), np.float64).tolist()
    parts = [(0.0, 1.0)] * x.ndim
    return resized(node, x, _scaled(node, x, factors, parts), factors, parts, how)


RESIZING: Table = {
    "Resize": resize,
    "Upsample": upsample,
}
