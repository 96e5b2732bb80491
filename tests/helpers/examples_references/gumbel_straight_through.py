"""Jang et al. 2017, eq. 2 and section 2.2, with hard + soft - sg(soft)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, doubled, moved


def loss(params, x, key):
    logits = jnp.dot(jnp.tanh(jnp.dot(x - 0.5, params["W1"])), params["W2"])
    y = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape, jnp.float64)) / 0.7)
    hard = jnp.where(y == jnp.max(y, 1, keepdims=True), 1.0, 0.0)
    chance = jax.nn.sigmoid(jnp.dot(hard + y - sg(y), params["dictionary"]))
    likelihood = jnp.sum(x * jnp.log(chance) + (1.0 - x) * jnp.log(1.0 - chance), 1)
    q = jax.nn.softmax(logits)
    return jnp.mean(jnp.sum(q * jnp.log(q * 8.0), 1) - likelihood)


def arguments(example, rng):
    return moved(example.init(rng), rng), doubled(example.data(rng, 20)[0]), np.array([3, 5], np.uint32)


CASES = {"loss": Case(loss, arguments)}
