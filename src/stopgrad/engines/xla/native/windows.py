"""What the kernels over windows share.

The kernels take three spatial axes. Missing ones are added in front, with size 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import Shape, Size
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.neural.windows import pads

RANK = 3
"""The number of spatial axes of the kernels."""


def attributes_of(op: Operation) -> dict[str, Any]:
    """An operation's attributes by name."""
    return dict(zip(op.definition.attributes, op.values, strict=True))


def geometry_of(given: Mapping[str, Any], spatial: Sequence[int], ksize: Sequence[int]) -> dict[str, Any]:
    """The attributes of a kernel, made of an operation's."""
    around = pads(spatial, ksize, (given["strides"], given["padding"], given["dilations"]))
    return {
        "strides": numbers(given["strides"], 1),
        "dilations": numbers(given["dilations"], 1),
        "low": numbers([before for before, _ in around], 0),
    }


def numbers(some: Sequence[Size], missing: int) -> np.ndarray[Any, Any]:
    """One number for each spatial axis, with *missing* for axes that are added."""
    return np.array([missing] * (RANK - len(some)) + [*some], np.int64)


def with_all_axes(shape: Sequence[Size], filters: bool = False) -> Shape:
    """The shape of an array [batch, spatial..., channels], or of filters, with all spatial axes."""
    missing = (1,) * (RANK + 2 - len(shape))
    return (*missing, *shape) if filters else (shape[0], *missing, *shape[1:])


def sole_readers(operations: Sequence[Operation], wanted: Sequence[Output]) -> dict[Output, Operation]:
    """The reader of each output that is read by a single operation, once, and is no result."""
    found: dict[Output, Operation] = {}
    several = set(wanted)
    for op in operations:
        for x in op.inputs:
            if x in found:
                several.add(x)
            found[x] = op
    return {x: op for x, op in found.items() if x not in several}
