"""van Hasselt et al. 2016, eq. 4, one step at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def q(w, s):
    return jnp.dot(jnp.maximum(jnp.dot(s, w["W1"]), 0.0), w["W2"])


def loss(online, target, states, actions, rewards, following, done):
    def of_one(s, a, r, s2, end):
        y = jnp.where(end > 0, r, r + 0.95 * q(target, s2)[jnp.argmax(q(online, s2))])
        return jnp.square(q(online, s)[a] - sg(y))

    return jnp.mean(jax.vmap(of_one)(states, actions, rewards, following, done))


def arguments(example, rng):
    online, target = (moved(example.init(rng, hidden=8), rng) for _ in range(2))
    states, following = rng.normal(size=(2, 16, example.STATES))
    actions = rng.integers(example.ACTIONS, size=16, dtype=np.int32)
    # As float64, for 0.95 * (1.0 - done) of a boolean is a float32.
    done = (rng.random(16) < 0.3).astype(np.float64)
    return online, target, states, actions, rng.normal(size=16), following, done


CASES = {"loss": Case(loss, arguments, blocked=("target.", "rewards", "following", "done"))}
