"""Building in threads, forked processes, tasks and generators, in any order: nothing is lost or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import random
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base import locks
from stopgrad.graph.builder import current
from stopgrad.graph.verify import verify

pytestmark = pytest.mark.slow

# ----------------------------------------------------------------------------------------------- forks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
# Python from 3.12 on, and JAX where it has been imported, warn of it.
forks_with_threads = pytest.mark.filterwarnings("ignore:.*fork")


def in_child(work: Callable[[], None], seconds: float = 20.0) -> None:
    """Run a piece of work in a forked process; it must end well, and in time."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(seconds))  # Ends the child with no more ado.
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
@forks_with_threads
def test_a_child_forked_while_other_threads_build_builds_too() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
    done = threading.Event()

    def build(i: int) -> None:
        k = 0
        while not done.is_set():
            with graph.as_default(), sg.name_scope(f"t{i}"):
                sg.exp(x, name=f"y{k % 7}")
                sg.gradients(sg.sin(x), x)
            k += 1

    def work() -> None:
        with graph.as_default(), sg.name_scope("child"):
            y = sg.exp(x, name="y")
        assert graph.operation(y.op.name) is y.op
        assert sg.gradients(y, x)[0] is not None
        verify(graph)

    threads = [threading.Thread(target=build, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            in_child(work)
    finally:
        done.set()
        for thread in threads:
            thread.join()


@needs_fork
@forks_with_threads
def test_the_lock_is_not_held_in_a_child_by_a_thread_that_it_has_not() -> None:
    """Whoever holds it lets go of it before the fork."""
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.LOCK:
            held.set()
            forked.wait(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work() -> None:
        assert locks.LOCK.acquire(timeout=5)

    in_child(work)
    forked.set()
    thread.join()


@needs_fork
@forks_with_threads
def test_a_child_asks_for_a_gradient_that_another_thread_was_asking_for() -> None:
    asking, forked = threading.Event(), threading.Event()
    parent = os.getpid()

    def pull(g: Any) -> Any:
        if os.getpid() == parent:
            asking.set()
            forked.wait(20)
        return g * 3.0

    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        y = sg.custom_gradient(lambda a: (a * 2.0, pull))(x)
    thread = threading.Thread(target=lambda: sg.gradients(y, x))
    thread.start()
    asking.wait()

    def work() -> None:
        assert sg.gradients(y, x)[0] is not None

    try:
        in_child(work)
    finally:
        forked.set()
        thread.join()
    verify(graph)


# ------------------------------------------------------------------------------------------ any order


class Walk:
    """Blocks that are begun and ended in a random order, by hand, in generators and in exit stacks."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.graph = sg.Graph()
        with self.graph.as_default():
            self.x = sg.placeholder(sg.float32, name="x")
        self.running: list[Callable[[], None]] = []

    def block(self) -> Any:
        kind = self.chosen.randrange(3)
        if kind == 0:
            return self.graph.as_default()
        if kind == 1:
            return sg.Scope(self.graph).with_sub_scope(f"s{self.chosen.randrange(3)}")
        return sg.no_gradient()

    def begin(self) -> None:
        block, kind = self.block(), self.chosen.randrange(4)
        if kind == 0:
            block.__enter__()
            self.running.append(lambda: block.__exit__(None, None, None))
        elif kind == 1:
            stack = contextlib.ExitStack()
            stack.enter_context(block)
            self.running.append(stack.close)
        else:
            generator = self.suspended(block)
            next(generator)
            self.running.append(generator.close if kind == 2 else lambda: None)

    def suspended(self, block: Any) -> Iterator[None]:
        with block:
            sg.exp(self.x)
            yield

    def end(self) -> None:
        work = self.running.pop(self.chosen.randrange(len(self.running)))
        if self.chosen.random() < 0.2:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
            thread.start()
            thread.join()
        else:
            work()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.running and self.chosen.random() < 0.5:
                self.end()
            else:
                self.begin()
            sg.sin(self.x)
        while self.running:
            self.end()


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(12, 30))]
)
def test_blocks_that_end_in_any_order_leave_nothing(seed: int) -> None:
    walk = Walk(seed)
    before = current()
    walk.run(40)
    gc.collect()
    assert current() is before
    assert sg.gradients(sg.exp(walk.x), walk.x)[0] is not None
    assert isinstance(sg.exp(1.0), np.ndarray)
    verify(walk.graph)


def test_a_block_ends_though_its_exit_never_ran() -> None:
    """A with statement that is left by force: its frame is gone, and so is the block."""
    graph = sg.Graph()

    def user() -> Iterator[None]:
        with graph.as_default():
            yield

    running = user()
    next(running)
    assert current().graph is graph
    del running
    assert current().graph is None


@pytest.mark.parametrize("make", [lambda g: g.as_default(), lambda g: sg.Scope(g, "a/")])
def test_a_graph_is_let_go_of_when_its_block_ends(make: Callable[[sg.Graph], Any]) -> None:
    graph = sg.Graph()
    with make(graph):
        sg.gradients(sg.exp(sg.placeholder(sg.float32)), [])
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_an_exception_that_is_kept_keeps_no_block_going() -> None:
    graph = sg.Graph()
    kept: list[BaseException] = []
    try:
        with graph.as_default(), sg.name_scope("a"), sg.no_gradient():
            x = sg.placeholder(sg.float32, [3])
            sg.add(x, sg.ones([4]))
    except sg.ShapeError as error:
        kept.append(error)
        assert current().graph is None
        assert current().prefix == ""
    assert current().region is None
    assert kept


def test_tasks_that_are_cancelled_leave_no_block() -> None:
    graph = sg.Graph()

    async def task(i: int) -> None:
        with graph.as_default(), sg.name_scope(f"t{i}"):
            x = sg.placeholder(sg.float32)
            while True:
                sg.exp(x)
                await asyncio.sleep(0)

    async def main() -> None:
        tasks = [asyncio.create_task(task(i)) for i in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
            assert current().graph is None
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert current().graph is None

    asyncio.run(main())
    assert {op.name.split("/")[0] for op in graph.operations} == {f"t{i}" for i in range(5)}


# --------------------------------------------------------------------------------- threads that fail


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_build_and_fail_and_are_interrupted_lose_nothing_of_each_other(seed: int) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        wrong = sg.placeholder(sg.float32, [4], name="wrong")
    kept: list[list[tuple[sg.Operation, str]]] = [[], []]
    errors: list[BaseException] = []
    done = threading.Event()

    def build(i: int) -> None:
        for k in range(250):
            with graph.as_default(), sg.name_scope(f"t{i}"):
                y = sg.exp(x, name=f"y{k}") * float(k % 5)
                (g,) = sg.gradients(y, [x])
            kept[i] += [(y.op, y.op.name), (g.op, g.op.name)]

    def fail() -> None:
        while not done.is_set():
            with contextlib.suppress(sg.ShapeError):
                sg.softmax_cross_entropy_with_logits(wrong, x * 2.0)
            with contextlib.suppress(KeyboardInterrupt):
                sg.grad(interrupted)(x)

    def interrupted(a: Any) -> Any:
        with sg.name_scope("lost"):
            sg.exp(a, name="lost")
            raise KeyboardInterrupt

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    works: list[Callable[[], None]] = [lambda: build(0), lambda: build(1), fail, fail]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    done.set()
    for thread in threads[2:]:
        thread.join()
    sys.setswitchinterval(interval)
    assert errors == []
    everything = [one for ones in kept for one in ones]
    assert len(everything) == 1000
    assert [name for op, name in everything if graph.operation(name) is not op or op.name != name] == []
    assert len({op.name for op in graph.operations}) == len(graph)
    verify(graph)
