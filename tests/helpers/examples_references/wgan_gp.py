"""Gulrajani et al. 2017, eq. 3, with the critic's slope from JAX, point by point."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def network(w, x):
    h = jax.nn.elu(jnp.dot(x, w["W1"]) + w["b1"])
    return jnp.dot(jax.nn.elu(jnp.dot(h, w["W2"]) + w["b2"]), w["W3"])


def critic_loss(critic, generator, real, noise, mix):
    def of_one(x, z, epsilon):
        fake = sg(network(generator, z))
        slope = jax.grad(lambda x: network(critic, x)[0])(epsilon * x + (1.0 - epsilon) * fake)
        difference = network(critic, fake)[0] - network(critic, x)[0]
        return difference + 1.0 * (jnp.sqrt(jnp.sum(slope**2)) - 1.0) ** 2

    return jnp.mean(jax.vmap(of_one)(real, noise, mix[:, 0]))


def generator_loss(generator, critic, noise):
    return -jnp.mean(network(jax.tree.map(sg, critic), network(generator, noise)))


def arguments(example, rng):
    weights = moved(example.init(rng), rng)
    real, noise = rng.normal(size=(2, 10, 2))
    return weights["critic"], weights["generator"], real, noise, rng.random((10, 1))


CASES = {
    "critic_loss": Case(critic_loss, arguments, blocked=("generator.", "noise")),
    "generator_loss": Case(
        generator_loss,
        lambda example, rng: tuple(arguments(example, rng)[i] for i in (1, 0, 3)),
        blocked=("critic.",),
    ),
}
