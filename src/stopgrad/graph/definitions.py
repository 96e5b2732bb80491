"""The registry of definitions by type; and how the signature of one is read."""

from __future__ import annotations

import importlib
import inspect
from _collections_abc import dict_items, dict_keys, dict_values
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar, cast

from stopgrad.base.errors import DefinitionError

D = TypeVar("D", bound=type[Any])

_DEFINING = ("stopgrad.ops", "stopgrad.transforms.control")
"""The packages that define operations."""


class Registry(dict[str, D]):
    """Definitions by type. All are imported before one is reported missing, and to list them all."""

    def complete(self) -> None:
        """Import all modules of this package that define operations."""
        for package in _DEFINING:
            importlib.import_module(package)

    def __missing__(self, type: str) -> D:
        self.complete()
        definition = super().get(type)
        if definition is None:
            raise KeyError(type)
        return definition

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

    def keys(self) -> dict_keys[str, D]:
        self.complete()
        return super().keys()

    def values(self) -> dict_values[str, D]:
        self.complete()
        return super().values()

    def items(self) -> dict_items[str, D]:
        self.complete()
        return super().items()

    def add(self, definition: D) -> None:
        """Register a definition.

        Raises:
            DefinitionError: there is another one of its type.
        """
        module = definition.__module__
        if not module.startswith("stopgrad."):
            self.complete()
        existing = super().get(definition.type)
        # If the import of a module was interrupted, it is imported again.
        if existing is not None and not (existing.__module__ == module and module.startswith("stopgrad.")):
            raise DefinitionError(f"operation {definition.type} is defined twice")
        self[definition.type] = definition


def parameters(infer: Callable[..., object]) -> tuple[tuple[str, ...], str | None, dict[str, str]]:
    """Its positional parameters, its variadic one, and the annotations of keyword-only ones."""
    if type(infer) is not FunctionType or infer.__dict__.keys() & {"__wrapped__", "__signature__"}:
        parameters = inspect.signature(infer).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return (
            tuple([p.name for p in parameters if p.kind in positional]),
            next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
            {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY},
        )
    # Read from the code: inspect would take as long as all else that is done for a definition.
    code = infer.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    variadic = names[count + only] if code.co_flags & inspect.CO_VARARGS else None
    annotations = {name: str(infer.__annotations__.get(name)) for name in names[count : count + only]}
    return names[:count], variadic, annotations
