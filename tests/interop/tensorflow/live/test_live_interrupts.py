"""A watch that is interrupted, in itself or in its report, leaves TensorFlow as it was."""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from fault_tools import Injection, Interrupt  # noqa: E402

import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.interop.shared import lifetimes  # noqa: E402
from stopgrad.interop.tensorflow.recording import internals, passing, switches  # noqa: E402

FILES = ("interop/tensorflow", "graph/builder.py")
W = tf.Variable([1.0, 2.0, 3.0], name="w")


@tf.custom_gradient
def straight_through(x: Any) -> Any:
    return tf.round(x), lambda dy: dy


@tf.function
def loss_in_a_graph(x: Any) -> Any:
    return tf.reduce_sum(tf.stop_gradient(x) * W)


def patch() -> None:
    with sgtf.watch():
        loss_in_a_graph(tf.ones(3))  # TensorFlow is patched once for the process, and traces once.


@pytest.fixture(autouse=True)
def _patched() -> None:
    patch()


def state() -> tuple[object, ...]:
    """What a watch changes, and what an end of it that does not run would leave."""
    local, ops = internals.context()._thread_local_data, internals._ops
    patched = [
        (internals.tapes, ("_push_tape", "_pop_tape", "reset", "watch", "gradient", "jacobian")),
        (internals.imperative, ("imperative_grad",)),
        (internals.graph_gradients, ("_GradientsHelper",)),
        (internals.record, ("record_operation",)),
        (internals.variables, ("variable_accessed",)),
        (internals.EagerTensor, ("_numpy",)),
        (internals.AtomicFunction, ("call_flat",)),
        (internals.Tensor, ("_disallow", "__getattr__")),
        (internals.execute, ("execute",)),
    ]
    return (
        tuple(internals.callbacks()),
        local.invoking_op_callbacks,
        local.is_eager,
        internals.is_stopped(),
        tuple(switches._RUNNING.recorders),
        tuple(switches._RUNNING.observers),
        tuple(lifetimes._LIVING),
        len(ops._default_graph_stack.stack),
        len(internals.context().context_switches.stack),
        ops._gradient_registry,
        gc.isenabled(),
        *[vars(owner)[name] for owner, names in patched for name in names],
    )


def open_tapes() -> bool:
    """Whether a tape records."""
    return bool(internals.record.could_possibly_record())


def forget_answers() -> None:
    """Let reports ask TensorFlow's gradient functions anew."""
    passing._OF_GRAPHS.clear()
    passing._of_eager.cache_clear()


def watched() -> None:
    forget_answers()
    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(straight_through(W * 2.0)) + loss_in_a_graph(W)
        tape.gradient(loss, W)
    assert seen.explain(loss, W)["w"].status == "partly stopped"


STRIDES = [
    1499,
    pytest.param(101, marks=pytest.mark.slow),
    pytest.param(3, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("error", [Interrupt, MemoryError, ValueError])
@pytest.mark.parametrize("stride", STRIDES)
def test_an_exception_anywhere_in_a_watch_leaves_tensorflow_as_it_was(
    stride: int, error: type[BaseException]
) -> None:
    watched()
    before = state()
    places = Injection(FILES)
    places(watched)
    assert places.met > 1000
    for at in range(0, places.met, stride):
        injection = Injection(FILES, at, error)
        with contextlib.suppress(AssertionError):
            injection(watched)
        assert state() == before, injection.place
        assert not open_tapes(), injection.place


def interrupted(tries: int, seed: int) -> tuple[int, list[str]]:
    """How many of so many watches left something behind after a signal; and our functions that lost one.

    Python swallows what is raised in a function that it calls because an object died. No function of
    TensorFlow's is called and no gradient asked for: TensorFlow alone, when a signal strikes there, loses the
    function's trace, or crashes.
    """
    draw, wrong, hits, armed = random.Random(seed), 0, 0, False
    swallowed: list[Any] = []

    def interrupt(*_: object) -> None:
        nonlocal armed, hits
        if armed:
            armed, hits = False, hits + 1
            raise KeyboardInterrupt

    handler, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    sys.unraisablehook = lambda told: swallowed.append((told.exc_type, told.exc_traceback.tb_frame.f_code))
    before = state()
    try:
        for _ in range(tries):
            forget_answers()
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(30e-6, 20e-3))
                with sgtf.watch() as seen, tf.GradientTape():
                    loss = tf.reduce_sum(tf.stop_gradient(W) * straight_through(W * 2.0))
                seen.explain(loss, W)
                armed = False
            except (KeyboardInterrupt, RuntimeError, SystemError):  # TensorFlow's C++ makes errors of it.
                assert not armed
            wrong += state() != before
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = hook
    assert hits > tries / 10
    codes = [code for kind, code in swallowed if kind is KeyboardInterrupt]
    return wrong, [code.co_qualname for code in codes if "stopgrad" in code.co_filename]


PROGRAM = """
import sys
sys.path[:] = {path!r}
from {module} import interrupted, patch
patch()
print(interrupted({tries}, {seed}))
"""


def in_a_process(tries: int, seed: int) -> str:
    """What :func:`interrupted` returns in a process of its own.

    A signal between two lines of ``tf.GradientTape.__enter__`` leaves a tape of TensorFlow's open for ever.
    """
    path = [str(Path(__file__).parent), *sys.path]
    program = PROGRAM.format(path=path, module=Path(__file__).stem, tries=tries, seed=seed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_signals_leave_tensorflow_as_it_was() -> None:
    assert in_a_process(100, 1) == "(0, [])"


@pytest.mark.nightly
def test_many_signals_leave_tensorflow_as_it_was() -> None:
    assert in_a_process(5000, 2) == "(0, [])"


@pytest.mark.parametrize("what", [internals.aside, internals.unseen])
def test_what_is_asked_of_tensorflow_leaves_its_thread_as_it_was(what: Any) -> None:
    """Also where TensorFlow's own contexts are left without their ends."""

    def left() -> None:
        internals.context()._thread_local_data.is_eager = False
        internals._ops._default_graph_stack.stack.append(tf.Graph())
        internals.context().context_switches.push(False, tf.Graph().as_default, None)
        internals.record.stop_recording().__enter__()
        raise KeyboardInterrupt

    before = state()
    with pytest.raises((KeyboardInterrupt, AssertionError)):  # TensorFlow complains of its stack.
        what(left)
    assert state() == before
    with tf.GradientTape() as tape:
        loss = W * 2.0
    assert tape.gradient(loss, W) is not None
