"""The sizes of the tensors of a training graph, as far as they can be told without running it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from stopgrad.base.errors import ArgumentError
from stopgrad.interop.onnx.nodes import domain_of, graphs_in, text

_SHORT = 64
"""The most numbers that are computed to tell the shape of a tensor."""


class Tensor(NamedTuple):
    """A tensor.

    Attributes:
        shape: its sides; none if they are not known.
        dtype: a number of ``TensorProto.DataType``.
    """

    shape: tuple[int, ...] | None
    dtype: int

    @property
    def size(self) -> int:
        return 0 if self.shape is None else math.prod(self.shape)

    @property
    def bytes(self) -> int:
        try:
            return self.size * int(helper.tensor_dtype_to_np_dtype(self.dtype).itemsize)
        except KeyError:
            return 0


def tensors_of(model: Any, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """The tensors of a model by name, as far as they can be told without running it.

    Args:
        model: an ``onnx.ModelProto``.
        sizes: of the axes that the model leaves open, by name; and how many elements tensors have whose shape
            it does not say.
    """
    copy = _without_large(model)
    for value in (*copy.graph.input, *copy.graph.output):
        for side in value.type.tensor_type.shape.dim:
            if text(side.dim_param) in sizes:
                side.dim_value = sizes[text(side.dim_param)]
    tensors = _inferred(copy)
    outputs = [text(y) for node in copy.graph.node for y in node.output if y]
    while any(name not in tensors or tensors[name].shape is None for name in outputs):
        if not _computed(copy, tensors):
            break
        tensors |= _inferred(copy)
    for name in outputs:
        one = tensors.get(name, Tensor(None, TensorProto.FLOAT))
        if one.shape is None and name in sizes:
            tensors[name] = Tensor((sizes[name],), one.dtype)
    return tensors


def _inferred(model: Any) -> dict[str, Tensor]:
    """The tensors of a model by name, as shape inference has them."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    tensors = {text(x.name): Tensor(tuple(x.dims), x.data_type) for x in inferred.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        kind = value.type.tensor_type
        sides = kind.shape.dim if kind.HasField("shape") else None
        complete = sides is not None and all(side.HasField("dim_value") for side in sides)
        shape = tuple(int(side.dim_value) for side in sides or ()) if complete else None
        tensors[text(value.name)] = Tensor(shape, kind.elem_type)
    return tensors


def _computed(model: Any, tensors: Mapping[str, Tensor]) -> bool:
    """Have the results of nodes that only compute with sizes stand in a model: inference knows few of them.

    Args:
        model: is changed.
        tensors: of the model, by name.

    Returns:
        Whether there was any.
    """
    values = {text(x.name): numpy_helper.to_array(x) for x in model.graph.initializer}
    values = {name: value for name, value in values.items() if value.size <= _SHORT}
    left, before = [], len(values)
    for node in model.graph.node:
        value = _value(node, values, tensors, model.opset_import)
        if value is None:
            left.append(node)
        else:
            values[text(node.output[0])] = value
            model.graph.initializer.append(numpy_helper.from_array(value, text(node.output[0])))
    if len(values) > before:
        del model.graph.node[:]
        model.graph.node.extend(left)
    return len(values) > before


def _value(
    node: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor], opsets: Any
) -> np.ndarray[Any, Any] | None:
    """What a node computes, if these are a few whole numbers that can be told."""
    kind, names = text(node.op_type), [text(x) for x in node.input if x]
    if domain_of(node) or len(node.output) != 1 or list(graphs_in(node)):
        return None
    if kind == "Shape":
        shape = tensors[names[0]].shape if names[0] in tensors else None
        ends = {str(text(a.name)): int(a.i) for a in node.attribute}
        return None if shape is None else np.array(shape[ends.get("start") : ends.get("end")], np.int64)
    if kind == "Size":
        shape = tensors[names[0]].shape if names[0] in tensors else None
        return None if shape is None else np.array(math.prod(shape), np.int64)
    if any(name not in values for name in names):
        return None
    output = tensors.get(text(node.output[0]))
    if output is None or output.dtype not in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL):
        return None
    ports = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
    graph = helper.make_graph([node], "one", ports, [onnx.ValueInfoProto(name=text(node.output[0]))])
    one = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    results: Any = one.run(None, {name: values[name] for name in names})
    value = np.asarray(results[0])
    return value if value.size <= _SHORT else None


def open_sizes(model: Any, sizes: Iterable[str]) -> list[str]:
    """The names of the axes of a model's inputs whose sizes are not given."""
    sides = [side for value in model.graph.input for side in value.type.tensor_type.shape.dim]
    names = [text(side.dim_param) or "?" for side in sides if not side.HasField("dim_value")]
    return [name for name in dict.fromkeys(names) if name not in set(sizes)]


def check_sizes(model: Any, sizes: Mapping[str, int]) -> None:
    """See that all sizes are known.

    Raises:
        ArgumentError: the size of an axis is not given, or there is no such axis.
    """
    unsaid = open_sizes(model, sizes)
    if unsaid:
        python = ", ".join(f"{name!r}: 8" for name in unsaid)
        raise ArgumentError(
            f"a budget of memory needs all sizes, and the model leaves {', '.join(unsaid)} open: say them "
            f"with sizes={{{python}}} (--sizes {','.join(f'{name}=8' for name in unsaid)}); what is written "
            "takes other sizes, too"
        )
    results = {text(y) for node in model.graph.node for y in node.output}
    unknown = [name for name in sizes if name not in {*open_sizes(model, ()), *results}]
    if unknown:
        named = ", ".join(open_sizes(model, ())) or "none"
        raise ArgumentError(f"sizes: the model leaves no size {unknown[0]!r} open; it has {named}")


_LARGE = 1024


def _without_large(model: Any) -> Any:
    """A copy of a model in which large weights are inputs."""
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(bare.graph, field).extend(getattr(model.graph, field))
    for x in model.graph.initializer:
        if len(x.raw_data) < _LARGE:
            bare.graph.initializer.append(x)
        else:
            bare.graph.input.append(helper.make_tensor_value_info(text(x.name), x.data_type, list(x.dims)))
    return bare
