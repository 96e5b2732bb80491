"""Programs as ONNX's own objects."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from stopgrad.base.namespaces import require
from stopgrad.base.types import Dim, Shape
from stopgrad.engines.onnxruntime.nodes.forms.gates import DOMAIN
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Body, Function, Named, Node
from stopgrad.engines.onnxruntime.nodes.program import Program
from stopgrad.engines.onnxruntime.nodes.tidying import reads

IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13}
"""The version of the file format that goes with a version of the operators."""


class Beside:
    """Arrays that a model keeps in a file beside it.

    Attributes:
        location: the name of the file.
        parts: arrays, and where in the file they begin.
    """

    LEAST = 1024
    """The fewest bytes of an array that is kept there."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.parts: list[tuple[int, np.ndarray[Any, Any]]] = []
        self._end = 0

    def place(self, array: np.ndarray[Any, Any]) -> dict[str, str]:
        """Reserve a place for an array, and return what the model says of it."""
        # Large arrays begin at a page, so that runtimes need not copy them.
        step = 4096 if array.nbytes >= 1 << 20 else 64
        start = -(-self._end // step) * step
        self._end = start + array.nbytes
        self.parts.append((start, array))
        return {"location": self.location, "offset": str(start), "length": str(array.nbytes)}


def model_of(
    program: Program,
    stored: Mapping[str, np.ndarray[Any, Any]] | None = None,
    name: str = "stopgrad",
    beside: Beside | None = None,
) -> Any:
    """A program as an ``onnx.ModelProto``.

    Args:
        program: the nodes.
        stored: by name, the values of inputs that the model holds itself.
        name: of the graph.
        beside: the file for large arrays, to which the model then refers.
    """
    return _Writer(require("onnx", "writing ONNX", "onnx"), beside).model(program, dict(stored or {}), name)


class _Writer:
    def __init__(self, onnx: ModuleType, beside: Beside | None) -> None:
        self._onnx = onnx
        self._helper = onnx.helper
        self._beside = beside

    def model(self, program: Program, stored: dict[str, Any], name: str) -> Any:
        helper = self._helper
        used = {name for node in program.nodes for name in reads([node])}
        constants = {name: array for name, array in program.constants.items() if name in used}
        fixed = [name for name, array in constants.items() if self._is_node(array)]
        initializers = {
            name: array for name, array in (constants | stored).items() if name in used and name not in fixed
        }
        graph = helper.make_graph(
            [self.constant(constants[name], name) for name in fixed]
            + [self.node(node) for node in program.nodes],
            name,
            [self.info(x) for x in program.inputs if x.name not in stored],
            [self.info(y) for y in program.outputs],
            [self.initializer(array, name) for name, array in initializers.items()],
        )
        opsets = [helper.make_opsetid("", program.opset)]
        if program.functions:
            opsets.append(helper.make_opsetid(DOMAIN, 1))
        return helper.make_model(
            graph,
            opset_imports=opsets,
            functions=[self.function(program.opset, *named) for named in program.functions.items()],
            producer_name="stopgrad",
            ir_version=IR_VERSIONS[program.opset],
        )

    def function(self, opset: int, name: str, function: Function) -> Any:
        """A function of a gate, or a gradient function."""
        helper = self._helper
        used = set(reads(function.nodes))
        constants = [(array, key) for key, array in function.constants.items() if key in used]
        opsets = [helper.make_opsetid("", opset)]
        if any(map(_calls, function.nodes)):
            opsets.append(helper.make_opsetid(DOMAIN, 1))
        return helper.make_function(
            DOMAIN,
            name,
            list(function.inputs),
            list(function.outputs),
            [self.constant(*pair) for pair in constants] + [self.node(node) for node in function.nodes],
            opsets,
            list(function.attributes),
        )

    def node(self, node: Node) -> Any:
        proto = self._helper.make_node(
            node.op_type, node.inputs, node.outputs, name=node.name, domain=node.domain or None
        )
        proto.attribute.extend(
            self._helper.make_attribute(key, self.attribute(value)) for key, value in node.attributes.items()
        )
        return proto

    def attribute(self, value: object) -> Any:
        if isinstance(value, Body):
            return self._helper.make_graph(
                [self.node(node) for node in value.nodes],
                "body",
                [self.info(x) for x in value.inputs],
                [self.info(y) for y in value.outputs],
            )
        if isinstance(value, np.dtype):
            return self.element(value)
        if isinstance(value, np.ndarray):
            return self.tensor(value)
        return int(value) if isinstance(value, bool) else value

    def info(self, x: Named) -> Any:
        return self._helper.make_tensor_value_info(x.name, self.element(x.dtype), dims(x.shape))

    def _is_node(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether a constant becomes a node: readers take floating-point initializers for parameters."""
        return array.dtype.kind not in "biu" and (self._beside is None or array.nbytes < Beside.LEAST)

    def constant(self, array: np.ndarray[Any, Any], name: str) -> Any:
        return self._helper.make_node("Constant", [], [name], name=name, value=self.tensor(array))

    def initializer(self, array: np.ndarray[Any, Any], name: str) -> Any:
        """An array of the graph, in the model or beside it."""
        if self._beside is None or array.nbytes < Beside.LEAST:
            return self.tensor(array, name)
        reference = self._beside.place(array)
        proto = self._onnx.TensorProto
        return proto(
            name=name,
            data_type=self.element(array.dtype),
            dims=array.shape,
            data_location=proto.EXTERNAL,
            external_data=[
                self._onnx.StringStringEntryProto(key=key, value=value) for key, value in reference.items()
            ],
        )

    def tensor(self, array: np.ndarray[Any, Any], name: str = "") -> Any:
        return self._onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)

    def element(self, dtype: np.dtype[Any]) -> int:
        code: int = self._helper.np_dtype_to_tensor_dtype(dtype)
        return code


def _calls(node: Node) -> bool:
    """Whether a node calls a function of the model, itself or in its bodies."""
    bodies = [value for value in node.attributes.values() if isinstance(value, Body)]
    return bool(node.domain) or any(_calls(inner) for body in bodies for inner in body.nodes)


def dims(shape: Shape) -> list[int | str]:
    """Sizes as ONNX writes them: numbers and names."""
    return [repr(size) if isinstance(size, Dim) else size for size in shape]
