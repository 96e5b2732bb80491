"""Writes a graph as nodes: the interpreter runs its operations over the namespace that writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.errors import EngineError
from stopgrad.base.types import bfloat16
from stopgrad.engines.onnxruntime.nodes.forms import FORMS
from stopgrad.engines.onnxruntime.nodes.forms.gates import gate, own_gradient
from stopgrad.engines.onnxruntime.nodes.known import note
from stopgrad.engines.onnxruntime.nodes.layouts import source
from stopgrad.engines.onnxruntime.nodes.namespace import Xp
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import (
    NO_COMPLEX,
    Body,
    Function,
    Named,
    Node,
    Nodes,
    NotInOnnx,
)
from stopgrad.engines.onnxruntime.nodes.tidying import tidied
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.interpreter import Observer, Step, lowering, observed, program, quietly
from stopgrad.graph.op import Unsupported
from stopgrad.ops.gates import stopping as gates
from stopgrad.ops.gates.custom import CustomGradient

LATEST = 26
"""The newest version of ONNX's operators that can be written."""

OLDEST = 18
"""The oldest one that can be written."""

for _definition, _form in FORMS.items():
    setattr(_definition, "onnx", staticmethod(_form) if callable(_form) else _form)  # noqa: B010


class Program(NamedTuple):
    """A graph in nodes.

    Attributes:
        opset: the version of ONNX's operators.
        nodes: in order.
        inputs: with the names that the caller gave.
        outputs: likewise.
        constants: arrays by name.
        functions: of the gates in use, by name.
        types: dtypes and shapes of all values, by name.
    """

    opset: int
    nodes: Sequence[Node]
    inputs: Sequence[Named]
    outputs: Sequence[Named]
    constants: Mapping[str, np.ndarray[Any, Any]]
    functions: Mapping[str, Function]
    types: Mapping[str, Any]


class _Backend:
    """The namespace as a backend of the interpreter."""

    name = "onnx"

    def __init__(self, xp: Xp) -> None:
        self.namespace = xp

    def array(self, value: Operand, dtype: np.dtype[Any]) -> Any:
        return self.namespace.astype(value, dtype)


def written(
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    opset: int = LATEST,
    bits: bool = False,
    stored: Mapping[str, np.ndarray[Any, Any]] = MappingProxyType({}),
    functions: dict[str, Function] | None = None,
) -> Program:
    """The nodes that compute outputs from inputs.

    Args:
        inputs: placeholders, and parameters whose values are given, by their names in the model.
        outputs: by their names in the model.
        opset: the version of ONNX's operators.
        bits: whether inputs and outputs of bfloat16 are int16 with the same bits. Needs version 26.
        stored: the arrays of inputs that the model will hold. Which branch runs may depend on them.
        functions: of the model, if it has some already; new ones are added.

    Raises:
        NotInOnnx: an operation, which it names, has no form.
        EngineError: likewise.
    """
    nodes = Nodes(opset, functions=functions)
    for name in (*inputs, *outputs):
        nodes.unique(name)
    nodes.origins.update(stored)
    xp = Xp(nodes)
    backend = _Backend(xp)
    operands = [_input(xp, name, x, bits) for name, x in inputs.items()]
    run = program([*inputs.values()], [*outputs.values()], backend, observer=_Naming(xp))
    results = []
    # NumPy computes at once what is known.
    for y, value in zip(outputs.values(), quietly(run, operands), strict=True):
        value, dtype = xp.value(value, y.dtype.numpy), _outside(y.dtype.numpy, bits)
        results.append((value if dtype == value.dtype else xp.same_bits(value, dtype)).name)
    tidy = tidied(nodes, results)
    own = {name for node in tidy for name in node.outputs}
    names: dict[str, str] = {}
    for (name, y), result in zip(outputs.items(), results, strict=True):
        nodes.has_type(name, _outside(y.dtype.numpy, bits), y.shape)
        if result in own and result not in names:
            names[result] = name
        else:  # An input, a constant, or a result that has another name already.
            tidy.append(Node("Identity", "", name, (result,), (name,), {}))
    return Program(
        opset,
        _renamed(tidy, _with_operations(nodes, tidy, names)),
        [Named(name, *nodes.types[name]) for name in inputs],
        [Named(name, *nodes.types[name]) for name in outputs],
        nodes.constants,
        nodes.functions,
        nodes.types,
    )


def _input(xp: Xp, name: str, x: Output, bits: bool) -> Value:
    """The value of an input, which the model declares."""
    if x.dtype.is_complex:
        raise NotInOnnx(f"{describe(x)}: {NO_COMPLEX}")
    dtype = _outside(x.dtype.numpy, bits)
    xp.nodes.has_type(name, dtype, x.shape)
    value = Value(xp, name, dtype, x.shape)
    xp.sizes.read(name, x.shape)
    return value if dtype == x.dtype.numpy else xp.same_bits(value, x.dtype.numpy)


def _outside(dtype: np.dtype[Any], bits: bool) -> np.dtype[Any]:
    """The dtype of an input or output."""
    return np.dtype(np.int16) if bits and dtype == bfloat16.numpy else dtype


class _Naming(Observer):
    """Names values after the operations that compute them; writes gates as calls of their functions."""

    def __init__(self, xp: Xp) -> None:
        self._xp = xp

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step:
        xp, step = self._xp, self._step_of(op, plain)

        def named(*arrays: Array) -> Sequence[Any]:
            with xp.nodes.at(op.name):
                results = step(*arrays)
            _note(xp, results[0] if results else None, op)
            note(xp.nodes, op, arrays, results)
            return results

        return named

    def _step_of(self, op: Operation, plain: Callable[[], Step]) -> Step:
        if any(x.dtype.is_complex for x in (*op.inputs, *op.outputs)):
            raise NotInOnnx(f"{describe(op)}: {NO_COMPLEX}")
        if issubclass(op.definition, gates.Gate):
            form = gate(self._xp, op)
            return lambda *arrays: (form(*arrays),)
        if op.definition is CustomGradient:
            return own_gradient(self._xp, op, self._function)
        lowered = lowering(op.definition, _Backend.name)
        if isinstance(lowered, Unsupported):
            raise NotInOnnx(f"{describe(op)} has no form in ONNX: {lowered.reason}")
        return plain()

    def _function(self, inputs: Mapping[str, Output], outputs: Mapping[str, Output]) -> Function:
        """A graph as a function of the model."""
        body = written(inputs, outputs, self._xp.opset, functions=self._xp.nodes.functions)
        return Function(list(inputs), list(outputs), body.nodes, (), body.constants)


def _note(xp: Xp, value: object, op: Operation) -> None:
    """Record that a value, and what it is the transpose of, are results of an operation."""
    before = source(xp, value)
    for result in (value, *(before or ())[:1]):
        if isinstance(result, Value) and (
            op.definition is gates.Named or result.name not in xp.nodes.results
        ):
            xp.nodes.results[result.name] = op.name


def _with_operations(nodes: Nodes, written: Sequence[Node], names: dict[str, str]) -> dict[str, str]:
    """Adds to *names*: results of operations are called as these are."""
    for node in written:
        for value in node.attributes.values():
            if isinstance(value, Body):
                _with_operations(nodes, value.nodes, names)
        result = node.outputs[0]
        if result in nodes.results and result not in names and not node.domain:
            names[result] = nodes.unique(nodes.results[result])
    return names


def _renamed(nodes: Sequence[Node], names: Mapping[str, str]) -> list[Node]:
    """Nodes with the values renamed, also in bodies."""
    if not names:
        return list(nodes)
    renamed = []
    for node in nodes:
        attributes = {
            key: _renamed_body(value, names) if isinstance(value, Body) else value
            for key, value in node.attributes.items()
        }
        inputs = tuple(names.get(name, name) for name in node.inputs)
        outputs = tuple(names.get(name, name) for name in node.outputs)
        renamed.append(node._replace(name=outputs[0], inputs=inputs, outputs=outputs, attributes=attributes))
    return renamed


def _renamed_body(body: Body, names: Mapping[str, str]) -> Body:
    outputs = [y._replace(name=names.get(y.name, y.name)) for y in body.outputs]
    return Body(_renamed(body.nodes, names), body.inputs, outputs)


def unwritable(operations: Sequence[Operation]) -> str | None:
    """Why these operations cannot be written, apart from unknown sizes; None if they can."""
    tried: set[Any] = set()
    for op in operations:
        key = (op.type, tuple([x.type for x in op.inputs]), op.values)
        if key in tried:
            continue
        tried.add(key)
        if any(x.dtype.is_complex for x in (*op.inputs, *op.outputs)):
            return f"cannot compute {describe(op)}: {NO_COMPLEX}"
        if op.type in ("Placeholder", "Parameter") or op.definition.handed_on(op):
            continue  # They are fed, or erased before the graph runs.
        xp = Xp(Nodes(LATEST))
        try:
            operands = [xp.input(f"x{i}", x.dtype.numpy, x.shape) for i, x in enumerate(op.inputs)]
            quietly(observed(op, _Backend(xp), _Naming(xp)), *operands)
        except EngineError as error:
            if not getattr(error, "sizes", False):
                return f"cannot compute {describe(op)}: {error.message}"
    return None
