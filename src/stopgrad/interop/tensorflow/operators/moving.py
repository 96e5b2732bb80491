"""Operations that move elements: shapes, axes, slices, margins, blocks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared.conversions import along, axis_of, bounded, brought, product, pulled
from stopgrad.interop.shared.slices import padded, part
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import ungraded


def checked_axis(node: Call, axis: int, ndim: int) -> int:
    """An axis counted from the front, after a check that there is one."""
    if not -ndim <= axis < ndim:
        node.fail(f"there is no axis {axis} of {ndim}")
    return axis_of(axis, ndim)


def axis_in(node: Call, axis: sg.Output | Known, ndim: int) -> int:
    """The one axis that an operand holds, counted from the front."""
    axes = node.known(axis)
    if axes.size != 1:
        node.fail(f"it takes one axis, not {axes.size}")
    return checked_axis(node, int(axes.reshape(-1)[0]), ndim)


def axes_in(node: Call, axes: sg.Output | Known, ndim: int) -> tuple[int, ...]:
    """The axes that an operand holds, counted from the front, each once."""
    checked = [checked_axis(node, int(axis), ndim) for axis in node.known(axes).reshape(-1).tolist()]
    if len(set(checked)) < len(checked):
        node.fail("an axis stands twice among its axes")
    return tuple(sorted(checked))


def pairs_in(node: Call, pairs: sg.Output | Known, count: int) -> list[tuple[Any, Any]]:
    """The pairs of sizes that an operand holds, one for each of *count* axes."""
    sizes = node.sizes(pairs)
    if len(sizes) != 2 * count:
        node.fail(f"it has {len(sizes)} sizes for {count} axes, each of which takes two")
    return list(zip(sizes[::2], sizes[1::2], strict=True))


# ------------------------------------------------------------------------------------------------- shapes


@knows(1)
def reshaped(node: Call, x: sg.Output, shape: sg.Output | Known) -> sg.Output:
    sizes = list(node.sizes(shape))
    unknown = [i for i, size in enumerate(sizes) if not isinstance(size, sg.Dim) and size == -1]
    if len(unknown) == 1:
        # If another size is 0, so is the open one; it cannot be found by division.
        rest = product([size for i, size in enumerate(sizes) if i != unknown[0]])
        if isinstance(rest, int) and rest == 0:
            sizes[unknown[0]] = 0
    return sg.reshape(x, sizes)


def _squeezed(node: Call, x: sg.Output) -> sg.Output:
    axes = [checked_axis(node, axis, x.ndim) for axis in node.attribute("squeeze_dims") or ()]
    if not axes:
        axes = [i for i, size in enumerate(x.shape) if not isinstance(size, sg.Dim) and size == 1]
    return sg.squeeze(x, axes) if axes else x


@knows(1)
def _expanded(node: Call, x: sg.Output, axis: sg.Output | Known) -> sg.Output:
    return sg.expand_dims(x, axis_in(node, axis, x.ndim + 1))


@knows(1)
def _transposed(node: Call, x: sg.Output, perm: sg.Output | Known) -> sg.Output:
    axes = _order(node, perm, x.ndim)
    transposed = sg.transpose(x, axes) if x.ndim else x
    return sg.conj(transposed) if node.op_type == "ConjugateTranspose" else transposed


def _order(node: Call, perm: sg.Output | Known, ndim: int) -> list[int]:
    axes = [axis_of(int(axis), ndim) for axis in node.known(perm).reshape(-1).tolist()]
    if sorted(axes) != list(range(ndim)):
        node.fail(f"{axes} is no order of {ndim} axes")
    return axes


@knows(1)
def _broadcast(node: Call, x: sg.Output, shape: sg.Output | Known) -> sg.Output:
    return sg.broadcast_to(x, list(node.sizes(shape)))


@knows(1)
def _tiled(node: Call, x: sg.Output, multiples: sg.Output | Known) -> sg.Output:
    return sg.tile(x, list(node.sizes(multiples))) if x.ndim else x


# ------------------------------------------------------------------------------------------ joined, parted


@knows(-1)
def _concat(node: Call, *operands: Any) -> sg.Output:
    *xs, axis = operands
    return _joined(xs, axis_in(node, axis, xs[0].ndim))


@knows(0)
def _concat_v1(node: Call, axis: sg.Output | Known, *xs: sg.Output) -> sg.Output:
    return _joined(xs, axis_in(node, axis, xs[0].ndim))


def _joined(xs: Sequence[sg.Output], axis: int) -> sg.Output:
    return sg.concat(list(xs), axis) if len(xs) > 1 else xs[0]


def _packed(node: Call, *xs: sg.Output) -> sg.Output:
    return sg.stack(list(xs), checked_axis(node, node.attribute("axis", 0), xs[0].ndim + 1))


def _unpacked(node: Call, x: sg.Output) -> tuple[sg.Output, ...]:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    bounded(int(node.attribute("num")) * 2**8, "so many parts")
    return tuple(sg.unstack(x, int(node.attribute("num")), axis))


@knows(0)
def _split(node: Call, axis: sg.Output | Known, x: sg.Output) -> tuple[sg.Output, ...]:
    count = int(node.attribute("num_split"))
    bounded(count * 2**8, "so many parts")
    return tuple(sg.split(x, count, axis_in(node, axis, x.ndim)))


@knows(1, 2)
def _split_v(
    node: Call, x: sg.Output, lengths: sg.Output | Known, axis: sg.Output | Known
) -> tuple[sg.Output, ...]:
    place, sizes = axis_in(node, axis, x.ndim), list(node.sizes(lengths))
    unknown = [i for i, size in enumerate(sizes) if not isinstance(size, sg.Dim) and size == -1]
    if len(unknown) == 1:
        sizes[unknown[0]] = 0
        sizes[unknown[0]] = x.shape[place] - sum(sizes)
    return tuple(sg.split(x, sizes, place))


# ------------------------------------------------------------------------------------------------- slices

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@knows(1, 2, 3)
def _strided_slice(
    node: Call, x: sg.Output, begin: sg.Output | Known, end: sg.Output | Known, strides: sg.Output | Known
) -> sg.Output:
    return sg.strided_slice(x, **_slicing(node, begin, end, strides))


@knows(0, 1, 2, 3)
def _strided_slice_grad(
    node: Call,
    shape: sg.Output | Known,
    begin: sg.Output | Known,
    end: sg.Output | Known,
    strides: sg.Output | Known,
    g: sg.Output,
) -> sg.Output:
    slicing = _slicing(node, begin, end, strides)
    start = sg.zeros(list(node.sizes(shape)), g.dtype)
    (gradient,) = pulled(lambda x: sg.strided_slice(x, **slicing), [start], [g])
    return gradient


def _slicing(
    node: Call, begin: sg.Output | Known, end: sg.Output | Known, strides: sg.Output | Known
) -> dict[str, Any]:
    """The arguments of a slice."""
    steps = [int(n) for n in node.known(strides).reshape(-1).tolist()]
    masks = {name: int(node.attribute(name, 0)) for name in _MASKS}
    single, hidden = masks["shrink_axis_mask"], masks["ellipsis_mask"] | masks["new_axis_mask"]
    starts = _bound(node, begin, len(steps), masks["begin_mask"] & ~single | hidden, single)
    ends = _bound(node, end, len(steps), masks["end_mask"] | single | hidden, 0)
    return {"begin": starts, "end": ends, "strides": steps, **masks}


def _bound(node: Call, bound: sg.Output | Known, count: int, unread: int, single: int) -> list[Any]:
    """The bound of each slice; 0 for those that are not read. Bits of *unread* and *single* are about slices.

    That of a single element may be one that the model computes.
    """
    if node.is_known(bound) or not all((unread | single) >> i & 1 for i in range(count)):
        return list(node.sizes(bound))
    bounds: list[Any] = [0] * count
    for i in range(count):
        if not unread >> i & 1:
            bounds[i] = sg.reshape(part(node.tensor(bound), 0, i, i + 1), [])
    return bounds


@knows(1, 2)
def _sliced(node: Call, x: sg.Output, begin: sg.Output | Known, size: sg.Output | Known) -> sg.Output:
    """Blocks may begin where the model computes it; their sizes are known."""
    sizes = list(node.sizes(size))
    if not node.is_known(begin):
        if any(not isinstance(n, sg.Dim) and n < 0 for n in sizes):
            node.fail("a block to the end of an axis begins where it is known; give its size")
        return sg.slice(x, node.tensor(begin), sizes)
    for axis, (low, count) in enumerate(zip(node.sizes(begin), sizes, strict=True)):
        high = None if not isinstance(count, sg.Dim) and count == -1 else low + count
        if high is not x.shape[axis] and not (isinstance(high, int) and high == x.shape[axis]):
            x = part(x, axis, low, high)
        else:
            x = part(x, axis, low, None)
    return x


# ------------------------------------------------------------------------------------------------ margins


@knows(1)
def _padded(node: Call, x: sg.Output, pairs: sg.Output | Known, value: sg.Output | None = None) -> sg.Output:
    return padded(x, pairs_in(node, pairs, x.ndim), 0 if value is None else sg.reshape(ungraded(value), []))


@knows(1)
def _mirrored(node: Call, x: sg.Output, pairs: sg.Output | Known) -> sg.Output:
    return sg.pad(x, pairs_in(node, pairs, x.ndim), str(node.attribute("mode")))


@knows(1)
def _mirrored_grad(node: Call, g: sg.Output, pairs: sg.Output | Known) -> sg.Output:
    margins, mode = pairs_in(node, pairs, g.ndim), str(node.attribute("mode"))
    start = sg.zeros([size - sum(pair) for size, pair in zip(g.shape, margins, strict=True)], g.dtype)
    (gradient,) = pulled(lambda x: sg.pad(x, margins, mode), [start], [g])
    return gradient


# ----------------------------------------------------------------------------------------- order of elements


@knows(1)
def _reversed(node: Call, x: sg.Output, axes: sg.Output | Known) -> sg.Output:
    chosen = axes_in(node, axes, x.ndim)
    return sg.reverse(x, chosen) if chosen else x


@knows(1)
def _reversed_v1(node: Call, x: sg.Output, axes: sg.Output | Known) -> sg.Output:
    chosen = tuple(np.flatnonzero(node.known(axes)).tolist())
    return sg.reverse(x, chosen) if chosen else x


def _reversed_sequence(node: Call, x: sg.Output, lengths: sg.Output) -> sg.Output:
    """Reverses the first elements of each example, as many as its length says."""
    time = checked_axis(node, node.attribute("seq_dim"), x.ndim)
    batch = checked_axis(node, node.attribute("batch_dim", 0), x.ndim)
    steps = along(sg.range(0, x.shape[time], dtype=sg.int64), time, x.ndim)
    ends = along(brought(lengths, sg.int64), batch, x.ndim)
    places = sg.where(sg.less(steps, ends), ends - 1 - steps, steps)
    return sg.take_along_axis(x, sg.broadcast_to(places, x.shape), time)


@knows(2)
def _rolled(node: Call, x: sg.Output, shift: sg.Output, axis: sg.Output | Known) -> sg.Output:
    """Shifts along the same axis add up."""
    axes = [checked_axis(node, int(a), x.ndim) for a in node.known(axis).reshape(-1).tolist()]
    shifts = sg.unstack(sg.reshape(shift, [-1]), len(axes))
    for a in sorted(set(axes)):
        same_axis = [s for s, b in zip(shifts, axes, strict=True) if b == a]
        x = sg.roll(x, functools.reduce(sg.add, same_axis), a)
    return x


# ------------------------------------------------------------------------------------------------- blocks


@knows(1, 2)
def _space_to_batch(node: Call, x: sg.Output, block: sg.Output | Known, pads: sg.Output | Known) -> sg.Output:
    sizes = [int(n) for n in node.known(block).reshape(-1).tolist()]
    spatial = len(sizes)
    x = padded(x, [(0, 0), *pairs_in(node, pads, spatial), *[(0, 0)] * (x.ndim - 1 - spatial)])
    batch, inside, rest = x.shape[0], x.shape[1 : 1 + spatial], list(x.shape[1 + spatial :])
    split = [n for size, step in zip(inside, sizes, strict=True) for n in (size // step, step)]
    y = sg.reshape(x, [batch, *split, *rest])
    order = [*range(2, 2 * spatial + 1, 2), 0, *range(1, 2 * spatial + 1, 2), *range(2 * spatial + 1, y.ndim)]
    count = functools.reduce(operator.mul, sizes, 1)
    return sg.reshape(sg.transpose(y, order), [batch * count, *split[::2], *rest])


@knows(1, 2)
def _batch_to_space(
    node: Call, x: sg.Output, block: sg.Output | Known, crops: sg.Output | Known
) -> sg.Output:
    sizes = [int(n) for n in node.known(block).reshape(-1).tolist()]
    spatial = len(sizes)
    count = functools.reduce(operator.mul, sizes, 1)
    batch, inside, rest = x.shape[0] // count, x.shape[1 : 1 + spatial], list(x.shape[1 + spatial :])
    y = sg.reshape(x, [*sizes, batch, *inside, *rest])
    order = [spatial]
    for i in range(spatial):
        order += [spatial + 1 + i, i]
    y = sg.transpose(y, [*order, *range(2 * spatial + 1, y.ndim)])
    y = sg.reshape(y, [batch, *[n * step for n, step in zip(inside, sizes, strict=True)], *rest])
    for i, (before, after) in enumerate(pairs_in(node, crops, spatial)):
        y = part(y, 1 + i, before, y.shape[1 + i] - after)
    return y


def _space_to_depth(node: Call, x: sg.Output) -> sg.Output:
    return sg.space_to_depth(x, node.attribute("block_size"), node.attribute("data_format", "NHWC"))


def _depth_to_space(node: Call, x: sg.Output) -> sg.Output:
    return sg.depth_to_space(x, node.attribute("block_size"), node.attribute("data_format", "NHWC"))


def _block_v1(node: Call, x: sg.Output, pairs: sg.Output | Known) -> sg.Output:
    """``SpaceToBatch`` and ``BatchToSpace``: square blocks of images."""
    size = int(node.attribute("block_size"))
    rule = _space_to_batch if node.op_type == "SpaceToBatch" else _batch_to_space
    return rule(node, x, Known(np.full(2, size)), pairs)


MOVING: Table = {
    "Reshape": reshaped,
    "Squeeze": _squeezed,
    "ExpandDims": _expanded,
    "Transpose": _transposed,
    "ConjugateTranspose": _transposed,
    "BroadcastTo": _broadcast,
    "Tile": _tiled,
    "Concat": _concat_v1,
    "ConcatV2": _concat,
    "Pack": _packed,
    "Unpack": _unpacked,
    "Split": _split,
    "SplitV": _split_v,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "Slice": _sliced,
    "Pad": _padded,
    "PadV2": _padded,
    "MirrorPad": _mirrored,
    "MirrorPadGrad": _mirrored_grad,
    "ReverseV2": _reversed,
    "Reverse": _reversed_v1,
    "ReverseSequence": _reversed_sequence,
    "Roll": _rolled,
    "SpaceToBatchND": _space_to_batch,
    "BatchToSpaceND": _batch_to_space,
    "SpaceToBatch": knows(1)(_block_v1),
    "BatchToSpace": _block_v1,
    "SpaceToDepth": _space_to_depth,
    "DepthToSpace": _depth_to_space,
}
