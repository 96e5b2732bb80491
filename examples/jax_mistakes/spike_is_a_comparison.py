"""A spiking neuron whose spike is a comparison.

Symptom: none
Seen in: jaxleyverse/jaxley PR #735, which adds surrogate gradients; before, its manual said that spiking
neurons cannot be trained.

A step is flat on both sides. A surrogate gradient has the step's value, and the slope of something smooth.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("w",)


@jax.custom_jvp
def spike(v):
    return (v > 0.0).astype(jnp.float32)


@spike.defjvp
def surrogate(primals, tangents):
    (v,), (dv,) = primals, tangents
    return spike(v), dv / (1.0 + jnp.abs(v)) ** 2


def broken(w, currents, y):
    def step(v, current):
        v = 0.9 * v + current @ w
        s = (v > 1.0).astype(jnp.float32)  # <- here
        return jnp.where(s > 0.0, 0.0, v), s

    _, spikes = lax.scan(step, jnp.zeros(2), currents)
    return ((spikes.mean(0) - y) ** 2).sum()


def cured(w, currents, y):
    def step(v, current):
        v = 0.9 * v + current @ w
        s = spike(v - 1.0)
        return jnp.where(s > 0.0, 0.0, v), s

    _, spikes = lax.scan(step, jnp.zeros(2), currents)
    return ((spikes.mean(0) - y) ** 2).sum()


def example():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=s).astype("f4") for s in [(3, 2), (6, 3), 2])
