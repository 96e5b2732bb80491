"""What is to be written to a file: outputs and inputs by name, and the parameters that the file stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.errors import ArgumentError
from stopgrad.graph.graph import Operation, Output, describe, needed
from stopgrad.graph.operands import NumpyArray, as_array, shorten
from stopgrad.interop.imported import Model
from stopgrad.ops.structural.sources import Parameter, Placeholder
from stopgrad.run.function import Function
from stopgrad.run.session import Session

Names = Mapping[str, Output] | Sequence[Output] | Output
Wanted = Names | Model | Callable[..., object]
Given = Names | Sequence[Any] | None
Values = Session | Mapping[str, Any] | None


def asked(
    outputs: Wanted, inputs: Given, what: str
) -> tuple[dict[str, Output], dict[str, Output], dict[str, Output]]:
    """Inputs, outputs and stored parameters by their names in the file, which is a *what*.

    Parameters of an imported model have its names for them.

    Raises:
        ArgumentError: an argument is not what it must be, or an input is missing.
    """
    names = {x: name for name, x in outputs.parameters.items()} if isinstance(outputs, Model) else {}
    outputs, inputs = _of_program(outputs, inputs)
    ys = _by_name(outputs, "outputs")
    if not ys:
        raise ArgumentError(f"a {what} has at least one output; give outputs")
    xs = None if inputs is None else _by_name(inputs, "inputs")
    operations = needed([*ys.values()], set() if xs is None else set(xs.values()))
    sources = {op.outputs[0] for op in operations if op.definition in (Placeholder, Parameter)}
    held = [x for x in sources if x.op.definition is Parameter]
    if xs is None:
        places = sorted(sources - set(held), key=lambda x: x.op.id)
        xs = {x.op.name: x for x in places}
    fed = set(xs.values())
    missing = [x for x in sources - set(held) if x not in fed]
    if missing:
        raise ArgumentError(
            f"the outputs need {describe(missing[0])}, which is not among the inputs; give it"
        )
    held = [x for x in sorted(held, key=lambda x: x.op.id) if x not in fed]
    stored = {names.get(x, x.op.name): x for x in held}
    twice = next((name for name in xs if name in stored or name in ys), None)
    if twice is not None:
        raise ArgumentError(
            f"two values of the {what} are called {twice!r}; give inputs and outputs other names"
        )
    return xs, ys, stored


def _of_program(outputs: Wanted, inputs: Given) -> tuple[Any, Any]:
    """The outputs and inputs of an imported model or of a function; others as they are given."""
    if isinstance(outputs, Model):
        if inputs is not None:
            raise ArgumentError("a model has inputs of its own; leave inputs out")
        return outputs.outputs, outputs.inputs
    if isinstance(outputs, (Output, Operation, Mapping)) or not callable(outputs):
        return outputs, inputs
    if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Sequence):
        raise ArgumentError(
            f"inputs of a function are a list of arrays like its arguments, not {shorten(inputs)}"
        )
    function = outputs if isinstance(outputs, Function) else sg.function(outputs)
    lowered = function.lower(*inputs)
    return lowered.outputs, lowered.inputs


def _by_name(tensors: Any, what: str) -> dict[str, Output]:
    if isinstance(tensors, (Output, Operation)):
        tensors = [tensors]
    if isinstance(tensors, Mapping):
        items = list(tensors.items())
    else:
        try:
            items = [(None, y) for y in tensors]
        except TypeError:
            raise ArgumentError(f"{what} are outputs, or outputs by name, not {tensors!r}") from None
    by_name: dict[str, Output] = {}
    for name, y in items:
        y = y.as_output() if isinstance(y, Operation) else y
        if not isinstance(y, Output):
            raise ArgumentError(f"{what} are outputs of a graph, not {y!r}")
        name = (y.op.name if y.index == 0 else f"{y.op.name}:{y.index}") if name is None else name
        if not isinstance(name, str) or not name or name in by_name:
            raise ArgumentError(f"{what} need names of their own, not {name!r}; give them in a dict")
        by_name[name] = y
    return by_name


def value_of(x: Output, name: str, values: Values) -> NumpyArray:
    """The value of a parameter that the model holds."""
    if isinstance(values, Session):
        return values.value(x)
    if values is None or name not in values:
        array: NumpyArray = x.op.values[0].array
        return array
    array = as_array(values[name])
    if array.shape != x.shape or array.dtype != x.dtype.numpy:
        raise ArgumentError(
            f"the parameter {name!r} is {x.type!r}, not {array.dtype}{list(array.shape)} as values has it"
        )
    return array
