"""TensorFlow's own gradients beside differences: right ones pass, wrong ones are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.base.errors import ArgumentError, GradientError  # noqa: E402

X = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float64)


@tf.custom_gradient
def twice_too_much(x: Any) -> Any:
    return tf.sin(x), lambda dy: 2.0 * dy * tf.cos(x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: tf.reduce_sum(tf.sin(x) ** 2),
        lambda x: tf.linalg.logdet(tf.matmul(x, x, transpose_a=True)),
        lambda x: tf.reduce_mean(tf.nn.softmax(x) * tf.stop_gradient(tf.exp(x))),
        lambda x: tf.reduce_sum(x * tf.round(x)),
        tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x) * tf.stop_gradient(x))),
        lambda x: {"loss": tf.reduce_sum(tf.gather(x, [0, 0, 2])), "other": tf.norm(x)},
    ],
)
def test_right_gradients_pass(f: Any) -> None:
    checked = sgtf.check_gradients(f, X)
    assert checked.passed
    assert checked["x"].error < 1e-6


def test_a_wrong_gradient_is_told_with_its_custom_gradient() -> None:
    with pytest.raises(GradientError, match="differ"):
        sgtf.check_gradients(lambda x: tf.reduce_sum(twice_too_much(x)), X)
    checked = sgtf.check_gradients(lambda x: tf.reduce_sum(twice_too_much(x)), X, raises=False)
    assert not checked
    assert [held.what for held in checked.custom] == ["twice_too_much"]
    worst = checked["x"].worst
    assert worst is not None
    assert worst.generated == pytest.approx(2 * worst.numeric, rel=1e-6)


def test_a_value_that_comes_back_through_python_differs() -> None:
    w = tf.Variable(2.0, name="w", dtype=tf.float64)
    checked = sgtf.check_gradients(lambda: w * float(w), raises=False)
    assert not checked.passed


def test_kinks_are_told_and_pass() -> None:
    checked = sgtf.check_gradients(
        lambda x: tf.reduce_sum(tf.nn.relu(x)), tf.constant([0.0, 1.0], tf.float64)
    )
    assert checked.passed
    assert [kink.index for kink in checked["x"].kinks] == [(0,)]


@pytest.mark.slow
def test_models_in_float32_pass_and_keep_their_weights() -> None:
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(4, activation="tanh"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ]
    net = keras.Sequential([keras.Input((3,)), *layers])
    x = tf.cast(X, tf.float32)
    before = [one.numpy() for one in net.weights]
    checked = sgtf.check_gradients(lambda: tf.reduce_mean(net(x, training=True) ** 2))
    assert checked.passed
    assert len(checked) == 6
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, net.weights, strict=True))
    assert tf.stop_gradient.__module__.startswith("tensorflow")
    assert not tf.config.functions_run_eagerly()


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ArgumentError, match="another value each time"):
        sgtf.check_gradients(lambda x: tf.reduce_sum(x * tf.random.normal(x.shape, dtype=x.dtype)), X)
    with pytest.raises(ArgumentError, match="no trainable variable"):
        sgtf.check_gradients(lambda: tf.constant(1.0))
    stop = tf.stop_gradient
    with pytest.raises(ArgumentError, match="cannot be held"):
        sgtf.check_gradients(lambda x: tf.reduce_sum(stop(x) * x), X)


def test_options_that_tensorflow_lacks_are_refused_by_name() -> None:
    for options, says in [
        ({"order": 2}, "of order 1 are compared"),
        ({"modes": "forward"}, "in reverse mode"),
    ]:
        with pytest.raises(ArgumentError, match=says):
            sgtf.check_gradients(lambda x: tf.reduce_sum(x), X, **options)
    assert not sgtf.check_gradients(lambda x: x * tf.stop_gradient(x), X, stops="ignore").passed


def twin(first: Any, second: Any) -> Any:
    def loss(x: Any, y: Any) -> Any:
        a = x * first(x)
        b = tf.reduce_sum(a) * second(y * y)
        return tf.reduce_sum(a * b)

    return loss


def normalized(x: Any) -> Any:
    z = tf.exp(x - tf.stop_gradient(tf.reduce_max(x)))
    return (z / tf.reduce_sum(z))[0]


def test_each_line_of_ablate_changes_the_gradient_by_what_its_twin_says() -> None:
    def loss(x: Any, y: Any) -> Any:
        a = x * tf.stop_gradient(x)
        b = tf.reduce_sum(a) * tf.stop_gradient(y * y)
        return tf.reduce_sum(a * b)

    def gradients(f: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([X, y])
            made = f(X, y)
        return tape.gradient(made, [X, y], unconnected_gradients="zero")

    y = tf.constant(np.random.default_rng(1).normal(size=(4, 3)), tf.float64)
    found = sgtf.ablate(loss, X, y, repeats=1)
    assert [stop.verdict for stop in found.stops] == ["changes the gradient"] * 2
    given = gradients(loss)
    opened_lines = [(tf.identity, tf.stop_gradient), (tf.stop_gradient, tf.identity)]
    for stop, opened in zip(found.stops, opened_lines, strict=True):
        for name, a, b in zip("xy", given, gradients(twin(*opened)), strict=True):
            larger = max(np.linalg.norm(a), np.linalg.norm(b), 1e-30)
            assert stop.inputs[name].difference == pytest.approx(np.linalg.norm(a - b) / larger, rel=1e-9)
    softmax = sgtf.ablate(normalized, X[0], repeats=0)
    assert {stop.verdict for stop in softmax.stops} == {"changes nothing"}
    w = tf.Variable(2.0, name="w")
    idle = sgtf.ablate(lambda: w * tf.stop_gradient(tf.constant(3.0)), repeats=0)
    assert [stop.verdict for stop in idle.stops] == ["idle"]
    assert w.numpy() == 2.0
