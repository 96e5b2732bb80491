"""Lepikhin et al. 2020, algorithm 1, and Fedus et al. 2021, eq. 4: token by token, counting seats."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def loss(params, x, y, capacity):
    experts = params["gate"].shape[1]
    p = jax.nn.softmax(jnp.dot(x, params["gate"]))
    order = jnp.argsort(-p, axis=1)[:, :2]
    said, taken = [jnp.zeros_like(row) for row in y], jnp.zeros(experts)
    for choice in range(2):
        for t, row in enumerate(x):
            expert = order[t, choice]
            share = p[t, expert] / (p[t, order[t, 0]] + p[t, order[t, 1]])
            h = jnp.maximum(jnp.dot(row, params["up"][expert]), 0.0)
            room = taken[expert] < capacity
            said[t] += jnp.where(room, share, 0.0) * jnp.dot(h, params["down"][expert])
            taken = taken.at[expert].add(1)
    firsts = jnp.sum(jax.nn.one_hot(order[:, 0], experts), 0) / len(x)
    balance = experts * jnp.sum(sg(firsts) * jnp.mean(p, 0))
    return jnp.mean(jnp.sum(jnp.square(jnp.stack(said) - y), 1)) + 0.5 * balance


def case(capacity):
    def arguments(example, rng):
        params = moved(example.init(rng, width=4, hidden=3, experts=3), rng)
        params["gate"] = 3.0 * rng.normal(size=params["gate"].shape)
        return params, rng.normal(size=(7, 4)), rng.normal(size=(7, 4))

    return Case(
        lambda params, x, y: loss(params, x, y, capacity),
        arguments,
        call=lambda example: lambda params, x, y: example.loss(params, x, y, capacity),
    )


CASES = {"loss": case(14), "loss without room for all": case(3)}
