"""The attributes of operators with windows: sizes, strides and padding for each spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.onnx.operators.calling import Call


class Spatial:
    """The attributes of an operator that moves a window over the axes behind batch and channels.

    Attributes:
        window, stride, dilation: a number for each axis.
        pads: for each axis the padding before and after it.
        padding: the same for our functions: the pads, or "SAME" if they depend on symbolic sizes.
    """

    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    auto_pad: str
    pads: list[tuple[Any, Any]]

    def __init__(self, node: Call, x: sg.Output, window: Sequence[int] | None = None) -> None:
        kernel_shape = node.attribute("kernel_shape", window)
        if kernel_shape is None:
            node.fail("it has no attribute kernel_shape")
        self.window = tuple(int(n) for n in kernel_shape)
        count = len(self.window)
        if x.ndim != count + 2:
            node.fail(f"its window has {count} axes, and its input {x.ndim}: [batch, channels, sizes]")
        if window is not None and self.window != tuple(window):
            node.fail(f"kernel_shape is {list(self.window)}, and the weights' window {list(window)}")
        self.stride = _numbers(node, "strides", count)
        self.dilation = _numbers(node, "dilations", count)
        self.auto_pad = str(node.attribute("auto_pad", "NOTSET"))
        self.pads = self._padding(node, x.shape[2:])
        self.padding: Any = self.pads
        if self.auto_pad == "SAME_UPPER" and any(isinstance(size, sg.Dim) for size in x.shape[2:]):
            self.padding = "SAME"

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements a window covers, its gaps included."""
        return tuple((n - 1) * far + 1 for n, far in zip(self.window, self.dilation, strict=True))

    def _padding(self, node: Call, sizes: Sequence[Any]) -> list[tuple[Any, Any]]:
        if self.auto_pad in ("NOTSET", ""):
            return explicit_pads(node, len(self.window))
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(self.window)
        if self.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            node.fail(f"auto_pad={self.auto_pad!r} is unknown")
        return [
            halves(self._same(node, size, step, reach), self.auto_pad == "SAME_UPPER")
            for size, step, reach in zip(sizes, self.stride, self.reach, strict=True)
        ]

    def _same(self, node: Call, size: Size, step: int, reach: int) -> int:
        """The padding that gives ⌈size / stride⌉ windows."""
        if step == 1:
            return reach - 1
        if isinstance(size, sg.Dim):
            if self.auto_pad == "SAME_UPPER":  # The convolution finds out its padding.
                return 0
            node.fail(f"auto_pad={self.auto_pad!r} with strides needs sizes that are numbers; give it pads")
        return max((-(-size // step) - 1) * step + reach - size, 0)


def _numbers(node: Call, name: str, count: int) -> tuple[int, ...]:
    numbers = node.attribute(name) or [1] * count
    if len(numbers) != count:
        node.fail(f"{name} has {len(numbers)} numbers for {count} spatial axes")
    return tuple(int(n) for n in numbers)


def explicit_pads(node: Call, count: int) -> list[tuple[int, int]]:
    """The attribute ``pads``, which lists first the padding before each axis, then that after each."""
    pads = [int(n) for n in node.attribute("pads") or [0] * (2 * count)]
    if len(pads) != 2 * count:
        node.fail(f"pads has {len(pads)} numbers for {count} spatial axes")
    return list(zip(pads[:count], pads[count:], strict=True))


def halves(total: int, odd_at_end: bool) -> tuple[int, int]:
    """A number in two halves, the larger one at the end or at the beginning."""
    small, large = total // 2, total - total // 2
    return (small, large) if odd_at_end else (large, small)
