"""Interning: one object for each key, for as long as somebody holds it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import ref

from stopgrad.base.locks import exclusive

T = TypeVar("T")

_FEW = 256


class Interned(Generic[T]):
    """A table of objects by key, so that equal keys give one object. It keeps none of them alive.

    Equal keys must mean the same: callers make them canonical first, since to Python ``1 == 1.0 == True``.

    The key of a dead object stays until the table has doubled. No callback runs when an object dies, since an
    interrupt in a callback would be lost.
    """

    def __init__(self) -> None:
        self._objects: dict[Hashable, ref[Any]] = {}
        self._room = _FEW

    def get(self, key: Hashable) -> T | None:
        """The object of this key, if there is one."""
        reference = self._objects.get(key)
        return None if reference is None else reference()

    @exclusive
    def keep(self, key: Hashable, new: T) -> T:
        """Keep *new* as the object of this key; if another thread kept one first, return that."""
        existing = self.get(key)
        if existing is not None:
            return existing
        if len(self._objects) >= self._room:
            self.sweep()
        self._objects[key] = ref(new)
        return new

    def one(self, key: Hashable, make: Callable[..., T], *arguments: object) -> T:
        """The object of this key; if there is none yet, ``make(*arguments)``."""
        existing = self.get(key)
        return self.keep(key, make(*arguments)) if existing is None else existing

    @exclusive
    def sweep(self) -> None:
        """Remove the keys of dead objects."""
        keys = list(self._objects)
        while keys:
            key = keys.pop()  # The latest first: its key may be the last to hold an earlier object.
            if self.get(key) is None:
                self._objects.pop(key, None)
        self._room = 2 * len(self._objects) + _FEW

    def __len__(self) -> int:
        return len(self._objects)
