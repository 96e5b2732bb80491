"""Variables: handles, what they hold, and what is written into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.interop.shared.calling import Known
from stopgrad.interop.tensorflow.operators.calling import Call, Rule, Table, knows, knows_all
from stopgrad.interop.tensorflow.operators.generators import sizes_known
from stopgrad.interop.tensorflow.operators.indexing import INDEXING


class Variable:
    """A variable, which handles stand for.

    Attributes:
        name: its name.
        is_reference: whether what reads the handle reads the variable, as in TensorFlow 1.
        value: what it holds now: an output, a :class:`Known`, or None as long as nothing was written.
    """

    __slots__ = ("is_reference", "name", "value")

    name: str
    is_reference: bool

    def __init__(self, name: str, is_reference: bool = False) -> None:
        self.name, self.is_reference = name, is_reference
        self.value: Any = None


def _of(node: Call, handle: object) -> Variable:
    if not isinstance(handle, Variable):
        node.fail("its first operand is no variable: tables, iterators and other resources are not read")
    return handle


def _held(node: Call, handle: object) -> sg.Output | Known:
    variable = _of(node, handle)
    if variable.value is None:
        node.fail(
            f"it reads the variable {variable.name!r}, which has no value: no checkpoint "
            "holds it; load the folder of the SavedModel, or freeze the graph before"
        )
    return variable.value


@knows_all
def _variable(node: Call, *operands: object) -> object:
    name = str(node.attribute("shared_name") or node.name)
    return node.variable(name, node.op_type != "VarHandleOp")


@knows_all
def _read(node: Call, handle: object) -> sg.Output | Known:
    return _held(node, handle)


@knows_all
def _shape(node: Call, handle: object) -> Known:
    value = _held(node, handle)
    return sizes_known(list(value.shape), node.attribute("out_type") or sg.int32)


@knows_all
def _assigned(node: Call, handle: object, value: sg.Output | Known) -> object:
    node.write(_of(node, handle), value)
    return handle if node.outputs and node.op_type == "Assign" else None


def _changed(operation: Callable[[sg.Output, sg.Output], sg.Output]) -> Rule:
    @knows(0)
    def rule(node: Call, handle: object, delta: sg.Output) -> object:
        node.write(_of(node, handle), operation(node.tensor(_held(node, handle)), delta))
        return handle if node.op_type in ("AssignAdd", "AssignSub") else None

    return rule


@knows(0)
def _gathered(node: Call, handle: object, indices: sg.Output) -> sg.Output:
    return sg.gather(node.tensor(_held(node, handle)), indices, batch_dims=node.attribute("batch_dims", 0))


@knows(0)
def _gathered_nd(node: Call, handle: object, indices: sg.Output) -> object:
    return INDEXING["GatherNd"](node, node.tensor(_held(node, handle)), indices)


def _destroyed(node: Call, *operands: object) -> None:
    """Variables end with the graph."""


VARIABLES: Table = {
    "VarHandleOp": _variable,
    "VariableV2": _variable,
    "Variable": _variable,
    "ReadVariableOp": _read,
    "VariableShape": _shape,
    "ResourceGather": _gathered,
    "ResourceGatherNd": _gathered_nd,
    "AssignVariableOp": _assigned,
    "Assign": _assigned,
    "AssignAddVariableOp": _changed(sg.add),
    "AssignSubVariableOp": _changed(sg.subtract),
    "AssignAdd": _changed(sg.add),
    "AssignSub": _changed(sg.subtract),
    "DestroyResourceOp": knows_all(_destroyed),
}
