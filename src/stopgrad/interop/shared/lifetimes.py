"""The time for which a ``with`` statement holds something, at whose end all that was begun is taken back."""

from __future__ import annotations

import functools
import operator
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any


def at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Call functions that are implemented in C, so that no handler of a signal runs between them."""
    deque(map(operator.call, calls), 0)


_LIVING: dict[int, Any] = {}
"""Those that have not ended, by their ``id``: nobody else need hold them."""


class Lifetime(weakref.ref[Any]):
    """The time for which a ``with`` statement holds something; at its end, what was begun is taken back.

    A watch is begun step by step. Each step is taken together with the note of how it is taken back.

    Args:
        what: the object that the statement holds; no function may keep it in a variable.
    """

    __slots__ = ("_undo", "end")

    def __new__(cls, what: object) -> Lifetime:
        return super().__new__(cls, what, operator.methodcaller("end"))

    def __init__(self, what: object) -> None:
        self._undo: list[Callable[[], object]] = []
        self.end: Callable[[], object] = functools.partial(deque, map(operator.call, self._undo), 0)
        me = id(self)
        self.do(functools.partial(_LIVING.__setitem__, me, self), functools.partial(_LIVING.pop, me, None))

    def do(self, step: Callable[[], object], undo: Callable[[], object], *more: Callable[[], object]) -> None:
        """Take a step, and perhaps *more*: each with its undoing after it. All are implemented in C."""
        note = self._undo.append
        calls: list[Callable[[], object]] = [step, functools.partial(note, undo)]
        for i in range(0, len(more), 2):
            calls += [more[i], functools.partial(note, more[i + 1])]
        at_once(calls)
