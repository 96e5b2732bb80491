"""The attributes of operations with windows: layout, strides, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.tensorflow.operators.calling import Call


def is_channels_first(layout: str) -> bool:
    """Whether a data format such as "NCHW" has the channels before the sizes."""
    return layout.startswith("NC")


class Spatial:
    """The attributes of an operation that moves a window over images, for channels last.

    Attributes:
        rank: the number of spatial axes.
        first: whether the operation's own layout has the channels first.
        strides, dilations: a number for each spatial axis.
        padding: "SAME", "VALID", or for each spatial axis how many elements are added before and after.
    """

    first: bool
    strides: list[Any]
    dilations: list[Any]

    def __init__(self, node: Call, rank: int, strides: Sequence[int] | None = None) -> None:
        self.rank = rank
        layout = str(node.attribute("data_format") or ("NHWC" if rank == 2 else "NDHWC"))
        self.first = is_channels_first(layout)
        if len(layout) != rank + 2:
            node.fail(f"the data format {layout!r} is unknown for {rank} spatial axes")
        self.strides = self.inner(node, "strides", node.attribute("strides") if strides is None else strides)
        self.dilations = self.inner(node, "dilations", node.attribute("dilations") or [1] * (rank + 2))
        self.padding: Any = str(node.attribute("padding"))
        if self.padding == "EXPLICIT":
            amounts = [int(n) for n in node.attribute("explicit_paddings") or ()]
            pairs = self.inner(
                node, "explicit_paddings", list(zip(amounts[::2], amounts[1::2], strict=False))
            )
            self.padding = [tuple(pair) for pair in pairs]

    def inner(self, node: Call, name: str, parts: Sequence[Any]) -> list[Any]:
        """The parts of a list with one for each axis that are about spatial axes."""
        if len(parts) != self.rank + 2:
            node.fail(f"{name} has {len(parts)} parts for {self.rank + 2} axes")
        return list(parts[2:] if self.first else parts[1:-1])

    def last(self, x: sg.Output) -> sg.Output:
        """A tensor of the operation's layout with the channels last."""
        return sg.transpose(x, (0, *range(2, self.rank + 2), 1)) if self.first else x

    def own(self, y: sg.Output) -> sg.Output:
        """A tensor with the channels last in the operation's layout."""
        return sg.transpose(y, (0, self.rank + 1, *range(1, self.rank + 1))) if self.first else y

    def sizes_last(self, sizes: Sequence[Any]) -> list[Any]:
        """The sizes of a tensor of the operation's layout, with the channels last."""
        return [sizes[0], *sizes[2:], sizes[1]] if self.first else list(sizes)
