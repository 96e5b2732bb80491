"""Lists of tensors (``TensorList...``, ``TensorArray...``): rows of one tensor, of a length that is known.

A list is a tensor whose first axis counts its elements, as soon as one of them is known; what was never set
is zero. Lists that grow (``TensorListPushBack``) grow only where the graph is built, and not in a loop whose
steps are counted when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, Size
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Table, knows, knows_all
from stopgrad.interop.tensorflow.operators.generators import sizes_known

LONGEST = 2**16
"""The most elements of a list that is built one by one."""


class TensorList:
    """A list. None of its methods changes it.

    Attributes:
        length: a number or a symbolic size.
        shape: of the elements, with None for what is unknown; None if nothing is.
        dtype: of the elements.
        base, index, item: the list, the place and the element of the writing that made it.
        grows: whether that writing makes the list longer where its place lies behind the end.
        was_read: whether anything read it.
    """

    __slots__ = ("_rows", "base", "dtype", "grows", "index", "item", "length", "shape", "was_read")

    length: Size
    _rows: Any
    grows: bool
    was_read: bool

    def __init__(
        self, length: Any, shape: Sequence[Any] | None, dtype: DType | None, rows: sg.Output | None = None
    ) -> None:
        self.length, self.dtype, self._rows = length, dtype, rows
        self.shape: tuple[Size | None, ...] | None = tuple(shape) if shape is not None else None
        if rows is not None:
            self.shape, self.dtype = tuple(rows.shape[1:]), rows.dtype
        self.base: TensorList | None = None
        self.index: Any = None
        self.item: Any = None
        self.grows = False
        self.was_read = False

    @property
    def is_settled(self) -> bool:
        """Whether the type of its elements is known."""
        return self.dtype is not None and self.shape is not None and None not in self.shape

    def alike(self, rows: sg.Output) -> TensorList:
        """A list of the same length with these elements."""
        return TensorList(self.length, None, None, rows)

    @property
    def is_empty(self) -> bool:
        """Whether no element was set."""
        return self._rows is None and self.base is None

    def filled(self) -> sg.Output:
        """The elements as one tensor, to read them; those that are not set are zero.

        Raises:
            Refused: nothing tells their shape.
        """
        self.was_read = True
        return self.rows()

    def rows(self) -> sg.Output:
        """As :meth:`filled`, where the list is only handed on."""
        if self._rows is None and self.base is not None:
            if self.grows:
                raise Refused("its list may grow by an element whose place is known only when the graph runs")
            start = self.base if not self.base.is_empty else TensorList(self.length, self.shape, self.dtype)
            self.base.was_read = True
            place = sg.reshape(sg.cast(self.index, sg.int32), [1, 1])
            self._rows = sg.tensor_scatter_nd_update(start.rows(), place, sg.expand_dims(self.item, 0))
        if self._rows is None:
            if self.dtype is None or self.shape is None or None in self.shape:
                raise Refused("nothing tells the shape of the elements of its list")
            self._rows = sg.zeros([self.length, *self.shape], self.dtype)
        return self._rows

    def with_item(self, index: sg.Output, item: sg.Output, grows: bool = False) -> TensorList:
        """The list with another element at a place."""
        changed = TensorList(self.length, item.shape, item.dtype)
        changed.base, changed.index, changed.item, changed.grows = self, index, item, grows
        return changed

    def resized(self, length: Size) -> TensorList:
        """The list with so many elements, of which new ones are zero."""
        if self.is_empty:
            return TensorList(length, self.shape, self.dtype)
        if isinstance(length, sg.Dim) or isinstance(self.length, sg.Dim):
            raise Refused("its list has lengths that are no numbers")
        rows = self.filled()
        if length <= self.length:
            return TensorList(length, None, None, rows[:length])
        more = sg.zeros([length - self.length, *rows.shape[1:]], rows.dtype)
        return TensorList(length, None, None, sg.concat([rows, more], 0))

    def item_at(self, index: sg.Output) -> sg.Output:
        """An element."""
        return sg.gather(self.filled(), index, axis=0)


# ----------------------------------------------------------------------------------------------- operands


def _listed(node: Call, x: object) -> TensorList:
    if not isinstance(x, TensorList):
        node.fail("its first operand is no list of tensors")
    return x


def _shape(node: Call, x: sg.Output | Known) -> tuple[Size | None, ...] | None:
    """The shape of elements that an operand holds; None if it is unknown."""
    if not node.is_known(x):
        return None
    value = node.raw(x)
    sizes = node.sizes(x)
    if isinstance(value, Known) and value.ndim == 0:
        return None
    return tuple([None if not isinstance(size, sg.Dim) and size < 0 else size for size in sizes])


def _merged(
    a: Sequence[Size | None] | None, b: Sequence[Size | None] | None
) -> tuple[Size | None, ...] | None:
    if a is None or b is None or len(a) != len(b):
        shape = a if b is None else b
        return None if shape is None else tuple(shape)
    return tuple([y if x is None else x for x, y in zip(a, b, strict=True)])


def _settled(node: Call, x: TensorList, shape: Sequence[Size | None] | None) -> TensorList:
    """A list whose elements have a shape that an operand tells, if it was unknown."""
    if x.is_empty:
        dtype = x.dtype or node.attribute("element_dtype") or node.attribute("dtype")
        merged = _merged(x.shape, shape)
        if merged != x.shape or dtype is not x.dtype:
            return TensorList(x.length, merged, dtype)
    return x


# -------------------------------------------------------------------------------------------------- lists


@knows(0, 1)
def _reserved(node: Call, shape: sg.Output | Known, count: sg.Output | Known) -> TensorList:
    return TensorList(node.sizes(count)[0], _shape(node, shape), node.attribute("element_dtype"))


@knows(0, 1)
def _empty(node: Call, shape: sg.Output | Known, most: sg.Output | Known) -> TensorList:
    return TensorList(0, _shape(node, shape), node.attribute("element_dtype"))


@knows(1)
def _from_tensor(node: Call, x: sg.Output, shape: sg.Output | Known) -> TensorList:
    return TensorList(x.shape[0], None, None, x)


@knows(0, 1)
def _set(node: Call, x: object, index: sg.Output | Known, item: sg.Output) -> TensorList:
    items = _listed(node, x)
    place = int(index.array.reshape(-1)[0]) if isinstance(index, Known) and not index.is_symbolic else None
    if place is not None and not isinstance(items.length, sg.Dim) and not 0 <= place < items.length:
        if place < 0 or place >= LONGEST or not node.attribute("resize_if_index_out_of_bounds", False):
            node.fail(f"it sets element {place} of a list of {items.length}")
        items = items.resized(place + 1)
    grows = place is None and bool(node.attribute("resize_if_index_out_of_bounds", False))
    return items.with_item(node.tensor(index), item, grows)


@knows(0, 2)
def _get(node: Call, x: object, index: sg.Output, shape: sg.Output | Known | None = None) -> sg.Output:
    items = _settled(node, _listed(node, x), None if shape is None else _shape(node, shape))
    return items.item_at(index)


@knows(0, 1)
def _stacked(node: Call, x: object, shape: sg.Output | Known | None = None) -> sg.Output:
    return _settled(node, _listed(node, x), None if shape is None else _shape(node, shape)).filled()


@knows(0, 2)
def _gathered(node: Call, x: object, indices: sg.Output, shape: sg.Output | Known | None = None) -> sg.Output:
    items = _settled(node, _listed(node, x), None if shape is None else _shape(node, shape))
    return sg.gather(items.filled(), indices, axis=0)


@knows(1, 2, 3)
def _scattered(node: Call, x: sg.Output, indices: Any, shape: object, count: Any = None) -> TensorList:
    size = -1 if count is None else node.sizes(count)[0]
    length = size if isinstance(size, sg.Dim) or size >= 0 else None
    if length is None:
        length = int(node.known(indices).max(initial=-1)) + 1
    rows: Any = sg.zeros([length, *x.shape[1:]], x.dtype)
    return TensorList(length, None, None, _written(rows, node.tensor(indices), x))


def _written(rows: sg.Output, indices: sg.Output, x: sg.Output) -> sg.Output:
    return sg.tensor_scatter_nd_update(rows, sg.expand_dims(sg.cast(indices, sg.int32), -1), x)


@knows(0)
def _scattered_into(node: Call, x: object, values: sg.Output, indices: sg.Output) -> TensorList:
    items = _settled(node, _listed(node, x), tuple(values.shape[1:]))
    items = items if items.dtype is not None else TensorList(items.length, items.shape, values.dtype)
    return items.alike(_written(items.filled(), indices, values))


@knows(0)
def _length(node: Call, x: object) -> Known:
    length = _listed(node, x).length
    array = np.empty((), object)
    array[()] = length
    return Known(array if isinstance(length, sg.Dim) else np.asarray(length, np.int32), sg.int32)


@knows(0)
def _element_shape(node: Call, x: object) -> Known:
    items = _listed(node, x)
    if not items.is_settled:
        node.fail("nothing tells the shape of the elements of its list")
    assert items.shape is not None
    return sizes_known(list(items.shape), node.attribute("shape_type") or sg.int32)


@knows(0)
def _pushed(node: Call, x: object, item: sg.Output) -> TensorList:
    items = _listed(node, x)
    if isinstance(items.length, sg.Dim) or items.length >= LONGEST:
        node.fail(f"its list has more than {LONGEST} elements, or an unknown number")
    row = sg.expand_dims(item, 0)
    rows = row if items.length == 0 else sg.concat([items.filled(), row], 0)
    return TensorList(items.length + 1, None, None, rows)


@knows(0, 1)
def _popped(node: Call, x: object, shape: sg.Output | Known) -> tuple[TensorList, Any]:
    items = _settled(node, _listed(node, x), _shape(node, shape))
    if isinstance(items.length, sg.Dim) or items.length < 1:
        node.fail("its list is empty, or its length is no number")
    rows = items.filled()
    return TensorList(items.length - 1, None, None, rows[:-1]), rows[-1]


@knows(0, 1)
def _resized(node: Call, x: object, count: sg.Output | Known) -> TensorList:
    return _listed(node, x).resized(node.sizes(count)[0])


@knows(0, 1, 2)
def _joined(node: Call, x: object, shape: object = None, lengths: object = None) -> tuple[Any, ...]:
    """The elements, which have one shape here, one behind the other; and their lengths."""
    rows = _listed(node, x).filled()
    if rows.ndim < 2:
        node.fail("the elements of its list are scalars, and cannot be joined")
    count, size, *rest = rows.shape
    length = sizes_known([size], sg.int64)
    return sg.reshape(rows, [count * size, *rest]), sg.broadcast_to(node.tensor(length), [count])


# ------------------------------------------------------------------------------------- TensorFlow 1's arrays


class ArrayHandle:
    """The handle of a ``TensorArrayV3``; what the array holds goes from node to node as its flow."""


@knows(0)
def _array(node: Call, count: sg.Output | Known) -> tuple[ArrayHandle, TensorList]:
    shape = node.attribute("element_shape")
    return ArrayHandle(), TensorList(node.sizes(count)[0], shape, node.attribute("dtype"))


@knows_all
def _array_written(
    node: Call, handle: object, index: sg.Output | Known, value: sg.Output | Known, flow: object
) -> TensorList:
    return _listed(node, flow).with_item(node.tensor(index), node.tensor(value))


@knows_all
def _array_read(node: Call, handle: object, index: sg.Output | Known, flow: object) -> sg.Output:
    return _listed(node, flow).item_at(node.tensor(index))


@knows_all
def _array_gathered(node: Call, handle: object, indices: sg.Output | Known, flow: object) -> sg.Output:
    items = _listed(node, flow)
    if _are_all(node, indices, items.length):
        return items.filled()
    return sg.gather(items.filled(), node.tensor(indices), axis=0)


def _are_all(node: Call, indices: sg.Output | Known, length: Size) -> bool:
    """Whether indices are those of all elements, in order."""
    if isinstance(indices, Known) and not indices.is_symbolic and not isinstance(length, sg.Dim):
        return bool(np.array_equal(indices.array, np.arange(length)))
    return False


@knows_all
def _array_scattered(
    node: Call, handle: object, indices: sg.Output | Known, value: sg.Output | Known, flow: object
) -> TensorList:
    items, rows = _listed(node, flow), node.tensor(value)
    if _are_all(node, indices, items.length):
        return items.alike(rows)
    start = items if not items.is_empty else TensorList(items.length, rows.shape[1:], rows.dtype)
    return items.alike(_written(start.filled(), node.tensor(indices), rows))


@knows_all
def _array_size(node: Call, handle: object, flow: object) -> Known:
    return _length(node, flow)


LISTS: Table = {
    "TensorListReserve": _reserved,
    "EmptyTensorList": _empty,
    "TensorListFromTensor": _from_tensor,
    "TensorListSetItem": _set,
    "TensorListGetItem": _get,
    "TensorListStack": _stacked,
    "TensorListGather": _gathered,
    "TensorListScatter": _scattered,
    "TensorListScatterV2": _scattered,
    "TensorListScatterIntoExistingList": _scattered_into,
    "TensorListLength": _length,
    "TensorListElementShape": _element_shape,
    "TensorListPushBack": _pushed,
    "TensorListPopBack": _popped,
    "TensorListResize": _resized,
    "TensorListConcat": _joined,
    "TensorListConcatV2": _joined,
    "TensorArrayV3": _array,
    "TensorArrayWriteV3": _array_written,
    "TensorArrayReadV3": _array_read,
    "TensorArrayGatherV3": _array_gathered,
    "TensorArrayScatterV3": _array_scattered,
    "TensorArraySizeV3": _array_size,
    "TensorArrayCloseV3": knows_all(lambda node, handle: None),
}
