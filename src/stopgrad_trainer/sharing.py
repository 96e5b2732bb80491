"""Calls of C that several threads make, of which no handler of a signal sees a part."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

Call = tuple[Any, ...]
"""A function and its arguments."""


class Calls:
    """Calls that are all made, by several threads, within one call of C of the thread that asks for it.

    Handlers of signals run between lines of Python. They see that no call has been made, or all of them.

    Args:
        calls: in any order.
        last: those that are made after all others.
        threads: how many, with the one that asks.
    """

    def __init__(self, calls: Sequence[Call] = (), last: Sequence[Call] = (), threads: int = 1) -> None:
        self._calls, self._count = iter(calls), len(calls)
        self._helpers = [_Helper(self._calls) for _ in range(min(threads, len(calls)) - 1)]
        self._ended: list[bool] = []
        self._all = [
            *[helper.begin() for helper in self._helpers],
            _calling(self._calls),
            *[helper.wait() for helper in self._helpers],
            *last,
            (self._ended.append, True),
        ]

    def make(self) -> None:
        """Make them.

        Raises:
            BaseException: one of them has raised it.
        """
        try:
            for helper in self._helpers:
                helper.start()
            _make(self._all)
        finally:
            for helper in self._helpers:
                helper.stop()
        for error in [error for helper in self._helpers for error in helper.errors]:
            raise error

    @property
    def torn(self) -> bool:
        """Whether some have been made, and others not, since one has failed."""
        begun = operator.length_hint(self._calls) < self._count
        return begun and not (self._ended and not any(helper.errors for helper in self._helpers))


def _calling(calls: Any) -> Call:
    """The call that makes calls, without a line of Python."""
    return (deque, starmap(operator.call, calls), 0)


def _make(calls: Any) -> None:
    function, *arguments = _calling(calls)
    function(*arguments)


class _Helper:
    """A thread that takes calls from an iterator, once it may.

    Attributes:
        errors: what a call has raised.
    """

    def __init__(self, calls: Iterator[Call]) -> None:
        self._calls = calls
        self._may_begin, self._works = threading.Lock(), threading.Lock()
        self._may_begin.acquire()
        self._works.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.errors: list[BaseException] = []

    def start(self) -> None:
        """Start the thread; it waits until it may begin."""
        self._thread.start()

    def begin(self) -> Call:
        """The call that lets it begin."""
        return (self._may_begin.release,)

    def wait(self) -> Call:
        """The call that waits for its end.

        While Python waits for a lock, handlers of signals run. So this asks for the lock again and again, and
        lets others run while NumPy copies. It is short, since all take their calls from one iterator.
        """
        target, source = np.zeros((2, 4096), np.float32)
        others_run = iter(partial(np.copyto, target, source), True)
        ended = iter(partial(self._works.acquire, False), True)
        return (deque, zip(others_run, ended, strict=False), 0)

    def stop(self) -> None:
        """Let it end without a call if it has not begun; else wait for its end."""
        if self._may_begin.locked():
            self._calls = iter(())
            self._may_begin.release()
        elif self._works.locked() and self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._may_begin.acquire()
            _make(self._calls)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._works.release()
