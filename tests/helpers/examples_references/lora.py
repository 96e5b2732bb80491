"""Hu et al. 2021, eq. 3: h = W x + s B A x, with W frozen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def loss(params, x, y):
    def of_one(x, y):
        said = jnp.dot(sg(params["W"]).T + 2.0 * jnp.dot(params["B"].T, params["A"].T), x)
        return jnp.sum(jnp.square(said - y))

    return jnp.mean(jax.vmap(of_one)(x, y))


def arguments(example, rng):
    params = moved(example.init(rng, inputs=5, outputs=4), rng)
    return params, rng.normal(size=(6, 5)), rng.normal(size=(6, 4))


CASES = {"loss": Case(loss, arguments, blocked=("params.W",))}
