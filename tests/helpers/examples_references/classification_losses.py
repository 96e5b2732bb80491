"""Szegedy et al. 2016, section 7; Lin et al. 2017, eq. 4; van den Oord et al. 2018, eq. 4."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case


def smoothed(logits, labels):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        p = jax.nn.softmax(row)
        total -= 0.9 * jnp.log(p[label]) + 0.1 / len(row) * jnp.sum(jnp.log(p))
    return total / len(labels)


def focal(logits, labels, weigh=lambda w: w, gamma=2.0):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        p = jax.nn.softmax(row)[label]
        total -= weigh((1.0 - p) ** gamma) * jnp.log(p)
    return total / len(labels)


def info_nce(a, b, hold=lambda b: b):
    def cosine(x, y):
        return jnp.dot(x, y) / jnp.sqrt(jnp.dot(x, x) * jnp.dot(y, y))

    each = jnp.exp(jax.vmap(lambda x: jax.vmap(lambda y: cosine(x, hold(y)))(b))(a) / 0.1)
    return -jnp.mean(jnp.log(jnp.diag(each) / jnp.sum(each, 1)))


def classes(example, rng):
    return rng.normal(size=(5, 4)), rng.integers(4, size=5, dtype=np.int32)


def pairs(example, rng):
    a = rng.normal(size=(5, 4))
    return a, a + 0.5 * rng.normal(size=(5, 4))


CASES = {
    "smoothed": Case(smoothed, classes),
    "focal": Case(focal, classes),
    "focal with a constant weight": Case(
        lambda logits, labels: focal(logits, labels, sg, 1.5),
        classes,
        call=lambda example: lambda logits, labels: example.focal(logits, labels, 1.5, constant_weight=True),
    ),
    "info_nce": Case(info_nce, pairs),
    "info_nce of one side": Case(
        lambda a, b: info_nce(a, b, sg),
        pairs,
        blocked=("b",),
        call=lambda example: lambda a, b: example.info_nce(a, b, one_sided=True),
    ),
}
