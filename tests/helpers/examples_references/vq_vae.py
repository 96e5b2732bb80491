"""van den Oord et al. 2017, eq. 1 to 3, with the straight-through estimator as z + sg(e - z)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def network(w, x):
    return jnp.dot(jnp.tanh(jnp.dot(x, w["W1"]) + w["b1"]), w["W2"])


def loss(params, x):
    def of_one(point):
        z = network(params["encoder"], point)
        e = params["codebook"][jnp.argmin(jnp.linalg.norm(params["codebook"] - z, axis=1))]
        restored = network(params["decoder"], z + sg(e - z))
        return (
            jnp.sum(jnp.square(point - restored))
            + jnp.sum(jnp.square(sg(z) - e))
            + 0.25 * jnp.sum(jnp.square(z - sg(e)))
        )

    return jnp.mean(jax.vmap(of_one)(x))


def arguments(example, rng):
    return moved(example.init(rng, entries=4), rng), rng.normal(size=(20, 2))


CASES = {"loss": Case(loss, arguments)}
