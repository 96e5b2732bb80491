"""Chen & He 2021, eq. 1 to 4."""

from __future__ import annotations

import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def batch_norm(h):
    return (h - jnp.mean(h, 0)) / jnp.sqrt(jnp.mean(jnp.square(h - jnp.mean(h, 0)), 0) + 1e-5)


def encoder(w, x):
    return jnp.dot(jnp.maximum(batch_norm(jnp.dot(x, w["W1"])), 0.0), w["W2"])


def predictor(w, z):
    return jnp.dot(jnp.maximum(batch_norm(jnp.dot(z, w["W3"])), 0.0), w["W4"])


def minus_cosine(p, z):
    return -jnp.mean(jnp.sum(p * z, 1) / jnp.linalg.norm(p, axis=1) / jnp.linalg.norm(z, axis=1))


def loss(params, view1, view2, stop=sg):
    z1, z2 = encoder(params, view1), encoder(params, view2)
    p1, p2 = predictor(params, z1), predictor(params, z2)
    return 0.5 * (minus_cosine(p1, stop(z2)) + minus_cosine(p2, stop(z1)))


def arguments(example, rng):
    return (
        moved(example.init(rng, hidden=8, narrow=16), rng),
        rng.normal(size=(12, 16)),
        rng.normal(size=(12, 16)),
    )


CASES = {
    "loss": Case(loss, arguments),
    "loss without the stop": Case(
        lambda *args: loss(*args, stop=lambda z: z),
        arguments,
        call=lambda example: lambda *args: example.loss(*args, stop=False),
    ),
}
