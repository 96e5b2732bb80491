"""Ioffe 2017, algorithm 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def loss(params, statistics, x, labels):
    (mean, deviation), h = statistics, jnp.dot(x, params["W1"])
    batch_mean = jnp.sum(h, 0) / len(h)
    batch_deviation = jnp.sqrt(1e-3 + jnp.sum(jnp.square(h - batch_mean), 0) / len(h))
    r = sg(jnp.minimum(jnp.maximum(batch_deviation / deviation, 1 / 3), 3))
    d = sg(jnp.minimum(jnp.maximum((batch_mean - mean) / deviation, -5), 5))
    y = params["gamma"] * ((h - batch_mean) / batch_deviation * r + d) + params["beta"]
    p = jax.nn.softmax(jnp.dot(jnp.maximum(y, 0.0), params["W2"]))
    return -jnp.mean(jnp.log(p[jnp.arange(len(labels)), labels]))


def arguments(example, rng):
    """With statistics so far from the batch's that some of r and d are clipped."""
    params, (mean, deviation) = example.init(rng, hidden=8)
    mean = mean + 4.0 * rng.normal(size=mean.shape)
    deviation = deviation * np.exp(1.5 * rng.normal(size=deviation.shape))
    return moved(params, rng), (mean, deviation), *example.data(rng, 12)


CASES = {
    "loss": Case(
        loss,
        arguments,
        blocked=("statistics",),
        call=lambda example: (
            lambda params, statistics, x, labels: example.loss(params, statistics, x, labels)[0]
        ),
    )
}
