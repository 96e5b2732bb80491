"""Watches of live TensorFlow: what they leave behind, what they keep, and what is easily read wrongly."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
import tensorflow as tf
from stopgrad.errors import GraphError

import stopgrad.tensorflow as sgtf
from stopgrad.interop.tensorflow.recording import internals, switches
from stopgrad.interop.tensorflow.recording.record import Event
from stopgrad.interop.tensorflow.recording.recorder import ASKED


def ones() -> Any:
    return tf.Variable([1.0, 2.0, 3.0], name="w")


def events() -> int:
    gc.collect()
    return sum(isinstance(x, Event) for x in gc.get_objects())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_in_effect_by_an_exception(error: type[BaseException]) -> None:
    callbacks = list(internals.callbacks())
    with pytest.raises(error), sgtf.watch(), tf.GradientTape():
        raise error
    assert internals.callbacks() == callbacks
    assert not switches._RUNNING.recorders
    w = ones()
    with tf.GradientTape() as tape:
        loss = w * w
    assert tape.gradient(loss, w).numpy().tolist() == [2.0, 4.0, 6.0]


def test_after_an_exception_in_a_tape_a_watch_knows_that_the_tape_is_closed() -> None:
    w = ones()
    with sgtf.watch() as seen:
        with pytest.raises(ValueError, match="no"), tf.GradientTape():
            raise ValueError("no")
        with tf.GradientTape() as tape:
            loss = w * 2.0
        assert not seen._recorder._active
        assert tape.gradient(loss, w) is not None
    assert seen.explain(loss, w)["w"].status == "flows"


def test_a_watch_in_a_watch_sees_its_part() -> None:
    w = ones()
    with sgtf.watch() as outer, tf.GradientTape() as tape:
        x = tf.stop_gradient(w)
        with sgtf.watch() as inner:
            y = w * 3.0
        loss = x + y
    assert tape.gradient(loss, w) is not None
    assert outer.explain(loss, w)["w"].status == "partly stopped"
    assert inner.explain(y, w)["w"].status == "flows"


def test_another_thread_is_not_watched() -> None:
    w, made = ones(), []
    with sgtf.watch() as seen:
        thread = threading.Thread(target=lambda: made.append(w * 2.0))
        thread.start()
        thread.join()
    with pytest.raises(GraphError, match="not computed inside"):
        seen.explain(made[0], w)


def test_another_tape_that_watches_a_value_stops_nothing() -> None:
    w = ones()
    with sgtf.watch() as seen, tf.GradientTape() as tape:
        x = w * w
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = x * x
        loss = inner.gradient(y, x) * x
    assert tape.gradient(loss, w) is not None
    assert seen.explain(loss, w)["w"].status == "flows"


def test_a_stop_of_a_variable_is_what_opens_it() -> None:
    w = ones()
    with sgtf.watch() as seen, tf.GradientTape():
        loss = tf.stop_gradient(w) * 2.0
    (cut,) = seen.explain(loss, w)["w"].cuts
    assert cut.opens == ("w",)


def test_times_without_a_record_open_one_by_one() -> None:
    w = ones()
    with sgtf.watch() as seen, tf.GradientTape() as tape:
        with tape.stop_recording():
            x = w * 2.0
        with tape.stop_recording():
            y = x * 2.0
        loss = y * 2.0
    assert seen.explain(loss, w)["w"].cuts[0].opens == ()


def test_the_loop_behind_a_gradient_is_read_round_by_round() -> None:
    w, v = ones(), tf.Variable([1.0, 1.0, 1.0], name="v")

    @tf.function(autograph=False)
    def looped(a: Any, b: Any) -> Any:
        return tf.while_loop(lambda n, a, b: n < 3, lambda n, a, b: (n + 1, b, tf.sin(b)), (0, a, b))[1:]

    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss, _ = looped(w * 2.0, v * 3.0)
        w_given, v_given = tape.gradient(loss, [w, v])
    assert v_given.numpy().any()
    assert not w_given.numpy().any()
    assert seen.explain(loss, v)["v"].status == "flows"


@pytest.mark.parametrize("stops", [True, False])
def test_a_stop_that_only_the_third_round_of_a_loop_passes_is_seen(stops: bool) -> None:
    w = tf.Variable([0.5, 0.6, 0.7], name="w")
    kept = tf.stop_gradient if stops else tf.identity

    @tf.function(autograph=False)
    def looped(x: Any, rounds: Any) -> Any:
        step = lambda n, a, b: (n + 1, b, kept(b) * x)
        return tf.while_loop(lambda n, a, b: n < rounds, step, (0, tf.ones(3), tf.ones(3)))[1]

    gradients = []
    for rounds in (2, 3):
        with sgtf.watch() as seen:
            with tf.GradientTape() as tape:
                loss = looped(w * 1.0, tf.constant(rounds))
            gradients.append(tape.gradient(loss, w).numpy())
    x = np.asarray([0.5, 0.6, 0.7], np.float32)
    np.testing.assert_allclose(gradients, [np.ones(3), x if stops else 2 * x], rtol=1e-6)
    assert seen.explain(loss, w)["w"].status == ("partly stopped" if stops else "flows")


def test_zeros_that_a_branch_gives_for_no_gradient_do_not_hide_the_line() -> None:
    w, v = ones(), tf.Variable([1.0, 1.0, 1.0], name="v")

    @tf.function(autograph=False)
    def chosen(a: Any, b: Any) -> Any:
        stopped = lambda: a + tf.stop_gradient(b)
        return tf.cond(tf.reduce_any(a > 0.0), stopped, lambda: a * 2.0)

    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = chosen(w * 1.0, v * 1.0)
        tape.gradient(loss, [w, v])
    flow = seen.explain(loss, [w, v])
    assert flow["v"].status == "stopped"
    assert flow["v"].cuts[0].reason == "tf.stop_gradient"


def test_a_function_that_takes_what_was_not_recorded_is_no_line_of_its_own() -> None:
    w = ones()
    doubled = tf.function(lambda x: x * 2.0, autograph=False)
    with sgtf.watch() as seen, tf.GradientTape() as tape:
        with tape.stop_recording():
            x = w * 2.0
        loss = doubled(x)
    (cut,) = seen.explain(loss, w)["w"].cuts
    assert cut.opens == ("w",)


@pytest.mark.slow
def test_the_record_of_many_steps_is_bounded() -> None:
    w, counts = ones(), []
    with sgtf.watch() as seen:
        for step in range(1000):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(w) * w)
            w.assign_sub(0.01 * tape.gradient(loss, w))
            if step in (499, 999):
                seen._recorder._sweep()
                counts.append(events())
    assert len(seen.gradient_calls) == ASKED
    assert counts[1] <= counts[0] + 10


def test_a_fork_of_the_process_watches_nothing() -> None:
    with sgtf.watch():
        assert switches._RUNNING.recorders
        child = os.fork()
        if child == 0:
            os._exit(len(switches._RUNNING.recorders))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert switches._RUNNING.recorders


def test_a_function_that_a_function_calls_is_recorded_as_one() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    v = tf.Variable([1.0, 2.0], name="v")

    @tf.function
    def inner(x: Any) -> Any:
        return tf.reduce_sum(x * w), tf.reduce_sum(tf.stop_gradient(v) * x)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            with tape.stop_recording():
                aside = inner(x)[0]
            losses = inner(x)
            loss = losses[0] + losses[1] + aside
        return tape.gradient(loss, [w, v])[0]

    with sgtf.watch() as seen:
        step(tf.ones(2))
    flow = seen.gradient_calls[0].explain()
    assert seen.gradient_calls[0].given == {"w": True, "v": False}
    assert (flow["w"].status, flow["v"].status) == ("partly stopped", "stopped")
    assert [cut.reason for cut in flow["w"].cuts] == ["computed while the tape did not record"]
