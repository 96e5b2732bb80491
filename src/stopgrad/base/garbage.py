"""Bulk work without the cyclic garbage collector, which would visit a growing graph over and over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def without_gc(build: Callable[..., T], *args: object) -> T:
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


RARE = 50_000
"""The number of new objects after which :func:`with_rare_gc` lets the collector run; usually it is 700."""


def with_rare_gc(build: Callable[..., T], *args: object) -> T:
    """Call a function that builds a graph and runs users' code, whose garbage is still collected."""
    usual = gc.get_threshold()
    if not 0 < usual[0] < RARE:  # Off, or rare already: perhaps in another thread, which puts it back.
        return build(*args)
    rare = (RARE, *usual[1:])
    try:
        gc.set_threshold(*rare)
        return build(*args)
    finally:
        if gc.get_threshold() == rare:  # Else the user has set another one.
            gc.set_threshold(*usual)
