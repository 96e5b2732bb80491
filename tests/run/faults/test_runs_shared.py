"""One session used from several sides: threads, signal handlers, callbacks, tasks."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine
from fault_tools import Counting, whole

import stopgrad as sg

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(seconds: float, *workers: Callable[[], Any]) -> list[int]:
    """How often each worker was called, in threads side by side. An error in one of them is raised."""
    counts, errors, end = [0] * len(workers), [], time.monotonic() + seconds

    def work(i: int) -> None:
        try:
            while time.monotonic() < end and not errors:
                workers[i]()
                counts[i] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return counts


def share(engine: str, tmp_path: Path, seconds: float) -> list[int]:
    c, seen = Counting(2_000), []
    with sg.Session(c.graph, engine=engine) as session, sg.Session(c.graph, engine=engine) as other:
        start = tmp_path / "start.safetensors"
        session.save(start)

        def run() -> None:
            steps, total = c.step(session)
            assert whole(steps) == total - 3
            seen.append((steps[1], total - 3))

        def save() -> None:
            path = tmp_path / f"{threading.get_ident()}.safetensors"
            session.save(path)
            c.saved(path)

        def value() -> None:
            whole([session.value(c.parameters[1])])

        def fetch() -> None:
            whole(session.run(c.parameters))

        def restore() -> None:
            session.restore(start)
            time.sleep(0.01)

        counts = together(seconds, run, run, save, value, fetch, restore, lambda: c.step(other))
        c.count(session)
        assert c.count(other) == counts[-1]
    for array, expected in seen:  # What was handed out stays as it was.
        assert (array == expected).all()
    return counts


@each_engine
def test_runs_saves_values_and_restores_side_by_side_see_whole_states(engine: str, tmp_path: Path) -> None:
    assert min(share(engine, tmp_path, 1.5)) > 2


@pytest.mark.nightly
@each_engine
def test_threads_share_a_session_for_minutes(engine: str, tmp_path: Path) -> None:
    for _ in range(20):
        assert min(share(engine, tmp_path, 6.0)) > 10


@each_engine
def test_no_step_is_lost_between_threads(engine: str) -> None:
    c = Counting()
    with sg.Session(c.graph, engine=engine) as session:
        counts = together(0.5, *[lambda: c.step(session)] * 4)
        assert c.count(session) == sum(counts)


@each_engine
def test_a_session_closed_while_others_run_is_closed(engine: str) -> None:
    for _ in range(20 if engine == "numpy" else 3):
        c = Counting()
        session = sg.Session(c.graph, engine=engine)
        c.step(session)
        closed: list[BaseException] = []

        def run(c: Counting = c, session: sg.Session = session, closed: list[Any] = closed) -> None:
            try:
                while True:
                    c.step(session)
            except sg.GraphError as error:
                closed.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.002)
        session.close()
        for thread in threads:
            thread.join(30)
        assert len(closed) == 3
        assert all("closed" in str(error) for error in closed)
        assert not session._state.values
        with pytest.raises(sg.GraphError, match="closed"):
            session.value(c.parameters[0])


# ------------------------------------------------------------------------------- inside a run


def calling_back(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> tuple[Counting, sg.Output]:
    """A graph whose Exp calls *act* while it runs on numpy."""
    c = Counting()
    with c.graph.as_default():
        y = sg.exp(c.parameters[2] * 0.0)

    def lower(xp: Any, x: Any) -> Any:
        act()
        return xp.exp(x)

    monkeypatch.setattr(sg.ops.Exp, "numpy", staticmethod(lower), raising=False)
    return c, y


def test_a_callback_sees_the_values_from_before_and_may_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def act() -> None:
        seen.append(c.count(session))
        session.save(tmp_path / "inside.safetensors")
        for forbidden in (lambda: c.step(session), lambda: session.restore(tmp_path / "inside.safetensors")):
            with pytest.raises(sg.GraphError, match="inside a run of this session") as caught:
                forbidden()
            assert "save" in str(caught.value)

    c, y = calling_back(monkeypatch, act)
    with sg.Session(c.graph, engine="numpy") as session:
        session.run([c.steps, y], {c.by: 1.0})
        session.run([c.steps, y], {c.by: 1.0})
        assert seen == [0, 1]
        assert c.count(session) == 2
        assert c.saved(tmp_path / "inside.safetensors") == 1


def test_a_callback_may_run_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    c, y = calling_back(monkeypatch, lambda: c.step(other) if session is not None else None)
    with sg.Session(c.graph, engine="numpy") as session, sg.Session(c.graph, engine="xla") as other:
        session.run([c.steps, y], {c.by: 1.0})
        assert (c.count(session), c.count(other)) == (1, 1)


def test_a_session_closed_inside_its_run_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    c, y = calling_back(monkeypatch, lambda: session.close())
    session = sg.Session(c.graph, engine="numpy")
    with pytest.raises(sg.GraphError, match="closed before"):
        session.run([c.steps, y], {c.by: 1.0})
    assert not session._state.values


@each_engine
def test_a_signal_handler_sees_whole_states_and_its_runs_are_refused_or_come_between(
    engine: str, tmp_path: Path
) -> None:
    c, refused, between = Counting(), [], []

    def handler(*_: Any) -> None:
        before = c.count(session)
        session.save(tmp_path / "handler.safetensors")
        assert c.saved(tmp_path / "handler.safetensors") == before
        try:
            c.step(session)
        except sg.GraphError as error:
            refused.append((str(error), c.count(session) == before))
        else:
            between.append(before)
        if ringing:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 3e-3))

    steps, ringing = 0, True
    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        steps += 1
        old = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
            end = time.monotonic() + 10
            while len(refused) < 15 and time.monotonic() < end:
                c.step(session)
                steps += 1
        finally:
            ringing = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        assert c.count(session) == steps + len(between)
        assert refused
        assert all("signal handler" in text and unchanged for text, unchanged in refused)


# ---------------------------------------------------------------------------------- tasks


@each_engine
def test_tasks_share_a_session(engine: str) -> None:
    c = Counting()

    async def work(session: sg.Session, in_thread: bool) -> None:
        for _ in range(20):
            if in_thread:
                await asyncio.to_thread(c.step, session)
            else:
                c.step(session)
                await asyncio.sleep(0)
            whole(session.run(c.parameters))

    async def main(session: sg.Session) -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for i in range(6):
                group.create_task(work(session, in_thread=i % 2 == 0))

    with sg.Session(c.graph, engine=engine) as session:
        asyncio.run(main(session))
        assert c.count(session) == 120


@each_engine
def test_a_cancelled_task_leaves_a_whole_state(engine: str) -> None:
    c = Counting()

    async def main(session: sg.Session) -> None:
        for _ in range(10):
            task = asyncio.create_task(asyncio.to_thread(c.step, session))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            c.step(session)

    with sg.Session(c.graph, engine=engine) as session:
        asyncio.run(main(session))
        assert 10 <= c.count(session) <= 20


def test_threads_share_a_function_with_a_small_cache() -> None:
    f = sg.function(lambda x: sg.reduce_sum(x * x), engine="numpy", cache_size=2)
    x = [np.full(n, 2.0) for n in range(1, 6)]

    def call() -> None:
        for n, value in enumerate(x, 1):
            assert f(value) == 4.0 * n

    with pytest.warns(UserWarning, match="compiled for 2 signatures"):
        together(0.5, *[call] * 4)
    assert f.traces == 2
