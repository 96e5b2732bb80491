"""Fixtures of the tests of faults."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fault_tools import Interrupt


@pytest.fixture
def alarm() -> Iterator[Callable[[float, Callable[[], Any]], bool]]:
    """Calls a function, and interrupts it by a real signal after some seconds; says if it was in time."""
    armed = False

    def interrupt(*_: Any) -> None:
        if armed:  # The kernel may hand the signal to another thread, and late.
            raise Interrupt

    def call(seconds: float, function: Callable[[], Any]) -> bool:
        nonlocal armed
        try:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds)
                function()
            finally:
                armed = False
        except Interrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, interrupt)
    yield call
    signal.signal(signal.SIGALRM, before)
