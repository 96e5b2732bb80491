"""A straight-through estimator that adds the step to the wrong side.

Symptom: none
Seen in: jax-ml/jax #9032, where the three spellings of it are compared, and copied from the documentation.

`q + stop(x - q)` has the value x, and the gradient of q, which is zero. What is meant is `x + stop(q - x)`:
the value q, the gradient of x.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("w",)


def quantise(x):
    return jnp.round(4.0 * x) / 4.0


def broken(w, x, y):
    z = x @ w
    q = quantise(z)
    h = q + lax.stop_gradient(z - q)  # <- here
    return ((h - y) ** 2).mean()


def cured(w, x, y):
    z = x @ w
    q = quantise(z)
    h = z + lax.stop_gradient(q - z)
    return ((h - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=s).astype("f4") for s in [(3, 2), (4, 3), (4, 2)])
