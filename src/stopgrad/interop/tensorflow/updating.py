"""What one update of the user's optimizer does to each variable of TensorFlow and of Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.updates import Step
from stopgrad.graph.operands import shorten
from stopgrad.interop.shared import keras, keras_updates


def steps_of(
    what: str, optimizer: keras.Optimizer, arrived: Mapping[str, tuple[Any, Any]]
) -> dict[str, Step]:
    """What updates do to variables, by their names; the variables are as they were afterwards.

    Args:
        what: the caller, for errors.
        optimizer: of Keras, or a compiled model.
        arrived: by name, what was asked about, with the gradient that a tape gives it.

    Raises:
        ArgumentError: it is no optimizer of Keras, or an update fails.
    """
    optimizer = keras_optimizer(what, optimizer)
    variables = {name: x for name, (x, _) in arrived.items() if not isinstance(x, tf.Tensor)}
    return keras_updates.steps_of(what, optimizer, variables, {name: arrived[name][1] for name in variables})


def keras_optimizer(what: str, optimizer: keras.Optimizer) -> keras.Optimizer:
    """The optimizer of Keras that something is, or that of a compiled model.

    Raises:
        ArgumentError: it is neither.
    """
    own = keras_updates.optimizer_in(optimizer)
    if own is None:
        raise ArgumentError(
            f"{what}: optimizer is one of Keras 3, or a compiled model, not {shorten(optimizer)}"
        )
    return own
