"""Hochreiter and Schmidhuber 1997, with forget gates; Arpit et al. 2018, algorithm 1, step by step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


@jax.custom_vjp
def clipped(h, max_norm):
    return h


def clip(max_norm, g):
    length = jnp.sqrt(jnp.sum(jnp.square(g)))
    return jnp.where(length > max_norm, g * max_norm / length, g), None


clipped.defvjp(lambda h, max_norm: (h, max_norm), clip)


def loss(params, x, y, max_norm=None, cut=()):
    hidden = len(params["b"]) // 4
    h = c = jnp.zeros((x.shape[1], hidden))
    for t, now in enumerate(x):
        if max_norm is not None:
            h, c = clipped(h, max_norm), clipped(c, max_norm)
        before = sg(h) if t in cut else h
        gates = jnp.dot(now, params["W"]) + jnp.dot(before, params["U"]) + params["b"]
        i, f, o, g = (gates[:, k * hidden : (k + 1) * hidden] for k in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return jnp.mean(jnp.square(jnp.dot(h, params["v"])[:, 0] - y))


def arguments(example, rng):
    x, y = example.data(rng, steps=6, count=3)
    return moved(example.init(rng, hidden=4), rng), x, y


def case(max_norm=None, cut=None):
    steps = None if cut is None else np.isin(np.arange(6), cut)
    return Case(
        lambda params, x, y: loss(params, x, y, max_norm, () if cut is None else cut),
        arguments,
        call=lambda example: lambda params, x, y: example.loss(params, x, y, max_norm, steps),
    )


CASES = {
    "loss": Case(loss, arguments),
    "loss with clipped gradients": case(max_norm=0.02),
    "loss with cuts": case(cut=(2, 5)),
    "loss with both": case(max_norm=0.02, cut=(1, 2)),
}
