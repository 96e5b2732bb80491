"""Caron et al. 2021, algorithm 1; Bardes et al. 2021, eq. 1 to 6; Song et al. 2023, eq. 10."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def network(w, x):
    return jnp.dot(jnp.tanh(jnp.dot(x, w["W1"])), w["W2"])


def dino_loss(student, teacher, centre, view1, view2):
    def entropy(t, s):
        t = jax.nn.softmax((sg(t) - sg(centre)) / 0.04)
        return -jnp.mean(jnp.sum(t * jnp.log(jax.nn.softmax(s / 0.1)), 1))

    s1, s2, t1, t2 = (network(w, x) for w in (student, teacher) for x in (view1, view2))
    return entropy(t1, s2) / 2 + entropy(t2, s1) / 2


def vicreg_loss(params, view1, view2):
    a, b = network(params, view1), network(params, view2)
    n, d = a.shape
    total = 25.0 / n * sum(jnp.sum(jnp.square(a[i] - b[i])) for i in range(n))
    for z in (a, b):
        deviation = jnp.sqrt(jnp.var(z, 0, ddof=1) + 1e-4)
        total += 25.0 / d * jnp.sum(jnp.maximum(0.0, 1.0 - deviation))
        total += 1.0 / d * sum(jnp.cov(z.T)[i, j] ** 2 for i in range(d) for j in range(d) if i != j)
    return total


def denoised(w, x, t):
    skip, scale = 1 / (1 + t**2), jnp.sqrt(1 + t**2)
    return skip * x + t / scale * network(w, jnp.append(x / scale, jnp.stack([1 / scale, t])))


def consistency_loss(params, x, noise, n):
    def of_one(x, e, n):
        near, far = n * 0.25, (n + 1) * 0.25
        target = sg(denoised(params, x + near * e, near))
        return jnp.sum(jnp.square(denoised(params, x + far * e, far) - target))

    return jnp.mean(jax.vmap(of_one)(x, noise, n))


def of_two(example, rng):
    """Weights so small that some deviations are below 1."""
    params = moved(example.init(rng, 4, 5, 3), rng)
    return params, rng.normal(size=(6, 4)), rng.normal(size=(6, 4))


def for_dino(example, rng):
    student, *views = of_two(example, rng)
    return student, moved(student, rng), 0.1 * rng.normal(size=3), *views


def for_consistency(example, rng):
    params = moved(example.init(rng, 4, 5, 2), rng)
    return params, *rng.normal(size=(2, 8, 2)), np.arange(8, dtype=np.int32)


CASES = {
    "dino_loss": Case(
        dino_loss,
        for_dino,
        blocked=("teacher.", "centre"),
        call=lambda example: (
            lambda student, teacher, centre, view1, view2: example.dino_loss(
                student, teacher, centre, view1, view2
            )[0]
        ),
    ),
    "vicreg_loss": Case(vicreg_loss, of_two),
    "consistency_loss": Case(consistency_loss, for_consistency),
}
