"""Bulk work without the cyclic garbage collector, which would visit a growing graph again and again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def without_gc(build: Callable[..., T], *args: Any) -> T:
    """Call a function without the cyclic garbage collector, which would visit the growing graph each time."""
    if not gc.isenabled():
        return build(*args)
    try:
        try:
            gc.disable()
            return build(*args)
        finally:
            gc.enable()
    finally:  # Once more, should an interrupt have come before.
        gc.enable()
