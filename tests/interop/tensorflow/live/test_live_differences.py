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
    checked = sgtf.check_gradients(f, X, samples=12)
    assert checked.passed
    assert checked["x"].error < 1e-6


def test_a_wrong_gradient_is_told_with_its_custom_gradient() -> None:
    with pytest.raises(GradientError, match="differ"):
        sgtf.check_gradients(lambda x: tf.reduce_sum(twice_too_much(x)), X)
    checked = sgtf.check_gradients(lambda x: tf.reduce_sum(twice_too_much(x)), X, raises=False)
    assert not checked
    assert [held.what for held in checked.custom] == ["custom_gradient"]
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
