"""The schemas of operators that onnx itself has: what they take, and their bodies as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.interop.onnx.operators.calling import Known, Refused, Value

_OPTION = OpSchema.FormalParameterOption


def schema_of(op_type: str, domain: str, version: int) -> OpSchema | None:
    """The schema of an operator in a version of its domain; None if onnx has none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def has_function(schema: Any) -> bool:  # The types that onnx ships say nothing of functions.
    """Whether an operator is a function of other operators, for some operands at least."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(
    schema: OpSchema, node: onnx.NodeProto, version: int, operands: Sequence[Value]
) -> onnx.FunctionProto | None:
    """An operator as a function of other operators, for these operands; None if onnx has no such function."""
    bodies: Any = schema  # The types that onnx ships say nothing of bodies.
    if bodies.has_function:
        version = _nearest(bodies.function_opset_versions, version)
        stored = bodies.get_function_with_opset_version(version)
    elif bodies.has_context_dependent_function:
        version = _nearest(bodies.context_dependent_function_opset_versions, version)
        stored = bodies.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [_type_of(x) for x in operands]
        )
    else:
        return None
    if not stored:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(stored)
    return function


def _nearest(versions: Sequence[int], version: int) -> int:
    """The last of these versions up to the model's; else the first after it, which a body says it is of."""
    return max((v for v in versions if v <= version), default=min(versions))


def defaults_of(schema: OpSchema) -> list[onnx.AttributeProto]:
    """The default attributes of an operator."""
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    return [default for default in defaults if default.type != onnx.AttributeProto.UNDEFINED]


def is_same(old: OpSchema, new: OpSchema) -> bool:
    """Whether calls of an old version of an operator mean the same in a newer one.

    The newer one may accept more element types, and more optional operands and attributes.
    """
    if old.since_version == new.since_version:
        return True
    operands, results = ([(formal.name, formal.option) for formal in x] for x in (old.inputs, old.outputs))
    new_operands, new_results = (
        [(formal.name, formal.option) for formal in x] for x in (new.inputs, new.outputs)
    )
    if new.deprecated or new_operands[: len(operands)] != operands or new_results[: len(results)] != results:
        return False
    if any(option == _OPTION.Single for _, option in new_operands[len(operands) :]):
        return False
    before, after = _attributes(old), _attributes(new)
    more = [attribute.required for name, attribute in new.attributes.items() if name not in before]
    return before.items() <= after.items() and not any(more)


def _attributes(schema: OpSchema) -> dict[str, Any]:
    return {
        name: (attribute.type, attribute.required, attribute.default_value.SerializeToString())
        for name, attribute in schema.attributes.items()
    }


def _type_of(x: Any) -> bytes:
    """The type of an operand as a serialised ``TypeProto``."""
    kind = onnx.TypeProto()
    if x is not None and not isinstance(x, list):
        kind.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(_numpy(x))
        for size in x.shape:
            axis = kind.tensor_type.shape.dim.add()
            if isinstance(size, int):
                axis.dim_value = size
    return bytes(kind.SerializeToString())


def _numpy(x: Any) -> np.dtype[Any]:
    return x.array.dtype if isinstance(x, Known) and not x.is_symbolic else x.dtype.numpy


# -------------------------------------------------------------------------------------------- agreement


def check_against(schema: OpSchema | None, node: onnx.NodeProto, operands: Sequence[Value]) -> None:
    """Refuse a node that its operator's schema does not allow.

    Raises:
        Refused: its operands, results or attributes break a rule, which the message names.
    """
    if schema is None:
        return
    _check_counts(schema, node, operands)
    _check_attributes(schema, node)
    _check_types(schema, operands)


def _check_counts(schema: OpSchema, node: onnx.NodeProto, operands: Sequence[Value]) -> None:
    if not schema.min_input <= len(operands) <= schema.max_input:
        raise Refused(f"it takes {schema.min_input} to {schema.max_input} operands, not {len(operands)}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise Refused(f"it has {schema.min_output} to {schema.max_output} results, not {len(node.output)}")
    for i, x in enumerate(operands):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if x is None and formal.option != _OPTION.Optional:
            raise Refused(f"its operand {formal.name} is missing")


def _check_attributes(schema: Any, node: onnx.NodeProto) -> None:
    allowed = schema.attributes
    attributes = {a.name: a for a in node.attribute}
    for name, attribute in attributes.items():
        if name not in allowed:
            raise Refused(f"it has no attribute {name!r}; it has {', '.join(sorted(allowed)) or 'none'}")
        if attribute.type != allowed[name].type.value:
            raise Refused(f"its attribute {name!r} is of another type than the operator's")
    for name, attribute in allowed.items():
        if attribute.required and name not in attributes:
            raise Refused(f"its attribute {name!r} is missing")


def _check_types(schema: OpSchema, operands: Sequence[Value]) -> None:
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints
    }
    bound: dict[str, str] = {}
    for i, x in enumerate(operands):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        kind = _written(x)
        if kind is None:
            continue
        if kind not in allowed.get(formal.type_str, [formal.type_str]):
            raise Refused(f"its operand {formal.name} cannot be a {kind}")
        if formal.is_homogeneous and bound.setdefault(formal.type_str, kind) != kind:
            raise Refused(
                f"its operand {formal.name} is a {kind}, where another is a {bound[formal.type_str]}; "
                "both must be of one type: put a Cast before it"
            )


def _written(x: object) -> str | None:
    """The type of an operand as schemas write it; None if it is not to be checked."""
    if not isinstance(x, (sg.Output, Known)) or x.dtype is None:
        return None
    return f"tensor({_NAMES.get(x.dtype, x.dtype.name)})"


_NAMES: dict[DType, str] = {sg.float32: "float", sg.float64: "double"}
