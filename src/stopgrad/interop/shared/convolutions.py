"""Convolutions, transposed convolutions, and windows as columns, for [batch, channels, ...]."""

from __future__ import annotations

from collections.abc import Sequence

import stopgrad as sg
from stopgrad.interop.shared.conversions import bounded, product, pulled, static
from stopgrad.interop.shared.slices import padded
from stopgrad.ops.shapes.reshape import reshape

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def convolved(
    x: sg.Output,
    weight: sg.Output,
    bias: sg.Output | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]] | str,
    dilation: Sequence[int],
    groups: int,
) -> sg.Output:
    """A convolution.

    Args:
        x: [batch, channels, sizes].
        weight: [output channels, channels / groups, window].
        bias: [output channels], or None.
        stride, pads, dilation: for each spatial axis; pads may be "SAME", too.
        groups: of channels, each convolved by itself.
    """
    spatial = len(stride)
    # Ours: [window, channels / groups, output channels].
    filters = sg.transpose(weight, (*range(2, weight.ndim), 1, 0))
    y = sg.convolution(x, filters, list(stride), pads, LAYOUTS[spatial], list(dilation), groups=groups)
    return biased(y, bias)


def transposed(
    x: sg.Output,
    weight: sg.Output,
    bias: sg.Output | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> sg.Output:
    """A transposed convolution: all that the windows cover, without the padding.

    Args:
        x: [batch, channels, sizes].
        weight: [channels, output channels / groups, window].
        bias: [output channels], or None.
        stride, pads, dilation: for each spatial axis.
        extra: how many further elements, all zeros, to append to each spatial axis.
        groups: of channels, each convolved by itself.
    """
    spatial = len(stride)
    filters = sg.transpose(weight, (*range(2, weight.ndim), 1, 0))
    whole = [
        (size - 1) * step + far * (window - 1) + 1
        for size, step, far, window in zip(x.shape[2:], stride, dilation, filters.shape, strict=False)
    ]
    y = sg.conv_transpose(
        x, filters, whole, list(stride), "VALID", LAYOUTS[spatial], list(dilation), groups=groups
    )
    cut = [(-before, more - after) for (before, after), more in zip(pads, extra, strict=True)]
    return biased(padded(y, [(0, 0), (0, 0), *cut]), bias)


def biased(y: sg.Output, bias: sg.Output | None) -> sg.Output:
    """y plus a bias for each channel, if there is one."""
    return y if bias is None else sg.add(y, reshape(bias, [-1] + [1] * (y.ndim - 2)))


def window_places(
    size: int, window: int, dilation: int, pads: tuple[int, int], stride: int
) -> list[list[int]]:
    """The index in the padded axis of each position of the window, for each window."""
    count = (size + sum(pads) - dilation * (window - 1) - 1) // stride + 1
    bounded(count * window, "windows as columns")
    return [[inner * dilation + outer * stride for outer in range(count)] for inner in range(window)]


def to_columns(
    x: sg.Output,
    window: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    stride: Sequence[int],
) -> sg.Output:
    """The windows of x, [batch, channels, sizes], as columns: [batch, channels · window, windows]."""
    sizes = static(x.shape[2:], "windows as columns")
    spatial = len(sizes)
    x = padded(x, [(0, 0), (0, 0), *pads])
    for i in range(spatial):
        x = sg.take(x, window_places(sizes[i], window[i], dilation[i], pads[i], stride[i]), 2 + 2 * i)
    # [batch, channels, window, windows, window, windows ...]
    x = sg.transpose(x, (0, 1, *range(2, x.ndim, 2), *range(3, x.ndim, 2)))
    inner, outer = x.shape[2 : 2 + spatial], x.shape[2 + spatial :]
    return reshape(x, [x.shape[0], x.shape[1] * product(inner), product(outer)])


def from_columns(
    x: sg.Output,
    sizes: Sequence[int],
    window: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    stride: Sequence[int],
) -> sg.Output:
    """The transpose of :func:`to_columns`: elements of overlapping windows are added."""
    channels = x.shape[1] // product(window)
    start = sg.zeros([x.shape[0], channels, *sizes], x.dtype)
    (y,) = pulled(lambda z: to_columns(z, window, dilation, pads, stride), [start], [x])
    return y
