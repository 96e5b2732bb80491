"""Schulman et al. 2017, eq. 7, 9 and 11; the advantage as the sum of eq. 11, not as a recursion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def network(w, s):
    h = jnp.tanh(jnp.dot(s, w["shared"]))
    return jax.nn.log_softmax(jnp.dot(h, w["policy"])), jnp.dot(h, w["value"])[..., 0]


def loss(params, old, states, actions, rewards, done):
    old_log_p, v = network(old, states)
    delta = rewards + jnp.where(done > 0, 0.0, 0.95 * v[1:]) - v[:-1]
    steps = len(rewards)
    advantage = []
    for t in range(steps):
        total, weight = 0.0, jnp.ones_like(delta[0])
        for k in range(t, steps):
            total = total + weight * delta[k]
            weight = weight * 0.95 * 0.9 * (1 - done[k])
        advantage.append(total)
    advantage = jnp.stack(advantage)
    returns = sg(advantage + v[:-1])
    scaled = sg((advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8))

    log_p, values = network(params, states[:-1])
    chosen = jax.nn.one_hot(actions, log_p.shape[-1])
    ratio = jnp.exp(jnp.sum(chosen * (log_p - sg(old_log_p[:-1])), -1))
    clipped = jnp.where(scaled > 0, jnp.minimum(ratio, 1.2), jnp.maximum(ratio, 0.8))
    entropy = jnp.mean(-jnp.sum(jnp.exp(log_p) * log_p, -1))
    return -jnp.mean(clipped * scaled) + 0.5 * jnp.mean(jnp.square(values - returns)) - 0.01 * entropy


def arguments(example, rng):
    params, old = (moved(example.init(rng, hidden=8), rng) for _ in range(2))
    states, actions = rng.normal(size=(7, 4, 3)), rng.integers(3, size=(6, 4), dtype=np.int32)
    # As float64, for 0.95 * (1.0 - done) of a boolean is a float32.
    done = (rng.random((6, 4)) < 0.3).astype(np.float64)
    return params, old, states, actions, rng.normal(size=(6, 4)), done


CASES = {"loss": Case(loss, arguments, blocked=("old.", "rewards", "done"))}
