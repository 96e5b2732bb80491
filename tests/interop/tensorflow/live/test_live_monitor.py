"""Monitors of TensorFlow: ``with`` blocks and the callback for ``fit``."""

from __future__ import annotations

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
