"""The tensors that a call takes, those that it makes or writes into, and those of a module."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from stopgrad.interop.shared import keras
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.call_tensors import tensors_in
from stopgrad.interop.torch.recording.effects_on_gradients import Call
from stopgrad.interop.torch.recording.record import Value

Tensor = torch.Tensor


class Used:
    """An argument of a call with its value before it; without a tensor, a number that once was a tensor."""

    __slots__ = ("tensor", "value", "version")

    value: Value
    version: int

    def __init__(self, tensor: Tensor | None, value: Value, version: int = -1) -> None:
        self.tensor: Any = tensor
        self.value = value
        self.version = version


def used_as(tensors: Sequence[Tensor], values: Sequence[Value], versions: Sequence[int]) -> list[Used]:
    """Tensors with their values and versions, each once; further values are those of numbers."""
    about = zip(tensors, values, versions, strict=False)
    by_id = {id(x): Used(x, value, version) for x, value, version in about}
    return [*by_id.values(), *[Used(None, value) for value in values[len(tensors) :]]]


def made_by(call: Call, used: Sequence[Used], result: object) -> list[tuple[Tensor, Used | None]]:
    """The tensors that a call made or wrote into; the latter with their values before it."""
    before: dict[int, None] = {}
    for argument in used:
        before[id(argument.tensor)] = None
    outputs: dict[int, tuple[Tensor, Used | None]] = {}
    for tensor in tensors_in(result):
        if id(tensor) not in before:
            outputs[id(tensor)] = tensor, None
    # Tensors that share memory with one that is written into change their version, too.
    for argument in used[:1] if call.writes else used:
        version = -1 if argument.tensor is None else internals.version_of(argument.tensor)
        if version != argument.version or (call.writes and version < 0):
            outputs[id(argument.tensor)] = (argument.tensor, argument)
    return list(outputs.values())


def parameters_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """A module's parameters by name, shared ones under each of their names, as far as it tells them.

    Those of Keras' layers have their paths there, each once.
    """
    if keras.loaded("torch") is not None and any(map(keras.is_layer, module.modules())):
        return _parameters_with_keras(module)
    accepted = inspect.signature(module.named_parameters).parameters
    if "remove_duplicate" in accepted or any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        return list(module.named_parameters(remove_duplicate=False))
    return list(module.named_parameters())  # A method of the user's own, without that argument.


def _parameters_with_keras(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters of a module that is Keras', or has layers of Keras among its parts.

    Keras keeps the parameters of each layer once more in the layers around it, in a dict of PyTorch's.
    """
    layers: dict[str, torch.nn.Module] = {}  # The outermost ones.
    own: dict[int, str] = {}
    for prefix, part in module.named_modules():
        if keras.is_layer(part):
            if not any(above == "" or prefix.startswith(f"{above}.") for above in layers):
                layers[prefix] = part
        elif prefix.rpartition(".")[2] != "_torch_params":
            own |= {id(p): name for name, p in part.named_parameters(prefix, recurse=False)}
    by_name: dict[str, Any] = {}
    for prefix, layer in layers.items():
        for path, variable in keras.by_path(keras.parameters_of(layer)).items():
            name = own.get(id(variable.value)) or (f"{prefix}.{path}" if prefix else path)
            by_name[name] = variable.value
    rest = {name: p for name, p in module.named_parameters() if own.get(id(p)) == name}
    return list({**by_name, **rest}.items())
