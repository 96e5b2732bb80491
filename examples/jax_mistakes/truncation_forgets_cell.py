"""Truncated backpropagation that stops one half of a scan's carry.

Symptom: leak
Seen in: dpressel/dliss-tutorial #1 asks why "both h, and c"; in JAX by Equinox and Diffrax,
patrick-kidger/diffrax #204.

A carry is a tree. The hidden value is stopped at the edge of a window and the cell is carried on: the
gradient goes back through all windows after all.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("w",)
HELD = ("carry.0", "carry.1")


def cell(w):
    def step(carry, x):
        h, c = carry
        i, f, o, g = jnp.split(jnp.concatenate([h, x]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    return step


def broken(w, carry, xs, y):
    h, c = carry
    (h, _), _ = lax.scan(cell(w), (lax.stop_gradient(h), c), xs)  # <- here
    return ((h - y) ** 2).mean()


def cured(w, carry, xs, y):
    (h, _), _ = lax.scan(cell(w), lax.stop_gradient(carry), xs)
    return ((h - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    w, h, c, xs, y = (rng.normal(size=s).astype("f4") for s in [(4, 8), 2, 2, (3, 2), 2])
    return w, (h, c), xs, y
