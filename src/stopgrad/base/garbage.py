"""Bulk work without the cyclic garbage collector, which would visit a growing graph over and over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def without_gc(build: Callable[..., T], *args: Any) -> T:
    """Call a function with the cyclic garbage collector switched off."""
    if not gc.isenabled():
        return build(*args)
    try:
        try:
            gc.disable()
            return build(*args)
        finally:
            gc.enable()
    finally:  # Again, in case an interrupt came first.
        gc.enable()
