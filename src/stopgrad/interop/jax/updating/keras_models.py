"""One update of a Keras optimizer on JAX, with the gradient of the loss of ``fit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.updates import Step
from stopgrad.graph.operands import shorten
from stopgrad.interop.jax.updating.user_gradients import Training
from stopgrad.interop.shared import keras, keras_updates


def keras_steps(what: str, model: Any, args: Sequence[Any], training: Training) -> dict[str, Step]:
    """What an update does to the weights of a compiled model, by their paths; what it changed is put back.

    Args:
        what: the caller, for errors.
        model: the model.
        args: x and y, and perhaps the weights of samples.
        training: what it is trained with.

    Raises:
        ArgumentError: that is no optimizer of Keras alone, or the model is not compiled.
    """
    if training.grad is not None or training.wrt is not None:
        raise ArgumentError(
            f"{what}: grad and wrt are for functions; what fit of a Keras model differentiates, its layers' "
            "trainable says"
        )
    optimizer = keras_updates.optimizer_in(training.optimizer)
    if optimizer is None:
        raise ArgumentError(
            f"{what}: the optimizer of a Keras model is one of Keras, or the compiled model, not "
            f"{shorten(training.optimizer)}"
        )
    loss = keras.fit_loss(what, model)
    if not model.built:
        model(args[0])
    xs = keras.by_path(keras.parameters_of(model))
    trained = {name: v for name, v in xs.items() if v.trainable}

    def value(values: dict[str, Any]) -> Any:
        with keras.scope([(v, values[name]) for name, v in trained.items()]):
            return loss(model, *args)

    gradients = jax.grad(value)({name: v.value for name, v in trained.items()})
    return keras_updates.steps_of(what, optimizer, xs, gradients)
