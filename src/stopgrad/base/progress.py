"""Tells on a terminal or in a notebook that something takes long, while it does.

Nothing is shown for what takes less than two seconds, in pipes, or if the environment forbids it. A low-level
thread shows it: an interrupt cannot leave it half started, as it can one of the module ``threading``. It ends
by itself as soon as the code that it tells about is no longer running, however that ended.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from stopgrad.base.namespaces import require
from stopgrad.base.notebooks import shell

VARIABLE = "STOPGRAD_PROGRESS"
"""The environment variable that, as ``0``, switches this off."""
AFTER, EVERY = 2.0, 0.1
"""The seconds after which it is shown, and those between two looks."""
_SHOWING = threading.Lock()
"""Held while one is shown. What happens inside of it is not told as well."""


class Progress:
    """A context in which something happens that may take long.

    Args:
        what: what happens, as ``"compiling loss"``.
        total: the number of its steps, each of which calls :meth:`step`; None if that is not known.

    Examples:
        >>> with Progress("reading", total=2) as progress:
        ...     for _ in range(2):
        ...         progress.step()
    """

    __slots__ = ("_done", "_gone", "_shown", "steps", "total", "what")

    what: str
    total: int | None
    steps: int

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total, self.steps = what, total, 0
        self._done: threading.Event | None = None
        self._gone = threading.Event()
        self._shown = False

    def step(self) -> None:
        """One step is done."""
        self.steps += 1

    def __enter__(self) -> Progress:
        if is_watched():
            self._done = threading.Event()
            with suppress(RuntimeError):  # There are too many threads: then nothing is told.
                _thread.start_new_thread(self._tell, (threading.get_ident(), sys._getframe(1)))
        return self

    def __exit__(self, *_: object) -> None:
        if self._done is not None:
            self._done.set()
            if self._shown:  # What is printed next comes after it is gone.
                self._gone.wait(1.0)

    def _tell(self, thread: int, frame: FrameType) -> None:
        done = self._done
        if done is None or done.wait(AFTER) or not _SHOWING.acquire(blocking=False):
            return
        try:
            self._shown = True
            # Whatever goes wrong with a display must not disturb the program.
            with suppress(Exception), _display(self) as show:
                while not done.wait(EVERY) and _is_running(thread, frame):
                    show()
        finally:
            _SHOWING.release()
            self._gone.set()


def is_watched() -> bool:
    """Whether somebody sees what is written to standard error, or the output of a notebook's cell."""
    if os.environ.get(VARIABLE) == "0":
        return False
    terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return terminal or getattr(shell(), "kernel", None) is not None


def _is_running(thread: int, frame: FrameType) -> bool:
    """Whether a thread is still inside of a frame: it has not been left by an interrupt."""
    current = sys._current_frames().get(thread)
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


@contextmanager
def _display(task: Progress) -> Iterator[Any]:
    """A context in which a line is shown; its value draws it anew."""
    if getattr(shell(), "kernel", None) is not None:
        shown = sys.modules["IPython"].display.display({"text/plain": ""}, raw=True, display_id=True)
        start = time.monotonic() - AFTER
        try:
            yield lambda: shown.update({"text/plain": _line(task, time.monotonic() - start)}, raw=True)
        finally:
            shown.update({"text/plain": ""}, raw=True)
        return
    rich = require("rich.progress", "progress")
    columns = [rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False)]
    columns += [rich.BarColumn(), rich.MofNCompleteColumn()] if task.total else []
    console = require("rich.console", "progress").Console(stderr=True)
    streams = {"redirect_stdout": False, "redirect_stderr": False}
    with rich.Progress(
        *columns, rich.TimeElapsedColumn(), console=console, transient=True, auto_refresh=False, **streams
    ) as progress:
        row = progress.add_task(task.what, total=task.total)
        progress.tasks[0].start_time -= AFTER

        def show() -> None:
            progress.update(row, completed=task.steps)
            progress.refresh()

        yield show


def _line(task: Progress, seconds: float) -> str:
    """What a notebook shows.

    Examples:
        >>> _line(Progress("checking", total=4), 65.0)
        'checking: 0 of 4, 1:05'
    """
    steps = f" {task.steps} of {task.total}," if task.total else ""
    return f"{task.what}:{steps} {int(seconds) // 60}:{int(seconds) % 60:02}"
