"""Interning: one object for each key, for as long as somebody holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_LOCK = RLock()


def _renew() -> None:
    global _LOCK
    _LOCK = RLock()  # Who held it has not come along.


os.register_at_fork(after_in_child=_renew)


class Interned(Generic[T]):
    """Objects by what they are, so that two equal ones are one. It keeps none of them alive.

    Keys that are equal must mean the same: whoever asks makes them canonical first, since to Python
    ``1 == 1.0 == True``.
    """

    def __init__(self) -> None:
        self._objects: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()

    def get(self, key: Hashable) -> T | None:
        """The object of this key, if there is one."""
        found: T | None = self._objects.get(key)
        return found

    def keep(self, key: Hashable, made: T) -> T:
        """*made*, from now on the object of this key; or the one that another thread has made meanwhile."""
        with _LOCK:
            kept: T = self._objects.setdefault(key, made)
            return kept

    def one(self, key: Hashable, make: Callable[..., T], *given: Any) -> T:
        """The object of this key; ``make(*given)``, if there is none yet."""
        found = self.get(key)
        return self.keep(key, make(*given)) if found is None else found

    def __len__(self) -> int:
        return len(self._objects)
