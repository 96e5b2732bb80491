"""Graphs of TensorFlow written node by node, without TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.interop.tensorflow.messages import GraphDef

_TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "uint64": 23}
"""The numbers of ``DataType``."""


class Nodes:
    """A ``GraphDef`` to which nodes are added."""

    def __init__(self) -> None:
        self.graph = GraphDef()

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """A node; its name. Attributes are flags, numbers, words, lists of them, NumPy's scalar types."""
        node = self.graph.node.add(op=op, name=name)
        node.input.extend(inputs)
        for key, value in attributes.items():
            attribute = node.attr[key]
            if isinstance(value, bool):
                attribute.b = value
            elif isinstance(value, int):
                attribute.i = value
            elif isinstance(value, float):
                attribute.f = value
            elif isinstance(value, str):
                attribute.s = value.encode()
            elif isinstance(value, list):
                attribute.list.s.extend([word.encode() for word in value])
            else:
                attribute.type = _TYPES[np.dtype(value).name]
        return name

    def place(self, name: str, dtype: Any, *shape: int) -> str:
        """A placeholder."""
        node = self.graph.node[-1] if self.add("Placeholder", name, dtype=dtype) else None
        for size in shape:
            node.attr["shape"].shape.dim.add(size=size)
        return name

    def constant(self, name: str, value: Any, dtype: Any = None) -> str:
        """A constant."""
        array = np.asarray(value, dtype)
        self.add("Const", name, dtype=array.dtype.type)
        tensor = self.graph.node[-1].attr["value"].tensor
        tensor.dtype = _TYPES[array.dtype.name]
        tensor.tensor_content = array.tobytes()
        for size in array.shape:
            tensor.tensor_shape.dim.add(size=size)
        return name

    def content(self) -> bytes:
        return bytes(self.graph.SerializeToString())
