"""A watch that is interrupted, or left in another way than by its end, leaves PyTorch as it was."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from fault_tools import Injection
from torch import nn

import stopgrad.torch as sgt
from stopgrad.interop.shared import lifetimes
from stopgrad.interop.torch.recording import switches

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Of weak sets.

FILES = ("interop/torch", "graph/builder.py")
X = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    with sgt.watch():
        pass  # PyTorch is patched once for the process.
    yield
    assert torch._C._len_torch_function_stack() == 0


def state() -> tuple[object, ...]:
    """What a watch changes, and what an end of it that does not run would leave."""
    modules: Any = nn.modules.module
    return (
        torch._C._len_torch_function_stack(),
        tuple(modules._global_forward_pre_hooks),
        tuple(switches._RUNNING.recorders),
        tuple(lifetimes._LIVING),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        nn.Module.__call__,
        nn.Parameter.__dict__["__new__"],
        torch.compile,
        *[vars(torch.inference_mode)[name] for name in ("__enter__", "__exit__")],
    )


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_interrupt_anywhere_in_a_watch_leaves_pytorch_as_it_was(stride: int) -> None:
    model = nn.Linear(4, 4)

    def watched() -> None:
        with sgt.watch():
            with torch.no_grad():
                model(X)
            model(X).sum().backward()

    before = state()
    places = Injection(FILES)
    places(watched)
    assert places.met > 300
    for at in range(0, places.met, stride):
        injection = Injection(FILES, at)
        with contextlib.suppress(AssertionError):
            injection(watched)
        torch.set_grad_enabled(True)  # no_grad of PyTorch's own is not ours to leave.
        assert state() == before, injection.place


def test_signals_leave_pytorch_as_it_was() -> None:
    assert interrupted(tries=150) == 0


@pytest.mark.nightly
def test_many_signals_leave_pytorch_as_it_was() -> None:
    assert interrupted(tries=20_000) == 0


def interrupted(tries: int) -> int:
    """How many of so many watches left something behind after a signal."""
    model, draw = nn.Linear(4, 4), random.Random(1)
    before, wrong, hits = state(), 0, 0
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(tries):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(30e-6, 500e-6))
                with sgt.watch():
                    model(X).sum()
                for _ in range(2000):
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hits += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            wrong += state() != before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert hits > tries / 4
    return wrong


def test_no_interrupt_is_lost() -> None:
    assert lost(signals=400) == []


@pytest.mark.nightly
def test_no_interrupt_of_a_hundred_thousand_is_lost() -> None:
    assert lost(signals=100_000) == []


def lost(signals: int) -> list[str]:
    """The functions of ours in which interrupts were swallowed, of so many that struck while watches ran.

    Python swallows what is raised in a function that it calls because an object died. In its own (those of
    weak sets) that is its own affair.
    """
    model, draw = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), random.Random(2)
    sent, reached = 0, 0
    swallowed: list[Any] = []  # No tracebacks: they would hold the watch for longer than its statement does.

    def interrupt(*_: object) -> None:
        nonlocal sent
        sent += 1
        raise KeyboardInterrupt

    handler, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    sys.unraisablehook = lambda told: swallowed.append((told.exc_type, told.exc_traceback.tb_frame.f_code))
    try:
        while sent < signals:
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(30e-6, 900e-6))
                with sgt.watch():
                    for _ in range(50):
                        model(X).sum().backward()
            except KeyboardInterrupt:
                reached += 1
            torch.set_grad_enabled(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = hook
    with sgt.watch():
        pass  # It takes away a mode that PyTorch put back after an interrupt of its own code.
    codes = [code for kind, code in swallowed if kind is KeyboardInterrupt]
    assert reached + len(codes) == sent
    return [code.co_qualname for code in codes if "stopgrad" in code.co_filename]


def test_a_watch_that_is_left_twice_leaves_others_running() -> None:
    model, before = nn.Linear(4, 4), state()
    with sgt.watch() as outer:
        inner = sgt.watch()
        inner.__enter__()
        inner.__exit__(None, None, None)
        inner.__exit__(None, None, None)
        loss = model(X).sum()
    assert outer.explain(loss, model)["weight"].status == "flows"
    assert state() == before


def test_a_watch_can_be_entered_by_an_exit_stack_and_by_hand() -> None:
    model, before = nn.Linear(4, 4), state()
    with contextlib.ExitStack() as stack:
        seen = stack.enter_context(sgt.watch())
        loss = model(X).sum()
    assert seen.explain(loss, model)["weight"].status == "flows"
    assert state() == before
    forgotten = sgt.watch()
    forgotten.__enter__()
    assert state() != before
    del forgotten
    assert state() == before


def in_a_thread(function: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures


def test_a_watch_that_is_left_in_another_thread_records_no_more() -> None:
    model = nn.Linear(4, 4)
    found: list[int] = []

    def watches() -> None:
        seen = sgt.watch()
        seen.__enter__()
        model(X)
        in_a_thread(lambda: seen.__exit__(None, None, None))
        events = len(seen._recorder.modules)
        nn.Linear(4, 2)(X)
        found.append(len(seen._recorder.modules) - events)

    in_a_thread(watches)
    assert found == [0]


def test_patches_that_others_make_inside_stay() -> None:
    original = nn.Parameter.__dict__["__new__"]
    try:
        with sgt.watch():
            patch: Any = staticmethod(lambda cls, *args: original(cls, *args))
            nn.Parameter.__new__ = patch
        assert nn.Parameter.__dict__["__new__"] is patch
    finally:
        nn.Parameter.__new__ = original


def test_other_threads_are_not_watched() -> None:
    model = nn.Linear(4, 4)
    with sgt.watch() as seen:
        in_a_thread(lambda: model(X))
    assert not seen._recorder.modules


@pytest.mark.slow
def test_a_forked_worker_is_not_watched() -> None:
    if sys.platform == "win32":
        pytest.skip("there is no fork")
    queue = multiprocessing.get_context("fork").Queue()

    def work() -> None:
        nn.Linear(4, 2)(X)
        queue.put((len(switches._RUNNING.recorders), len(seen._recorder.modules)))

    with sgt.watch() as seen:
        worker = multiprocessing.get_context("fork").Process(target=work)
        worker.start()
        assert queue.get(timeout=60) == (0, 0)
        worker.join()
        model = nn.Linear(4, 4)
        loss = model(X).sum()
    assert seen.explain(loss, model)["weight"].status == "flows"


@pytest.mark.slow
def test_compiled_code_runs_compiled_after_a_watch() -> None:
    ran: list[str] = []

    def backend(module: Any, _: Any) -> Any:
        ran.append("compiled")
        return module.forward

    w = torch.ones(3, requires_grad=True)

    @torch.compile(backend=backend)
    def loss(x: Any) -> Any:
        return (x * 2.0).sum()

    with sgt.watch() as seen:
        made = loss(w)
    assert seen.explain(made, {"w": w})["w"].status == "flows"
    assert not ran
    loss(w)
    assert ran == ["compiled"]


@pytest.mark.slow
def test_what_is_patched_costs_little_while_nobody_watches() -> None:
    """A wrapper that asks a list of the thread; ten times of what it took without would be a defect."""
    wrapped, plain = torch.inference_mode.__enter__, torch.inference_mode.__enter__.__wrapped__

    def seconds(enter: Any) -> float:
        begun = time.perf_counter()
        for _ in range(2000):
            manager = torch.inference_mode()
            enter(manager)
            manager.__exit__(None, None, None)
        return time.perf_counter() - begun

    ratios = [seconds(wrapped) / seconds(plain) for _ in range(5)]
    assert min(ratios) < 10
