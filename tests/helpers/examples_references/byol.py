"""Grill et al. 2020, eq. 2: 2 - 2 <q, z> / (|q| |z|), made symmetric."""

from __future__ import annotations

import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def encoder(w, x):
    h = jnp.dot(x, w["W1"])
    h = (h - jnp.mean(h, axis=0)) / (jnp.std(h, axis=0) + 1e-5)
    return jnp.dot(jnp.maximum(h, 0.0), w["W2"])


def loss(online, target, view1, view2):
    total = 0.0
    for v, w in ((view1, view2), (view2, view1)):
        q = jnp.dot(jnp.maximum(jnp.dot(encoder(online, v), online["W3"]), 0.0), online["W4"])
        z = sg(encoder(target, w))
        cosine = jnp.sum(q * z, axis=1) / (jnp.linalg.norm(q, axis=1) * jnp.linalg.norm(z, axis=1))
        total += jnp.mean(2.0 - 2.0 * cosine)
    return total


def arguments(example, rng):
    online, target = (moved(example.init(rng, hidden=8), rng) for _ in range(2))
    return online, target, rng.normal(size=(12, 16)), rng.normal(size=(12, 16))


CASES = {"loss": Case(loss, arguments, blocked=("target.",))}
