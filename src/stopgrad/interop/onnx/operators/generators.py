"""Operators that make tensors: constants, ranges, shapes, random numbers.

Random numbers come from keys: a node's attribute ``seed`` is its key; without one, each node has a key of
its own, folded from the model's parameter ``random_key``. The same key gives the same numbers, which are not
those of other runtimes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import LARGEST
from stopgrad.base.types import DType
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, dtype_of_code, knows
from stopgrad.interop.shared.conversions import brought, product
from stopgrad.interop.shared.sizing import sizes_known


def _dtype(node: Call, default: DType) -> DType:
    """The element type that the attribute ``dtype`` gives, or *default*."""
    code = node.attribute("dtype")
    dtype = default if code is None else dtype_of_code(code)
    if dtype is None:
        node.fail(f"there is no element type here for number {code} of TensorProto.DataType")
    return dtype


# --------------------------------------------------------------------------------------------- constants

_VALUES: dict[str, Any] = {
    "value": lambda x: x,
    "sparse_value": lambda x: x,
    "value_float": np.float32,
    "value_floats": lambda x: np.asarray(x, np.float32),
    "value_int": np.int64,
    "value_ints": lambda x: np.asarray(x, np.int64),
}


def _constant(node: Call) -> Known:
    for name, value in node.attributes.items():
        if name in _VALUES:
            return Known(np.asarray(_VALUES[name](value)))
    node.fail("a constant is numbers here, and this one is none")


@knows(0)
def _constant_of_shape(node: Call, shape: sg.Output | Known) -> Tensor:
    value = np.asarray(node.attribute("value", np.zeros(1, np.float32)))
    if value.size != 1 or any(not isinstance(s, sg.Dim) and s < 0 for s in node.sizes(shape, 0)):
        node.fail("its value is one element, and its sizes are not negative")
    return sg.fill(list(node.sizes(shape, 0)), value.reshape(()))


@knows(0, 1, 2)
def _range(node: Call, start: sg.Output | Known, limit: Any, delta: sg.Output | Known) -> sg.Output:
    """In place of the operator's body, which is a loop."""
    first, last, step = (node.number(i, x) for i, x in enumerate((start, limit, delta)))
    dtype = limit.dtype
    if not any(isinstance(x, sg.Dim) for x in (first, last, step)):
        if step == 0 or not all(map(math.isfinite, (first, last, step))):
            node.fail("a range has steps that are not 0, and finite limits")
        count = max(math.ceil((last - first) / step), 0)
        if count > LARGEST:
            node.fail(f"a range has no {count:.1e} elements")
        places = sg.range(0, count, dtype=sg.int64)
        return sg.add(brought(first, dtype), sg.multiply(brought(places, dtype), brought(step, dtype)))
    return sg.range(first, last, step, dtype=dtype)


def _eye_like(node: Call, x: sg.Output) -> Tensor:
    if x.ndim != 2:
        node.fail(f"its operand has two axes, not {x.ndim}")
    return sg.eye(x.shape[0], x.shape[1], dtype=_dtype(node, x.dtype), k=node.attribute("k", 0))


# ------------------------------------------------------------------------------------------------- shapes


def _shape(node: Call, x: sg.Output) -> Known:
    return sizes_known(list(x.shape)[node.attribute("start", 0) : node.attribute("end")])


def _size(node: Call, x: sg.Output) -> Known:
    count = sizes_known([product(x.shape)])
    return Known(count.array.reshape(()), count.dtype)


# --------------------------------------------------------------------------------------------- random


def _normal(node: Call, like: sg.Output | None = None) -> sg.Output:
    shape, dtype = _shape_and_dtype(node, like)
    mean, scale = node.attribute("mean", 0.0), node.attribute("scale", 1.0)
    return sg.random_normal(shape, node.key(), mean, scale, dtype)


def _uniform(node: Call, like: sg.Output | None = None) -> sg.Output:
    shape, dtype = _shape_and_dtype(node, like)
    return sg.random_uniform(
        shape, node.key(), node.attribute("low", 0.0), node.attribute("high", 1.0), dtype
    )


def _shape_and_dtype(node: Call, like: sg.Output | None) -> tuple[list[Any], DType]:
    """The shape and the element type of what is drawn."""
    if like is None:
        return list(node.attribute("shape")), _dtype(node, sg.float32)
    return list(like.shape), _dtype(node, like.dtype)


def _bernoulli(node: Call, p: sg.Output) -> sg.Output:
    """In place of the operator's body, which draws 1 with the probability of 0."""
    return sg.cast(sg.random_bernoulli(p.shape, node.key(), p), _dtype(node, p.dtype))


def _multinomial(node: Call, logits: sg.Output) -> sg.Output:
    drawn = sg.random_categorical(logits, node.attribute("sample_size", 1), node.key())
    return sg.cast(drawn, _dtype(node, sg.int32))


GENERATORS: Table = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
    "Shape": _shape,
    "Size": _size,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
}
