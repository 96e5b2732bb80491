"""A loss that is an ONNX model of its own: of outputs of the model, and of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from stopgrad.base.errors import ArgumentError, ShapeError
from stopgrad.base.types import Dim
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import show_shape
from stopgrad.interop.onnx.loading import load
from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.reading import Source
from stopgrad.interop.onnx.training.modes import taken_in
from stopgrad.interop.onnx.training.training_losses import Judged, scalar


def of_model(source: Source, judged: Judged) -> Output:
    """The loss that an ONNX model computes.

    Its inputs are outputs of the judged model, by name or else in order; further inputs are labels. Its own
    parameters are not trained.

    Raises:
        ArgumentError: it has no or several outputs.
        ShapeError: an input does not fit the output, or the loss is no number.
    """
    model = taken_in(source)
    stored = {t.name for t in model.graph.initializer}
    inputs = [x for x in model.graph.input if x.name not in stored]
    by_name = [x.name for x in inputs if x.name in judged.outputs]
    matched = {name: name for name in by_name} or {
        x.name: name for x, name in zip(inputs, judged.outputs, strict=False)
    }
    if len(model.graph.output) != 1:
        names = ", ".join(text(y.name) for y in model.graph.output)
        raise ArgumentError(f"the loss {judged.name} must have one output, a number; it has {names}")
    _name_sizes(inputs, {x: judged.outputs[name] for x, name in matched.items()})
    loss = load(source._replace(model=model))
    arguments: dict[str, Output] = {}
    for name, x in loss.inputs.items():
        if name not in matched:
            arguments[name] = judged.label(name, x.dtype, x.shape)
            continue
        y = judged.outputs[matched[name]]
        if y.dtype is not x.dtype or not _fits(y.shape, x.shape):
            raise ShapeError(
                f"the loss {judged.name} does not fit the output {matched[name]!r}: its input {name!r} is "
                f"{x.dtype.name}{show_shape(x.shape)}, and {matched[name]!r} is "
                f"{y.dtype.name}{show_shape(y.shape)}"
            )
        arguments[name] = y
    return scalar(loss.apply({}, **arguments), judged.name)


def _fits(shape: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether two shapes may be equal."""
    return len(shape) == len(expected) and all(
        a == b for a, b in zip(shape, expected, strict=True) if isinstance(a, int) and isinstance(b, int)
    )


def _name_sizes(inputs: Sequence[Any], arguments: Mapping[str, Output]) -> None:
    """Give inputs' unknown sizes the names of the sizes of what is passed to them, everywhere."""
    sizes: dict[str, int | str] = {}
    for x in inputs:
        dims = x.type.tensor_type.shape.dim
        if x.name in arguments and len(dims) == len(arguments[x.name].shape):
            for d, size in zip(dims, arguments[x.name].shape, strict=True):
                if d.HasField("dim_value"):
                    continue
                named = str(size) if isinstance(size, Dim) else size
                sizes.setdefault(d.dim_param, named) if d.dim_param else _set(d, named)
    for x in inputs:
        for d in x.type.tensor_type.shape.dim:
            if d.dim_param in sizes and not d.HasField("dim_value"):
                _set(d, sizes[d.dim_param])


def _set(d: onnx.TensorShapeProto.Dimension, size: int | str) -> None:
    if isinstance(size, int):
        d.dim_value = size
    else:
        d.dim_param = size
