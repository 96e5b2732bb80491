"""Monitors of TensorFlow: ``with`` blocks and the callback for ``fit``."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.base.errors import ArgumentError  # noqa: E402

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(32, 1)).astype("float32")


def network(cut: bool = False) -> Any:
    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, activation="relu", name="body")(given)
    hidden = keras.layers.Dropout(0.2, seed=1)(keras.layers.BatchNormalization(name="norm")(hidden))
    hidden = keras.ops.stop_gradient(hidden) if cut else hidden
    model = keras.Model(given, keras.layers.Dense(1, name="head")(hidden))
    model.compile("sgd", "mse")
    return model


def fitted(monitored: bool) -> tuple[dict[str, list[float]], list[Any], Any]:
    keras.utils.set_random_seed(0)
    model = network()
    monitor = sgtf.monitor(model, every=2)
    callbacks = [monitor.keras_callback()] if monitored else []
    told = model.fit(X, Y, epochs=2, batch_size=8, verbose=0, callbacks=callbacks)
    return told.history, [np.asarray(one) for one in model.weights], monitor


def test_fit_arrives_at_the_same_weights_and_losses() -> None:
    history, weights, _ = fitted(False)
    watched, same, monitor = fitted(True)
    assert watched == history
    assert all(np.array_equal(a, b) for a, b in zip(weights, same, strict=True))
    assert monitor.step == 8
    assert not monitor.changes


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Of Keras 3.12.
def test_fit_tells_what_gets_no_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    model = network(cut=True)
    monitor = sgtf.monitor(model, every=1)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        model.fit(X, Y, epochs=1, verbose=0, callbacks=[monitor.keras_callback()])
    told = " ".join(capsys.readouterr().out.split())
    assert "body" in told
    assert "stopped" in told
    assert "head" not in told


def test_a_step_that_tf_function_compiled_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    monitor = sgtf.monitor(w, every=1)

    @tf.function
    def step(scale: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.relu(w * scale))
        return tape.gradient(loss, w)

    for scale in (1.0, 1.0, -1.0):
        with monitor:
            step(tf.constant(scale))
    told = capsys.readouterr().out
    assert "since step 2" in told
    assert "exactly 0" in told
    assert not tf.config.functions_run_eagerly()


def test_after_an_error_functions_are_compiled_again() -> None:
    monitor = sgtf.monitor(tf.Variable(1.0), every=1)
    with pytest.raises(ZeroDivisionError), monitor:
        raise ZeroDivisionError
    assert not tf.config.functions_run_eagerly()
    assert monitor.step == 1


def test_what_cannot_be_monitored_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no variable of the model is trainable"):
        sgtf.monitor(tf.Variable(1.0, trainable=False))
    with pytest.raises(ArgumentError, match="no Keras model"):
        sgtf.monitor(tf.Variable(1.0)).keras_callback()
    callback = sgtf.monitor(network()).keras_callback()
    with pytest.raises(ArgumentError, match="another model"):
        network().fit(X, Y, verbose=0, callbacks=[callback])


def _stepped(cut: bool, optimizer: Any, monitored: bool) -> tuple[list[Any], set[str]]:
    """What two steps arrive at, and what moves without a gradient, as the monitor tells it."""
    w, v = tf.Variable([1.0, 2.0], name="w"), tf.Variable([3.0, -1.0], name="v")
    monitor = sgtf.monitor([w, v], every=1, to=[], optimizer=optimizer)
    for _ in range(2):
        with monitor if monitored else contextlib.nullcontext(), tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * (tf.stop_gradient(v) if cut else v))
            gradients = tape.gradient(loss, [w, v], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        optimizer.apply_gradients(zip(gradients, (w, v), strict=True))
    told = {key for c in monitor.changes if c.state == "moves without a gradient" for key in c.keys}
    return [w.numpy(), v.numpy(), *[np.asarray(x) for x in optimizer.variables]], told


@pytest.mark.parametrize("cut", [False, True])
def test_a_monitor_tells_what_the_optimizer_moves_without_a_gradient(cut: bool) -> None:
    for make in (lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1), lambda: keras.optimizers.SGD(0.1)):
        found, told = _stepped(cut, make(), True)
        expected, _ = _stepped(cut, make(), False)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        decays = type(make()).__name__ == "AdamW"
        assert told == ({"v"} if cut and decays else set())


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")  # Of Keras, which drops these.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_monitor_of_fit_tells_what_the_optimizer_moves_without_a_gradient() -> None:
    model = network(cut=True)
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.1), "mse")
    old = {v.path: np.array(v.numpy()) for v in model.trainable_variables}
    monitor = sgtf.monitor(model, every=1, to=[], optimizer=model)
    model.fit(X, Y, verbose=0, batch_size=32, callbacks=[monitor.keras_callback()])
    moved = {v.path for v in model.trainable_variables if not np.array_equal(old[v.path], v.numpy())}
    told = {key for c in monitor.changes if c.state == "moves without a gradient" for key in c.keys}
    assert told == {key for key in moved if "body" in key or "norm" in key}


def test_what_is_no_optimizer_of_keras_is_named() -> None:
    with pytest.raises(ArgumentError, match="monitor: optimizer is one of Keras 3"):
        sgtf.monitor(tf.Variable(1.0), optimizer=3)
