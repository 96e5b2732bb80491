"""Interrupts while a session runs: the parameters are all from before or all from after, and all goes on."""

from __future__ import annotations

import dataclasses
import inspect
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import each_engine
from fault_tools import Counting, Injection, Interrupt, raise_in, settings

import stopgrad as sg

OURS = ("run/", "engines/")
Alarm = Callable[[float, Callable[[], Any]], bool]
# Python drops an exception that comes while a finalizer runs, and says so.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def still_good(c: Counting, session: sg.Session, before: float) -> float:
    """The steps made, after an interrupt of one that may have been made or not. The session goes on."""
    now = c.count(session)
    assert now in (before, before + 1)
    steps, total = c.step(session)
    assert total == 4 + now
    assert c.count(session) == now + 1
    assert all((s == now + 1).all() for s in steps)
    return now + 1


def attempts(tries: int, enough: Callable[[], bool]) -> Iterator[int]:
    """So many attempts, and more until enough have met what they were to meet: a busy machine is late."""
    for i in range(20 * tries):
        if i >= tries and enough():
            return
        yield i


def interrupted_by_signals(engine: str, alarm: Alarm, tries: int, wanted: int, seed: int) -> int:
    """How many of the runs were interrupted: more than are wanted, if that can be had."""
    random.seed(seed)
    c, hits, before = Counting(), 0, settings()
    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        span = min(seconds(lambda: c.step(session)) for _ in range(20))
        for _ in attempts(tries, lambda: hits > wanted):
            count = c.count(session)
            hits += alarm(random.uniform(1e-6, span), lambda: c.step(session))
            still_good(c, session, count)
            assert settings() == before
    return hits


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@each_engine
def test_a_signal_at_any_moment_of_a_run_leaves_a_whole_state(engine: str, alarm: Alarm) -> None:
    assert interrupted_by_signals(engine, alarm, 300, 100, seed=0) > 100


@pytest.mark.nightly
@each_engine
@pytest.mark.parametrize("seed", range(5))
def test_signals_in_10_000_runs(engine: str, alarm: Alarm, seed: int) -> None:
    assert interrupted_by_signals(engine, alarm, 10_000, 3_000, seed) > 3_000


def interrupted_while_compiling(engine: str, alarm: Alarm, tries: int, wanted: int) -> int:
    hits, c, before = 0, Counting(), settings()

    def first_run() -> float:
        with sg.Session(c.graph, engine=engine) as session:
            return seconds(lambda: c.step(session))

    span = min(first_run() for _ in range(3))  # The very first takes longer than those to come.
    for i in attempts(tries, lambda: hits > wanted):
        with sg.Session(c.graph, engine=engine) as session:
            hits += alarm(span * (i % tries + random.random()) / tries, lambda: c.step(session))
            still_good(c, session, 0)
        assert settings() == before
    return hits


@each_engine
def test_a_signal_while_a_run_is_being_compiled_leaves_nothing_half_done(engine: str, alarm: Alarm) -> None:
    assert interrupted_while_compiling(engine, alarm, 10, 3) > 3


@pytest.mark.nightly
@each_engine
def test_signals_in_500_compilations(engine: str, alarm: Alarm) -> None:
    assert interrupted_while_compiling(engine, alarm, 500, 150) > 150


def interrupted_from_another_thread(engine: str, tries: int) -> None:
    c = Counting()
    inside, caught, done = threading.Event(), threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        while not done.is_set():
            before = c.count(session)
            try:
                inside.set()
                while not done.is_set():
                    c.step(session)
                    before += 1
            except Interrupt:
                still_good(c, session, before)
                caught.set()

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            caught.set()

    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        worker = threading.Thread(target=guarded)
        worker.start()
        for _ in range(tries):
            assert inside.wait(60)
            inside.clear()
            time.sleep(random.uniform(0, 2e-3))
            raise_in(worker)
            assert caught.wait(60)
            caught.clear()
            assert not failed
        done.set()
        worker.join(60)
        assert not failed


@each_engine
def test_an_exception_from_another_thread_leaves_a_whole_state(engine: str) -> None:
    interrupted_from_another_thread(engine, 100)


@pytest.mark.nightly
@each_engine
def test_5_000_exceptions_from_another_thread(engine: str) -> None:
    interrupted_from_another_thread(engine, 5_000)


def every_place(
    act: Callable[[], Any], check: Callable[[str], None], fresh: Callable[[], None], most: int | None = None
) -> int:
    """Interrupt *act* at each place in our modules where an interrupt can come; returns how many there are.

    Where they are too many for a quick test, *most* is how many of them are tried, evenly spread.
    """
    fresh()
    act()  # What is remembered from it makes the next one shorter.
    fresh()
    counting = Injection(OURS)
    assert not counting(act)
    for at in range(0, counting.met, 1 if most is None else max(1, counting.met // most)):
        fresh()
        injection = Injection(OURS, at)
        assert injection(act), f"{at} of {counting.met} was not met"
        check(injection.place)
    return counting.met


def interrupt_runs(engine: str, compiled: bool, most: int | None = None) -> int:
    c, before = Counting(), settings()
    session = sg.Session(c.graph, engine=engine)
    c.step(session)
    count = 0.0

    def fresh() -> None:
        nonlocal session, count
        if not compiled:
            session.close()
            session = sg.Session(c.graph, engine=engine)
        count = c.count(session)

    def check(place: str) -> None:
        assert settings() == before, place
        assert not session._lock()._is_owned(), place  # type: ignore[attr-defined]
        still_good(c, session, count)

    return every_place(lambda: c.step(session), check, fresh, most)


@each_engine
def test_an_interrupt_at_every_place_of_a_run(engine: str) -> None:
    assert interrupt_runs(engine, compiled=True) > 40


@pytest.mark.parametrize(("engine", "most"), [("numpy", None), ("xla", 15)])
def test_an_interrupt_at_places_of_a_first_run(engine: str, most: int | None) -> None:
    assert interrupt_runs(engine, compiled=False, most=most) > 100


@pytest.mark.nightly
def test_an_interrupt_at_every_place_of_a_first_run_on_xla() -> None:
    assert interrupt_runs("xla", compiled=False) > 100


@each_engine
def test_an_interrupt_at_every_place_of_a_restore(engine: str, tmp_path: Path) -> None:
    c, before = Counting(), settings()
    path = tmp_path / "at_1.safetensors"
    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        session.save(path)
        step = lambda: c.step(session)

        def check(place: str) -> None:
            assert settings() == before, place
            now = c.count(session)
            assert now in (1, 2), place
            still_good(c, session, now)
            session.restore(path)

        def fresh() -> None:
            session.restore(path)
            step()

        assert every_place(lambda: session.restore(path), check, fresh) > 20


def interrupt_calls(engine: str, most: int | None = None) -> None:
    before = settings()
    x = np.arange(4.0)
    f = sg.function(lambda x, n: sg.exp(x) * n, engine=engine)
    expected = f(x, 2)

    def check(place: str) -> None:
        assert settings() == before, place
        np.testing.assert_array_equal(f(x, 2), expected, place)
        with sg.Graph().as_default() as graph:
            assert sg.constant(1.0).graph is graph
        assert type(sg.exp(0.0)) is np.ndarray

    assert every_place(lambda: f(x, 2), check, lambda: None) > 15

    def fresh() -> None:
        nonlocal f
        f = sg.function(lambda x, n: sg.exp(x) * n, engine=engine)

    assert every_place(lambda: f(x, 2), check, fresh, most) > 40


@pytest.mark.parametrize(("engine", "most"), [("numpy", None), ("xla", 10)])
def test_an_interrupt_at_places_of_a_function(engine: str, most: int | None) -> None:
    interrupt_calls(engine, most)


@pytest.mark.nightly
def test_an_interrupt_at_every_place_of_a_function_on_xla() -> None:
    interrupt_calls("xla")


def test_an_interrupt_while_a_dataclass_is_first_met() -> None:
    def first() -> Any:
        return dataclasses.make_dataclass("D", ["x"])(np.ones(2))

    def call(value: Any) -> Any:
        return sg.function(lambda d: d.x + 1.0, engine="numpy")(value)

    call(first())
    tried = 0
    value = first()
    while Injection(("base/structure.py",), tried)(lambda: call(value)):
        assert call(value).tolist() == [2.0, 2.0]
        value = first()
        tried += 1
    assert tried > 5


def test_an_interrupt_while_jax_changes_a_setting_leaves_it_as_it_was() -> None:
    """JAX sets its settings in Python, where an interrupt between the two halves would leave them changed."""
    before = settings()
    x = np.arange(4.0)  # 64 bits wide, which JAX has to be told at each call.
    f = sg.function(lambda x: sg.exp(x), engine="xla")
    expected = f(x)
    place_in_jax = inspect.getfile(type(jax.enable_x64(True)))
    counting = Injection((place_in_jax,))
    assert not counting(lambda: f(x))
    assert counting.met > 3
    for at in range(counting.met):
        injection = Injection((place_in_jax,), at)
        assert injection(lambda: f(x))
        assert settings() == before, injection.place
        np.testing.assert_array_equal(f(x), expected)
    with jax.debug_nans(True):
        during = settings()
        counting = Injection((place_in_jax,))
        counting(lambda: f(x))
        for at in range(counting.met):
            assert Injection((place_in_jax,), at)(lambda: f(x))
            assert settings() == during
    assert settings() == before
