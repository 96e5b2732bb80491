"""Compiled functions as methods: one for each instance, kept as long as the instance lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from stopgrad.graph.operands import shorten

P = ParamSpec("P")
R = TypeVar("R")


class Instances:
    """The functions of the instances of a class, each kept as long as its instance lives.

    Args:
        size: the most instances without weak references that are held.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[int, tuple[Callable[[], Any], Any]] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter([function for _, function in [*self._entries.values()]])

    def of(self, instance: object, make: Callable[[Callable[[], Any]], Any]) -> Any:
        """The function of an instance."""
        key = id(instance)
        entry = self._entries.get(key)
        if entry is not None and entry[0]() is instance:
            return entry[1]
        home = weakref.ref(self)
        try:
            refer: Callable[[], Any] = weakref.ref(instance, lambda gone: _forget(home, key, gone))
        except TypeError:  # It allows no weak reference, so it is held itself, but not with too many others.
            refer = partial(_same, instance)
            for old in [*self._entries][: max(0, len(self._entries) + 1 - self._size)]:
                self._entries.pop(old, None)
        function = make(refer)
        self._entries[key] = refer, function
        return function


def _same(x: object) -> object:
    return x


def _forget(home: weakref.ref[Instances], key: int, gone: object) -> None:
    instances = home()
    if instances is not None:
        entry = instances._entries.get(key)
        if entry is not None and entry[0] is gone:
            instances._entries.pop(key, None)


class Method(Generic[P, R]):
    """A compiled function of one instance: what ``instance.method`` is.

    Attributes:
        __self__: the instance.
        __func__: the Python function.
    """

    __slots__ = ("__self__", "_before", "_function")

    __self__: object

    def __init__(self, function: Any, instance: object, before: tuple[Any, ...]) -> None:
        self._function = function
        self.__self__ = instance
        self._before = before

    @property
    def __doc__(self) -> str | None:  # type: ignore[override] # That of the method, not of this class.
        return self._function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*self._before, *args, **kwargs)

    def lower(self, *args: object, **kwargs: object) -> Any:
        """Like ``lower`` of the function itself."""
        return self._function.lower(*self._before, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Method)
            and self._function is other._function
            and self.__self__ is other.__self__
        )

    def __hash__(self) -> int:
        return hash((id(self._function), id(self.__self__)))

    def __repr__(self) -> str:
        return f"<{self._function!r} of {shorten(self.__self__)}>"
