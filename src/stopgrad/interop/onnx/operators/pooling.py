"""Pooling: the largest element, the mean or a norm of each window; and unpooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.spatial import Spatial, explicit_pads
from stopgrad.interop.shared.conversions import along, brought, product, static
from stopgrad.interop.shared.convolutions import LAYOUTS
from stopgrad.interop.shared.pooling import max_places, places, shares
from stopgrad.interop.shared.slices import padded


class Pooling(Spatial):
    """The attributes of a pooling operator.

    Attributes:
        counts: the number of windows along each axis.
        wide: the pads, widened for the last windows if sizes are rounded up.
    """

    layout: str

    def __init__(self, node: Call, x: sg.Output) -> None:
        super().__init__(node, x)
        self.node = node
        if len(self.window) not in LAYOUTS:
            node.fail(f"there is pooling over one to three axes here, not over {len(self.window)}")
        self.layout = LAYOUTS[len(self.window)]
        upwards = bool(node.attribute("ceil_mode", 0))
        self.counts: list[Any] = []
        self.wide: list[tuple[int, int]] = []
        for size, reach, step, (before, after) in zip(
            x.shape[2:], self.reach, self.stride, self.pads, strict=True
        ):
            room = size + before + after - reach
            count = room // step + 1
            if upwards and step > 1:
                if isinstance(size, sg.Dim):
                    node.fail("ceil_mode needs sizes that are numbers; fix the sizes of its input")
                count = -(-room // step) + 1
                if (count - 1) * step >= size + before:
                    count -= 1  # No window starts in the padding at the end.
                after = max((count - 1) * step + reach - size - before, after)
            self.counts.append(count)
            self.wide.append((before, after))

    def places(self, what: str) -> list[Any]:
        """For each axis, the index of each element of each window: [windows, window]."""
        before = [pads[0] for pads in self.pads]
        return places(static(self.counts, what), self.window, self.stride, self.dilation, before)

    def means(self, x: sg.Output) -> Any:
        """The means of the windows of x, in which the zeros around it count."""
        if self.padding is not self.pads:
            self.node.fail("padding that counts needs sizes that are numbers; give it pads")
        x = padded(x, [(0, 0), (0, 0), *self.wide])
        return sg.avg_pool(x, *self._told("VALID"), dilations=list(self.dilation))

    def _told(self, padding: Sequence[Sequence[int]] | str) -> tuple[Any, ...]:
        return list(self.window), list(self.stride), padding, self.layout

    def pooled(self, function: Callable[..., Any], x: sg.Output) -> Any:
        """x pooled by a function that does not count padding."""
        around = self.wide if self.padding is self.pads else self.padding
        return function(x, *self._told(around), dilations=list(self.dilation))


def max_pool(node: Call, x: sg.Output) -> Any:
    pooling = Pooling(node, x)
    # Integers are compared as float32.
    values = x if x.dtype.is_floating else sg.cast(x, sg.float32)
    y = brought(pooling.pooled(sg.max_pool, values), x.dtype)
    if not node.wants(1):
        return y
    found = max_places(x, pooling.places("the indices of MaxPool"), bool(node.attribute("storage_order", 0)))
    return y, sg.add(found, _planes(x.shape[0], x.shape[1], product(x.shape[2:]), found.ndim))


def _planes(batch: Size, channels: Size, plane: int, ndim: int) -> Any:
    """The number of the first element of each plane in the whole tensor: [batch, channels, 1 ...]."""
    outer, inner = (sg.range(0, n, dtype=sg.int64) for n in (batch, channels))
    number = sg.add(sg.multiply(along(outer, 0, ndim), channels), along(inner, 1, ndim))
    return sg.multiply(number, plane)


def average_pool(node: Call, x: sg.Output) -> Any:
    pooling = Pooling(node, x)
    if not node.attribute("count_include_pad", 0):
        return pooling.pooled(sg.avg_pool, x)
    y = pooling.means(x)
    if pooling.wide == pooling.pads:
        return y
    found = pooling.places("AveragePool with ceil_mode")
    kept = shares(found, static(x.shape[2:], "AveragePool with ceil_mode"), pooling.pads)
    return sg.multiply(y, brought(kept * math.prod(pooling.window), x.dtype))


def powers(x: sg.Output, p: int) -> Any:
    """|x| to the power p."""
    if p % 2:
        x = sg.abs(x)
    return x if p == 1 else sg.square(x) if p == 2 else sg.pow(x, brought(p, x.dtype))


def root(x: sg.Output, p: int) -> Any:
    """The root of numbers that are not negative; at 0 its gradient is 0."""
    if p == 1:
        return x
    some = sg.greater(x, brought(0, x.dtype))
    kept = sg.where(some, x, brought(1, x.dtype))
    found = sg.sqrt(kept) if p == 2 else sg.pow(kept, brought(1.0 / p, x.dtype))
    return sg.where(some, found, brought(0, x.dtype))


def lp_pool(node: Call, x: sg.Output) -> Any:
    pooling, p = Pooling(node, x), int(node.attribute("p", 2))
    total = sg.multiply(pooling.means(powers(x, p)), brought(math.prod(pooling.window), x.dtype))
    return root(total, p)


def _whole(node: Call, x: sg.Output) -> tuple[int, ...]:
    if x.ndim < 3:
        node.fail(f"its input has {x.ndim} axes, and none behind batch and channels")
    return tuple(range(2, x.ndim))


def global_average_pool(node: Call, x: sg.Output) -> Any:
    return sg.reduce_mean(x, axis=_whole(node, x), keepdims=True)


def global_max_pool(node: Call, x: sg.Output) -> Any:
    return sg.reduce_max(x, axis=_whole(node, x), keepdims=True)


def global_lp_pool(node: Call, x: sg.Output) -> Any:
    p = int(node.attribute("p", 2))
    return root(sg.reduce_sum(powers(x, p), axis=_whole(node, x), keepdims=True), p)


@knows(2)
def max_unpool(node: Call, x: sg.Output, places: sg.Output, shape: sg.Output | Known | None = None) -> Any:
    """Puts each element where its index in the whole tensor says; 0 elsewhere."""
    window = [int(n) for n in node.attribute("kernel_shape")]
    stride = [int(n) for n in node.attribute("strides") or [1] * len(window)]
    pads = explicit_pads(node, len(window))
    before: list[Any] = [
        (size - 1) * step - sum(pad) + n
        for size, step, pad, n in zip(x.shape[2:], stride, pads, window, strict=True)
    ]
    start = sg.zeros([product([x.shape[0], x.shape[1], *before])], x.dtype)
    flat = sg.scatter_update(start, sg.reshape(places, [-1]), sg.reshape(x, [-1]))
    y = sg.reshape(flat, [x.shape[0], x.shape[1], *before])
    if shape is None:
        return y
    wanted: Sequence[Any] = node.sizes(shape, 2)
    return padded(y, [(0, new - old) for new, old in zip(wanted, y.shape, strict=True)])


POOLING: Table = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    "GlobalLpPool": global_lp_pool,
    "MaxUnpool": max_unpool,
}
