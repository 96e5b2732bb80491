"""Moves transposes behind elementwise nodes, where they meet their inverses and vanish.

Our convolutions have channels last, ONNX's have them first: without this, each convolution would stand
between two transposes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Namespace
from stopgrad.base.types import Dim
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Node
from stopgrad.engines.onnxruntime.nodes.values import Value
from stopgrad.graph.type_rules import broadcast_shapes

_ELEMENTWISE = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Clip",
        "Cos",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "PRelu",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tanh",
        "Where",
        "Xor",
        "Gelu",
    ]
)
_REDUCTIONS = frozenset(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"])

_RANK = 3
"""Transposes of fewer axes are left alone: they are those of matrices, and products can take them."""


def producer(xp: Namespace, x: object) -> Node | None:
    """The node that makes a value."""
    node: Node | None = xp.nodes.made.get(x.name) if isinstance(x, Value) else None
    return node


def source(xp: Namespace, x: object) -> tuple[Value, tuple[int, ...]] | None:
    """The value that *x* is the transpose of, and the order of the axes; None if it is none."""
    node = producer(xp, x)
    if node is None or node.op_type != "Transpose":
        return None
    dtype, shape = xp.nodes.types[node.inputs[0]]
    return Value(xp, node.inputs[0], dtype, shape), tuple(node.attributes["perm"])


def behind(
    xp: Namespace, op_type: str, inputs: Sequence[Any], kind: tuple[Any, Any], attributes: Mapping[str, Any]
) -> Value | None:
    """The result of a node, computed from the operands before they were transposed, and transposed itself."""
    # A transpose outside of a loop's body stays there, where it runs once.
    sources = [source(xp, x) if getattr(x, "name", None) in xp.nodes.here else None for x in inputs]
    turned = next((origin for origin in sources if origin is not None and len(origin[1]) >= _RANK), None)
    if turned is None:
        return None
    perm = turned[1]
    if op_type in _ELEMENTWISE:
        return _elementwise(xp, op_type, inputs, sources, perm, kind, attributes)
    if op_type in _REDUCTIONS and sources[0] is turned:
        return _reduction(xp, op_type, inputs, turned, kind, attributes)
    if op_type == "Concat" and all(origin is not None and origin[1] == perm for origin in sources):
        axis = perm[attributes["axis"]]
        joined = xp.node(
            op_type,
            [origin[0] for origin in sources if origin],
            kind[0],
            _shape_before(kind[1], perm),
            axis=axis,
        )
        return _transposed(xp, joined, perm)
    return None


def _transposed(xp: Namespace, x: Value, perm: Sequence[int]) -> Value:
    transposed: Value = xp.transpose(x, perm)
    return transposed


def _shape_before(shape: Sequence[Any], perm: Sequence[int]) -> tuple[Any, ...]:
    """The shape before it was permuted by *perm*."""
    sizes: list[Any] = [1] * len(perm)
    for size, axis in zip(shape, perm, strict=True):
        sizes[axis] = size
    return tuple(sizes)


def _elementwise(
    xp: Namespace,
    op_type: str,
    inputs: Sequence[Any],
    sources: Sequence[Any],
    perm: tuple[int, ...],
    kind: tuple[Any, Any],
    attributes: Mapping[str, Any],
) -> Value | None:
    operands: list[Any] = []
    for x, origin in zip(inputs, sources, strict=True):
        shape = np.shape(x) if not isinstance(x, Value) else x.shape
        wide = [i for i, size in enumerate(shape) if isinstance(size, Dim) or size != 1]
        if origin is not None and origin[1] == perm:
            operands.append(origin[0])
        elif not wide:
            operands.append(x)
        elif len(wide) == 1:  # With one axis that is not 1, a reshape does it, which moves no data.
            full = (1,) * (len(perm) - len(shape)) + tuple(shape)
            operands.append(xp.reshape(x, _shape_before(full, perm)))
        else:
            return None
    shapes = [x.shape if isinstance(x, Value) else np.shape(x) for x in operands]
    if len(perm) != len(kind[1]):
        return None
    result = xp.node(op_type, operands, kind[0], broadcast_shapes(*shapes), **attributes)
    return _transposed(xp, result, perm)


def _reduction(
    xp: Namespace,
    op_type: str,
    inputs: Sequence[Any],
    turned: tuple[Value, tuple[int, ...]],
    kind: tuple[Any, Any],
    attributes: Mapping[str, Any],
) -> Value | None:
    x, perm = turned
    if len(inputs) != 2 or not isinstance(inputs[1], np.ndarray):
        return None
    axes = inputs[1].tolist()
    rest = [a for i, a in enumerate(perm) if i not in axes]
    before = np.array(sorted(perm[a] for a in axes), np.int64)
    if attributes.get("keepdims", 1):
        reduced = xp.node(op_type, [x, before], kind[0], _shape_before(kind[1], perm), **attributes)
        return _transposed(xp, reduced, perm)
    if rest != sorted(rest):
        return None
    reduced = xp.node(op_type, [x, before], kind[0], kind[1], **attributes)
    return reduced if isinstance(reduced, Value) else None
