"""Du and Mordatch 2019, eq. 1 and 2: the contrastive gradient, of samples from Langevin's walk."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from examples_references import Case, moved


def energy(params, x):
    h = jnp.tanh(jnp.dot(params["W1"].T, x) + params["b1"])
    return jnp.dot(h, params["W2"][:, 0]) + 0.5 * jnp.dot(x, x)


def walk(params, x, key):
    for each in jax.random.split(key, 20):
        noise = jax.random.normal(each, x.shape, x.dtype)
        x = x - 0.05 * jax.vmap(jax.grad(lambda x: energy(params, x)))(x) + jnp.sqrt(0.1) * noise
    return x


def loss(params, x, start, key):
    samples = jax.lax.stop_gradient(walk(params, start, key))
    return jnp.mean(jax.vmap(lambda x: energy(params, x))(x)) - jnp.mean(
        jax.vmap(lambda x: energy(params, x))(samples)
    )


def arguments(example, rng):
    key = np.array([3, 5], np.uint32)
    return moved(example.init(rng, hidden=6), rng), example.data(rng, 8), rng.normal(size=(5, 2)), key


CASES = {
    "loss": Case(
        loss,
        arguments,
        blocked=("start",),
        call=lambda example: lambda params, x, start, key: example.loss(params, x, start, key)[0],
    ),
}
