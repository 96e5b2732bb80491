"""Convolutions: plain, transposed, and deformable ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.spatial import Spatial, explicit_pads, halves
from stopgrad.interop.shared.conversions import along, bounded, brought, product, static
from stopgrad.interop.shared.convolutions import LAYOUTS, biased, convolved, from_columns, transposed
from stopgrad.interop.shared.image_sampling import Sampling, between


def geometry(node: Call, x: sg.Output, w: sg.Output) -> Spatial:
    """The attributes of a convolution, after a check that we have one over so many axes."""
    if w.ndim - 2 not in LAYOUTS:
        node.fail(f"there are convolutions over one to three axes here, and its weights have {w.ndim}")
    return Spatial(node, x, static(w.shape[2:], "a convolution's window"))


def conv(node: Call, x: sg.Output, w: sg.Output, b: sg.Output | None = None) -> Any:
    spatial = geometry(node, x, w)
    groups = int(node.attribute("group", 1))
    return convolved(x, w, b, spatial.stride, spatial.padding, spatial.dilation, groups)


def conv_transpose(node: Call, x: sg.Output, w: sg.Output, b: sg.Output | None = None) -> Any:
    spatial = geometry(node, x, w)
    axes = len(spatial.window)
    extra = tuple(int(n) for n in node.attribute("output_padding") or [0] * axes)
    pads, sizes = spatial.pads, node.attribute("output_shape")
    if sizes is None and spatial.auto_pad.startswith("SAME"):
        sizes = [size * step for size, step in zip(x.shape[2:], spatial.stride, strict=True)]
    if sizes is not None:
        whole = [
            (size - 1) * step + more + reach
            for size, step, more, reach in zip(x.shape[2:], spatial.stride, extra, spatial.reach, strict=True)
        ]
        totals = [a - b for a, b in zip(whole, list(sizes)[-axes:], strict=True)]
        pads = [halves(n, spatial.auto_pad == "SAME_UPPER") for n in static(totals, "output_shape")]
    return transposed(x, w, b, spatial.stride, pads, spatial.dilation, extra, int(node.attribute("group", 1)))


def deform_conv(
    node: Call,
    x: sg.Output,
    w: sg.Output,
    offset: sg.Output,
    b: sg.Output | None = None,
    mask: sg.Output | None = None,
) -> Any:
    """A deformable convolution: the weights times the pixels to which the offsets of each window lead."""
    spatial = geometry(node, x, w)
    axes, elements = len(spatial.window), int(np.prod(spatial.window))
    parts, groups = int(node.attribute("offset_group", 1)), int(node.attribute("group", 1))
    bounded(elements * 2**8, "so large a window")
    batch, channels, outside = x.shape[0], x.shape[1], list(offset.shape[2:])
    moved = sg.reshape(offset, [batch * parts, elements, axes, *outside])
    corners = np.stack(np.meshgrid(*map(np.arange, spatial.window), indexing="ij"), -1).reshape(-1, axes)
    places = []
    for i in range(axes):
        inner = along(corners[:, i] * spatial.dilation[i] - spatial.pads[i][0], 1, 2 + axes)
        outer = along(sg.range(0, outside[i], dtype=sg.int64), 2 + i, 2 + axes)
        start = sg.add(sg.multiply(outer, spatial.stride[i]), inner)
        places.append(sg.add(moved[:, :, i], brought(start, x.dtype)))
    images = Sampling(sg.reshape(x, [batch * parts, channels // parts, *x.shape[2:]]), 0, True)
    pixels = between(images, places)  # [batch · parts, channels / parts, elements, windows]
    if mask is not None:
        pixels = sg.multiply(pixels, sg.reshape(mask, [batch * parts, 1, elements, *outside]))
    share = channels // groups * elements
    pixels = sg.reshape(pixels, [batch, groups, share, product(outside)])
    weights = sg.reshape(w, [groups, -1, share])
    return biased(sg.reshape(sg.matmul(weights, pixels), [batch, -1, *outside]), b)


@knows(1, 2)
def col2im(node: Call, x: sg.Output, image: sg.Output | Known, block: sg.Output | Known) -> Any:
    sizes = static(node.sizes(image, 1), "Col2Im")
    window = static(node.sizes(block, 2), "Col2Im")
    steps: list[Sequence[int]] = [
        tuple(node.attribute(name) or [1] * len(sizes)) for name in ("dilations", "strides")
    ]
    return from_columns(x, sizes, window, steps[0], explicit_pads(node, len(sizes)), steps[1])


CONVOLUTIONS: Table = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
    "Col2Im": col2im,
}
