"""Esser et al. 2020, eq. 1 to 3, and Choi et al. 2018, eq. 1 to 3, with their gradients as written there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from examples_references import Case, moved

LOW, HIGH, LEVELS = -8, 7, 15


@jax.custom_vjp
def lsq(v, s):
    return s * jnp.round(jnp.clip(v / s, LOW, HIGH))


def lsq_backward(given, g):
    v, s = given
    ratio = v / s
    ds = jnp.where(ratio <= LOW, LOW, jnp.where(ratio >= HIGH, HIGH, jnp.round(ratio) - ratio))
    inside = (ratio > LOW) & (ratio < HIGH)
    return jnp.where(inside, g, 0.0), jnp.sum(g * ds) / jnp.sqrt(v.size * HIGH)


lsq.defvjp(lambda v, s: (lsq(v, s), (v, s)), lsq_backward)


@jax.custom_vjp
def pact(x, alpha):
    y = 0.5 * (jnp.abs(x) - jnp.abs(x - alpha) + alpha)
    return jnp.round(y * LEVELS / alpha) * alpha / LEVELS


def pact_backward(given, g):
    x, alpha = given
    return jnp.where((x > 0) & (x < alpha), g, 0.0), jnp.sum(jnp.where(x >= alpha, g, 0.0))


pact.defvjp(lambda x, alpha: (pact(x, alpha), (x, alpha)), pact_backward)


def loss(params, x, y):
    hidden = pact(jnp.dot(x, lsq(params["W1"], params["step1"])) + params["b1"], params["alpha"])
    chance = jax.nn.sigmoid(jnp.dot(hidden, lsq(params["W2"], params["step2"]))[:, 0])
    error = -(y * jnp.log(chance) + (1.0 - y) * jnp.log(1.0 - chance))
    return jnp.mean(error) + 0.001 * jnp.square(params["alpha"])


def arguments(example, rng):
    """With a bound so low, and steps so small, that some activations and weights lie beyond."""
    params = moved(example.init(rng), rng) | {"alpha": np.array(0.9)}
    x, y = example.data(rng, 20)
    return params | {"step1": np.array(0.2), "step2": np.array(0.05)}, x, y


def fixed(x, step):
    @jax.custom_vjp
    def quantised(x):
        return step * jnp.clip(jnp.round(x / step), LOW, HIGH)

    inside = (x > LOW * step) & (x < HIGH * step)
    quantised.defvjp(lambda x: (quantised(x), None), lambda _, g: (jnp.where(inside, g, 0.0),))
    return jnp.sum(jnp.sin(quantised(x)))


CASES = {
    "loss": Case(loss, arguments),
    "fixed step": Case(
        lambda x: fixed(x, 0.1),
        lambda example, rng: (rng.normal(size=(6, 5)),),
        call=lambda example: lambda x: example.sg.sin(example.fixed_step(x, 0.1)).sum(),
    ),
}
