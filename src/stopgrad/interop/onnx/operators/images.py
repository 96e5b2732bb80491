"""Sampling of images between pixels and in regions: GridSample, AffineGrid, RoiAlign, MaxRoiPool."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.shared.conversions import along, bounded, brought, product, static
from stopgrad.interop.shared.image_sampling import Sampling, corners, grid_sampled

MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
PADDING = {"zeros": 0, "border": 1, "reflection": 2}


def grid_sample(node: Call, x: sg.Output, grid: sg.Output) -> Any:
    mode, padding = str(node.attribute("mode", "linear")), str(node.attribute("padding_mode", "zeros"))
    for name, table in ((mode, MODES), (padding, PADDING)):
        if name not in table:
            node.fail(f"{name!r} is unknown; it is one of {', '.join(table)}")
    align = bool(node.attribute("align_corners", 0))
    return grid_sampled(x, brought(grid, x.dtype), MODES[mode], PADDING[padding], align)


@knows(1)
def affine_grid(node: Call, theta: sg.Output, size: sg.Output | Known) -> Any:
    """Where an affine map takes the pixels of an image of *size*: [batch, sizes, number of sizes].

    The operator's own body fails for a batch of one, and has no numbers for a height of one.
    """
    sizes = node.sizes(size, 1)[2:]
    spatial, align = len(sizes), bool(node.attribute("align_corners", 0))
    axes = []
    for i, count in enumerate(sizes):
        number = brought(sg.range(0, count, dtype=sg.int64), theta.dtype)
        if align and isinstance(count, int) and count == 1:  # A single pixel lies in the middle.
            axes.append(sg.zeros(sizes, theta.dtype))
            continue
        whole = brought(count - 1 if align else count, theta.dtype, theta)
        place = sg.realdiv(sg.multiply(number, 2.0), whole)
        place = sg.subtract(place, sg.subtract(1.0, sg.realdiv(0.0 if align else 1.0, whole)))
        axes.append(sg.broadcast_to(along(place, i, spatial), sizes))
    points = sg.stack([*reversed(axes), sg.ones(sizes, theta.dtype)], -1)  # The last axis comes first.
    flat = sg.reshape(points, [product(sizes), spatial + 1])
    return sg.reshape(sg.matmul(flat, sg.swapaxes(theta, 1, 2)), [theta.shape[0], *sizes, spatial])


# ---------------------------------------------------------------------------------------------- regions


def roi_align(node: Call, x: sg.Output, rois: sg.Output, images: sg.Output) -> Any:
    """The mean, or the largest, of samples in each part of regions, which the model may compute."""
    half = str(node.attribute("coordinate_transformation_mode", "half_pixel")) == "half_pixel"
    half = half and node.opset >= 16
    ends = sg.multiply(brought(rois, x.dtype), float(node.attribute("spatial_scale", 1.0)))
    ends = sg.subtract(ends, 0.5) if half else ends
    counts = [int(node.attribute(f"output_{side}", 1)) for side in ("height", "width")]
    samples = int(node.attribute("sampling_ratio", 0))
    if samples > 0:
        return _aligned(node, x, ends, images, counts, [samples, samples], not half)
    return _adapted(node, x, rois, ends, images, counts, not half)


def _adapted(
    node: Call,
    x: sg.Output,
    rois: sg.Output,
    ends: sg.Output,
    images: sg.Output,
    counts: list[int],
    least: bool,
) -> Any:
    """RoiAlign with as many samples in a part as it has pixels, for which the regions must be known."""
    if not node.is_known(rois):
        node.fail(
            "with sampling_ratio=0 the regions decide about sizes; give it a sampling_ratio, or known regions"
        )
    scale = float(node.attribute("spatial_scale", 1.0))
    aligned = []
    for i, (left, top, right, bottom) in enumerate(np.asarray(node.known(1, rois), np.float64) * scale):
        spans = [max(span, 1.0) if least else span for span in (bottom - top, right - left)]
        samples = [max(math.ceil(span / count), 1) for span, count in zip(spans, counts, strict=True)]
        aligned.append(_aligned(node, x, ends[i : i + 1], images[i : i + 1], counts, samples, least))
    return sg.concat(aligned, 0)


def _aligned(
    node: Call,
    x: sg.Output,
    ends: sg.Output,
    images: sg.Output,
    counts: list[int],
    samples: list[int],
    least: bool,
) -> Any:
    sizes = x.shape[2:]
    starts, stops = (ends[:, 1], ends[:, 0]), (ends[:, 3], ends[:, 2])
    bounded(counts[0] * samples[0] + counts[1] * samples[1], "so many samples of a region")
    places, inside = [], []
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        span = sg.subtract(stop, start)
        span = sg.maximum(span, brought(1.0, x.dtype)) if least else span
        steps = (np.arange(counts[i] * samples[i]) + 0.5) / (counts[i] * samples[i])
        place = sg.add(along(start, 0, 2), sg.multiply(along(span, 0, 2), brought(steps[None], x.dtype)))
        place = sg.expand_dims(place, 2 - i)  # [regions, places, 1] and [regions, 1, places]
        last = brought(sizes[i], x.dtype, x)
        inside.append(sg.logical_and(sg.greater_equal(place, -1.0), sg.less_equal(place, last)))
        places.append(sg.clip_by_value(place, brought(0, x.dtype), brought(sizes[i] - 1, x.dtype, x)))
    shape = [ends.shape[0], counts[0] * samples[0], counts[1] * samples[1]]
    wide = [sg.broadcast_to(place, shape) for place in places]
    parts = corners(Sampling(sg.gather(x, images), 0, True), wide)
    covered = brought(sg.expand_dims(sg.logical_and(inside[0], inside[1]), 1), x.dtype)
    largest = str(node.attribute("mode", "avg")) == "max"
    # The operator takes the maximum of the weighted pixels, not of their sums.
    values = sg.multiply(functools.reduce(sg.maximum, parts) if largest else sg.add_n(parts), covered)
    split = sg.reshape(values, [shape[0], x.shape[1], counts[0], samples[0], counts[1], samples[1]])
    return (sg.reduce_max if largest else sg.reduce_mean)(split, axis=(3, 5))


@knows(1)
def roi_pool(node: Call, x: sg.Output, rois: Known) -> Any:
    """MaxRoiPool: the largest element of each part of regions, which must be known."""
    regions = np.asarray(node.known(1, rois), np.float64)
    scale = float(node.attribute("spatial_scale", 1.0))
    parts = [int(n) for n in node.attribute("pooled_shape")]
    bounded(math.prod(parts) * len(regions) * 2**10, "so many parts of regions")
    height, width = static(x.shape[2:], "MaxRoiPool")
    rows = []
    for number, left, top, right, bottom in regions:
        image = x[int(number)]
        ends = [_round(n * scale) for n in (top, left, bottom, right)]
        spans = [
            _parts(low, high, n, size)
            for low, high, n, size in zip(ends[:2], ends[2:], parts, (height, width), strict=True)
        ]
        cells = [[_largest(image, rows_, columns) for columns in spans[1]] for rows_ in spans[0]]
        rows.append(sg.stack([sg.stack(row, -1) for row in cells], -2))
    return sg.stack(rows, 0)


def _round(x: float) -> int:
    """x rounded to integers, halves away from 0."""
    return int(math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1))


def _parts(low: int, high: int, count: int, size: int) -> list[tuple[int, int]]:
    """The range from *low* to *high*, both included, in *count* parts that cover it."""
    share = max(high - low + 1, 1) / count
    ends = [(math.floor(i * share) + low, math.ceil((i + 1) * share) + low) for i in range(count)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]


def _largest(image: sg.Output, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    if rows[0] >= rows[1] or columns[0] >= columns[1]:
        return sg.zeros([image.shape[0]], image.dtype)
    return sg.reduce_max(image[:, slice(*rows), slice(*columns)], axis=(1, 2))


# -------------------------------------------------------------------------------------------- detection


@knows(0, 1, 2, 3, 4)
def non_max_suppression(node: Call, *operands: sg.Output | Known) -> Any:
    """The number of boxes left depends on their values, so these must be known."""
    names = [name for name in node.node.input if name]
    values = [node.known(i, x) for i, x in enumerate(operands) if x is not None]
    values = [x if x.ndim else x.reshape(1) for x in values]  # The reference takes limits as vectors.
    (selected,) = ReferenceEvaluator(node.node).run(None, dict(zip(names, values, strict=True)))
    return sg.constant(selected)


IMAGES: Table = {
    "GridSample": grid_sample,
    "AffineGrid": affine_grid,
    "RoiAlign": roi_align,
    "MaxRoiPool": roi_pool,
    "NonMaxSuppression": non_max_suppression,
}
