"""The subjects of questions (modules, optimizers and tensors) as tensors by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.patterns import matching
from stopgrad.interop.shared import keras
from stopgrad.interop.torch.recording.used import parameters_of

Tensor = torch.Tensor
T = TypeVar("T")
Asked: TypeAlias = torch.nn.Module | torch.optim.Optimizer | torch.Tensor | Mapping[str, Any] | Iterable[Any]
"""What a question can be about; mappings and iterables hold such things again."""
Loss: TypeAlias = torch.Tensor | Mapping[str, Any] | Sequence[Any]
"""A loss, or several in a structure."""
Names: TypeAlias = str | Sequence[str] | set[str] | frozenset[str]
"""A pattern of names, or several."""


def named_tensors(what: str, xs: Asked) -> dict[str, Tensor]:
    """The tensors asked about, by name.

    Args:
        what: the function that was called.
        xs: a module, an optimizer, a tensor, or a dict or list of these.

    Raises:
        ArgumentError: it is something else.
    """
    tensors: dict[str, Tensor] = {}
    stack: list[tuple[str, Any]] = [("", xs)]
    while stack:
        prefix, x = stack.pop()
        below = _below(what, x)
        if below is None and isinstance(x, torch.Tensor):
            tensors[prefix or "x"] = x
        elif below is None:
            tensors[x.path if tensors.get(x.path, x.value) is x.value else f"{prefix}.{x.path}"] = x.value
        else:
            stack.extend([(f"{prefix}.{name}" if prefix else name, part) for name, part in reversed(below)])
    return tensors


def holds_optimizer(xs: object) -> bool:
    """Whether an optimizer is among the subjects."""
    return any(isinstance(x, torch.optim.Optimizer) for x in _parts(xs))


def modules_in(xs: object) -> list[torch.nn.Module]:
    """The modules among the subjects, with those inside of them."""
    return [part for x in _parts(xs) if isinstance(x, torch.nn.Module) for part in x.modules()]


def _parts(xs: object) -> Iterator[object]:
    """The subjects in dicts and lists."""
    stack = [xs]
    while stack:
        x = stack.pop()
        if isinstance(x, (dict, list, tuple)):
            stack.extend(x.values() if isinstance(x, dict) else x)
        else:
            yield x


def _below(what: str, x: object) -> list[tuple[str, Any]] | None:
    """The parts of a subject, by name; None if it is a tensor, or a variable of Keras."""
    if isinstance(x, torch.Tensor) or keras.is_variable(x):
        return None
    if isinstance(x, torch.nn.Module):
        return list[tuple[str, Any]](parameters_of(x))
    if isinstance(x, torch.optim.Optimizer):
        return _of_optimizer(x)
    if isinstance(x, dict):
        return [(str(key), part) for key, part in x.items()]
    if isinstance(x, (list, tuple)):
        return [(str(i), part) for i, part in enumerate(x)]
    if isinstance(x, Iterator):  # Such as model.parameters().
        return [(str(i), part) for i, part in enumerate(x)]
    raise ArgumentError(
        f"{what}: xs are a module, an optimizer, tensors, or a dict or list of these, "
        f"not {type(x).__name__} {x!r:.60}"
    )


def _of_optimizer(optimizer: torch.optim.Optimizer) -> list[tuple[str, Tensor]]:
    named = []
    for g, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [f"group{g}.{i}" for i in range(len(group["params"]))]
        named += list(zip(names, group["params"], strict=True))
    return named


def chosen(what: str, tensors: dict[str, T], only: Names | None) -> dict[str, T]:
    """The tensors whose names match a pattern or lie below one that does; all of them without patterns.

    Raises:
        ArgumentError: *only* holds no patterns, or one that matches nothing.
    """
    if only is None:
        return tensors
    if not isinstance(only, (str, list, tuple, set, frozenset)):
        raise ArgumentError(
            f"{what}: only is a pattern such as 'head.*', or a list of these, not {only!r:.60}"
        )
    return {name: tensors[name] for name in matching(f"{what}: only", only, tensors)}


def losses_in(what: str, loss: Loss) -> list[Tensor]:
    """The tensors that are differentiated.

    Raises:
        ArgumentError: there are none, or something is no tensor.
    """
    losses: list[Tensor] = []
    stack = [loss]
    while stack:
        x = stack.pop()
        if isinstance(x, torch.Tensor):
            losses.append(x)
        elif isinstance(x, dict):
            stack.extend(reversed(x.values()))
        elif isinstance(x, (list, tuple)):
            stack.extend(reversed(x))
        else:
            raise ArgumentError(
                f"{what}: the loss is a tensor, or a dict or list of tensors, not {type(x).__name__} "
                f"{x!r:.60}; give the tensor that .backward() is called on, not its .item()"
            )
    if not losses:
        raise ArgumentError(f"{what}: there is no loss in an empty {type(loss).__name__}")
    return losses
