"""Interning: one object for each key, for as long as somebody holds it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import ref

from stopgrad.base.locks import exclusive

T = TypeVar("T")

_FEW = 256


class Interned(Generic[T]):
    """Objects by what they are, so that two equal ones are one. It keeps none of them alive.

    Keys that are equal must mean the same: whoever asks makes them canonical first, since to Python
    ``1 == 1.0 == True``.

    What has died leaves its key behind until as many were added as were alive: no code runs when an object
    dies, in which an interrupt would be lost.
    """

    def __init__(self) -> None:
        self._objects: dict[Hashable, ref[Any]] = {}
        self._room = _FEW

    def get(self, key: Hashable) -> T | None:
        """The object of this key, if there is one."""
        found = self._objects.get(key)
        return None if found is None else found()

    @exclusive
    def keep(self, key: Hashable, made: T) -> T:
        """*made*, from now on the object of this key; or the one that another thread has made meanwhile."""
        kept = self.get(key)
        if kept is not None:
            return kept
        if len(self._objects) >= self._room:
            self.sweep()
        self._objects[key] = ref(made)
        return made

    def one(self, key: Hashable, make: Callable[..., T], *given: Any) -> T:
        """The object of this key; ``make(*given)``, if there is none yet."""
        found = self.get(key)
        return self.keep(key, make(*given)) if found is None else found

    @exclusive
    def sweep(self) -> None:
        """Forget the keys of what has died."""
        keys = list(self._objects)
        while keys:
            key = keys.pop()  # The latest first: it may hold the last of what an earlier one stands for.
            if self.get(key) is None:
                self._objects.pop(key, None)
        self._room = 2 * len(self._objects) + _FEW

    def __len__(self) -> int:
        return len(self._objects)
