"""A value is made a Python number inside a function that is traced.

Symptom: error
Seen in: jax-ml/jax #9085 (of `float`), #7545 (of `np.asarray`), google-deepmind/weathernext #41.

While JAX differentiates or compiles, there is no number yet. What depends on an argument stays an array of
JAX.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("w",)


def broken(w, x, y):
    error = x @ w - y
    scale = float(jnp.abs(error).max())  # <- here
    return ((error / scale) ** 2).mean()


def cured(w, x, y):
    error = x @ w - y
    scale = lax.stop_gradient(jnp.abs(error).max())
    return ((error / scale) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=s).astype("f4") for s in [(3, 2), (4, 3), (4, 2)])
