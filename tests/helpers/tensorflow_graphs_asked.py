"""Graphs about results, parameters and custom gradients, for :mod:`tests.helpers.tensorflow_graphs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tests.helpers.tensorflow_graphs import expected, freeze, keep, maker, numbers
from tests.helpers.tensorflow_graphs_control import shutil_assets


def variable(*shape: int, seed: int, name: str = "w") -> Any:
    """A variable of random numbers."""
    return tf.Variable(numbers(*shape, seed=seed), name=name)


def save(path: Path, f: Callable[..., Any], fed: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
    """Write a function of named tensors, with its variables, as a SavedModel with its custom gradients."""
    module = tf.Module()
    module.held = dict(variables)
    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in fed.items()]
    called = tf.function(lambda *xs: {"y": f(*xs)}, input_signature=specs)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(path), signatures=called, options=options)
    shutil_assets(path)
    keep(path, **expected(lambda **xs: {"y": f(*xs.values())}, fed, variables))


# -------------------------------------------------------------------------------------- results and data


@maker
def dropped_layer(path: Path) -> None:
    """A layer whose result the function drops is still read, for the order of its effects."""
    w, extra = variable(3, 2, seed=1), variable(2, 2, seed=2, name="extra")

    def f(x: Any) -> Any:
        h = x @ w
        tf.identity(h @ extra)
        return tf.reduce_sum(tf.tanh(h), -1)

    freeze(path, f, {"x": numbers(4, 3)}, {"w": w})


@maker
def two_results(path: Path) -> None:
    """The right twin: what is returned is a result."""
    w, extra = variable(3, 2, seed=1), variable(2, 2, seed=2, name="extra")

    def f(x: Any) -> Any:
        h = x @ w
        return tf.reduce_sum(tf.tanh(h), -1), h @ extra

    freeze(path, f, {"x": numbers(4, 3)}, {"w": w, "extra": extra})


@maker
def data_and_weight(path: Path) -> None:
    """A loss closes over data and a table, beside what it trains."""
    w, emb = variable(2, 3, seed=1), variable(5, 2, seed=2, name="emb")
    data, table = tf.constant(numbers(8, 2, seed=3)), tf.constant(numbers(5, 2, seed=4))

    def f(x: Any) -> Any:
        rows = tf.nn.embedding_lookup(emb, [1, 4, 1]) * tf.gather(table, [0, 1, 2])
        return tf.reduce_sum(tf.tanh(data @ w) @ x) + tf.reduce_sum(rows @ w)

    freeze(path, f, {"x": numbers(3, 1)}, {"w": w, "emb": emb}, open_sizes=False)


@maker
def module_holding_keras(path: Path) -> None:
    """The variables of a Keras layer are not those that the restore operation of the graph knows."""
    module = tf.Module()
    module.dense = tf.keras.layers.Dense(2)
    module.dense.build((None, 3))
    module.dense.bias.assign(numbers(2, seed=3))
    module.w = variable(2, 2, seed=4)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def f(x: Any) -> Any:
        return {"y": tf.tanh(module.dense(x)) @ module.w}

    tf.saved_model.save(module, str(path), signatures=f)
    shutil_assets(path)
    variables = {"kernel": module.dense.kernel.value, "bias": module.dense.bias.value, "w": module.w}
    keep(path, **expected(f, {"x": numbers(4, 3)}, variables))


# -------------------------------------------------------------------------------------- custom gradients


@maker
def straight_through(path: Path) -> None:
    """The gradient replaces that of the function: all that arrives passes."""
    w = variable(3, seed=1)
    binary = tf.custom_gradient(lambda x: (tf.sign(x), lambda g: g))
    save(path, lambda x: binary(w) * x, {"x": numbers(3)}, {"w": w})


@maker
def straight_through_for_one(path: Path) -> None:
    """Of two arguments, one gets no gradient."""
    w, v = variable(3, seed=1), variable(3, seed=2, name="v")

    @tf.custom_gradient
    def both(a: Any, b: Any) -> Any:
        return tf.sign(a) * b, lambda g: (None, 3.0 * g)

    save(path, lambda x: both(w, v) * x, {"x": numbers(3)}, {"w": w, "v": v})


@maker
def custom_gradient_closing_over(path: Path) -> None:
    """What the function takes from outside, besides its arguments, gets no gradient."""
    w, v = variable(3, seed=1), variable(3, seed=2, name="v")

    def f(x: Any) -> Any:
        around = tf.exp(v)
        inner = tf.custom_gradient(lambda z: (tf.sign(z) * around, lambda g: g * around))
        return inner(w) * x

    save(path, f, {"x": numbers(3)}, {"w": w, "v": v})


@maker
def custom_gradient_of_variables(path: Path) -> None:
    """The gradient function returns gradients of variables, too, which it reads itself."""
    w, v = variable(3, seed=1), variable(3, seed=2, name="v")

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        y = x * w

        def gradient(g: Any, variables: Any = None) -> Any:
            return g * w, [2.0 * g * x for _ in variables]

        return y, gradient

    save(path, lambda x: scaled(x * v), {"x": numbers(3)}, {"w": w, "v": v})


@maker
def recomputed(path: Path) -> None:
    w, v = variable(3, 3, seed=1), variable(3, 3, seed=2, name="v")
    layer = tf.recompute_grad(lambda x: tf.tanh(x @ w))
    save(path, lambda x: layer(x @ v), {"x": numbers(2, 3)}, {"w": w, "v": v})
