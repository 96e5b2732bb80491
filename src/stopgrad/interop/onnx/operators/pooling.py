"""Pooling: the largest element, the mean or a norm of each window; and unpooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.spatial import Spatial, explicit_pads
from stopgrad.interop.shared.conversions import along, brought, product
from stopgrad.interop.shared.convolutions import LAYOUTS
from stopgrad.interop.shared.pooling import Windows, max_places
from stopgrad.interop.shared.slices import padded


class Pooling(Spatial):
    """The attributes of a pooling operator, and its windows."""

    layout: str
    windows: Windows

    def __init__(self, node: Call, x: sg.Output) -> None:
        super().__init__(node, x)
        self.node = node
        if len(self.window) not in LAYOUTS:
            node.fail(f"there is pooling over one to three axes here, not over {len(self.window)}")
        upwards = bool(node.attribute("ceil_mode", 0))
        self.windows = Windows(x.shape[2:], self.window, self.stride, self.dilation, self.pads, upwards)

    def counting(self) -> Windows:
        """The windows, where the padding counts."""
        if self.padding is not self.pads:
            self.node.fail("padding that counts needs sizes that are numbers; give it pads")
        return self.windows

    def pooled(self, function: Callable[..., sg.Output], x: sg.Output) -> sg.Output:
        """x pooled by a function that does not count padding."""
        return self.windows.pooled(function, x, None if self.padding is self.pads else self.padding)


def max_pool(node: Call, x: sg.Output) -> sg.Output | tuple[sg.Output, sg.Output]:
    pooling = Pooling(node, x)
    # Integers are compared as float32.
    values = x if x.dtype.is_floating else sg.cast(x, sg.float32)
    y = brought(pooling.pooled(sg.max_pool, values), x.dtype)
    if not node.wants(1):
        return y
    places = pooling.windows.places("the indices of MaxPool")
    indices = max_places(x, places, bool(node.attribute("storage_order", 0)))
    return y, sg.add(indices, _planes(x.shape[0], x.shape[1], product(x.shape[2:]), indices.ndim))


def _planes(batch: Size, channels: Size, plane: Size, ndim: int) -> Tensor:
    """The number of the first element of each plane in the whole tensor: [batch, channels, 1 ...]."""
    outer, inner = (sg.range(0, n, dtype=sg.int64) for n in (batch, channels))
    number = sg.add(sg.multiply(along(outer, 0, ndim), channels), along(inner, 1, ndim))
    return sg.multiply(number, plane)


def average_pool(node: Call, x: sg.Output) -> sg.Output:
    pooling = Pooling(node, x)
    if not node.attribute("count_include_pad", 0):
        return pooling.pooled(sg.avg_pool, x)
    return pooling.counting().padded_means(x, "AveragePool with ceil_mode")


def powers(x: sg.Output, p: int) -> sg.Output:
    """|x| to the power p."""
    if p % 2:
        x = sg.abs(x)
    return x if p == 1 else sg.square(x) if p == 2 else sg.pow(x, brought(p, x.dtype))


def root(x: sg.Output, p: int) -> sg.Output:
    """The root of numbers that are not negative; at 0 its gradient is 0."""
    if p == 1:
        return x
    is_positive = sg.greater(x, brought(0, x.dtype))
    positive = sg.where(is_positive, x, brought(1, x.dtype))
    roots = sg.sqrt(positive) if p == 2 else sg.pow(positive, brought(1.0 / p, x.dtype))
    return sg.where(is_positive, roots, brought(0, x.dtype))


def lp_pool(node: Call, x: sg.Output) -> sg.Output:
    pooling, p = Pooling(node, x), int(node.attribute("p", 2))
    windows = pooling.counting()
    total = sg.multiply(windows.means(powers(x, p)), brought(windows.elements, x.dtype))
    return root(total, p)


def _whole(node: Call, x: sg.Output) -> tuple[int, ...]:
    if x.ndim < 3:
        node.fail(f"its input has {x.ndim} axes, and none behind batch and channels")
    return tuple(range(2, x.ndim))


def global_average_pool(node: Call, x: sg.Output) -> sg.Output:
    return sg.reduce_mean(x, axis=_whole(node, x), keepdims=True)


def global_max_pool(node: Call, x: sg.Output) -> sg.Output:
    return sg.reduce_max(x, axis=_whole(node, x), keepdims=True)


def global_lp_pool(node: Call, x: sg.Output) -> sg.Output:
    p = int(node.attribute("p", 2))
    return root(sg.reduce_sum(powers(x, p), axis=_whole(node, x), keepdims=True), p)


@knows(2)
def max_unpool(
    node: Call, x: sg.Output, places: sg.Output, shape: sg.Output | Known | None = None
) -> sg.Output:
    """Puts each element where its index in the whole tensor says; 0 elsewhere."""
    window = [int(n) for n in node.attribute("kernel_shape")]
    stride = [int(n) for n in node.attribute("strides") or [1] * len(window)]
    pads = explicit_pads(node, len(window))
    before: list[Size] = [
        (size - 1) * step - sum(pad) + n
        for size, step, pad, n in zip(x.shape[2:], stride, pads, window, strict=True)
    ]
    start = sg.zeros([product([x.shape[0], x.shape[1], *before])], x.dtype)
    flat = sg.scatter_update(start, sg.reshape(places, [-1]), sg.reshape(x, [-1]))
    y = sg.reshape(flat, [x.shape[0], x.shape[1], *before])
    if shape is None:
        return y
    target: Sequence[Any] = node.sizes(shape, 2)
    return padded(y, [(0, new - old) for new, old in zip(target, y.shape, strict=True)])


POOLING: Table = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    "GlobalLpPool": global_lp_pool,
    "MaxUnpool": max_unpool,
}
