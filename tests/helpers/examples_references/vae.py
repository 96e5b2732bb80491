"""Roeder et al. 2017, eq. 8; Burda et al. 2015, eq. 8; Tucker et al. 2018, eq. 8, one sample at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg
from jax.scipy.stats import norm

from examples_references import Case, moved


def log_weight(decoder, x, z, mean, sigma):
    said = jnp.dot(z, decoder["W"]) + decoder["b"]
    p = jnp.sum(norm.logpdf(x, said, 0.5)) + jnp.sum(norm.logpdf(z))
    return p - jnp.sum(norm.logpdf(z, mean, sigma))


def encode(params, x):
    return jnp.dot(x, params["encoder"]["W"]) + params["encoder"]["b"], jnp.exp(
        params["encoder"]["log_sigma"]
    )


def elbo_loss(params, x, noise, hold=sg):
    def of_one(x, noise):
        mean, sigma = encode(params, x)
        return log_weight(params["decoder"], x, mean + sigma * noise, hold(mean), hold(sigma))

    return -jnp.mean(jax.vmap(of_one)(x, noise))


def iwae_loss(params, x, noise):
    def of_one(x, noise):
        mean, sigma = encode(params, x)
        weights = [
            jnp.exp(log_weight(params["decoder"], x, mean + sigma * each, mean, sigma)) for each in noise
        ]
        return jnp.log(sum(weights) / len(noise))

    return -jnp.mean(jax.vmap(of_one, (0, 1))(x, noise))


def doubly(params, x, noise):
    """The encoder's gradient from a sum of its own, that is worth nothing."""

    def of_one(x, noise):
        mean, sigma = encode(params, x)
        held = sg(mean), sg(sigma)
        z = [mean + sigma * each for each in noise]
        w = jnp.stack([jnp.exp(log_weight(params["decoder"], x, sg(each), *held)) for each in z])
        fixed, share = jax.tree.map(sg, params["decoder"]), sg(w / jnp.sum(w))
        surrogate = sum(
            s**2 * log_weight(fixed, sg(x), each, *held) for s, each in zip(share, z, strict=True)
        )
        return jnp.log(jnp.mean(w)) + surrogate - sg(surrogate)

    return -jnp.mean(jax.vmap(of_one, (0, 1))(x, noise))


def arguments(*samples):
    def make(example, rng):
        params = moved(example.init(rng, inputs=4), rng)
        return params, rng.normal(size=(3, 4)), rng.normal(size=(*samples, 3, 2))

    return make


CASES = {
    "elbo_loss": Case(elbo_loss, arguments()),
    "elbo_loss without sticking": Case(
        lambda *args: elbo_loss(*args, hold=lambda x: x),
        arguments(),
        call=lambda example: lambda params, x, noise: example.elbo_loss(params, x, noise, stick=False),
    ),
    "iwae_loss": Case(doubly, arguments(4)),
    "iwae_loss, plain": Case(
        iwae_loss,
        arguments(4),
        call=lambda example: lambda params, x, noise: example.iwae_loss(params, x, noise, doubly=False),
    ),
}
