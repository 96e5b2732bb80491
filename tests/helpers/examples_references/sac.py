"""Haarnoja et al. 2018, eq. 5, 9, 18 and appendix C, each with respect to its own weights only."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg
from jax.scipy.stats import norm

from examples_references import Case, doubled, moved


def network(w, x):
    h = jax.nn.relu(jnp.dot(x, w["W1"]))
    return jnp.dot(jax.nn.relu(jnp.dot(h, w["W2"])), w["W3"])


def critic(w, s, a):
    return network(w, jnp.hstack([s, a]))[:, 0]


def policy(w, s, noise):
    out = network(w, s)
    mean, std = out[:, :1], jnp.exp(jnp.clip(out[:, 1:], -5.0, 2.0))
    u = mean + std * noise
    density = norm.logpdf(u, mean, std) - jnp.log(1.0 / jnp.cosh(u) ** 2)
    return jnp.tanh(u), density[:, 0]


def loss(params, target, states, actions, rewards, following, done, key):
    first, second = jax.random.split(key)
    shape, w, alpha = actions.shape, params["policy"], jnp.exp(params["log_alpha"])
    a, log_p = policy(w, following, jax.random.normal(first, shape, jnp.float64))
    q1, q2 = (critic(c, following, a) for c in target)
    y = sg(rewards + jnp.where(done > 0, 0.0, 0.9 * (jnp.minimum(q1, q2) - alpha * log_p)))
    total = 0.0
    for c in params["critics"]:
        total += jnp.mean(jnp.square(critic(c, states, actions) - y))
    a, log_p = policy(w, states, jax.random.normal(second, shape, jnp.float64))
    q1, q2 = (critic(jax.tree.map(sg, c), states, a) for c in params["critics"])
    total += jnp.mean(sg(alpha) * log_p - jnp.minimum(q1, q2))
    return total + jnp.mean(-alpha * sg(log_p - 1.0))


def arguments(example, rng):
    params, target = moved(example.init(rng), rng), moved(example.init(rng)["critics"], rng)
    states, actions, rewards, following, done = doubled(example.explore(rng, 16))
    # As float64, for 0.9 * (1.0 - done) of a boolean is a float32.
    return (
        params,
        target,
        states,
        actions,
        rewards,
        following,
        done.astype(np.float64),
        np.array([3, 5], np.uint32),
    )


CASES = {"loss": Case(loss, arguments, blocked=("target.", "rewards", "following", "done"), tolerance=1e-9)}
