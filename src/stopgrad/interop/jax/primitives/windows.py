"""Window reductions: sums, largest and smallest elements, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.graph.build import apply
from stopgrad.graph.graph import Output
from stopgrad.interop.jax.primitives.elementwise import like
from stopgrad.interop.jax.primitives.shapes import cut, padded
from stopgrad.interop.jax.steps import NotOurs, Step, rule
from stopgrad.ops.neural.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad


class _Moving:
    """The axes along which windows move; a pool has them between examples and channels."""

    def __init__(self, step: Step, shape: Sequence[Any]) -> None:
        rank = len(shape)
        ones = (1,) * rank
        self.sizes = tuple(step["window_dimensions"])
        self.steps = tuple(step["window_strides"])
        self.padding = tuple(tuple(pair) for pair in step["padding"])
        self.dilations = tuple(step.params.get("window_dilation") or ones)
        self.gaps = tuple(step.params.get("base_dilation") or ones)
        self.shape = tuple(int(n) for n in shape)
        self.axes = [
            i
            for i in range(rank)
            if (self.sizes[i], self.steps[i], self.padding[i], self.gaps[i]) != (1, 1, (0, 0), 1)
        ] or [rank - 1]
        self.still = [i for i in range(rank) if i not in set(self.axes)]
        self.order = [*self.still, *self.axes]

    @property
    def geometry(self) -> tuple[Any, ...]:
        """The attributes of a pool."""
        picked: list[Any] = [
            tuple(values[i] for i in self.axes)
            for values in (self.sizes, self.steps, self.padding, self.dilations)
        ]
        for (low, high), size, dilation in zip(picked[2], picked[0], picked[3], strict=True):
            if min(low, high) < 0 or max(low, high) >= (size - 1) * dilation + 1:
                raise NotOurs("windows that lie in the padding")
        return tuple(picked)

    def to_pool(self, x: Output) -> Output:
        """x as [examples, moving..., 1]."""
        turned = sg.transpose(x, self.order) if self.still != list(range(len(self.still))) else x
        arranged: Output = sg.reshape(turned, [-1, *[x.shape[i] for i in self.axes], 1])
        return arranged

    def from_pool(self, y: Output, like: Output) -> Output:
        """The reverse, for a result with the sizes of *like* along the other axes."""
        parted = sg.reshape(y, [*[like.shape[i] for i in self.still], *y.shape[1:-1]])
        inverse = [int(i) for i in np.argsort(self.order)]
        restored: Output = sg.transpose(parted, inverse)
        return restored


def _pooled(step: Step, x: Output) -> Output:
    moving = _Moving(step, x.shape)
    if not x.dtype.is_floating or any(gap != 1 for gap in moving.gaps):
        raise NotOurs("the largest of whole numbers, or between gaps")
    pooled = apply(MaxPool, (moving.to_pool(x),), moving.geometry)
    return moving.from_pool(pooled, x)


@rule("reduce_window_max")
def _window_max(step: Step, x: Output) -> Output:
    return _pooled(step, x)


@rule("reduce_window_min")
def _window_min(step: Step, x: Output) -> Output:
    return -_pooled(step, -x)


@rule("reduce_window_sum")
def _window_sum(step: Step, x: Output) -> Output:
    moving = _Moving(step, x.shape)
    config = [(low, high, gap - 1) for (low, high), gap in zip(moving.padding, moving.gaps, strict=True)]
    x = padded(x, config, like(x, 0))
    for axis in moving.axes:
        size, dilation = moving.sizes[axis], moving.dilations[axis]
        count = int(x.shape[axis]) - (size - 1) * dilation
        x = _running(x, axis, size, dilation, sg.add)
        stride = moving.steps[axis]
        x = _part(x, axis, 0, -(-count // stride) if count > 0 else 0, stride)
    return x


def _part(x: Output, axis: int, start: int, count: int, stride: int = 1) -> Output:
    spans = [(0, int(n), 1) for n in x.shape]
    spans[axis] = (start, count, stride)
    return cut(x, spans)


def _running(x: Output, axis: int, size: int, dilation: int, function: Callable[..., Output]) -> Output:
    """The function of *size* elements from each position on, by doubling the number in each round."""
    length = int(x.shape[axis])
    total: Output | None = None
    done, width, power = 0, 1, x
    while True:
        if size & width:
            last = length - (done + width - 1) * dilation
            part = _part(power, axis, done * dilation, max(last, 0))
            if total is None:
                total = part
            else:
                total = function(_part(total, axis, 0, max(last, 0)), part)
            done += width
        width *= 2
        if width > size:
            assert total is not None
            return total
        remaining = max(length - (width - 1) * dilation, 0)
        power = function(
            _part(power, axis, 0, remaining), _part(power, axis, width // 2 * dilation, remaining)
        )


def _selects_largest(step: Step) -> bool:
    return getattr(step["select_prim"], "name", "ge") == "ge"


@rule("select_and_scatter_add")
def _scatter_to_largest(step: Step, g: Output, x: Output) -> Output:
    moving = _Moving(step, x.shape)
    chosen = x if _selects_largest(step) else -x
    scattered = apply(MaxPoolGrad, (moving.to_pool(chosen), moving.to_pool(g)), moving.geometry)
    return moving.from_pool(scattered, x)


@rule("select_and_gather_add")
def _gather_of_largest(step: Step, tangents: Output, x: Output) -> Output:
    moving = _Moving(step, x.shape)
    if any(gap != 1 for gap in moving.gaps):
        raise NotOurs("windows between gaps")
    chosen = x if _selects_largest(step) else -x
    gathered = apply(MaxPoolGradGrad, (moving.to_pool(chosen), moving.to_pool(tangents)), moving.geometry)
    return moving.from_pool(gathered, x)
