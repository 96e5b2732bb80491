"""Goodfellow et al. 2014, section 3: -log D(x) - log(1 - D(G(z))), and -log D(G(z)) for the generator."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def network(w, x):
    h = jax.nn.leaky_relu(jnp.dot(x, w["W1"]) + w["b1"], 0.2)
    return jnp.dot(jax.nn.leaky_relu(jnp.dot(h, w["W2"]), 0.2), w["W3"]) + w["b3"]


def loss(params, real, noise):
    def chance(w, x):
        return jax.nn.sigmoid(network(w, x))

    g, d = params["generator"], params["discriminator"]
    fixed_g, fixed_d = (jax.tree.map(sg, w) for w in (g, d))
    told = -jnp.log(chance(d, real)) - jnp.log(1.0 - chance(d, network(fixed_g, sg(noise))))
    return jnp.mean(told) + jnp.mean(-jnp.log(chance(fixed_d, network(g, noise))))


def arguments(example, rng):
    return moved(example.init(rng), rng), rng.normal(size=(16, 2)), rng.normal(size=(16, example.NOISE))


CASES = {"loss": Case(loss, arguments)}
