"""Pooling: the largest element or the mean of each window, and the gradients as operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.shared.conversions import along, brought, pulled, static
from stopgrad.interop.shared.pooling import Windows, max_places
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.tensorflow.operators.spatial import Spatial


class Pooling(Spatial):
    """The attributes of a pooling operation.

    Attributes:
        window: its size along each spatial axis.
    """

    window: list[Any]

    def __init__(
        self, node: Call, rank: int, ksize: Sequence[int] | None = None, strides: Sequence[int] | None = None
    ) -> None:
        super().__init__(node, rank, strides)
        ksize = node.attribute("ksize") if ksize is None else ksize
        for sizes in (ksize, node.attribute("strides") if strides is None else strides):
            if (
                sizes is None
                or len(sizes) != rank + 2
                or sizes[0] != 1
                or sizes[1 if self.first else -1] != 1
            ):
                node.fail("pooling over the batch or the channels is not there")
        self.window = self.inner(node, "ksize", ksize or ())

    def largest(self, x: sg.Output) -> sg.Output:
        """The largest elements, of a tensor with the channels last."""
        return sg.max_pool(x, self.window, self.strides, self.padding)

    def mean(self, x: sg.Output) -> sg.Output:
        """The means, in which padding does not count, of a tensor with the channels last."""
        return sg.avg_pool(x, self.window, self.strides, self.padding)


def _pooled(method: Callable[[Pooling, sg.Output], Any]) -> Rule:
    def rule(node: Call, x: sg.Output) -> sg.Output:
        pooling = Pooling(node, x.ndim - 2)
        values = x if x.dtype.is_floating else sg.cast(x, sg.float64)
        return brought(pooling.own(method(pooling, pooling.last(values))), x.dtype)

    return rule


@knows(1, 2)
def _max_pool_v2(node: Call, x: sg.Output, ksize: sg.Output | Known, strides: sg.Output | Known) -> sg.Output:
    numbers = [[int(n) for n in node.known(operand).reshape(-1).tolist()] for operand in (ksize, strides)]
    pooling = Pooling(node, x.ndim - 2, *numbers)
    return pooling.own(pooling.largest(pooling.last(x)))


def _max_pool_grad(node: Call, x: sg.Output, y: sg.Output, g: sg.Output) -> sg.Output:
    pooling = Pooling(node, x.ndim - 2)
    (back,) = pulled(pooling.largest, [pooling.last(x)], [pooling.last(g)])
    return pooling.own(back)


def _max_pool_grad_grad(node: Call, x: sg.Output, y: sg.Output, g: sg.Output) -> sg.Output:
    """The transpose of the gradient: each window's element of g at the place of its largest element."""
    pooling = Pooling(node, x.ndim - 2)
    image = pooling.last(x)
    start = sg.zeros(list(pooling.last(y).shape), g.dtype)
    (back,) = pulled(lambda z: tuple(pulled(pooling.largest, [image], [z])), [start], [pooling.last(g)])
    return pooling.own(back)


@knows(0)
def _avg_pool_grad(node: Call, shape: sg.Output | Known, g: sg.Output) -> sg.Output:
    pooling = Pooling(node, g.ndim - 2)
    start = sg.zeros(pooling.sizes_last(node.sizes(shape)), g.dtype)
    (back,) = pulled(pooling.mean, [start], [pooling.last(g)])
    return pooling.own(back)


def _max_pool_with_argmax(node: Call, x: sg.Output) -> tuple[sg.Output, sg.Output]:
    """The largest elements, and the number of each in its image, or in the whole batch."""
    pooling = Pooling(node, 2)
    y = pooling.largest(x)
    sizes, counts = (static(z.shape[1:-1], "the indices of maxima") for z in (x, y))
    pads = [(0, 0), (0, 0)]
    if pooling.padding == "SAME":
        axes = zip(sizes, counts, pooling.window, pooling.strides, strict=True)
        wide = [max((count - 1) * step + k - size, 0) for size, count, k, step in axes]
        pads = [(n // 2, n - n // 2) for n in wide]
    windows = Windows(sizes, pooling.window, pooling.strides, [1, 1], pads)
    places = windows.places("the indices of maxima")
    pixels = sg.transpose(max_places(sg.transpose(x, (0, 3, 1, 2)), places), (0, 2, 3, 1))
    channels = x.shape[3]
    number = sg.multiply(pixels, brought(channels, sg.int64, x))
    number = sg.add(number, along(sg.range(0, channels, dtype=sg.int64), 3, 4))
    if node.attribute("include_batch_in_index", False):
        image = brought(math.prod(sizes) * channels, sg.int64, x)
        number = sg.add(number, sg.multiply(along(sg.range(0, x.shape[0], dtype=sg.int64), 0, 4), image))
    return y, brought(number, node.attribute("Targmax", sg.int64))


POOLING: Table = {
    "MaxPool": _pooled(Pooling.largest),
    "MaxPoolV2": _max_pool_v2,
    "MaxPool3D": _pooled(Pooling.largest),
    "AvgPool": _pooled(Pooling.mean),
    "AvgPool3D": _pooled(Pooling.mean),
    "MaxPoolWithArgmax": _max_pool_with_argmax,
    "MaxPoolGrad": _max_pool_grad,
    "MaxPool3DGrad": _max_pool_grad,
    "MaxPoolGradGrad": _max_pool_grad_grad,
    "MaxPool3DGradGrad": _max_pool_grad_grad,
    "AvgPoolGrad": _avg_pool_grad,
    "AvgPool3DGrad": _avg_pool_grad,
}
