"""Threads that share a computation in pieces with the thread that asks for it.

The caller computes pieces itself, and others only help: a computation ends whether they come or not, so that
computations may run inside of pieces, in several threads at once, and where no thread can be started.

Low-level threads and locks, because an interrupt can leave those of ``concurrent.futures``, which are written
in Python, held for ever (see :class:`stopgrad.base.locks.Moment`).
"""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue

from stopgrad.base.locks import LOCK, Moment, holding

VARIABLE = "OMP_NUM_THREADS"
"""The environment variable that limits the threads of numerical libraries."""
MOST = 8
"""The most threads, unless the environment asks for more: between two operations only one of them can run."""


def most_threads() -> int:
    """How many threads a computation may have, with the caller: the processors that this process may use.

    Eight at most. ``OMP_NUM_THREADS`` in the environment says otherwise. Launchers of many processes set it.

    Examples:
        >>> most_threads() >= 1
        True
    """
    first = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    try:
        processors = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # Not on this system.
        processors = os.cpu_count() or 1
    return min(processors, MOST)


def spread(work: Callable[[int], object], count: int, threads: int) -> None:
    """Call *work* with each number below *count*, in several *threads* and in the caller's context.

    Returns when all is done. After an error or an interrupt no piece is begun, and it is raised when those
    under way have ended: of several errors that of the first piece, as one thread would raise it.

    Examples:
        >>> squares = [0] * 5
        >>> def work(i):
        ...     squares[i] = i * i
        >>> spread(work, 5, threads=2)
        >>> squares
        [0, 1, 4, 9, 16]
    """
    shared = _Shared(work, count)
    helpers = [_Helper(shared, copy_context()) for _ in range(min(threads, count) - 1)]
    try:
        _POOL.ask(helpers)
        shared.take()
    finally:
        _end(shared, helpers)
    shared.check()


class _Shared:
    """Pieces that several threads take."""

    def __init__(self, work: Callable[[int], object], count: int) -> None:
        self._work = work
        self._left = deque(range(count))
        self._errors: dict[int, BaseException] = {}

    def take(self) -> None:
        """Compute pieces until none is left. An exception that is no error ends it."""
        with suppress(IndexError):
            while True:
                i = self._left.popleft()
                try:
                    self._work(i)
                except Exception as error:
                    self._errors[i] = error
                    self.stop()

    def stop(self, because: BaseException | None = None) -> None:
        """Begin no more pieces, *because* of an exception that goes before all errors."""
        self._left.clear()
        if because is not None:
            self._errors[-1] = because

    def check(self) -> None:
        """Raise what went wrong first."""
        if self._errors:
            first = self._errors[min(self._errors)]
            self._errors.clear()  # The error has frames that have this object.
            raise first


class _Helper:
    """A thread's part in a computation, if one comes before it is over.

    Attributes:
        ended: when it is no longer at work.
    """

    def __init__(self, shared: _Shared, context: Context) -> None:
        self._shared: _Shared | None = shared
        self._context = context
        self._who: dict[None, str] = {}
        self.ended = Moment()

    def help(self) -> None:
        """Take part, unless it was called off."""
        shared = self._shared
        if shared is not None and self._who.setdefault(None, "helper") == "helper":
            try:
                self._context.run(shared.take)
            except BaseException as error:
                shared.stop(error)
            finally:
                del shared
                self.ended.set()

    def call_off(self) -> None:
        """Nobody may take part any more. Returns when nobody does."""
        if self._who.setdefault(None, "nobody") == "helper":
            self.ended.wait()
        self._shared = None


def _end(shared: _Shared, helpers: list[_Helper]) -> None:
    """Wait until nobody computes. Interrupts are kept until then."""
    interrupt: BaseException | None = None
    while True:
        try:
            shared.stop()
            for helper in helpers:
                helper.call_off()
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


class _Pool:
    """The threads of this process, which wait for computations. They are started when they are needed."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Helper | None] = SimpleQueue()
        self._ends: list[Moment] = []
        self._closed: bool | None = None
        """None until it is known, when the first thread is to be started."""

    def ask(self, helpers: list[_Helper]) -> None:
        """Let threads help. Where none can be started, nobody does."""
        if len(self._ends) < len(helpers):
            holding(LOCK, self._grow, len(helpers))
        for helper in helpers[: len(self._ends)]:
            self._tasks.put(helper)

    def _grow(self, count: int) -> None:
        with suppress(RuntimeError):  # There are too many, or none at all (Pyodide), or the program ends.
            if self._closed is None:
                # Before Python ends, as concurrent.futures does it.
                getattr(threading, "_register_atexit", lambda _: None)(_close)
                self._closed = not _is_main_interpreter()
            while len(self._ends) < count and not self._closed:
                ended = Moment()
                _thread.start_new_thread(self._serve, (ended,))
                self._ends.append(ended)

    def _serve(self, ended: Moment) -> None:
        while (helper := self._tasks.get()) is not None:
            helper.help()
            del helper  # Else it would be kept until the next one.
        self._tasks.put(None)  # For the others.
        ended.set()

    def close(self) -> None:
        """End all threads."""
        self._closed = True
        self._tasks.put(None)
        for ended in self._ends:
            ended.wait()
        self._ends.clear()


_POOL = _Pool()


def _is_main_interpreter() -> bool:
    """Whether this is no interpreter inside another, which could not be ended while it has threads."""
    own, main = [getattr(ctypes.pythonapi, f"PyInterpreterState_{name}", None) for name in ("Get", "Main")]
    if own is None or main is None:  # Not CPython.
        return True
    own.restype = main.restype = ctypes.c_void_p
    return bool(own() == main())


def _close() -> None:
    _POOL.close()


def _forked() -> None:
    """A child has none of the threads."""
    global _POOL
    _POOL = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
