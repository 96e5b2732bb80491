"""Functions and models that TensorFlow traces compute its values, and the gradients of its tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.tensorflow as sgtf

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

Case = tuple[Callable[..., Any], list[Any], list[Any]]
"""A function, what it is called with, and the variables of which gradients are compared."""

CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def numbers(*shape: int, seed: int = 5) -> Any:
    return np.random.default_rng([*shape, seed]).normal(size=shape).astype(np.float32)


def variable(*shape: int, seed: int = 0, name: str = "w") -> Any:
    return tf.Variable(numbers(*shape, seed=seed), name=name)


def trained(model: Any, seed: int = 0) -> list[Any]:
    """The variables of a model, none with the value of another."""
    for k, v in enumerate(model.variables):
        v.assign(v + np.random.default_rng([seed, k]).uniform(0.01, 0.2, v.shape).astype(np.float32))
    return [v.value for v in model.trainable_variables]


# ----------------------------------------------------------------------------------------------- models


@case
def mlp() -> Case:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, "swish"), layers.Dense(3, "gelu"), layers.Dense(2, "softmax")]
    )
    return lambda x: model(x)[:, 0], [numbers(3, 4)], trained(model)


def convolutional() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(3, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )


@case
def normalised_in_inference() -> Case:
    model = convolutional()
    return lambda x: model(x, training=False) ** 2, [numbers(2, 6, 6, 2)], trained(model)


@case
def normalised_in_training() -> Case:
    model = convolutional()
    return lambda x: model(x, training=True) ** 2, [numbers(2, 6, 6, 2)], trained(model)


@case
def lstm() -> Case:
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4)])
    return model, [numbers(2, 5, 3)], trained(model)


@case
def gru() -> Case:
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.GRU(4, return_sequences=True)])
    return model, [numbers(2, 5, 3)], trained(model)


@case
def embedded() -> Case:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((5,), dtype="int32"), layers.Embedding(9, 4), layers.Flatten(), layers.Dense(2)]
    )
    return model, [np.array([[1, 2, 3, 1, 0], [4, 5, 6, 7, 8]], np.int32)], trained(model)


@case
def layers_in_a_list() -> Case:
    held = [keras.layers.Dense(4, "tanh") for _ in range(2)]
    for layer in held:
        layer.build((None, 4))

    def f(x: Any) -> Any:
        for layer in held:
            x = layer(x)
        return x

    return f, [numbers(3, 4)], [v for k, layer in enumerate(held) for v in trained(layer, k)]


# --------------------------------------------------------------------------------------------- control


@case
def while_loop() -> Case:
    w = variable(3, 3)

    def f(x: Any) -> Any:
        return tf.while_loop(lambda i, h: i < 4, lambda i, h: (i + 1, tf.tanh(h @ w)), (0, x))[1]

    return f, [numbers(2, 3)], [w]


@case
def loop_of_python_with_a_dropped_layer() -> Case:
    w, extra = variable(2, 2), variable(2, 2, seed=1, name="extra")

    def f(x: Any) -> Any:
        dropped = x
        for _ in tf.range(3):
            x, dropped = tf.tanh(x @ w), dropped @ extra
        return x

    return f, [numbers(3, 2)], [w, extra]


@case
def cond() -> Case:
    w, v = variable(3), variable(3, seed=1, name="v")
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * w, lambda: tf.exp(x * v)), [numbers(3)], [w, v]


@case
def map_fn() -> Case:
    w = variable(3)
    return lambda x: tf.map_fn(lambda row: tf.reduce_sum(row * w) ** 2, x), [numbers(4, 3)], [w]


@case
def nested_functions() -> Case:
    w, v = variable(3, 3), variable(3, 3, seed=1, name="v")
    inner = tf.function(lambda x: tf.tanh(x @ w) @ v)
    return lambda x: inner(inner(x)), [numbers(2, 3)], [w, v]


@case
def gather_and_scatter() -> Case:
    w = variable(6, 3)

    def f(x: Any) -> Any:
        updated = tf.tensor_scatter_nd_update(w * 2.0, [[1], [3]], x)
        scattered = tf.scatter_nd([[0], [2], [0]], tf.gather(w, [1, 2, 4]) ** 2, [5, 3])
        return [updated**2, scattered, tf.gather_nd(w, [[1, 2], [0, 0]]) ** 2]

    return f, [numbers(2, 3)], [w]


# ------------------------------------------------------------------------------------ custom gradients


@case
def custom_gradient_of_two() -> Case:
    w, v = variable(4), variable(4, seed=1, name="v")

    @tf.custom_gradient
    def both(x: Any, y: Any) -> Any:
        return (tf.sign(x) * y, tf.exp(y)), lambda g, h: (None, g * y + 3.0 * h)

    return lambda x: [x * part for part in both(w, v)], [numbers(4)], [w, v]


@case
def custom_gradient_in_a_function() -> Case:
    w = variable(4)

    @tf.custom_gradient
    def tripled(x: Any) -> Any:
        c = tf.sin(x)
        return c * x, lambda g: 3.0 * g * c

    inner = tf.function(lambda x: tripled(x * w))
    return lambda x: inner(inner(x)), [numbers(4)], [w]


@case
def custom_gradient_in_a_loop() -> Case:
    w = variable(4)
    signed = tf.custom_gradient(lambda x: (tf.sign(x) * x, lambda g: 3.0 * g * x))

    def f(x: Any) -> Any:
        return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, signed(h * w)), (0, x))[1]

    return f, [numbers(4)], [w]


@case
def custom_gradient_that_reads_a_variable() -> Case:
    w, scale = variable(4), variable(4, seed=3, name="scale")
    scaled = tf.custom_gradient(lambda x: (tf.identity(x), lambda g: g * scale))
    return lambda x: scaled(x * w), [numbers(4)], [w]


@case
def recomputed() -> Case:
    w, v = variable(3, 3), variable(3, 3, seed=1, name="v")
    layer = tf.recompute_grad(lambda x: tf.tanh(x @ w))
    return lambda x: layer(x @ v), [numbers(2, 3)], [w, v]


@case
def stopped() -> Case:
    w, v = variable(4, 4), variable(4, 4, seed=1, name="v")
    return lambda x: (x @ w - tf.stop_gradient(x @ v)) ** 2, [numbers(2, 4)], [w, v]


# ------------------------------------------------------------------------------------------ comparison


LONG = ("lstm", "gru")
"""Those whose first call takes a second."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in CASES]
)
def test_values_gradients_and_verdicts_are_those_of_the_tape(name: str) -> None:
    f, fed, variables = CASES[name]()
    xs = [tf.constant(x) for x in fed]
    with tf.GradientTape() as tape:
        made = tf.nest.flatten(tf.function(f)(*xs))
        total = tf.add_n([tf.reduce_sum(y) for y in made])
    slopes = tape.gradient(total, variables)

    model = sgtf.load(f, inputs=fed)

    def loss(parameters: Any) -> Any:
        ys = model.apply(parameters, *fed)
        return sg.add_n([sg.reduce_sum(y) for y in (ys if isinstance(ys, list) else [ys])])

    ours = model.apply({}, *fed)
    for y, wanted in zip(ours if isinstance(ours, list) else [ours], made, strict=True):
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    values = model.values()
    gradients, report = sg.grad(loss)(values), sg.explain(loss, values)
    for v, wanted in zip(variables, slopes, strict=True):
        keys = [key for key, value in values.items() if np.array_equal(value, v.numpy())]
        if wanted is None and not keys:
            continue  # The graph does not need it.
        (key,) = keys
        status = report[f"p.{key}" if f"p.{key}" in report else f"parameters.{key}"].status
        if wanted is None:
            assert status in ("stopped", "disconnected"), key
            continue
        wanted = tf.convert_to_tensor(wanted)
        np.testing.assert_allclose(gradients[key], wanted, rtol=1e-3, atol=1e-4, err_msg=key)
        assert status in ("flows", "partly stopped") or not np.any(wanted), f"{key}: {status}"
