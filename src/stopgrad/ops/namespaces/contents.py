"""What a namespace has, and what it says of a name that it does not have."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from stopgrad.base.hints import advice


def public_in(space: Mapping[str, Any]) -> list[str]:
    """The public names of a module that imports what it has, from its variables."""
    return sorted(
        name
        for name, value in space.items()
        if name[0] != "_" and not isinstance(value, ModuleType)
        if getattr(value, "__module__", None) not in (__name__, "__future__")
    )


def reads(space: str, names: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of the namespace ``sg.space``, which has these names."""

    def refuse(name: str) -> NoReturn:
        if name[0] == "_":
            raise AttributeError(f"module 'stopgrad.{space}' has no attribute {name!r}")
        package = sys.modules[__name__.partition(".")[0]]  # It stands above this module.
        text = f"sg.{space} has no {name!r}"
        if name in getattr(package, "__all__", ()):
            raise AttributeError(f"{text}; it is sg.{name}")
        close = difflib.get_close_matches(name, names, 1, 0.75)
        near = f"did you mean sg.{space}.{close[0]}?" if close else f"dir(sg.{space}) lists what it has"
        raise AttributeError(advice(text, name) or f"{text}; {near}")

    return refuse, lambda: sorted(names)
