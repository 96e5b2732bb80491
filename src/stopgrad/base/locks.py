"""The lock under which threads change what they share, and how it is held."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from threading import RLock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOCK = RLock()
"""Held for moments: where names are found and threads build in one graph; never while users' code runs."""

if hasattr(os, "register_at_fork"):  # A child must not find it held by a thread that it does not have.
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


def holding(lock: RLock, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function while a lock is held, which is let go of whatever happens.

    A ``with`` statement alone would keep it if an exception came between its block and its end.
    """
    held = lock._is_owned()  # type: ignore[attr-defined] # As threading.Condition asks it.
    try:
        with lock:
            return function(*args, **kwargs)
    finally:
        while not held and lock._is_owned():  # type: ignore[attr-defined]
            lock.release()


def exclusive(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: one thread at a time."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        return holding(LOCK, function, *args, **kwargs)

    return alone
