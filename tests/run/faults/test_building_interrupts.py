"""An interrupt at any moment of building leaves nothing behind, and the same build done again is the same.

Each step of each program is interrupted at its bytecodes, one after the other, by an exception that is raised
in whichever frame of the package is running; by real signals; and by exceptions sent from another thread.
Whatever was running, afterwards the graph holds all that a call builds or nothing of it, nothing else has
changed, and the rest of the program builds what it builds undisturbed.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base import locks, sizes
from stopgrad.graph.builder import current
from stopgrad.graph.verify import verify
from stopgrad.rewrite import check_sizes

HOME = str(Path(sg.__file__).parent)
Step = Callable[[Any], Any]


# -------------------------------------------------------------------------------------------- programs


def inputs(v: Any) -> None:
    v.x = sg.placeholder(sg.float32, [3], name="x")


def weights(v: Any) -> None:
    v.w = sg.parameter(np.ones(3, np.float32), name="w")


def scoped(v: Any) -> None:
    with sg.name_scope("layer"):
        v.y = sg.exp(v.x, name="y")


def scoped_below(v: Any) -> None:
    with sg.name_scope("layer").with_sub_scope("inner"):
        v.y = sg.exp(v.x)


def named_by_scope(v: Any) -> None:
    with sg.Scope(v.graph).with_name("chosen"):
        v.y = sg.sin(v.x)


def hidden(v: Any) -> None:
    with sg.no_gradient():
        v.y = sg.exp(v.x)


@sg.no_gradient()
def hidden_by_decorator(v: Any) -> None:
    v.y = sg.exp(v.x)


def square(a: Any) -> Any:
    def pull(g: Any) -> Any:
        return g * 2.0 * a * scale

    scale = sg.cos(a) if isinstance(a, sg.Output) else 1.0
    return a * a, pull


def custom(v: Any) -> None:
    v.y = sg.custom_gradient(square)(v.x)


def fails_and_goes_on(v: Any) -> None:
    try:
        sg.softmax_cross_entropy_with_logits(v.x, v.f)
    except sg.ShapeError:
        v.y = sg.tan(v.x)


def loss(a: Any) -> Any:
    return sg.reduce_sum(sg.sin(a) * a)


def step_of_scan(carry: Any, a: Any) -> Any:
    return carry + a * carry, carry


def let(name: str, f: Callable[[Any], Any]) -> Step:
    def step(v: Any) -> None:
        setattr(v, name, f(v))

    step.__name__ = name
    return step


TEXT = """\
x: float32[3] = Placeholder(dtype=float32, shape=(3,))
layer/Exp: float32[3] = Exp(x)
y: float32[3] = Mul(layer/Exp, x)
"""

PROGRAMS: dict[str, list[Step]] = {
    "names": [
        inputs,
        let("a", lambda v: sg.exp(v.x, name="Exp")),
        let("b", lambda v: sg.exp(v.x)),
        let("c", lambda v: sg.add(v.a, v.b, name="y")),
        let("d", lambda v: sg.add(v.a, v.b, name="y")),
        let("e", lambda v: v.d * 2.0),
        let("f", lambda v: v.e + 2.0),
    ],
    "scopes": [inputs, scoped, scoped, scoped_below, scoped_below, named_by_scope, named_by_scope],
    "blocks": [
        inputs,
        hidden,
        let("z", lambda v: v.y * v.x),
        let("g", lambda v: sg.gradients(v.z, v.x)),
        hidden_by_decorator,
        let("u", lambda v: sg.sin(v.y)),
    ],
    "composites": [
        inputs,
        weights,
        let("a", lambda v: sg.softmax(v.x)),
        let("b", lambda v: sg.layer_norm(v.a, v.w, v.w)),
        let("c", lambda v: sg.softmax_cross_entropy_with_logits(v.b, v.x)),
        let("d", lambda v: v.w - v.x),
        let("e", lambda v: sg.assign(v.w, v.d)),
        let("f", lambda v: sg.ones([4])),
        fails_and_goes_on,
        let("e", lambda v: v.x[1:]),
    ],
    "gradients": [
        inputs,
        let("t", lambda v: sg.tanh(v.x)),
        let("y", lambda v: v.t * v.x),
        let("g", lambda v: sg.gradients(v.y, [v.x])),
        let("h", lambda v: sg.gradients(v.g, [v.x])),
        let("i", lambda v: sg.gradients(v.h[0], v.x, name="third", unconnected_gradients="zero")),
    ],
    "transforms": [
        inputs,
        let("a", lambda v: sg.grad(loss)(v.x)),
        let("b", lambda v: sg.jvp(loss, (v.x,), (v.a,))),
        let("p", lambda v: sg.vjp(sg.sin, v.x)[1]),
        let("c", lambda v: v.p(v.a)),
        let("d", lambda v: sg.hessian(loss)(v.x)),
        let("e", lambda v: sg.vmap(sg.grad(lambda a: a**3.0))(v.x)),
    ],
    "control": [
        inputs,
        let("s", lambda v: sg.reduce_sum(v.x)),
        let("p", lambda v: v.s > 0.0),
        let("a", lambda v: sg.cond(v.p, lambda x: x * v.s, lambda x: x - 1.0, v.x)),
        let("b", lambda v: sg.scan(step_of_scan, v.s, v.x)[0]),
        let(
            "c",
            lambda v: sg.while_loop(lambda a: a < 9.0, lambda a: a * 2.0 + v.s, v.s, maximum_iterations=5),
        ),
        let("d", lambda v: sg.checkpoint(lambda a: sg.sin(a) * v.s)(v.x)),
        let("g", lambda v: sg.gradients([v.a, v.b, v.c, v.d], v.x)),
        let("h", lambda v: sg.vmap(lambda a: sg.while_loop(lambda i: i < a, lambda i: i + 1.0, a))(v.x)),
    ],
    "custom gradients": [
        inputs,
        custom,
        let("z", lambda v: sg.custom_gradient(square)(v.y)),
        let("g", lambda v: sg.gradients(v.z, v.x)),
        let("h", lambda v: sg.gradients(v.g, v.x)),
        let("i", lambda v: sg.vmap(lambda a: sg.custom_gradient(square)(a))(v.x)),
    ],
    "sizes": [
        let("x", lambda v: sg.placeholder(sg.float32, ["n"])),
        let("y", lambda v: sg.placeholder(sg.float32, ["m"])),
        let("z", lambda v: v.x + v.y),
        let("c", lambda v: check_sizes(v.graph.operations, {"n": 3, "m": 3})),
    ],
    "at once": [
        let("a", lambda v: outside(lambda: sg.softmax(np.array([1.0, 2.0])))),
        let("b", lambda v: outside(lambda: sg.grad(loss)(np.array([1.0, 2.0])))),
        let("c", lambda v: outside(lambda: sg.hessian(loss)(np.array([1.0, 2.0])))),
        let("d", lambda v: outside(lambda: sg.function(loss, engine="numpy")(np.array([1.0, 2.0])))),
        let("e", lambda v: sg.Graph.from_text(TEXT).to_text()),
    ],
}


def outside(f: Callable[[], Any]) -> Any:
    """Outside of any graph."""
    return contextvars.Context().run(f)


CASES = [(name, i) for name, steps in PROGRAMS.items() for i in range(len(steps))]


# ------------------------------------------------------------------------------------------- observation


def extent(graph: sg.Graph) -> list[Any]:
    found = []
    for op in graph.operations:
        # What a gradient function uses becomes an operand when it is first asked for, which is no building.
        given = op.count + len(op.kept) if op.type == "CustomGradient" else len(op.inputs)
        found.append((op.type, [(x.op.id, x.index) for x in op.inputs[:given]]))
    return found


def surroundings() -> list[Any]:
    """What holds here and now."""
    b = current()
    here = [b.graph, b.prefix, b.pending, b.origin, b.shared, b.region, b.tracing, b.place]
    return [*here, gc.isenabled(), binding(), np.geterr(), locks.LOCK._is_owned()]


def binding() -> Any:
    return sizes._BINDING.get()


def shown(value: Any) -> str:
    return repr({key: one for key, one in value.items() if not callable(one)})


class Undisturbed:
    """What each step of a program builds."""

    def __init__(self, name: str) -> None:
        self.steps = PROGRAMS[name]
        v = SimpleNamespace(graph=sg.Graph())
        self.extents, self.texts = [extent(v.graph)], [v.graph.to_text()]
        with v.graph.as_default():
            for step in self.steps:
                step(v)
                self.extents.append(extent(v.graph))
        self.values = shown({key: value for key, value in vars(v).items() if key != "graph"})
        self.text = v.graph.to_text()


def check(reference: Undisturbed, i: int, interrupted: Callable[[Callable[[], None]], bool]) -> bool:
    """Run a program whose i-th step is interrupted; whether it was."""
    v = SimpleNamespace(graph=sg.Graph())
    with v.graph.as_default():
        for step in reference.steps[:i]:
            step(v)
        before = surroundings()
        hit = interrupted(lambda: reference.steps[i](v))
        assert surroundings() == before
        built = extent(v.graph)
        assert built in (reference.extents[i], reference.extents[i + 1])
        verify(v.graph)
        if hit and built != reference.extents[i]:
            # All had been built: what is next is as if it had been given back. It is built once more, apart.
            v.graph.truncate(len(reference.extents[i]))
        if hit:
            reference.steps[i](v)
        for step in reference.steps[i + 1 :]:
            step(v)
    assert v.graph.to_text() == reference.text
    assert shown({key: value for key, value in vars(v).items() if key != "graph"}) == reference.values
    verify(v.graph)
    assert sg.graph.build.default_graph() is None
    return hit


# --------------------------------------------------------------------------------------- every bytecode


class Interrupt(KeyboardInterrupt):
    """Told apart from somebody's Ctrl-C."""


def after(count: int) -> Callable[[Callable[[], None]], bool]:
    """Interrupt a piece of work before so many bytecodes and calls of the package have run."""

    def interrupted(work: Callable[[], None]) -> bool:
        left = count

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(HOME):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event in ("opcode", "call"):
                left -= 1
                if left == 0:
                    raise Interrupt
            return trace

        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        except Interrupt:
            pass
        finally:
            sys.settrace(previous)
        return left <= 0

    return interrupted


def length(reference: Undisturbed, i: int) -> int:
    """How many bytecodes and calls of the package a step takes."""
    counted = 0

    def count(work: Callable[[], None]) -> bool:
        nonlocal counted

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal counted
            if not frame.f_code.co_filename.startswith(HOME):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            counted += event in ("opcode", "call")
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)
        return False

    check(reference, i, count)
    return counted


QUICK = 25
"""At how many places each step is interrupted where not at all of them."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What an interrupt left unfinished is finished before the next test."""
    yield
    gc.collect()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        # Where no exception can be raised, as in the closing of a generator, Python prints it instead.
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupt_at_any_bytecode_leaves_nothing_behind(name: str) -> None:
    reference = Undisturbed(name)
    chosen = random.Random(name)
    for i in range(len(reference.steps)):
        count = length(reference, i)
        for place in sorted(chosen.sample(range(1, count + 1), min(QUICK, count))):
            assert check(reference, i, after(place))


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "i"), CASES)
def test_an_interrupt_at_every_bytecode_leaves_nothing_behind(name: str, i: int) -> None:
    reference = Undisturbed(name)
    for place in range(1, length(reference, i) + 1):
        check(reference, i, after(place))


# ------------------------------------------------------------------------- at a moment from outside


def by_signal(seconds: float) -> Callable[[Callable[[], None]], bool]:
    """Interrupt a piece of work by a signal after so long."""

    def interrupted(work: Callable[[], None]) -> bool:
        armed = True

        def interrupt(*_: Any) -> None:
            nonlocal armed
            if armed:
                armed = False
                raise Interrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                work()
            finally:
                armed, hit = False, not armed
        except Interrupt:
            hit = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        return hit

    return interrupted


def by_thread(seconds: float) -> Callable[[Callable[[], None]], bool]:
    """Interrupt a piece of work by an exception sent from another thread after so long."""
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    target = ctypes.c_ulong(threading.get_ident())

    def interrupted(work: Callable[[], None]) -> bool:
        # Plain variables: an Event is Python code, which an interrupt would leave with its lock held.
        hit = done = False
        moment: float | None = None

        def interrupt() -> None:
            while not done and (moment is None or time.perf_counter() < moment):
                pass
            if not done:
                send(target, ctypes.py_object(Interrupt))

        thread = threading.Thread(target=interrupt)
        thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            try:
                moment = time.perf_counter() + seconds
                work()
            finally:
                done = True
                while thread.is_alive():
                    pass
                send(target, None)  # Should it be on its way still.
        except Interrupt:
            hit = done = True
        thread.join()
        sys.setswitchinterval(interval)
        return hit

    return interrupted


def interrupt_at_random(interrupting: Callable[[float], Any], name: str, times: int) -> int:
    """How many of so many attempts met a running step; each step is tried alike often."""
    reference = Undisturbed(name)
    chosen = random.Random(name)
    hits = 0
    for i in range(len(reference.steps)):
        seconds = min(duration(reference, i) for _ in range(3))
        for _ in range(times // len(reference.steps) + 1):
            hits += check(reference, i, interrupting(max(chosen.uniform(0, seconds), 1e-6)))
    return hits


def duration(reference: Undisturbed, i: int) -> float:
    taken = 0.0

    def measure(work: Callable[[], None]) -> bool:
        nonlocal taken
        start = time.perf_counter()
        work()
        taken = time.perf_counter() - start
        return False

    check(reference, i, measure)
    return taken


@pytest.mark.parametrize("interrupting", [by_signal, by_thread])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupt_at_a_random_moment_leaves_nothing_behind(name: str, interrupting: Any) -> None:
    hits = interrupt_at_random(interrupting, name, 60)
    assert hits or interrupting is by_thread  # Of threads, which one runs when is left to chance.


@pytest.mark.nightly
@pytest.mark.parametrize("interrupting", [by_signal, by_thread])
@pytest.mark.parametrize("name", PROGRAMS)
def test_interrupts_at_many_random_moments_leave_nothing_behind(name: str, interrupting: Any) -> None:
    assert interrupt_at_random(interrupting, name, 5000) > 50
