"""Which definitions of operations there are, by type; and how the signature of one is read."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar, cast

from stopgrad.base.errors import DefinitionError

D = TypeVar("D", bound=type[Any])

_DEFINING = ("stopgrad.ops", "stopgrad.transforms.control")
"""The packages that define operations."""


class Registry(dict[str, D]):
    """Definitions by type. Before one is said to be missing, and for a list of all, all are imported."""

    def complete(self) -> None:
        """Import whatever of this package defines operations."""
        for package in _DEFINING:
            importlib.import_module(package)

    def __missing__(self, type: str) -> D:
        self.complete()
        found = super().get(type)
        if found is None:
            raise KeyError(type)
        return found

    def get(self, type: str, default: object = None) -> Any:
        try:
            return self[type]
        except KeyError:
            return default

    def __contains__(self, type: object) -> bool:
        return self.get(cast("str", type)) is not None

    def __iter__(self) -> Iterator[str]:
        self.complete()
        return super().__iter__()

    def __len__(self) -> int:
        self.complete()
        return super().__len__()

    def keys(self) -> Any:
        self.complete()
        return super().keys()

    def values(self) -> Any:
        self.complete()
        return super().values()

    def items(self) -> Any:
        self.complete()
        return super().items()

    def add(self, definition: D) -> None:
        """Make a definition known.

        Raises:
            DefinitionError: there is one of its type.
        """
        module = definition.__module__
        if not module.startswith("stopgrad."):
            self.complete()
        known = super().get(definition.type)
        # A module of ours is imported once more after an interrupt while it was imported.
        if known is not None and not (known.__module__ == module and module.startswith("stopgrad.")):
            raise DefinitionError(f"operation {definition.type} is defined twice")
        self[definition.type] = definition


def parameters(infer: Callable[..., Any]) -> tuple[tuple[str, ...], str | None, dict[str, str]]:
    """Its positional parameters, that of any number, and the annotations of those that are keyword-only."""
    if type(infer) is not FunctionType or infer.__dict__.keys() & {"__wrapped__", "__signature__"}:
        parameters = inspect.signature(infer).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return (
            tuple([p.name for p in parameters if p.kind in positional]),
            next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
            {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY},
        )
    # The same, read from the code: inspect takes as long as all else that is done for a definition.
    code = infer.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    variadic = names[count + only] if code.co_flags & inspect.CO_VARARGS else None
    annotations = {name: str(infer.__annotations__.get(name)) for name in names[count : count + only]}
    return names[:count], variadic, annotations
