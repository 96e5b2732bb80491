"""How large functions of a file become where each call is replaced by the body."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from stopgrad.base.errors import FileError

F = TypeVar("F", bound=Hashable)

DEEPEST = 64
"""How deep graphs, and calls of functions, may be nested; no function may call itself."""


class Inlined(Generic[F]):
    """The numbers of nodes that functions become.

    Args:
        look: the number of a function's own nodes, and the functions that they call; asked once for each.
        name: the file, for messages.
        shown: the name of a function, for messages.
    """

    def __init__(
        self, look: Callable[[F], tuple[int, Sequence[F]]], name: str, shown: Callable[[F], str] = str
    ) -> None:
        self._look, self._name, self._shown = look, name, shown
        self._sizes: dict[F, int] = {}

    def size(self, function: F) -> int:
        """The number of nodes that a call of a function becomes.

        Raises:
            FileError: it calls itself, or calls are nested too deeply.
        """
        sizes = self._sizes
        around: dict[F, tuple[int, Sequence[F]]] = {}
        here: F | None = None if function in sizes else function
        while here is not None:
            if here not in around:
                around[here] = self._look(here)
            own, calls = around[here]
            missing = next((f for f in calls if f not in sizes), None)
            if missing is None:
                sizes[here] = own + sum(sizes[f] for f in calls)
                del around[here]
                missing = next(reversed(around), None)
            elif missing in around or len(around) >= DEEPEST:
                raise FileError(
                    f"{self._name}: functions call one another more than {DEEPEST} deep, "
                    f"or one calls itself: {self._shown(missing)}"
                )
            here = missing
        return sizes[function]
