"""The tensors that a call takes, those that it makes or writes into, and those of a module."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.arguments import tensors_in
from stopgrad.interop.torch.recording.calls import Call
from stopgrad.interop.torch.recording.record import Value

Tensor = torch.Tensor


class Used:
    """An argument of a call with its value before it; without a tensor, a number that once was a tensor."""

    __slots__ = ("tensor", "value", "version")

    def __init__(self, tensor: Tensor | None, value: Value, version: int = -1) -> None:
        self.tensor: Any = tensor
        self.value = value
        self.version = version


def made_by(call: Call, used: Sequence[Used], result: object) -> list[tuple[Tensor, Used | None]]:
    """The tensors that a call made or wrote into; the latter with their values before it."""
    before: dict[int, None] = {}
    for one in used:
        before[id(one.tensor)] = None
    found: dict[int, tuple[Tensor, Used | None]] = {}
    for tensor in tensors_in(result):
        if id(tensor) not in before:
            found[id(tensor)] = tensor, None
    # Tensors that share memory with one that is written into change their version, too.
    for one in used[:1] if call.writes else used:
        version = -1 if one.tensor is None else internals.version_of(one.tensor)
        if version != one.version or (call.writes and version < 0):
            found[id(one.tensor)] = (one.tensor, one)
    return list(found.values())


def parameters_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """A module's parameters by name, shared ones under each of their names, as far as it tells them."""
    asked = inspect.signature(module.named_parameters).parameters
    if "remove_duplicate" in asked or any(p.kind is p.VAR_KEYWORD for p in asked.values()):
        return list(module.named_parameters(remove_duplicate=False))
    return list(module.named_parameters())  # A method of the user's own, without that argument.
