"""The tensors among the arguments and results of calls."""

from __future__ import annotations

from types import NoneType
from typing import Any

import torch

from stopgrad.interop.torch import internals

Tensor = torch.Tensor
Parameter = torch.nn.Parameter


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor that one of ``torch.func`` wraps, perhaps several times."""
    while internals.is_functorch_wrapped_tensor(tensor):
        tensor = internals.get_unwrapped(tensor)
    return tensor


ATOMS = frozenset([int, float, bool, complex, str, NoneType, torch.dtype, torch.device])
"""What needs not be looked into."""


def tensors_in(*trees: Any) -> list[Tensor]:
    """The tensors in nested arguments or results; for those of ``torch.func``, the tensors that they wrap."""
    tensors: list[Tensor] = []
    for tree in trees:
        kind = type(tree)
        if kind is Tensor:
            tensors.append(tree)
        elif kind is tuple:  # Mostly of tensors, which are what counts here.
            for element in tree:
                inner = type(element)
                if inner is Tensor or inner is Parameter:
                    tensors.append(element)
                elif inner not in ATOMS:
                    tensors += _nested(element)
        elif kind not in ATOMS:
            tensors += _nested(tree)
    if tensors and internals.peek_interpreter_stack() is not None:
        return [unwrapped(tensor) for tensor in tensors]
    return tensors


def _nested(tree: object) -> list[Tensor]:
    """The tensors in something that may hold some, itself included."""
    tensors: list[Tensor] = []
    stack = [tree]
    while stack:
        tree = stack.pop()
        if isinstance(tree, Tensor):
            tensors.append(tree)
        elif isinstance(tree, (list, tuple)):
            stack += tree[::-1]
        elif isinstance(tree, dict):
            stack += reversed(tree.values())
    return tensors
