"""He et al. 2020, eq. 1: a softmax over one positive and all queued keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def encoder(w, x):
    y = jnp.dot(jnp.maximum(jnp.dot(x, w["W1"]), 0.0), w["W2"])
    return y / jnp.linalg.norm(y, axis=1, keepdims=True)


def loss(query_params, key_params, queue, view1, view2):
    q, k = encoder(query_params, view1), sg(encoder(key_params, view2))

    def of_one(q, k):
        positive, negative = jnp.dot(q, k) / 0.2, jnp.dot(queue, q) / 0.2
        return jax.nn.logsumexp(jnp.append(negative, positive)) - positive

    return jnp.mean(jax.vmap(of_one)(q, k))


def arguments(example, rng):
    query, key = (moved(example.init(rng, hidden=8), rng) for _ in range(2))
    queue = rng.normal(size=(20, 8))
    return query, key, queue, rng.normal(size=(6, 16)), rng.normal(size=(6, 16))


CASES = {
    "loss": Case(
        loss,
        arguments,
        blocked=("key_params.", "view2"),
        call=lambda example: (
            lambda query_params, key_params, queue, view1, view2: example.loss(
                query_params, key_params, queue, view1, view2
            )[0]
        ),
    )
}
