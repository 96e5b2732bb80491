"""Pooling, and images of other sizes: nearest, linear and cubic interpolation, sampling at a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import Refused, along, brought, product, pulled, spread, static
from stopgrad.interop.shared.convolutions import LAYOUTS
from stopgrad.interop.shared.pooling import max_places, places, shares
from stopgrad.interop.shared.sampling import cubic_weights, grid_sampled
from stopgrad.interop.shared.slices import padded
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table
from stopgrad.ops.shapes.reshape import reshape


def _windows(
    size: Size, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> tuple[Any, Any]:
    """The number of windows, and how much padding they need at the end."""
    reach = dilation * (window - 1) + 1
    if isinstance(size, sg.Dim):
        if ceil_mode:
            raise Refused("pooling with ceil_mode needs sizes that are numbers; export without dynamic ones")
        return (size + 2 * padding - reach) // stride + 1, padding
    room = size + 2 * padding - reach
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # No window starts in the padding at the end.
    return count, max((count - 1) * stride + reach - size - padding, padding if not ceil_mode else 0)


class _Pooling:
    """The arguments of a pooling operator, for each spatial axis; an input without a batch gets one."""

    def __init__(
        self,
        x: sg.Output,
        spatial: int,
        window: Sequence[int],
        stride: Sequence[int] | None,
        padding: Sequence[int] | int,
        dilation: Sequence[int] | int,
        ceil_mode: bool,
    ) -> None:
        self.batched = x.ndim == spatial + 2
        self.x = x if self.batched else sg.expand_dims(x, 0)
        self.window = spread(window, spatial)
        self.stride = spread(stride, spatial) if stride is not None and stride != [] else self.window
        self.padding, self.dilation = spread(padding, spatial), spread(dilation, spatial)
        found = [
            _windows(size, window, stride, padding, dilation, ceil_mode)
            for size, window, stride, padding, dilation in zip(
                self.x.shape[2:], self.window, self.stride, self.padding, self.dilation, strict=True
            )
        ]
        self.counts = [count for count, _ in found]
        self.pads = [(before, after) for before, (_, after) in zip(self.padding, found, strict=True)]
        self.layout = LAYOUTS[spatial]

    def ended(self, y: sg.Output) -> Any:
        return y if self.batched else sg.squeeze(y, 0)

    def places(self) -> list[Any]:
        """For each spatial axis, the index in the input of each element of each window: [windows, window]."""
        counts = static(self.counts, "the places of maxima")
        return places(counts, self.window, self.stride, self.dilation, self.padding)


def _max_pooled(spatial: int) -> Any:
    def translated(
        call: Call,
        x: sg.Output,
        window: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        dilation: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> Any:
        pooling = _Pooling(x, spatial, window, list(stride) or None, padding, dilation, ceil_mode)
        y = sg.max_pool(
            pooling.x,
            list(pooling.window),
            list(pooling.stride),
            pooling.pads,
            pooling.layout,
            dilations=list(pooling.dilation),
        )
        return pooling.ended(y), pooling.ended(max_places(pooling.x, pooling.places())) if call.uses(
            1
        ) else None

    return translated


def _max_gradient(spatial: int) -> Any:
    def translated(call: Call, g: sg.Output, x: sg.Output, *options: Any) -> Any:
        *_, indices = options
        plane = product(x.shape[-spatial:])
        lead = list(x.shape[:-spatial])
        start = sg.zeros([*lead, plane], x.dtype)
        flat = (reshape(t, [*lead, product(t.shape[-spatial:])]) for t in (indices, g))
        places, values = flat
        axes = [
            along(sg.range(0, size, dtype=sg.int64), i, x.ndim - spatial + 1) for i, size in enumerate(lead)
        ]
        return reshape(sg.at(start)[(*axes, places)].add(values), list(x.shape))

    return translated


def _average_pooled(spatial: int) -> Any:
    def translated(
        call: Call,
        x: sg.Output,
        window: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        pooling = _Pooling(x, spatial, window, list(stride) or None, padding, 1, ceil_mode)
        y = padded(pooling.x, [(0, 0), (0, 0), *pooling.pads])
        y = sg.avg_pool(y, list(pooling.window), list(pooling.stride), "VALID", pooling.layout)
        share = _shares(pooling, count_include_pad, divisor_override)
        return pooling.ended(y if share is None else sg.multiply(y, brought(share, y.dtype)))

    return translated


def _shares(pooling: _Pooling, count_include_pad: bool, divisor: int | None) -> Any:
    """The factor by which the mean of each padded window is multiplied; None for 1."""
    elements = int(np.prod(pooling.window))
    if divisor is not None:
        return elements / divisor
    plain = all(pads == (n, n) for pads, n in zip(pooling.pads, pooling.padding, strict=True))
    if plain and (count_include_pad or not any(pooling.padding)):
        return None
    sizes = static(pooling.x.shape[2:], "pooling with padding that does not count")
    margins = [(n, n) if count_include_pad else (0, 0) for n in pooling.padding]
    return elements * shares(pooling.places(), sizes, margins)


def _average_gradient(spatial: int) -> Any:
    def translated(call: Call, g: sg.Output, x: sg.Output, *options: Any) -> Any:
        pool = _average_pooled(spatial)
        return pulled(lambda z: pool(call, z, *options), [x], [g])[0]

    return translated


def _adapted(spatial: int) -> Any:
    def translated(call: Call, x: sg.Output, size: Sequence[int | None]) -> Any:
        batched = x.ndim == spatial + 2
        x = x if batched else sg.expand_dims(x, 0)
        wanted: list[Any] = [old if new is None else new for new, old in zip(size, x.shape[2:], strict=True)]
        y = sg.adaptive_avg_pool(x, wanted, data_format=LAYOUTS[spatial])
        return y if batched else sg.squeeze(y, 0)

    return translated


def _adapted_maxima(spatial: int) -> Any:
    def translated(call: Call, x: sg.Output, size: Sequence[int | None]) -> Any:
        if call.uses(1):
            raise Refused("the places of adaptive maxima have no translation; use the maxima alone")
        batched = x.ndim == spatial + 2
        y = sg.adaptive_max_pool(x if batched else sg.expand_dims(x, 0), size, data_format=LAYOUTS[spatial])
        return (y if batched else sg.squeeze(y, 0)), None

    return translated


def _adapted_gradient(call: Call, g: sg.Output, x: sg.Output) -> Any:
    spatial = 2 if "2d" in str(call.node.target) else 3
    adapt = _adapted(spatial)
    return pulled(lambda z: adapt(call, z, g.shape[-spatial:]), [x], [g])[0]


# -------------------------------------------------------------------------------------------- other sizes


def _wanted(
    x: sg.Output, size: Sequence[Size] | None, factors: Any
) -> tuple[list[int], list[int], list[float | None]]:
    old = static(x.shape[2:], "an image of another size")
    if size is not None:
        new = list(static(size, "an image of another size"))
        return list(old), new, [None] * len(old) if factors is None else list(factors)
    return list(old), [math.floor(n * f) for n, f in zip(old, factors, strict=True)], list(factors)


def _nearest(exact: bool, vector: bool) -> Any:
    """Nearest neighbours: each new pixel is the old one at or below its place."""

    def translated(call: Call, x: sg.Output, size: Sequence[Size] | None = None, *given_factors: Any) -> Any:
        factors = given_factors[0] if vector and given_factors else given_factors or None
        old, new, scales = _wanted(x, size, factors)
        for i, (before, after, factor) in enumerate(zip(old, new, scales, strict=True)):
            scale = np.float32(before / after if factor is None else 1.0 / factor)
            steps = np.arange(after, dtype=np.float32) + np.float32(0.5 if exact else 0.0)
            x = sg.take(x, np.minimum(np.floor(steps * scale).astype(np.int64), before - 1), 2 + i)
        return x

    return translated


def _scale(before: int, after: int, align: bool, factor: float | None) -> float:
    if align:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return before / after if factor is None or factor <= 0 else 1.0 / factor


def _linear(vector: bool) -> Any:
    def translated(call: Call, x: sg.Output, size: Sequence[Size], align: bool, *given_factors: Any) -> Any:
        factors = given_factors[0] if vector and given_factors else given_factors or None
        old, new, scales = _wanted(x, size, factors)
        for i, (before, after, factor) in enumerate(zip(old, new, scales, strict=True)):
            scale, steps = _scale(before, after, align, factor), np.arange(after)
            source = steps * scale if align else np.maximum((steps + 0.5) * scale - 0.5, 0.0)
            first = np.minimum(source.astype(np.int64), before - 1)
            share = brought(along(source - first, 2 + i, x.ndim), x.dtype)
            low, high = (sg.take(x, at, 2 + i) for at in (first, np.minimum(first + 1, before - 1)))
            x = sg.add(low, sg.multiply(sg.subtract(high, low), share))
        return x

    return translated


def _cubic(call: Call, x: sg.Output, size: Sequence[Size] | None, align: bool, factors: Any = None) -> Any:
    old, new, scales = _wanted(x, size, factors)
    for i, (before, after, factor) in enumerate(zip(old, new, scales, strict=True)):
        scale, steps = _scale(before, after, align, factor), np.arange(after)
        source = steps * scale if align else (steps + 0.5) * scale - 0.5
        first = np.floor(source)
        parts = []
        for k, weight in enumerate(cubic_weights(source - first)):
            at = np.clip(first.astype(np.int64) + k - 1, 0, before - 1)
            parts.append(sg.multiply(sg.take(x, at, 2 + i), brought(along(weight, 2 + i, x.ndim), x.dtype)))
        x = sg.add_n(parts)
    return x


def _cubic_sized(call: Call, x: sg.Output, size: Sequence[Size] | None, align: bool, *factors: Any) -> Any:
    """Cubic interpolation to a size, with the factors that led to it if they are known."""
    return _cubic(call, x, size, align, factors or None)


def _grid_sampled(call: Call, x: sg.Output, grid: sg.Output, mode: int, padding: int, align: bool) -> Any:
    return grid_sampled(x, grid, mode, padding, align)


WINDOWS: Table = dict(
    table(
        {
            "max_pool2d_with_indices": _max_pooled(2),
            "max_pool3d_with_indices": _max_pooled(3),
            "max_pool2d_with_indices_backward": _max_gradient(2),
            "max_pool3d_with_indices_backward": _max_gradient(3),
            "avg_pool1d": _average_pooled(1),
            "avg_pool2d": _average_pooled(2),
            "avg_pool3d": _average_pooled(3),
            "avg_pool2d_backward": _average_gradient(2),
            "avg_pool3d_backward": _average_gradient(3),
            "adaptive_avg_pool1d": _adapted(1),
            "_adaptive_avg_pool2d adaptive_avg_pool2d": _adapted(2),
            "_adaptive_avg_pool3d adaptive_avg_pool3d": _adapted(3),
            "adaptive_max_pool2d": _adapted_maxima(2),
            "adaptive_max_pool3d": _adapted_maxima(3),
            "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward": _adapted_gradient,
            "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec": _nearest(False, True),
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d": _nearest(False, False),
            "_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec": _nearest(True, True),
            "_upsample_nearest_exact1d _upsample_nearest_exact2d": _nearest(True, False),
            "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec": _linear(True),
            "upsample_linear1d upsample_bilinear2d upsample_trilinear3d": _linear(False),
            "upsample_bicubic2d.vec": _cubic,
            "upsample_bicubic2d": _cubic_sized,
            "grid_sampler_2d grid_sampler_3d": _grid_sampled,
        }
    )
)
