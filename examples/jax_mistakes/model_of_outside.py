"""A loss that takes the model as an argument, and uses the one of outside.

Symptom: none
Seen in: patrick-kidger/equinox #442 ("you're not actually using the `model` argument!") and #458; jax-ml/jax
#1407.

JAX differentiates by arguments. What is closed over is a constant, although it is the very same array; and
the argument is not used.
"""

import jax
import jax.numpy as jnp
import numpy as np

LEARNS = ("model.w", "model.b")

MODEL = {"w": np.array([[0.5, -1.0], [2.0, 0.3]], "f4"), "b": np.array([0.1, -0.2], "f4")}


def broken(model, x, y):
    h = jax.vmap(lambda row: jnp.tanh(row @ MODEL["w"] + MODEL["b"]))(x)  # <- here
    return ((h - y) ** 2).mean()


def cured(model, x, y):
    h = jax.vmap(lambda row: jnp.tanh(row @ model["w"] + model["b"]))(x)
    return ((h - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return MODEL, rng.normal(size=(4, 2)).astype("f4"), rng.normal(size=(4, 2)).astype("f4")
