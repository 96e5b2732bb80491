"""What one update moves, as ``explain`` has it, held against what the user's own step moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad.tensorflow as sgtf
from stopgrad.base.errors import ArgumentError, FlowError
from stopgrad.flow.updates import HELD, MOVES, WITHOUT

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

if keras.config.backend() != "tensorflow":
    pytest.skip("Keras computes with something else", allow_module_level=True)

X, Y = np.ones((3, 2), np.float32), np.ones((3, 1), np.float32)
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "sgd with decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.1),
    "adamw": lambda: keras.optimizers.AdamW(0.1),
    "averaged": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=1),
    "no rate": lambda: keras.optimizers.SGD(0.0),
}


def net(frozen: bool = False) -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(2, name="encoder"), keras.layers.Dense(1, name="head")]
    model = keras.Sequential([keras.Input((2,)), *layers])
    layers[0].trainable = not frozen
    return model


def values(*holders: Any) -> list[Any]:
    return [v.value.numpy().copy() for holder in holders for v in holder.variables]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("is_built", [False, True])
def test_the_verdict_is_what_moves(name: str, stopped: bool, is_built: bool) -> None:
    model, optimizer = net(), OPTIMIZERS[name]()

    def loss(x: Any) -> Any:
        h = model.layers[0](x)
        return tf.reduce_sum(model.layers[1](tf.stop_gradient(h) if stopped else h) ** 2)

    if is_built:
        optimizer.build(model.trainable_variables)
    before = values(model, optimizer)
    flow = sgtf.explain(loss, tf.constant(X), model=model, optimizer=optimizer)
    for a, b in zip(before, values(model, optimizer), strict=True):
        np.testing.assert_array_equal(a, b)
    assert optimizer.built is is_built
    found = {key: flow[key].moves for key in flow}
    for _ in range(max(update.steps for update in flow.updates.values())):
        with tf.GradientTape() as tape:
            made = loss(tf.constant(X))
        gradients = tape.gradient(made, model.trainable_variables)
        some = [
            pair for pair in zip(gradients, model.trainable_variables, strict=True) if pair[0] is not None
        ]
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        optimizer.apply_gradients(some)
    now = values(model)
    assert list(found.values()) == [bool((a != b).any()) for a, b in zip(before, now, strict=False)]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_compiled_model(frozen: bool) -> None:
    model = net(frozen)
    model.compile(keras.optimizers.AdamW(0.1), "mse")
    model.fit(X, Y, verbose=0)
    before = values(model, model.optimizer)
    flow = sgtf.explain(model, X, Y, optimizer=model)
    for a, b in zip(before, values(model, model.optimizer), strict=True):
        np.testing.assert_array_equal(a, b)
    verdicts = [update.verdict for update in flow.updates.values()]
    assert verdicts == [HELD if frozen else MOVES] * 2 + [MOVES] * 2


def test_a_gradient_of_zeros_leaves_a_variable_to_decay() -> None:
    w, v = tf.Variable([1.0, 2.0], name="w"), tf.Variable([1.0, 2.0], name="v")
    optimizer = keras.optimizers.AdamW(0.1)

    def loss() -> Any:
        return tf.reduce_sum(w + 0.0 * v)

    flow = sgtf.explain(loss, model=[w, v], optimizer=optimizer)
    assert [flow[key].update.verdict for key in ("w", "v")] == [MOVES, WITHOUT]
    assert not [finding for finding in flow.findings if "moves" in finding.kind]
    with pytest.raises(FlowError, match="an update moves v"):
        sgtf.assert_held(loss, model=[w, v], optimizer=optimizer, only="v")
    sgtf.assert_held(loss, model=[w, v], optimizer=keras.optimizers.SGD(0.1), only="v")


def test_what_is_no_optimizer_is_named() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    with pytest.raises(ArgumentError, match="optimizer is one of Keras 3"):
        sgtf.explain(lambda: tf.reduce_sum(w), optimizer=3)
