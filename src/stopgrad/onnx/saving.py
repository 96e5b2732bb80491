"""Graphs as models of ONNX, gates as functions that every runtime knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from stopgrad.errors import ArgumentError
from stopgrad.files import AnyPath, replacing
from stopgrad.graph import Operation, Output, describe
from stopgrad.onnx_nodes import model_of, written
from stopgrad.onnx_nodes.program import LATEST, OLDEST
from stopgrad.operands import Array
from stopgrad.ops.data import Parameter, Placeholder
from stopgrad.public import guarded
from stopgrad.rewrite import fold, merge, needed, rewrite, simplify
from stopgrad.rewrite.forms.products import flatten_summed_product
from stopgrad.rewrite.loops import unite_scans
from stopgrad.session import Session

OPSET = 21
"""The version of ONNX's operators that is written where no other is asked for."""

Names = Mapping[str, Output] | Sequence[Output] | Output


@guarded("save")
def save(
    path: AnyPath,
    outputs: Names,
    inputs: Names | None = None,
    *,
    values: Session | Mapping[str, Array] | None = None,
    opset: int = OPSET,
) -> None:
    """Write a graph, for instance a gradient, as a model of ONNX that any runtime executes.

    Args:
        path: of the file.
        outputs: what the model computes, by the names that its results are to have; outputs without a name
            are called as their operations.
        inputs: what it is given, likewise; by default all placeholders that are needed, in their order. A
            parameter among them is an input of the model; others are stored in it.
        values: of parameters: a session, or arrays by the parameters' names; by default their first values.
        opset: the version of ONNX's operators, from 18 to 26.

    Raises:
        ArgumentError: an argument is not what it must be, or an input is missing.
        EngineError: an operation has no form in ONNX; it is named with its line.
        FileError: the file cannot be written. An older one is as it was.

    References:
        ONNX, https://onnx.ai/onnx/repo-docs/IR.html.
    """
    model = to_model(outputs, inputs, values=values, opset=opset)
    with replacing(path) as file, open(file, "wb", closefd=False) as stream:
        stream.write(model.SerializeToString())


@guarded("to_model")
def to_model(
    outputs: Names,
    inputs: Names | None = None,
    *,
    values: Session | Mapping[str, Array] | None = None,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """The model that :func:`save` writes, as an object of ``onnx``. Arguments and errors are the same."""
    if isinstance(opset, bool) or not isinstance(opset, int) or not OLDEST <= opset <= LATEST:
        raise ArgumentError(f"opset is a whole number from {OLDEST} to {LATEST}, not {opset!r}")
    ys = _by_name(outputs, "outputs")
    if not ys:
        raise ArgumentError("a model has at least one output; give outputs")
    xs = None if inputs is None else _by_name(inputs, "inputs")
    operations = needed([*ys.values()], set() if xs is None else set(xs.values()))
    given = {op.outputs[0] for op in operations if op.definition in (Placeholder, Parameter)}
    held = [x for x in given if x.op.definition is Parameter]
    if xs is None:
        places = sorted(given - set(held), key=lambda x: x.op.id)
        xs = {x.op.name: x for x in places}
    missing = [x for x in given - set(held) if x not in set(xs.values())]
    if missing:
        raise ArgumentError(
            f"the outputs need {describe(missing[0])}, which is not among the inputs; give it"
        )
    stored = {x.op.name: x for x in sorted(held, key=lambda x: x.op.id) if x not in set(xs.values())}
    everything = {**xs, **stored}
    done = rewrite(
        [*ys.values()], [*everything.values()], (unite_scans, flatten_summed_product, simplify, fold, merge)
    )
    program = written(
        dict(zip(everything, done.inputs, strict=True)), dict(zip(ys, done.outputs, strict=True)), opset
    )
    return model_of(program, {name: _value(x, name, values) for name, x in stored.items()})


def _by_name(given: Any, what: str) -> dict[str, Output]:
    if isinstance(given, (Output, Operation)):
        given = [given]
    if isinstance(given, Mapping):
        items = list(given.items())
    else:
        try:
            items = [(None, y) for y in given]
        except TypeError:
            raise ArgumentError(f"{what} are outputs, or outputs by name, not {given!r}") from None
    found: dict[str, Output] = {}
    for name, y in items:
        y = y.as_output() if isinstance(y, Operation) else y
        if not isinstance(y, Output):
            raise ArgumentError(f"{what} are outputs of a graph, not {y!r}")
        name = (y.op.name if y.index == 0 else f"{y.op.name}:{y.index}") if name is None else name
        if not isinstance(name, str) or not name or name in found:
            raise ArgumentError(f"{what} need names of their own, not {name!r}; give them in a dict")
        found[name] = y
    return found


def _value(x: Output, name: str, values: Session | Mapping[str, Array] | None) -> Array:
    if isinstance(values, Session):
        return values.value(x)
    if values is not None and name in values:
        return values[name]
    return x.op.values[0].array
