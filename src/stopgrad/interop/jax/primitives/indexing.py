"""Slices at computed positions: dynamic slices, ``gather`` and ``scatter``.

A gather takes blocks. Axes that blocks cover whole are kept; the others are merged into one axis, along which
the positions of the blocks' elements are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import stopgrad as sg
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import Tensor
from stopgrad.interop.jax.primitives.elementwise import like
from stopgrad.interop.jax.primitives.shapes import cut
from stopgrad.interop.jax.steps import NotOurs, Step, rule


def _starts(starts: Sequence[Output]) -> Output:
    """The starts as a vector. JAX takes negative ones for 0; we would count them from the end."""
    positions = [
        sg.cast(sg.maximum(s, like(s, 0)), sg.int64 if s.dtype.itemsize == 8 else sg.int32) for s in starts
    ]
    widest = max((s.dtype for s in positions), key=lambda dtype: dtype.itemsize)
    row: Output = sg.stack([sg.cast(s, widest) for s in positions])
    return row


@rule("dynamic_slice")
def _dynamic_slice(step: Step, x: Output, *starts: Output) -> Output:
    if len(starts) > x.ndim:
        raise NotOurs("a size that is computed")
    return sg.dynamic_slice(x, _starts(starts), step["slice_sizes"]) if starts else sg.identity(x)


@rule("dynamic_update_slice")
def _dynamic_update_slice(step: Step, x: Output, updates: Output, *starts: Output) -> Output:
    return sg.dynamic_update_slice(x, updates, _starts(starts)) if starts else sg.identity(updates)


@dataclass(frozen=True)
class Blocks:
    """The positions of the blocks of a gather or scatter.

    Attributes:
        shape: of the operand.
        sizes: of a block, for each axis of the operand.
        starts: the axes of the operand to which the numbers of an index refer.
        batch: the batch axes of the operand, and those of the indices that go with them.
        kept: the axes that blocks cover whole.
    """

    shape: tuple[Any, ...]
    sizes: tuple[Any, ...]
    starts: tuple[int, ...]
    batch: tuple[tuple[int, int], ...]

    @property
    def kept(self) -> list[int]:
        chosen = {axis for axis, _ in self.batch}
        return [
            axis
            for axis, (n, size) in enumerate(zip(self.shape, self.sizes, strict=True))
            if n == size and axis not in chosen and (n != 1 or axis not in self.starts)
        ]

    @property
    def indexed(self) -> list[int]:
        whole = set(self.kept)
        return [axis for axis in range(len(self.shape)) if axis not in whole]

    @property
    def order(self) -> list[int]:
        """The operand's axes: first the indexed ones, then those kept."""
        return [*self.indexed, *self.kept]

    @property
    def rows(self) -> int:
        """The product of the sizes of the indexed axes."""
        return math.prod(self.shape[axis] for axis in self.indexed)

    def flat(self, x: Output) -> Output:
        """The operand with its indexed axes merged into one, in front."""
        turned = sg.transpose(x, self.order) if self.order != list(range(len(self.shape))) else x
        merged: Output = sg.reshape(turned, [self.rows, *[self.shape[axis] for axis in self.kept]])
        return merged

    def back(self, x: Output) -> Output:
        """The reverse of :meth:`flat`."""
        parted = sg.reshape(x, [self.shape[axis] for axis in self.order])
        inverse = [int(i) for i in np.argsort(self.order)]
        restored: Output = sg.transpose(parted, inverse) if inverse != list(range(len(inverse))) else parted
        return restored

    def positions(self, indices: Output, clips: bool) -> tuple[Output, Output | None]:
        """The position of each element of each block along the merged axis; and which indices are in bounds.

        Positions have the shape of the indices, without the axis of their numbers, followed by the block's
        sizes along the indexed axes.
        """
        many = tuple(indices.shape[:-1])
        wide = _wide(indices, self.rows)
        window = [self.sizes[axis] for axis in self.indexed]
        total: Any = None
        fits: Any = None
        stride = self.rows
        for place, axis in enumerate(self.indexed):
            stride //= max(self.shape[axis], 1)
            first = self._first(wide, axis, many)
            if first is not None and axis in self.starts:
                last = like(wide, self.shape[axis] - self.sizes[axis])
                if clips:
                    first = sg.minimum(sg.maximum(first, like(wide, 0)), last)
                else:
                    inside = sg.logical_and(
                        sg.greater_equal(first, like(wide, 0)), sg.less_equal(first, last)
                    )
                    fits = inside if fits is None else sg.logical_and(fits, inside)
            within = np.arange(self.sizes[axis]).astype(wide.dtype.numpy)
            line = within.reshape([-1 if i == place else 1 for i in range(len(window))])
            part: Any = line.reshape((1,) * len(many) + line.shape)
            if first is not None:
                part = sg.reshape(first, [*first.shape, *[1] * len(window)]) + part
            part = part * like(wide, stride)
            total = part if total is None else total + part
        if total is None:
            total = np.zeros((), wide.dtype.numpy)
        for axis in self.starts:
            if axis in self.kept and not clips:
                first = self._first(wide, axis, many)
                inside = sg.equal(first, like(wide, 0))
                fits = inside if fits is None else sg.logical_and(fits, inside)
        return sg.broadcast_to(total, [*many, *window]), fits

    def _first(self, indices: Output, axis: int, many: tuple[Any, ...]) -> Any:
        """The start of each block along an axis; None if all start at 0."""
        for own, other in self.batch:
            if own == axis:
                line = np.arange(self.shape[axis]).astype(indices.dtype.numpy)
                shaped = line.reshape([-1 if i == other else 1 for i in range(len(many))])
                return sg.constant(np.broadcast_to(shaped, many).copy())
        if axis not in self.starts:
            return None
        number = self.starts.index(axis)
        spans = [*[(0, n, 1) for n in many], (number, 1, 1)]
        return sg.reshape(cut(indices, spans), many)


def _wide(indices: Output, rows: int) -> Output:
    dtype = sg.int64 if rows > 2**31 - 1 or indices.dtype in (sg.int64, sg.uint32, sg.uint64) else sg.int32
    widened: Output = indices if indices.dtype is dtype else sg.cast(indices, dtype)
    return widened


def _mode(step: Step) -> str:
    """``"clip"``, ``"fill"`` or ``"promise"``."""
    text = str(step["mode"]).lower()
    return "clip" if "clip" in text else "fill" if "fill" in text else "promise"


@rule("gather")
def _gather(step: Step, x: Output, indices: Output) -> Output:
    numbers, sizes = step["dimension_numbers"], tuple(step["slice_sizes"])
    blocks = Blocks(
        tuple(x.shape),
        sizes,
        tuple(numbers.start_index_map),
        tuple(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
    )
    mode = _mode(step)
    if 0 in x.shape:
        raise NotOurs("a gather from an array without elements")
    positions, fits = blocks.positions(indices, clips=mode != "fill")
    if fits is not None:
        positions = sg.where(_spread(fits, positions.ndim), positions, like(positions, 0))
    elements = sg.gather(blocks.flat(x), positions, axis=0)
    y = _arranged(elements, blocks, numbers, tuple(indices.shape[:-1]))
    if fits is None:
        return y
    many = [axis for axis in range(y.ndim) if axis not in numbers.offset_dims]
    shape: list[Any] = [1] * y.ndim
    for axis, size in zip(many, fits.shape, strict=True):
        shape[axis] = size
    return sg.where(sg.reshape(fits, shape), y, _filling(step, y))


def _spread(x: Output, rank: int) -> Output:
    """x with axes of size 1 appended."""
    spread: Output = sg.reshape(x, [*x.shape, *[1] * (rank - x.ndim)])
    return spread


def _filling(step: Step, y: Output) -> np.ndarray[Any, Any]:
    """The value for indices that are out of bounds."""
    fill_value = step.params.get("fill_value")
    if fill_value is not None:
        return np.asarray(fill_value).astype(y.dtype.numpy)
    if y.dtype.is_bool:
        return np.asarray(True)
    if not y.dtype.is_integer:
        return like(y, np.nan)
    limits = np.iinfo(y.dtype.numpy)
    return like(y, limits.max if limits.min == 0 else limits.min)


def _arranged(
    elements: Output, blocks: Blocks, numbers: jax.lax.GatherDimensionNumbers, many: tuple[Any, ...]
) -> Output:
    """The blocks, [indices..., indexed..., kept...], with their axes in the result's order."""
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = [axis for axis in range(len(blocks.shape)) if axis not in dropped]
    position_of = {axis: len(many) + i for i, axis in enumerate(blocks.order)}
    rank = len(many) + len(offsets)
    rest = [axis for axis in range(rank) if axis not in numbers.offset_dims]
    order = [0] * rank
    for i, axis in enumerate(rest):
        order[axis] = i
    for axis, place in zip(offsets, numbers.offset_dims, strict=True):
        order[place] = position_of[axis]
    gone = [position_of[axis] for axis in sorted(dropped, key=lambda axis: position_of[axis])]
    whole = [*order, *gone]
    turned = sg.transpose(elements, whole) if whole != list(range(elements.ndim)) else elements
    arranged: Output = sg.reshape(turned, [elements.shape[axis] for axis in order])
    return arranged


# -------------------------------------------------------------------------------------------- scatter


def _scattered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def scatter(step: Step, x: Output, indices: Output, updates: Output) -> Output:
        numbers = step["dimension_numbers"]
        many = tuple(indices.shape[:-1])
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        windows = iter(numbers.update_window_dims)
        sizes = tuple(1 if axis in dropped else updates.shape[next(windows)] for axis in range(x.ndim))
        blocks = Blocks(
            tuple(x.shape),
            sizes,
            tuple(numbers.scatter_dims_to_operand_dims),
            tuple(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        )
        if 0 in x.shape or 0 in updates.shape:
            return sg.identity(x)
        positions, fits = blocks.positions(indices, clips=_mode(step) == "clip")
        parts = _blockwise(updates, blocks, numbers, many, dropped)
        flat = blocks.flat(x)
        if fits is None:
            return blocks.back(function(flat, positions, parts))
        # Updates out of bounds go to an extra last row, which is cut off.
        positions = sg.where(_spread(fits, positions.ndim), positions, like(positions, blocks.rows))
        longer = sg.pad(flat, [(0, 1), *[(0, 0)] * (flat.ndim - 1)])
        scattered = function(longer, positions, parts)
        return blocks.back(cut(scattered, [(0, n, 1) for n in flat.shape]))

    return scatter


def _blockwise(
    updates: Output,
    blocks: Blocks,
    numbers: jax.lax.ScatterDimensionNumbers,
    many: tuple[Any, ...],
    dropped: set[int],
) -> Output:
    """Updates as [indices..., indexed..., kept...]."""
    rest = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    window_axes = [axis for axis in range(len(blocks.shape)) if axis not in dropped]
    position_of = dict(zip(window_axes, numbers.update_window_dims, strict=True))
    order = [*rest, *[position_of[axis] for axis in blocks.order if axis in position_of]]
    turned = sg.transpose(updates, order) if order != list(range(updates.ndim)) else updates
    arranged: Output = sg.reshape(turned, [*many, *[blocks.sizes[axis] for axis in blocks.order]])
    return arranged


def _on_truths(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A scatter of booleans, by one of numbers."""

    def scatter(x: Output, positions: Output, parts: Output) -> Tensor:
        if not x.dtype.is_bool:
            return function(x, positions, parts, 0)
        scattered = function(sg.cast(x, sg.int32), positions, sg.cast(parts, sg.int32), 0)
        return sg.not_equal(scattered, 0)

    return scatter


rule("scatter-add")(_scattered(_on_truths(sg.scatter_add)))
rule("scatter-mul")(_scattered(_on_truths(sg.scatter_multiply)))
rule("scatter-min")(_scattered(_on_truths(sg.scatter_min)))
rule("scatter-max")(_scattered(_on_truths(sg.scatter_max)))
rule("scatter-sub")(_scattered(lambda x, positions, parts: sg.scatter_add(x, positions, -parts, 0)))


@rule("scatter")
def _scatter(step: Step, x: Output, indices: Output, updates: Output) -> sg.Output:
    body = step.params.get("update_jaxpr")
    if getattr(body, "eqns", None):
        raise NotOurs("a scatter by a function of the user's")
    return _scattered(_on_truths(sg.scatter_update))(step, x, indices, updates)
