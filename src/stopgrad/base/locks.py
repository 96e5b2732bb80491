"""The lock that guards what threads share, and moments that they wait for."""

from __future__ import annotations

import _thread
import functools
import os
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOCK = RLock()
"""Held briefly, while names are chosen and operations are added to a graph; never while users' code runs."""

IMPORTS = RLock()
"""Held while modules are imported that a first use asks for."""

if hasattr(
    os, "register_at_fork"
):  # Otherwise a child might start with a lock held by a thread that it lacks.
    for _lock in (LOCK, IMPORTS):
        os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def holding(lock: RLock, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function while holding a lock, and release it whatever happens."""
    return _under(lock, function)(*args, **kwargs)


def exclusive(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: only one thread at a time runs the function."""
    return functools.wraps(function)(_under(LOCK, function))


def _under(lock: RLock, function: Callable[P, T]) -> Callable[P, T]:
    """The function, called while a lock is held.

    A ``with`` statement alone would keep the lock if an exception came after its block and before its end.
    """
    is_owned = lock._is_owned  # type: ignore[attr-defined] # As in threading.Condition.

    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        held = is_owned()
        try:
            with lock:
                return function(*args, **kwargs)
        finally:
            while not held and is_owned():
                lock.release()

    return alone


class Moment:
    """A moment that is waited for. An interrupt of a wait changes nothing.

    It could leave the lock of a :class:`threading.Event`, which is written in Python, held for ever.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()
        self._came = False

    def set(self) -> None:
        """It has come. One thread says so, once or more often."""
        if not self._came:
            self._came = True
            self._free()

    def wait(self) -> None:
        """Return when it has come. Who is interrupted waits again.

        Not by a ``with`` statement: from Python 3.14 on, an interrupt may come when the lock is taken and the
        block is not entered yet, and nothing would release it.
        """
        try:
            if not self._came:
                self._lock.acquire()
        finally:
            if self._came:  # From then on the lock is nobody's, and whoever may have it gives it back.
                self._free()

    def _free(self) -> None:
        with suppress(RuntimeError):  # Another thread was faster.
            self._lock.release()
