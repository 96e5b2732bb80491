"""The names of parameters, as the user's variables and modules give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from stopgrad.interop.torch.recording.used import parameters_of

Tensor = torch.Tensor


def variable_in(thing: object, frame: FrameType | None) -> str:
    """The name of a thing among the local variables of a frame, or among its globals; or empty."""
    for names in () if frame is None else (frame.f_locals, frame.f_globals):
        for name, value in list(names.items()):
            if value is thing and not name.startswith("_"):
                return name
    owner = None if frame is None else frame.f_locals.get("self")
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if value is thing and not name.startswith("_"):
            return f"self.{name}"
    return ""


def container_of(module: torch.nn.Module, called: Iterable[tuple[torch.nn.Module, Any]]) -> str:
    """The name of a module that lies in a list or dict of another one: ``net.blocks[0]``; else empty."""
    for owner, facts in called:
        for name, container in list(vars(owner).items()):
            if name.startswith("_") or not isinstance(container, (list, tuple, dict)):
                continue
            parts = container.items() if isinstance(container, dict) else enumerate(container)
            for key, part in parts:
                if part is module:
                    return f"{facts.name or type(owner).__name__}.{name}[{key!r}]"
    return ""


def named(roots: Mapping[str, torch.nn.Module]) -> Iterator[tuple[str, Tensor, torch.nn.Module]]:
    """The parameters of modules, by names that begin with the module's, and the modules that hold them."""
    for title, root in roots.items():
        owners: dict[int, Any] = {}
        for part in root.modules():
            for parameter in part.parameters(recurse=False):
                owners.setdefault(id(parameter), part)
        for name, tensor in parameters_of(root):
            yield f"{title}.{name}" if title else name, tensor, owners.get(id(tensor), root)
