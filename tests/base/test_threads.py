"""Computations that threads share."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from contextvars import ContextVar
from typing import Any

import pytest

from stopgrad.base import threads
from stopgrad.base.threads import most_threads, spread

WAIT = 20.0
"""Seconds after which a test gives up."""


@pytest.mark.parametrize(("count", "most"), [(0, 3), (1, 3), (2, 1), (7, 3), (100, 4)])
def test_each_piece_is_computed_once(count: int, most: int) -> None:
    seen: Counter[int] = Counter()
    spread(lambda i: seen.update([i]), count, most)
    assert seen == Counter(range(count))


def test_pieces_are_computed_at_the_same_time() -> None:
    together = threading.Barrier(3)
    spread(lambda _: together.wait(WAIT), 3, 3)


def test_one_thread_computes_in_order_and_in_the_caller() -> None:
    seen: list[tuple[int, int]] = []
    spread(lambda i: seen.append((i, threading.get_ident())), 5, 1)
    assert seen == [(i, threading.get_ident()) for i in range(5)]


def test_helpers_have_the_callers_context() -> None:
    setting: ContextVar[str] = ContextVar("setting")
    setting.set("the caller's")
    together, seen = threading.Barrier(2), []

    def work(i: int) -> None:
        together.wait(WAIT)
        seen.append(setting.get("none"))

    spread(work, 2, 2)
    assert seen == ["the caller's"] * 2


def test_the_error_of_the_first_piece_is_raised_when_nobody_computes() -> None:
    together, busy, begun = threading.Barrier(2), [0], []

    def work(i: int) -> None:
        begun.append(i)
        busy[0] += 1
        try:
            if i < 2:
                together.wait(WAIT)
                time.sleep(0.02 * (1 - i))  # The first piece fails last.
                raise ValueError(i)
        finally:
            busy[0] -= 1

    with pytest.raises(ValueError, match="0"):
        spread(work, 50, 2)
    assert busy == [0]
    assert sorted(begun) == [0, 1]


@pytest.mark.parametrize("where", ["computing", "waiting"])
def test_an_interrupt_ends_it_when_nobody_computes(where: str) -> None:
    main, together, ended, begun = threading.main_thread(), threading.Barrier(2), [], []

    def work(i: int) -> None:
        begun.append(i)
        together.wait(WAIT)
        if threading.current_thread() is main:
            if where == "computing":
                raise KeyboardInterrupt
            return
        time.sleep(0.02)  # The caller waits by now, if it was not interrupted.
        if where == "waiting":
            _thread.interrupt_main()
            time.sleep(0.02)
        ended.append(i)

    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            spread(work, 2 if where == "waiting" else 50, 2)
    finally:
        signal.signal(signal.SIGINT, kept)
    assert len(ended) == 1
    assert len(begun) == 2
    test_pieces_are_computed_at_the_same_time()


def test_what_ends_a_helper_ends_the_computation() -> None:
    together, caller = threading.Barrier(2), threading.get_ident()

    def work(i: int) -> None:
        if i < 2:
            together.wait(WAIT)
        if threading.get_ident() != caller:
            raise SystemExit(3)
        time.sleep(0.01)

    with pytest.raises(SystemExit):
        spread(work, 1000, 2)
    test_pieces_are_computed_at_the_same_time()


def test_computations_inside_of_pieces_and_in_several_threads_end() -> None:
    seen: Counter[tuple[int, ...]] = Counter()

    def outer(i: int) -> None:
        spread(lambda j: spread(lambda k: seen.update([(i, j, k)]), 3, 3), 3, 3)

    users = [threading.Thread(target=spread, args=(outer, 4, 3), daemon=True) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join(WAIT)
        assert not user.is_alive()
    assert len(seen) == 36
    assert set(seen.values()) == {4}


def test_without_threads_the_caller_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_POOL", threads._Pool())
    monkeypatch.setattr(_thread, "start_new_thread", none)
    test_each_piece_is_computed_once(7, 3)


def test_threads_are_as_many_as_asked_for_once() -> None:
    pool = threads._Pool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_POOL", pool)
        for _ in range(20):
            spread(lambda _: time.sleep(0.0001), 6, 3)
        assert len(pool._ends) == 2
        pool.close()
        test_each_piece_is_computed_once(7, 3)


def test_nothing_that_was_computed_with_is_kept() -> None:
    class Data:
        pass

    data = Data()
    gone = weakref.ref(data)

    def work(i: int, data: Any = data) -> None:
        time.sleep(0.001)

    spread(work, 8, 3)
    del data, work
    deadline = time.monotonic() + WAIT
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert gone() is None


@pytest.mark.parametrize(("text", "count"), [("3", 3), (" 20,1 ", 20), ("1", 1)])
def test_the_environment_says_how_many_threads(monkeypatch: Any, text: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert most_threads() == count


@pytest.mark.parametrize("text", ["", "many", "0", "-1"])
def test_otherwise_the_processors_of_this_process_count(monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert most_threads() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert most_threads() == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert most_threads() == 1


def printed(program: str, ignored: str = "ignore::DeprecationWarning") -> list[str]:
    """The words that a program prints, which ends well and complains of nothing."""
    command = [sys.executable, "-W", ignored, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.split()


PROGRAM = """
import os, threading, _thread
assert _thread._count() == 0
from stopgrad.base.threads import spread
assert _thread._count() == 0
def both():
    together = threading.Barrier(2)
    spread(lambda _: together.wait(10.0), 2, 2)
both()
if hasattr(os, "fork"):
    child = os.fork()
    both()
    if child:
        assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_have_threads_of_their_own_and_programs_end() -> None:
    assert printed(PROGRAM) == ["done"] * 2


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module has another name")
def test_an_interpreter_inside_another_starts_no_threads_and_ends() -> None:
    program = """
import _xxsubinterpreters as interpreters
inner = interpreters.create(isolated=False)
interpreters.run_string(inner, '''
import threading, _thread
from stopgrad.base.threads import spread
before, seen = _thread._count(), []
spread(seen.append, 20, 3)
assert seen == list(range(20)) and _thread._count() == before
print("computed")
''')
interpreters.destroy(inner)
print("done")
"""
    assert printed(program, "ignore") == ["computed", "done"]
