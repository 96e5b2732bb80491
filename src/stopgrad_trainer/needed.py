"""Imports what is needed only at times: errors, file writing, and the runtime."""

from __future__ import annotations

import importlib
from typing import Any


def part(name: str) -> Any:
    """A module of ``stopgrad``. The first call imports the package itself."""
    return importlib.import_module(f"stopgrad.{name}")


def error(kind: str, message: str) -> Exception:
    """An error of ``stopgrad``, by the name of its class."""
    exception: Exception = getattr(part("errors"), kind)(message)
    return exception


def is_ours(caught: BaseException) -> bool:
    """Whether an error is one of ``stopgrad``'s."""
    return type(caught).__module__ == "stopgrad.errors"


def module(name: str, purpose: str, extra: str) -> Any:
    """A package that must be installed.

    Raises:
        EngineError: it is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        return part("base.namespaces").require(name, purpose, extra)
