"""Sequences and optional values, resolved while the graph is built: as lists of tensors, and None."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Body, Call, Known, Table, knows
from stopgrad.interop.onnx.operators.moving import checked_axis
from stopgrad.interop.shared.slices import part

_PARTS = 2**14
"""The most parts into which a tensor is split."""


def _constructed(node: Call, *xs: sg.Output) -> list[sg.Output]:
    return list(xs)


def _empty(node: Call) -> list[sg.Output]:
    return []


def _items(node: Call, x: Sequence[sg.Output]) -> list[sg.Output]:
    if not isinstance(x, list):
        node.fail("its operand is a sequence")
    return x


def _place(node: Call, i: int, position: Known, length: int) -> int:
    """A position in a sequence, counted from the front."""
    index = int(node.number(i, position))
    if not -length <= index < length:
        node.fail(f"there is no element {index} in a sequence of {length}")
    return index % length


@knows(1)
def _element(node: Call, items: Sequence[sg.Output], position: Known) -> sg.Output:
    elements = _items(node, items)
    return elements[_place(node, 1, position, len(elements))]


@knows(2)
def _inserted(
    node: Call, items: Sequence[sg.Output], x: sg.Output, position: Known | None = None
) -> list[sg.Output]:
    elements = list(_items(node, items))
    index = len(elements) if position is None else int(node.number(2, position))
    if not -len(elements) <= index <= len(elements):
        node.fail(f"there is no place {index} in a sequence of {len(elements)}")
    elements.insert(index, x)
    return elements


@knows(1)
def _erased(node: Call, items: Sequence[sg.Output], position: Known | None = None) -> list[sg.Output]:
    elements = list(_items(node, items))
    index = len(elements) - 1 if position is None else _place(node, 1, position, len(elements))
    if not elements:
        node.fail("nothing can be erased of an empty sequence")
    del elements[index]
    return elements


def _length(node: Call, items: Sequence[sg.Output]) -> Known:
    return Known(np.int64(len(_items(node, items))))


def _concatenated(node: Call, items: Sequence[sg.Output]) -> sg.Output:
    elements = _items(node, items)
    if not elements:
        node.fail("it concatenates an empty sequence")
    join = sg.stack if node.attribute("new_axis", 0) else sg.concat
    return join(elements, checked_axis(node, node.attribute("axis"), elements[0].ndim + (join is sg.stack)))


@knows(1)
def _split(node: Call, x: sg.Output, lengths: Known | None = None) -> list[sg.Output]:
    axis = checked_axis(node, node.attribute("axis", 0), x.ndim)
    size = x.shape[axis]
    if lengths is None:
        if isinstance(size, sg.Dim) or size > _PARTS:
            node.fail(f"it is split into as many parts as an axis is long, a number of at most {_PARTS}")
        parts = [part(x, axis, i, i + 1) for i in range(size)]
        return parts if node.attribute("keepdims", 1) else [sg.squeeze(y, axis) for y in parts]
    sizes = node.known(1, lengths)
    if not sizes.ndim:
        if isinstance(size, sg.Dim) or sizes < 1:
            node.fail("it is split into parts of one size, and the axis' length must be a number")
        step = int(sizes)
        if size > _PARTS * step:
            node.fail(f"it is split into more than {_PARTS} parts")
        return [part(x, axis, i, min(i + step, size)) for i in range(0, size, step)]
    return list(sg.split(x, sizes.tolist(), axis))


def _mapped(
    node: Call, items: Sequence[sg.Output], *others: sg.Output | Sequence[sg.Output]
) -> tuple[list[sg.Output], ...]:
    """``SequenceMap``: runs a body for each element of a sequence, or of several side by side.

    Where that sees the names around it, onnx crashes when asked for the operator as a function.
    """
    body: Body = node.attribute("body")
    first = _items(node, items)
    rows = [
        node.run(body, [x, *[other[i] if isinstance(other, list) else other for other in others]])
        for i, x in enumerate(first)
    ]
    return tuple([row[i] for row in rows] for i in range(len(body.outputs)))


# ---------------------------------------------------------------------------------------------- optional


def _optional(node: Call, x: sg.Output | None = None) -> sg.Output | None:
    return x


def _content(node: Call, x: sg.Output | None = None) -> sg.Output:
    if x is None:
        node.fail("its optional operand holds nothing")
    return x


def _holds(node: Call, x: sg.Output | None = None) -> Known:
    return Known(np.bool_(x is not None))


SEQUENCES: Table = {
    "SequenceConstruct": _constructed,
    "SequenceEmpty": _empty,
    "SequenceAt": _element,
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceLength": _length,
    "SequenceMap": _mapped,
    "ConcatFromSequence": _concatenated,
    "SplitToSequence": _split,
    "Optional": _optional,
    "OptionalGetElement": _content,
    "OptionalHasElement": _holds,
}
