"""Pooling, and images of other sizes: nearest, linear and cubic interpolation, sampling at a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import Refused, along, brought, product, pulled, spread, static
from stopgrad.interop.shared.convolutions import LAYOUTS
from stopgrad.interop.shared.image_sampling import Weights, cubic_weights, grid_sampled, weighted
from stopgrad.interop.shared.pooling import Windows, max_places
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table
from stopgrad.ops.shapes.reshape import reshape


def _windows(
    x: sg.Output,
    spatial: int,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Windows:
    """The arguments of a pooling operator, for each spatial axis."""
    window = spread(window, spatial)
    pads = [(n, n) for n in spread(padding, spatial)]
    return Windows(
        x.shape[-spatial:],
        window,
        spread(list(stride), spatial) if len(stride) else window,
        spread(dilation, spatial),
        pads,
        ceil_mode,
    )


def _batched(pool: Callable[[sg.Output], Any], x: sg.Output, spatial: int) -> Any:
    """What a function of [batch, channels, sizes] makes of x, which may have no batch."""
    return pool(x) if x.ndim == spatial + 2 else sg.squeeze(pool(sg.expand_dims(x, 0)), 0)


def _max_pooled(spatial: int) -> Any:
    def translated(
        call: Call,
        x: sg.Output,
        window: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        dilation: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> tuple[Any, None] | tuple[Any, Any]:
        windows = _windows(x, spatial, window, stride, padding, dilation, ceil_mode)
        y = _batched(lambda x: windows.pooled(sg.max_pool, x), x, spatial)
        if not call.uses(1):
            return y, None
        return y, _batched(lambda x: max_places(x, windows.places("the places of maxima")), x, spatial)

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
        windows = _windows(x, spatial, window, stride, padding, 1, ceil_mode)

        def pool(x: sg.Output) -> Any:
            if divisor_override is not None:
                return sg.multiply(windows.means(x), brought(windows.elements / divisor_override, x.dtype))
            if count_include_pad:
                return windows.padded_means(x, "pooling with ceil_mode, whose padding counts")
            return windows.pooled(sg.avg_pool, x)

        return _batched(pool, x, spatial)

    return translated


def _average_gradient(spatial: int) -> Any:
    def translated(call: Call, g: sg.Output, x: sg.Output, *options: Any) -> Any:
        pool = _average_pooled(spatial)
        return pulled(lambda z: pool(call, z, *options), [x], [g])[0]

    return translated


def _adapted(spatial: int) -> Any:
    def translated(call: Call, x: sg.Output, size: Sequence[int | None]) -> sg.Output:
        batched = x.ndim == spatial + 2
        x = x if batched else sg.expand_dims(x, 0)
        sizes: list[Any] = [old if new is None else new for new, old in zip(size, x.shape[2:], strict=True)]
        y = sg.adaptive_avg_pool(x, sizes, data_format=LAYOUTS[spatial])
        return y if batched else sg.squeeze(y, 0)

    return translated


def _adapted_maxima(spatial: int) -> Any:
    def translated(call: Call, x: sg.Output, size: Sequence[int | None]) -> tuple[sg.Output, None]:
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


def _sizes_and_scales(
    x: sg.Output, size: Sequence[Size] | None, factors: Any
) -> tuple[list[int], list[int], list[float | None]]:
    old = static(x.shape[2:], "an image of another size")
    if size is not None:
        new = list(static(size, "an image of another size"))
        return list(old), new, [None] * len(old) if factors is None else list(factors)
    return list(old), [math.floor(n * f) for n, f in zip(old, factors, strict=True)], list(factors)


def _resized(
    find: Callable[[int, int, bool, float | None], Weights], vector: bool, aligns: bool = True
) -> Callable[..., sg.Output]:
    """The translation of an operator that finds the pixels of each axis so.

    Args:
        find: of the old and the new size, whether corners are aligned, and the factor between the sizes.
        vector: whether the factors are given as one argument.
        aligns: whether the operator is told if corners are aligned.
    """

    def translated(call: Call, x: sg.Output, size: Sequence[Size] | None = None, *settings: Any) -> sg.Output:
        align, factors = (settings[0], settings[1:]) if aligns else (False, settings)
        sizes = _sizes_and_scales(x, size, factors[0] if vector and factors else factors or None)
        for i, (before, after, factor) in enumerate(zip(*sizes, strict=True)):
            x = weighted(x, 2 + i, *find(before, after, align, factor))
        return x

    return translated


def _nearest(before: int, after: int, align: bool, factor: float | None) -> Weights:
    """The pixel at or below the place of each new one."""
    scale = np.float32(before / after if factor is None else 1.0 / factor)
    places = np.floor(np.arange(after, dtype=np.float32) * scale).astype(np.int64)
    return np.minimum(places, before - 1)[:, None], np.ones((after, 1))


def _places(before: int, after: int, align: bool, factor: float | None) -> np.ndarray[Any, Any]:
    steps = np.arange(after)
    if align:
        return steps * ((before - 1) / (after - 1) if after > 1 else 0.0)
    return (steps + 0.5) * (before / after if factor is None or factor <= 0 else 1.0 / factor) - 0.5


def _linear(before: int, after: int, align: bool, factor: float | None) -> Weights:
    places = np.maximum(_places(before, after, align, factor), 0.0)
    first = np.minimum(places.astype(np.int64), before - 1)
    share = places - first
    return np.stack([first, np.minimum(first + 1, before - 1)], 1), np.stack([1 - share, share], 1)


def _cubic(before: int, after: int, align: bool, factor: float | None) -> Weights:
    places = _places(before, after, align, factor)
    first = np.floor(places)
    numbers = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.clip(numbers, 0, before - 1), np.stack(cubic_weights(places - first), 1)


def _grid_sampled(call: Call, x: sg.Output, grid: sg.Output, mode: int, padding: int, align: bool) -> Any:
    return grid_sampled(x, grid, mode, padding, align)


WINDOWS: Table = dict(
    table(
        {
            "max_pool2d_with_indices": _max_pooled(2),
            "max_pool3d_with_indices": _max_pooled(3),
            "max_pool2d_with_indices_backward": _max_gradient(2),
            "max_pool3d_with_indices_backward": _max_gradient(3),
            "avg_pool2d": _average_pooled(2),
            "avg_pool3d": _average_pooled(3),
            "avg_pool2d_backward": _average_gradient(2),
            "avg_pool3d_backward": _average_gradient(3),
            "_adaptive_avg_pool2d": _adapted(2),
            "_adaptive_avg_pool3d": _adapted(3),
            "adaptive_max_pool2d": _adapted_maxima(2),
            "adaptive_max_pool3d": _adapted_maxima(3),
            "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward": _adapted_gradient,
            "upsample_nearest2d.vec": _resized(_nearest, True, aligns=False),
            "upsample_bilinear2d.vec": _resized(_linear, True),
            "upsample_bilinear2d upsample_trilinear3d": _resized(_linear, False),
            "upsample_bicubic2d": _resized(_cubic, False),
            "grid_sampler_2d grid_sampler_3d": _grid_sampled,
        }
    )
)
