"""Progress on a pseudo-terminal, and its absence everywhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

from stopgrad.base import progress
from stopgrad.base.progress import VARIABLE, Progress, is_watched

pty = pytest.importorskip("pty", reason="pseudo-terminals are of POSIX")


class Watched:
    """A display that notes what it was asked to show."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []
        self.open = False
        self.many = 0

    def __call__(self, task: Progress) -> Watched:
        self.task = task
        return self

    def __enter__(self) -> Any:
        self.open = True
        self.many += 1
        return lambda: self.seen.append((self.task.what, self.task.steps, self.task.total))

    def __exit__(self, *_: object) -> None:
        self.open = False

    def until(self, condition: Any) -> None:
        end = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched()
    monkeypatch.setattr(progress, "_display", found)
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "EVERY", 0.005)
    return found


def test_what_takes_long_is_shown_with_its_steps_until_it_is_done(display: Watched) -> None:
    with Progress("checking", total=3) as task:
        task.step()
        display.until(lambda: ("checking", 1, 3) in display.seen)
        task.step()
        display.until(lambda: ("checking", 2, 3) in display.seen)
    assert not display.open


def test_what_is_quick_is_not_shown(display: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.2)
    for _ in range(3):
        with Progress("quick"):
            pass
    time.sleep(0.3)
    assert display.many == 0


def test_of_nested_ones_the_outer_is_shown(display: Watched) -> None:
    with Progress("outer"):
        display.until(lambda: display.seen)
        with Progress("inner"):
            time.sleep(0.1)
    assert {what for what, _, _ in display.seen} == {"outer"}
    with Progress("next"):
        display.until(lambda: display.seen[-1][0] == "next")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_or_an_interrupt_ends_it(display: Watched, error: type[BaseException]) -> None:
    with pytest.raises(error), Progress("interrupted"):  # noqa: PT012
        display.until(lambda: display.open)
        raise error
    assert not display.open
    assert not progress._SHOWING.locked()


def test_it_ends_where_its_exit_never_ran(display: Watched) -> None:
    def left() -> Progress:
        task = Progress("left")
        task.__enter__()  # And an interrupt comes before the "with" statement can end it.
        display.until(lambda: display.open)
        return task

    task = left()
    display.until(lambda: not display.open)
    assert task._gone.wait(5.0)


def test_a_display_that_fails_disturbs_nothing(display: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task: Progress) -> Any:
        raise RuntimeError("no display")

    monkeypatch.setattr(progress, "_display", broken)
    with Progress("program") as task:
        time.sleep(0.1)
    assert task._gone.wait(5.0)
    assert not progress._SHOWING.locked()


def test_where_nobody_looks_no_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_watched", lambda: False)
    monkeypatch.setattr("_thread.start_new_thread", lambda *_: pytest.fail("a thread"))
    before = threading.active_count()
    with Progress("nobody", total=1) as task:
        task.step()
    assert threading.active_count() == before


def test_pipes_are_not_watched_and_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __init__(self, terminal: bool) -> None:
            self.isatty = lambda: terminal

    monkeypatch.setenv("TERM", "xterm")
    for terminal in (False, True):
        monkeypatch.setattr(sys, "stderr", Stream(terminal))
        assert is_watched() is terminal
    monkeypatch.setenv("TERM", "dumb")
    assert not is_watched()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(VARIABLE, "0")
    assert not is_watched()


# ------------------------------------------------------------------------------------- on a terminal

PROGRAM = """
    import time
    import numpy as np
    import stopgrad as sg
    from stopgrad.base import progress
    progress.AFTER = 0.05

    import stopgrad.flow.checking.check as check
    compared = check.compared
    def later(*args):
        time.sleep(0.5)
        return compared(*args)
    check.compared = later
    sg.check_gradients(lambda x: sg.reduce_sum(sg.sin(x)), np.ones(3))
    print("done")
"""


def run(terminal: bool, **environment: str) -> tuple[str, str]:
    """What a program writes to standard output, and to standard error."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    known = {**os.environ, "TERM": "xterm", **environment}
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, env=known, timeout=120, check=True)
        return done.stdout, done.stderr
    main, side = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, text=True, env=known) as process:
        os.close(side)
        written = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # The other side is closed.
                break
            if not piece:
                break
            written += piece
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(main)
    assert process.returncode == 0
    return out, written.decode()


@pytest.mark.slow
def test_a_terminal_shows_a_line_and_takes_it_away() -> None:
    out, error = run(terminal=True)
    assert out == "done\n"
    assert "checking gradients" in error
    assert re.search(r"0:00:0\d", error)
    last = error.rindex("checking gradients")
    assert "\x1b[2K" in error[last:]  # The line is erased after the last time.


@pytest.mark.slow
def test_pipes_and_the_setting_show_nothing() -> None:
    assert run(terminal=False) == ("done\n", "")
    assert run(terminal=True, STOPGRAD_PROGRESS="0") == ("done\n", "")
