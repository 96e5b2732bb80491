"""Sampling of images between pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import along, bounded, brought, product
from stopgrad.ops.shapes.reshape import reshape

Weights = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Which old pixels make up each new one, and their weights: both [new, old ones]."""


def near(u: sg.Output | np.ndarray[Any, Any], a: float) -> Any:
    """Keys's cubic kernel at distances up to 1."""
    return ((a + 2.0) * u - (a + 3.0)) * u * u + 1.0


def far(u: sg.Output | np.ndarray[Any, Any], a: float) -> Any:
    """Keys's cubic kernel at distances from 1 to 2."""
    return ((u - 5.0) * u + 8.0) * u * a - 4.0 * a


def cubic_weights(t: sg.Output | np.ndarray[Any, Any], a: float = -0.75) -> list[Any]:
    """The weights of the four neighbours by Keys's cubic kernel; t is an array or an output."""
    return [far(t + 1.0, a), near(t, a), near(1.0 - t, a), far(2.0 - t, a)]


FEW = 4
"""If a new element is made of more old ones than this, the weights are a matrix."""


def weighted(
    x: sg.Output, axis: int, numbers: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
) -> sg.Output:
    """A tensor whose elements along an axis are weighted sums of old ones.

    Args:
        x: the tensor, whose axis has a known size.
        axis: along which to sum.
        numbers: which old elements make up each new one, [new, old ones].
        weights: of these.
    """
    if weights.shape[1] == 1 and (weights == 1).all():
        return sg.take(x, numbers[:, 0], axis)
    if weights.shape[1] <= FEW:
        shares = [brought(along(column, axis, x.ndim), x.dtype) for column in weights.T]
        return sg.add_n(
            [sg.multiply(sg.take(x, at, axis), w) for at, w in zip(numbers.T, shares, strict=True)]
        )
    new, old = len(numbers), int(x.shape[axis])
    bounded(new * old, "so large a size")
    matrix = np.zeros((new, old))
    np.add.at(matrix, (np.arange(new)[:, None], numbers), weights)
    return sg.moveaxis(sg.tensordot(x, brought(matrix, x.dtype), [[axis], [1]]), -1, axis)


def _measure(size: Size, like: sg.Output) -> Any:
    """A size to compute with: a number, or for a symbolic size a scalar in the graph of *like*."""
    return brought(size, like.dtype, like) if isinstance(size, sg.Dim) else size


def _unnormalised(place: sg.Output, size: Size, align: bool) -> Any:
    """A coordinate in [-1, 1] as a position in pixels."""
    size = _measure(size, place)
    return (place + 1.0) * (0.5 * (size - 1)) if align else ((place + 1.0) * size - 1.0) * 0.5


def _reflected(place: sg.Output, size: Size, align: bool) -> sg.Output:
    low, span = (0.0, _measure(size, place) - 1.0) if align else (-0.5, _measure(size, place) * 1.0)
    if not isinstance(span, sg.Output) and span == 0:
        return sg.zeros_like(place)
    away = sg.abs(place - low)
    turns = sg.floor(away / span if isinstance(span, sg.Output) else away * (1.0 / span))
    rest = away - turns * span
    back = sg.not_equal(sg.floormod(turns, brought(2, turns.dtype)), brought(0, turns.dtype))
    return sg.where(back, span - rest + low, rest + low)


def _into_image(place: sg.Output, size: Size, padding: int, align: bool) -> sg.Output:
    """A position, moved into the image as the padding mode says if it lies outside."""
    if padding == 2:
        place = _reflected(place, size, align)
    if padding:
        zero, last = brought(0, place.dtype), brought(size - 1, place.dtype, place)
        place = sg.minimum(sg.maximum(place, zero), last)
    return place


class Sampling:
    """Reads pixels of an image, [batch, channels, sizes], at positions that the program computes."""

    sizes: tuple[Size, ...]
    padding: int
    align: bool
    channels: Size
    dtype: sg.DType
    flat: Any

    def __init__(self, x: sg.Output, padding: int, align: bool) -> None:
        self.sizes = x.shape[2:]
        self.padding, self.align = padding, align
        self.dtype = x.dtype
        self.channels = x.shape[1]
        self.flat = reshape(x, [x.shape[0], x.shape[1], product(self.sizes)])

    def at(self, places: Sequence[Any]) -> sg.Output:
        """The pixels at integral positions, which are floats; 0 outside: [batch, channels, places]."""
        number = None
        valid: Any = None
        for place, size in zip(places, self.sizes, strict=True):
            zero, last = brought(0, place.dtype), brought(size - 1, place.dtype, place)
            here = sg.logical_and(sg.greater_equal(place, zero), sg.less_equal(place, last))
            valid = here if valid is None else sg.logical_and(valid, here)
            whole = sg.cast(sg.stop_gradient(sg.where(here, place, zero)), sg.int64)
            number = whole if number is None else number * _measure(size, number) + whole
        assert number is not None
        count = product(number.shape[1:])
        wide = sg.broadcast_to(
            reshape(number, [number.shape[0], 1, count]), [number.shape[0], self.channels, count]
        )
        pixels = reshape(
            sg.take_along_axis(self.flat, wide, 2), [wide.shape[0], wide.shape[1], *number.shape[1:]]
        )
        return sg.where(sg.expand_dims(valid, 1), pixels, brought(0, self.dtype))


def grid_sampled(x: sg.Output, grid: sg.Output, mode: int, padding: int, align: bool) -> Any:
    """Pixels at the positions in a grid, by interpolation.

    Args:
        x: [batch, channels, sizes].
        grid: [batch, new sizes, number of spatial axes], from -1 to 1, with the last axis first.
        mode: 0 for linear, 1 for the nearest, 2 for cubic interpolation.
        padding: 0 for zeros beyond the image, 1 for its border, 2 for its reflection.
        align: whether -1 and 1 are the middles of the outermost pixels rather than their outer borders.
    """
    spatial = x.ndim - 2
    bounded(2 ** (4 * spatial), "an image of so many axes")
    sampling = Sampling(x, padding, align)
    # The grid has the last axis first.
    places = [_unnormalised(grid[..., spatial - 1 - i], size, align) for i, size in enumerate(sampling.sizes)]
    if mode == 2:
        return _cubic_sampled(sampling, places)
    places = [_into_image(p, size, padding, align) for p, size in zip(places, sampling.sizes, strict=True)]
    if mode == 1:
        return sampling.at([sg.round(place) for place in places])
    return between(sampling, places)


def between(sampling: Sampling, places: Sequence[Any]) -> Any:
    """Linear interpolation between the pixels around each position; those outside are 0."""
    return sg.add_n(corners(sampling, places))


def corners(sampling: Sampling, places: Sequence[Any]) -> list[Any]:
    """The pixels around each position, each times its weight for linear interpolation."""
    spatial = len(places)
    first = [sg.stop_gradient(sg.floor(place)) for place in places]
    parts = []
    for corner in range(2**spatial):
        bits = [(corner >> i) & 1 for i in range(spatial)]
        weight: Any = None
        for place, low, bit in zip(places, first, bits, strict=True):
            share = place - low if bit else low + 1.0 - place
            weight = share if weight is None else weight * share
        pixels = sampling.at([low + float(bit) for low, bit in zip(first, bits, strict=True)])
        parts.append(sg.multiply(pixels, sg.expand_dims(weight, 1)))
    return parts


def _cubic_sampled(sampling: Sampling, places: Sequence[Any]) -> Any:
    first = [sg.stop_gradient(sg.floor(place)) for place in places]
    weights = [cubic_weights(place - low) for place, low in zip(places, first, strict=True)]
    parts = []
    for steps in itertools.product(range(4), repeat=len(places)):
        corner = [
            _into_image(low + (step - 1.0), size, sampling.padding, sampling.align)
            for low, step, size in zip(first, steps, sampling.sizes, strict=True)
        ]
        weight = math.prod([shares[step] for shares, step in zip(weights, steps, strict=True)])
        parts.append(sg.multiply(sampling.at(corner), sg.expand_dims(weight, 1)))
    return sg.add_n(parts)
