"""The two forms of a model: batch normalisation and dropout differ between training and inference."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import numpy_helper

from stopgrad.base.errors import ArgumentError
from stopgrad.interop.onnx.nodes import all_nodes, domain_of, text
from stopgrad.interop.onnx.reading import Source, array_from, opsets

MODES = ("model", "train", "eval")
"""As the file has it; all for training; all for inference."""

_TRAINS_SINCE = 14
"""The first opset in which BatchNormalization has the attribute ``training_mode``."""


@dataclass
class Forms:
    """A model in two forms.

    Attributes:
        training: the form with which the loss is built.
        inference: the form that is exported.
        statistics: the initializers that training updates, each with the output of its new value.
        fixed: the initializers that hold statistics and are not updated.
        notes: remarks for the user.
    """

    training: Any
    inference: Any
    statistics: dict[str, str] = field(default_factory=dict)
    fixed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def differ(self) -> bool:
        """Whether the two forms differ."""
        return self.training is not self.inference


def taken_in(source: Source) -> onnx.ModelProto:
    """A copy of a model with all data in it, and a name for each unknown size.

    Raises:
        FileError: its external data cannot be read.
    """
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            name = text(tensor.name)
            array = array_from(tensor, source.folder, f"the initializer {name!r}")
            tensor.CopyFrom(numpy_helper.from_array(array, name))
    for x in model.graph.input:
        if x.type.HasField("tensor_type"):
            for i, d in enumerate(x.type.tensor_type.shape.dim):
                if not d.HasField("dim_value") and not d.dim_param:
                    d.dim_param = f"{re.sub(r'[^0-9A-Za-z_]', '_', text(x.name))}_{i}"
    return model


def forms(model: onnx.ModelProto, mode: str) -> Forms:
    """The forms of a model for training and for inference.

    Args:
        model: an ``onnx.ModelProto`` that holds its data.
        mode: one of :data:`MODES`.

    Raises:
        ArgumentError: there is no such mode, or the model's opset cannot express it.
    """
    if mode not in MODES:
        raise ArgumentError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    norms = list(_of_type(model, "BatchNormalization"))
    drops = list(_of_type(model, "Dropout"))
    inference = model
    if any(map(_norm_trains, norms)) or any(_drop_trains(model, node) for node in drops):
        inference = _copy(model)
        for node in _of_type(inference, "BatchNormalization"):
            _set_norm(node, False)
        for node in _of_type(inference, "Dropout"):
            del node.input[2:]
        _without_missing(inference)
    training = inference if mode == "eval" else model
    if mode == "train" and (norms or drops):
        version = opsets(model.opset_import, "the model").get("", 1)
        if norms and version < _TRAINS_SINCE:
            raise ArgumentError(
                f"mode='train' needs opset {_TRAINS_SINCE} or later, since which BatchNormalization can be "
                f"trained; the model has {version}: convert it with onnx.version_converter.convert_version"
            )
        training = _copy(model)
        for node in _of_type(training, "BatchNormalization"):
            _set_norm(node, True)
        _set_dropping(training)
    both = Forms(training, inference)
    _find_statistics(both)
    return both


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _of_type(model: onnx.ModelProto, op_type: str) -> Iterable[onnx.NodeProto]:
    return (node for node in model.graph.node if node.op_type == op_type and not domain_of(node))


def _norm_trains(node: onnx.NodeProto) -> bool:
    return any(a.name == "training_mode" and a.i for a in node.attribute)


def _drop_trains(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether a dropout is in training mode, as far as the file says."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    for tensor in model.graph.initializer:
        if tensor.name == node.input[2]:
            return _is_true(tensor)
    for maker in model.graph.node:
        if node.input[2] in maker.output and maker.op_type == "Constant":
            return any(a.name == "value" and _is_true(a.t) for a in maker.attribute)
    return True


def _is_true(tensor: onnx.TensorProto) -> bool:
    return bool(array_from(tensor, None, "whether a dropout trains").any())


def _set_norm(node: onnx.NodeProto, trains: bool) -> None:
    others = [a for a in node.attribute if a.name != "training_mode"]
    del node.attribute[:]
    node.attribute.extend(others)
    if trains:
        node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    else:
        del node.output[1:]


_TRUE = "stopgrad.training"
"""The name of the initializer that puts dropouts into training mode."""


def _set_dropping(model: onnx.ModelProto) -> None:
    """Put all dropouts into training mode."""
    nodes = list(_of_type(model, "Dropout"))
    if nodes:
        model.graph.initializer.append(onnx.helper.make_tensor(_TRUE, onnx.TensorProto.BOOL, (), [True]))
    for node in nodes:
        operands = [*node.input, "", ""][:2]
        del node.input[:]
        node.input.extend([*operands, _TRUE])


def _without_missing(model: onnx.ModelProto) -> None:
    """Remove results that no node computes any more."""
    computed = {y for node in model.graph.node for y in node.output}
    computed |= {x.name for x in model.graph.input} | {t.name for t in model.graph.initializer}
    outputs = [y for y in model.graph.output if y.name in computed]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def _find_statistics(both: Forms) -> None:
    """Find running means and variances; those that training updates become outputs of the training form."""
    graph = both.training.graph
    stored = {t.name for t in graph.initializer}
    for i, node in enumerate(list(_of_type(both.training, "BatchNormalization"))):
        names = [name if name in stored else None for name in node.input[3:5]]
        if not _norm_trains(node):
            both.fixed += [name for name in names if name is not None]
            continue
        for k, name in enumerate(names):
            if name is None:
                continue
            if name in both.statistics:
                both.notes.append(
                    f"{name!r} is renewed by more than one BatchNormalization; the last one's value is kept"
                )
            while len(node.output) < k + 2:
                node.output.append("")
            result = node.output[k + 1] or f"stopgrad.statistics.{i}.{k}"
            node.output[k + 1] = result
            both.statistics[name] = result
            if result not in {y.name for y in graph.output}:
                graph.output.append(onnx.helper.make_empty_tensor_value_info(result))


def opened(model: onnx.ModelProto, weights: list[str]) -> Any:
    """A model with some of its initializers turned into inputs, after its own.

    Quantised ones become inputs of floats, in place of what makes floats of them.
    """
    copy = _copy(model)
    names = set(weights)
    _without_quantisation(copy, names)
    tensors = {t.name: t for t in copy.graph.initializer if t.name in names}
    declared = {x.name for x in copy.graph.input}
    for name in weights:
        if name not in declared:
            tensor = tensors[name]
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
            )
    others = [t for t in copy.graph.initializer if t.name not in names]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(others)
    return copy


def opens(model: onnx.ModelProto, weights: Iterable[str]) -> bool:
    """Whether floats can take the place of all quantised ones of these weights in the file itself.

    Operators that compute with whole numbers inside, such as ``QGemm``, have no form for floats.
    """
    kinds = {t.name: t.data_type for t in model.graph.initializer}
    quantised = {name for name in weights if kinds.get(name, onnx.TensorProto.FLOAT) not in _FLOATS}
    return all(
        x not in quantised or _OPENED.get(text(node.op_type)) == i
        for node in all_nodes(model)
        for i, x in enumerate(node.input)
    )


_OPENED = {"DequantizeLinear": 0, "MatMulNBits": 1}
"""The operators that floats are put in place of, and the position of their whole numbers."""


def _without_quantisation(model: onnx.ModelProto, names: set[str]) -> None:
    """Give the model floats in place of the whole numbers of these names."""
    graph = model.graph
    quantised = {t.name: t for t in graph.initializer if t.name in names and t.data_type not in _FLOATS}
    nodes = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantised:
            nodes.append(onnx.helper.make_node("Identity", [node.input[0]], list(node.output), node.name))
            quantised[node.input[0]].data_type = _scale_type(model, node)
        elif node.op_type == "MatMulNBits" and node.input[1] in quantised:
            nodes += _plain_product(node, quantised[node.input[1]], _scale_type(model, node))
        else:
            nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    if quantised:
        del graph.node[:]
        graph.node.extend(nodes)


_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
)


def _scale_type(model: onnx.ModelProto, node: onnx.NodeProto) -> int:
    """The type of the floats that whole numbers become: that of their scale."""
    scale = node.input[2 if node.op_type == "MatMulNBits" else 1]
    types = (t.data_type for t in model.graph.initializer if t.name == scale)
    return int(next(types, onnx.TensorProto.FLOAT))


def _plain_product(node: onnx.NodeProto, weight: onnx.TensorProto, kind: int) -> list[Any]:
    """A product by a matrix of floats, in place of one by blocks of bits; the matrix lies transposed."""
    sizes = {a.name: a.i for a in node.attribute}
    weight.data_type = kind
    del weight.dims[:]
    weight.dims.extend([sizes["N"], sizes["K"]])
    name, turned, product = node.name, f"{node.output[0]}/turned", f"{node.output[0]}/product"
    bias = node.input[5] if len(node.input) > 5 else ""
    nodes = [onnx.helper.make_node("Transpose", [weight.name], [turned], f"{name}/transpose", perm=[1, 0])]
    result = product if bias else node.output[0]
    nodes.append(onnx.helper.make_node("MatMul", [node.input[0], turned], [result], name))
    if bias:
        nodes.append(onnx.helper.make_node("Add", [product, bias], list(node.output), f"{name}/bias"))
    return nodes
