"""Convolutions over two or three axes, by channel, and their gradients as operations."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.base.sizes import Dim
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Table, knows
from stopgrad.interop.tensorflow.operators.spatial import Spatial


def _convolved(geometry: Spatial, x: sg.Output, filters: sg.Output, groups: int | None = None) -> sg.Output:
    y = sg.conv(geometry.last(x), filters, geometry.strides, geometry.padding, geometry.dilations, groups)
    return geometry.own(y)


def convolution(node: Call, x: sg.Output, filters: sg.Output) -> sg.Output:
    """The groups follow from the numbers of channels."""
    return _convolved(Spatial(node, filters.ndim - 2), x, filters)


def _backprop_input(
    geometry: Spatial, sizes: list[Any], filters: sg.Output, g: sg.Output, groups: int | None = None
) -> sg.Output:
    """The gradient of a convolution with respect to its input: a transposed convolution."""
    return geometry.own(
        sg.conv2d_backprop_input(
            geometry.sizes_last(sizes),
            filters,
            geometry.last(g),
            geometry.strides,
            geometry.padding,
            geometry.dilations,
            groups,
        )
    )


def _backprop_filter(
    geometry: Spatial, x: sg.Output, sizes: list[Any], g: sg.Output, groups: int | None = None
) -> sg.Output:
    return sg.conv2d_backprop_filter(
        geometry.last(x),
        sizes,
        geometry.last(g),
        geometry.strides,
        geometry.padding,
        geometry.dilations,
        groups,
    )


@knows(0)
def _conv_backprop_input(node: Call, sizes: sg.Output | Known, filters: sg.Output, g: sg.Output) -> sg.Output:
    geometry, shape = Spatial(node, filters.ndim - 2), list(node.sizes(sizes))
    if len(shape) == geometry.rank:  # The spatial sizes alone.
        channels = filters.shape[-2]
        shape = [g.shape[0], channels, *shape] if geometry.first else [g.shape[0], *shape, channels]
    return _backprop_input(geometry, shape, filters, g)


@knows(1)
def _conv_backprop_filter(node: Call, x: sg.Output, sizes: sg.Output | Known, g: sg.Output) -> sg.Output:
    return _backprop_filter(Spatial(node, x.ndim - 2), x, list(node.sizes(sizes)), g)


# ------------------------------------------------------------------------------------------- by channel


def _grouped(filters: tuple[int | Dim, ...] | list[Any]) -> tuple[list[Any], int]:
    """The shape of filters for each channel, [window, channels, multiplier], as grouped ones; the groups."""
    *window, channels, multiplier = filters
    if isinstance(channels, sg.Dim) or isinstance(multiplier, sg.Dim):
        raise sg.ShapeError("filters for each channel have sizes that are numbers")
    return [*window, 1, channels * multiplier], int(channels)


def depthwise(node: Call, x: sg.Output, filters: sg.Output) -> sg.Output:
    shape, channels = _grouped(filters.shape)
    return _convolved(Spatial(node, 2), x, sg.reshape(filters, shape), channels)


@knows(0)
def _depthwise_backprop_input(
    node: Call, sizes: sg.Output | Known, filters: sg.Output, g: sg.Output
) -> sg.Output:
    shape, channels = _grouped(filters.shape)
    return _backprop_input(Spatial(node, 2), list(node.sizes(sizes)), sg.reshape(filters, shape), g, channels)


@knows(1)
def _depthwise_backprop_filter(node: Call, x: sg.Output, sizes: sg.Output | Known, g: sg.Output) -> sg.Output:
    whole = list(node.sizes(sizes))
    shape, channels = _grouped(whole)
    return sg.reshape(_backprop_filter(Spatial(node, 2), x, shape, g, channels), whole)


CONVOLUTIONS: Table = {
    "Conv2D": convolution,
    "Conv3D": convolution,
    "DepthwiseConv2dNative": depthwise,
    "Conv2DBackpropInput": _conv_backprop_input,
    "Conv2DBackpropFilter": _conv_backprop_filter,
    "Conv3DBackpropInputV2": _conv_backprop_input,
    "Conv3DBackpropFilterV2": _conv_backprop_filter,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_backprop_input,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_backprop_filter,
}
