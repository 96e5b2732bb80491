"""Calls of every public function, from which tests are made: one module per family, each with its ``CALLS``.

``CALLS`` maps the name of a public function to calls of it. An argument that is an array is given as an
array, a traced argument or a placeholder; all else is given as it stands.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One call of a public function."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


def all_calls() -> dict[str, list[Call]]:
    """The calls of all families, by the name of the function."""
    found: dict[str, list[Call]] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= importlib.import_module(f"{__name__}.{module.name}").CALLS
    return found
