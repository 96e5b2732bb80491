"""Operators that move elements: reshaping, axes, slices, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.shared.conversions import END, along, axis_of, brought, product
from stopgrad.interop.shared.slices import padded, part

_FAR = 2**31 - 1
"""Slice bounds from this number on, the largest of 32 bits, mean "to the end"."""


def checked_axis(node: Call, axis: int, ndim: int) -> int:
    """An axis counted from the front, after a check that there is one."""
    if not -ndim <= axis < ndim:
        node.fail(f"there is no axis {axis} of {ndim}")
    return axis_of(axis, ndim)


def checked_axes(node: Call, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, after a check that they are valid and different."""
    from_front = tuple([checked_axis(node, axis, ndim) for axis in axes])
    if len(set(from_front)) < len(from_front):
        node.fail(f"an axis stands twice among {list(axes)}")
    return from_front


# ------------------------------------------------------------------------------------------------- shapes


@knows(1)
def _reshaped(node: Call, x: sg.Output, shape: sg.Output | Known) -> sg.Output:
    sizes = list(node.sizes(shape, 1))
    if not node.attribute("allowzero", 0):
        for i, size in enumerate(sizes):
            if not isinstance(size, sg.Dim) and size == 0:
                sizes[i] = x.shape[checked_axis(node, i, x.ndim)]
    open_axes = [i for i, size in enumerate(sizes) if not isinstance(size, sg.Dim) and size == -1]
    if len(open_axes) == 1:
        # If another size is 0, so is the open one; it cannot be found by division.
        rest = product([size for i, size in enumerate(sizes) if i != open_axes[0]])
        if isinstance(rest, int) and rest == 0:
            sizes[open_axes[0]] = 0
    return sg.reshape(x, sizes)


def _flattened(node: Call, x: sg.Output) -> sg.Output:
    axis = node.attribute("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        node.fail(f"there is no axis {axis} of {x.ndim}")
    axis = axis_of(axis, x.ndim)
    return sg.reshape(x, [product(x.shape[:axis]), product(x.shape[axis:])])


@knows(1)
def _squeezed(node: Call, x: sg.Output, axes: sg.Output | Known | None = None) -> sg.Output:
    if axes is None:
        gone = [i for i, size in enumerate(x.shape) if not isinstance(size, sg.Dim) and size == 1]
    else:
        gone = sorted(checked_axes(node, node.known(1, axes).reshape(-1).tolist(), x.ndim))
    return sg.squeeze(x, gone) if gone else x


@knows(1)
def _unsqueezed(node: Call, x: sg.Output, axes: sg.Output | Known) -> sg.Output:
    places = node.known(1, axes).reshape(-1).tolist()
    new = set(checked_axes(node, places, x.ndim + len(places)))
    sizes = iter(x.shape)
    return sg.reshape(x, [1 if i in new else next(sizes) for i in range(x.ndim + len(places))])


def _transposed(node: Call, x: sg.Output) -> sg.Output:
    axes = node.attribute("perm", list(range(x.ndim))[::-1])
    if sorted(axes) != list(range(x.ndim)):
        node.fail(f"the attribute perm is {axes}, no order of {x.ndim} axes")
    return sg.transpose(x, axes) if x.ndim else x


@knows(1)
def _expanded(node: Call, x: sg.Output, shape: sg.Output | Known) -> sg.Output:
    target = node.sizes(shape, 1)
    return sg.broadcast_to(x, sg.broadcast_static_shape(tuple(x.shape), target))


@knows(1)
def _tiled(node: Call, x: sg.Output, repeats: sg.Output | Known) -> sg.Output:
    return sg.tile(x, list(node.sizes(repeats, 1))) if x.ndim else x


# ------------------------------------------------------------------------------------------ joined, parted


def _joined(node: Call, *xs: sg.Output) -> sg.Output:
    axis = checked_axis(node, node.attribute("axis"), xs[0].ndim)
    return sg.concat(list(xs), axis) if len(xs) > 1 else xs[0]


@knows(1)
def _split(node: Call, x: sg.Output, sizes: sg.Output | Known | None = None) -> tuple[sg.Output, ...]:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    if sizes is not None:
        lengths = list(node.sizes(sizes, 1))
    else:
        lengths = _even(x.shape[axis], node.outputs)
    if len(lengths) != node.outputs or node.attribute("num_outputs", node.outputs) != node.outputs:
        node.fail(f"its parts are not as many as its {node.outputs} results")
    return tuple(sg.split(x, lengths, axis))


def _even(size: Size, count: int) -> list[Any]:
    """Sizes of equal parts; the last is smaller if they do not fit."""
    if isinstance(size, sg.Dim):
        step = -(-size // count)
        return [*[step] * (count - 1), size - step * (count - 1)]
    step = -(-size // count)
    return [max(min(step, size - i * step), 0) for i in range(count)]


@knows(1, 2, 3, 4)
def _sliced(
    node: Call,
    x: sg.Output,
    starts: sg.Output | Known,
    ends: sg.Output | Known,
    axes: sg.Output | Known | None = None,
    steps: sg.Output | Known | None = None,
) -> sg.Output:
    first, last = node.sizes(starts, 1), node.sizes(ends, 2)
    along_axes = range(len(first)) if axes is None else node.known(3, axes).reshape(-1).tolist()
    strides = [1] * len(first) if steps is None else node.known(4, steps).reshape(-1).tolist()
    if not len(first) == len(last) == len(along_axes) == len(strides):
        node.fail("its starts, ends, axes and steps are not as many")
    chosen = checked_axes(node, list(along_axes), x.ndim)
    for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
        if step == 0:
            node.fail("a step is 0")
        x = part(x, axis, *_bounds(x.shape[axis], start, end, step), step)
    return x


def _bounds(size: Size, start: Size, end: Size, step: int) -> tuple[Size | None, Size | None]:
    """The start and end of a slice by Python's rules, from bounds that may lie beyond the axis."""
    first: Size | None = start
    last: Size | None = end
    if not isinstance(end, sg.Dim):
        if end >= _FAR:
            last = END if step > 0 else size
        elif end <= -_FAR or (step < 0 and not isinstance(size, sg.Dim) and end < -size):
            last = None if step < 0 else 0
    if not isinstance(start, sg.Dim):
        if start >= _FAR:
            first = None if step < 0 else size
        elif start <= -_FAR:
            first = 0
    return first, last


# ------------------------------------------------------------------------------------------------ margins


@knows(1, 2, 3)
def _padded(
    node: Call,
    x: sg.Output,
    pads: sg.Output | Known,
    value: sg.Output | None = None,
    axes: sg.Output | Known | None = None,
) -> sg.Output:
    widths = node.sizes(pads, 1)
    named = range(x.ndim) if axes is None else node.known(3, axes).reshape(-1).tolist()
    chosen = checked_axes(node, list(named), x.ndim)
    if len(widths) != 2 * len(chosen):
        node.fail(f"it has {len(widths)} pads for {len(chosen)} axes, each of which takes two")
    pairs: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for axis, before, after in zip(chosen, widths[: len(chosen)], widths[len(chosen) :], strict=True):
        pairs[axis] = (before, after)
    mode = node.attribute("mode", "constant")
    if mode == "constant":
        return padded(x, pairs, 0 if value is None else sg.reshape(node.tensor(value), []))
    if mode not in ("reflect", "edge", "wrap"):
        node.fail(f"its mode is constant, reflect, edge or wrap, not {mode!r}")
    for axis, pair in enumerate(pairs):
        x = _mirrored(node, x, axis, pair, mode)
    return x


def _mirrored(node: Call, x: sg.Output, axis: int, pair: tuple[Any, Any], mode: str) -> sg.Output:
    """Padding with elements of the tensor itself."""
    if any(isinstance(n, sg.Dim) for n in pair):
        node.fail("a margin of the tensor's own elements has a size that is a number")
    before, after = pair
    x = part(x, axis, -before if before < 0 else 0, x.shape[axis] + after if after < 0 else None)
    before, after = max(before, 0), max(after, 0)
    size = x.shape[axis]
    if not before and not after:
        return x
    if not isinstance(size, sg.Dim):
        if not size:
            node.fail("a margin of its own elements, around none")
        if mode == "reflect" and max(before, after) < size:
            return sg.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)], "REFLECT")
    steps = sg.range(-before, size + after, dtype=sg.int64)
    return sg.take(x, _inside(steps, sg.size(x, sg.int64, axis=axis), mode), axis)


def _inside(steps: sg.Output, size: sg.Output, mode: str) -> sg.Output:
    """The element that stands for one beyond the ends of an axis."""
    if mode == "edge":
        return sg.minimum(sg.maximum(steps, np.int64(0)), sg.subtract(size, np.int64(1)))
    if mode == "wrap":
        return sg.floormod(steps, size)
    period = sg.maximum(sg.multiply(sg.subtract(size, np.int64(1)), np.int64(2)), np.int64(1))
    place = sg.floormod(steps, period)
    return sg.where(sg.less(place, size), place, sg.subtract(period, place))


# --------------------------------------------------------------------------------------- blocks and times


def _depth_to_space(node: Call, x: sg.Output) -> sg.Output:
    n, c, h, w = _four(node, x)
    size = node.attribute("blocksize")
    if node.attribute("mode", "DCR") == "DCR":
        y = sg.reshape(x, [n, size, size, c // (size * size), h, w])
        y = sg.transpose(y, [0, 3, 4, 1, 5, 2])
    else:
        y = sg.reshape(x, [n, c // (size * size), size, size, h, w])
        y = sg.transpose(y, [0, 1, 4, 2, 5, 3])
    return sg.reshape(y, [n, c // (size * size), h * size, w * size])


def _space_to_depth(node: Call, x: sg.Output) -> sg.Output:
    n, c, h, w = _four(node, x)
    size = node.attribute("blocksize")
    y = sg.reshape(x, [n, c, h // size, size, w // size, size])
    blocks = [0, 3, 5, 1, 2, 4] if node.attribute("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return sg.reshape(sg.transpose(y, blocks), [n, c * size * size, h // size, w // size])


def _four(node: Call, x: sg.Output) -> tuple[Size, ...]:
    if x.ndim != 4 or node.attribute("blocksize") < 1:
        node.fail("its operand has four axes, and its block size is at least 1")
    return tuple(x.shape)


def _reversed(node: Call, x: sg.Output, lengths: sg.Output) -> sg.Output:
    """Reverses the first elements of each row, as many as its length says."""
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    time, batch = checked_axes(node, [time, batch], x.ndim)
    steps = along(sg.range(0, x.shape[time], dtype=sg.int64), time, x.ndim)
    ends = along(brought(lengths, sg.int64), batch, x.ndim)
    places = sg.where(sg.less(steps, ends), ends - 1 - steps, steps)
    return sg.take_along_axis(x, sg.broadcast_to(places, x.shape), time)


@knows(1)
def _triangle(node: Call, x: sg.Output, k: sg.Output | None = None) -> sg.Output:
    if x.ndim < 2:
        node.fail("its operand has two axes at least")
    rows, columns = (sg.range(0, size, dtype=sg.int64) for size in x.shape[-2:])
    if k is not None and not isinstance(k, Known):  # k is known only when the model runs.
        place = sg.subtract(along(columns, 1, 2), along(rows, 0, 2))
        k = sg.reshape(k, [])
        triangle = sg.greater_equal(place, k) if node.attribute("upper", 1) else sg.less_equal(place, k)
        return sg.where(triangle, x, brought(0, x.dtype))
    offset = 0 if k is None else int(node.number(1, k))
    sizes = [size for size in x.shape[-2:] if not isinstance(size, sg.Dim)]
    if len(sizes) == 2:
        offset = min(max(offset, -sizes[0] - 1), sizes[1] + 1)  # Beyond these bounds, all is kept or nothing.
    return (sg.triu if node.attribute("upper", 1) else sg.tril)(x, offset)


MOVING: Table = {
    "Reshape": _reshaped,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Transpose": _transposed,
    "Expand": _expanded,
    "Tile": _tiled,
    "Concat": _joined,
    "Split": _split,
    "Slice": _sliced,
    "Pad": _padded,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reversed,
    "Trilu": _triangle,
}
