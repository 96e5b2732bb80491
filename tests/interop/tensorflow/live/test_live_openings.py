"""What lines are said to open, and what TensorFlow gives zeros for: judged by tapes, without each line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import stopgrad.tensorflow as sgtf  # noqa: E402


def kept(x: Any) -> Any:
    return x


def written(x: Any) -> Any:
    store = tf.Variable(tf.zeros(3), trainable=False)
    return store.assign(x) + 0.0


def before(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    y = stop(w)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        return tape, y * c


def of_a_value_before(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    y = w * 2.0
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        return tape, stop(y) * stop(c)


def all_before(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    y = stop(stop(w) * c)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        return tape, y * c


def in_a_pause(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        with tape.stop_recording():
            y = stop(w)
        return tape, y * c


def of_a_pause(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        with tape.stop_recording():
            y = w * c
        return tape, stop(y) * c


def of_two_times(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    y = w * 2.0
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        with tape.stop_recording():
            z = stop(y) * stop(c)
        return tape, z * c


def of_a_loss(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        y = c * 2.0
    return tape, (stop(w * 3.0), stop(y))


def beside_another_tape(stop: Callable[[Any], Any], w: Any, c: Any) -> tuple[Any, Any]:
    y = w * 2.0
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(c)
        with tf.GradientTape() as other:
            other.watch(y)
            return tape, stop(y) * c


WAYS = [
    before,
    of_a_value_before,
    all_before,
    in_a_pause,
    of_a_pause,
    of_two_times,
    of_a_loss,
    beside_another_tape,
]


@pytest.mark.parametrize(
    ("way", "stop"),
    [(way, tf.stop_gradient) for way in WAYS] + [(of_a_value_before, written), (of_a_pause, written)],
)
def test_a_stop_opens_what_arrives_without_it(way: Callable[..., Any], stop: Callable[[Any], Any]) -> None:
    """Gradients arrive, and lines open, as far as tapes say so of the same code without its stops."""
    w, c = tf.Variable([1.0, 2.0, 3.0], name="w"), tf.constant([2.0, 1.0, 3.0])
    with sgtf.watch() as seen:
        tape, loss = way(stop, w, c)
        given = tape.gradient(loss, [w, c])
    flow = seen.explain(loss, {"w": w, "c": c})
    tape, loss = way(kept, w, c)
    opened = tape.gradient(loss, [w, c])
    for name, some, more in zip(["w", "c"], given, opened, strict=True):
        assert flow[name].arrives is (some is not None)
        stops = [cut for cut in flow[name].cuts if "stop_gradient" in cut.reason or "assign" in cut.reason]
        told = some is not None or any(name in cut.opens for cut in stops)
        assert told is (more is not None), flow


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_of_a_traced_tape_opens_what_arrives_without_it(paused: bool) -> None:
    w = tf.Variable([1.0, 2.0, 3.0], name="w")
    opens = []

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            if paused:
                with tape.stop_recording():
                    y = w * 2.0
            else:
                y = w * 2.0
            loss = tf.reduce_sum(tf.stop_gradient(y) * 3.0)
        gradient = tape.gradient(loss, w)
        assert gradient is None
        (call,) = seen.gradient_calls
        opens.extend([cut.opens for cut in call.explain()["w"].cuts])
        return loss

    with sgtf.watch() as seen:
        step()
    assert opens == ([()] if paused else [("w",)])


def test_zeros_for_a_result_that_is_not_used_are_no_gradient() -> None:
    a, b, c = [tf.Variable([1.0, 2.0], name=name) for name in "abc"]

    @tf.function
    def f(x: Any) -> tuple[Any, Any]:
        return x * b, x * a + tf.stop_gradient(c)

    def told(both: bool) -> Any:
        with sgtf.watch() as seen:
            with tf.GradientTape() as tape:
                unused, used = f(a)
                loss = used + unused if both else used
            given = tape.gradient(loss, [a, b, c])
        assert given[1] is not None
        assert bool(given[1].numpy().any()) is both
        return seen.explain(loss, [a, b, c])

    flow = told(both=False)  # TensorFlow gives zeros for b.
    assert [flow[name].status for name in "abc"] == ["flows", "disconnected", "stopped"]
    assert len(flow["c"].cuts) == 1
    flow = told(both=True)
    assert [flow[name].status for name in "abc"] == ["flows", "flows", "stopped"]


@pytest.mark.parametrize("gives", [False, True])
def test_a_variable_within_a_custom_gradient_in_a_graph_ends_once(gives: bool) -> None:
    w, b = tf.Variable([1.0, 2.0], name="w"), tf.Variable([3.0, 4.0], name="b")

    @tf.custom_gradient
    def own(x: Any) -> Any:
        def grad(dy: Any, variables: Any = None) -> Any:
            return dy, [dy if gives else None for _ in variables]

        return x + b * 2.0, grad

    @tf.function
    def f() -> Any:
        return own(w * 3.0)

    with sgtf.watch() as seen, tf.GradientTape() as tape:
        loss = f()
    assert (tape.gradient(loss, b) is not None) is gives
    flow = seen.explain(loss, [w, b])
    assert (flow["w"].status, flow["b"].status) == ("flows", "flows" if gives else "not differentiable")
    assert len(flow["b"].cuts) == (not gives)
