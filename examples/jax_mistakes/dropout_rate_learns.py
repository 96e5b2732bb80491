"""A dropout rate that is a leaf of the module, and learns.

Symptom: leak
Seen in: patrick-kidger/equinox #318 ("`p` is trainable!", with `jax.grad` in place of `filter_grad`).

Whatever is a floating-point leaf of the tree is a parameter to `jax.grad`. What is none wants a stop where
it is used, or a filter.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("layer.w",)
HELD = ("layer.rate",)


def broken(layer, key, x):
    kept = jax.random.bernoulli(key, 0.5, x.shape)
    dropped = jnp.where(kept, x, 0.0) / (1.0 - layer["rate"])  # <- here
    return (jnp.tanh(dropped @ layer["w"]) ** 2).sum()


def cured(layer, key, x):
    kept = jax.random.bernoulli(key, 0.5, x.shape)
    dropped = jnp.where(kept, x, 0.0) / (1.0 - lax.stop_gradient(layer["rate"]))
    return (jnp.tanh(dropped @ layer["w"]) ** 2).sum()


def example():
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 2)).astype("f4"), rng.normal(size=(4, 3)).astype("f4")
    return {"w": w, "rate": np.float32(0.5)}, jax.random.key(0), x
