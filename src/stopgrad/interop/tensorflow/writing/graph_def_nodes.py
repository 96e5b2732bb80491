"""The nodes of a ``GraphDef`` while it is written: names, constants, attributes and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from stopgrad.base.types import DType, Shape
from stopgrad.engines.onnxruntime.nodes.runtime_sizes import Sizes
from stopgrad.interop.tensorflow.messages import TYPE_NAMES, AttrValue, GraphDef
from stopgrad.interop.tensorflow.reading import dtype_of_number

NUMBERS = {
    dtype: number
    for number, name in reversed(TYPE_NAMES.items())
    if not name.startswith(("DT_Q", "DT_INVALID")) and (dtype := dtype_of_number(number)) is not None
}
"""The numbers of ``DataType`` of our element types."""

PRODUCER = 1882
"""The version of graphs that is written, ``GraphDef.versions.producer``: that of TensorFlow 2.16."""


def attribute(value: Any) -> Any:
    """An element type, a number, a string, an array, or a list of numbers as an ``AttrValue``."""
    message = AttrValue()
    if isinstance(value, DType):
        message.type = NUMBERS[value]
    elif isinstance(value, bool):
        message.b = value
    elif isinstance(value, int):
        message.i = value
    elif isinstance(value, float):
        message.f = value
    elif isinstance(value, str):
        message.s = value.encode()
    elif isinstance(value, np.ndarray):
        fill_tensor(message.tensor, value)
    else:
        message.list.i.extend([int(number) for number in value])
    return message


def shape_attribute(shape: Shape) -> Any:
    """A shape as an ``AttrValue``; symbolic sizes are unknown ones."""
    message = AttrValue()
    message.shape.SetInParent()
    for size in shape:
        message.shape.dim.add().size = size if isinstance(size, int) else -1
    return message


def fill_tensor(tensor: Any, array: np.ndarray[Any, Any]) -> None:
    """Write an array into a ``TensorProto``."""
    numbers = {dtype.numpy: number for dtype, number in NUMBERS.items()}
    tensor.dtype = numbers[array.dtype]
    tensor.tensor_shape.SetInParent()
    for size in array.shape:
        tensor.tensor_shape.dim.add().size = size
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    tensor.tensor_content = np.ascontiguousarray(little).tobytes()


class Nodes:
    """The nodes, in order.

    Attributes:
        graph: the ``GraphDef``.
        place: the name of the operation that is being written, with which new names begin.
    """

    graph: GraphDef
    place: str
    sizes: Sizes

    def __init__(self) -> None:
        self.graph = GraphDef()
        self.graph.versions.producer = PRODUCER
        self.place = ""
        self._taken: dict[str, int] = {"": 1}
        self._constants: dict[Any, str] = {}
        self.sizes = Sizes(_SizeNodes(self))  # type: ignore[arg-type]

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """A context in which new names begin with *place*."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def unique(self, name: str) -> str:
        """*name* itself, or with a number behind it if it is taken; names differ in more than case."""
        while True:
            count = self._taken.get(name.lower(), 0)
            self._taken[name.lower()] = count + 1
            if count == 0:
                return name
            name = f"{name}_{count}"

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Write a node; its name, which stands for its first result."""
        node = self.graph.node.add(
            op=op, name=name or self.unique(f"{self.place}/{op}" if self.place else op)
        )
        node.input.extend(inputs)
        for key, value in attributes.items():
            message = value if isinstance(value, AttrValue) else attribute(value)
            node.attr[key].CopyFrom(message)
        return str(node.name)

    def constant(self, value: Any, name: str = "") -> str:
        """A constant; equal ones without a name of their own are one node."""
        array = np.asarray(value)
        key = array.dtype.name, array.shape, array.tobytes()
        if name or key not in self._constants:
            with self.at(self.place if name else "constants"):
                node = self.add("Const", [], name, value=array, dtype=attribute(_dtype_of(array)))
            if name:
                return node
            self._constants[key] = node
        return self._constants[key]

    def shape(self, sizes: Sequence[Any]) -> str:
        """Sizes as a vector of int64."""
        return self.sizes.all(tuple(sizes))

    def tidy(self, names: Iterable[str]) -> None:
        """Drop the nodes that these, and placeholders, do not need."""
        by_name = {node.name: node for node in self.graph.node}
        needed = {name for name, node in by_name.items() if node.op == "Placeholder"}
        waiting = list(names)
        while waiting:
            name = waiting.pop().partition(":")[0]
            if name not in needed:
                needed.add(name)
                waiting += by_name[name].input
        nodes = [node for node in self.graph.node if node.name in needed]
        del self.graph.node[:]
        self.graph.node.extend(nodes)


def _dtype_of(array: np.ndarray[Any, Any]) -> DType:
    return next(dtype for dtype in NUMBERS if dtype.numpy == array.dtype)


class _SizeNodes:
    """What the arithmetic of sizes needs of nodes, in ONNX's words."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def at(self, place: str) -> Any:
        return self._nodes.at(place)

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        return self._nodes.constant(array)

    def add(self, op: str, inputs: Sequence[str], types: Sequence[Any], **attributes: Any) -> tuple[str, ...]:
        return (_SIZES[op](self._nodes, list(inputs), attributes),)


def _axis_size(nodes: Nodes, inputs: list[str], attributes: dict[str, Any]) -> str:
    dtype = next(node.attr["dtype"].type for node in nodes.graph.node if node.name == inputs[0])
    kind = dtype_of_number(dtype)
    whole = nodes.add("Shape", inputs, T=kind, out_type=dtype_of_number(_INT64))
    ends = [nodes.constant(np.array([attributes[key]], np.int64)) for key in ("start", "end")]
    step = nodes.constant(np.array([1], np.int64))
    return nodes.add("StridedSlice", [whole, *ends, step], T=kind_of_sizes(), Index=kind_of_sizes())


def _joined(nodes: Nodes, inputs: list[str], attributes: dict[str, Any]) -> str:
    axis = nodes.constant(np.array(0, np.int32))
    index = dtype_of_number(_INT32)
    return nodes.add("ConcatV2", [*inputs, axis], N=len(inputs), T=kind_of_sizes(), Tidx=index)


def _binary(op: str) -> Callable[[Nodes, list[str], dict[str, Any]], str]:
    return lambda nodes, inputs, attributes: nodes.add(op, inputs, T=kind_of_sizes())


_INT32, _INT64 = 3, 9


def kind_of_sizes() -> DType | None:
    """The element type in which sizes are computed."""
    return dtype_of_number(_INT64)


_SIZES: dict[str, Callable[[Nodes, list[str], dict[str, Any]], str]] = {
    "Shape": _axis_size,
    "Concat": _joined,
    "Add": _binary("AddV2"),
    "Sub": _binary("Sub"),
    "Mul": _binary("Mul"),
    "Div": _binary("FloorDiv"),
    "Mod": _binary("FloorMod"),
    "Max": _binary("Maximum"),
}
