"""Williams 1992; Kool et al. 2019, eq. 8; Foerster et al. 2018: one run at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case


def reinforce_loss(logits, actions, rewards, baseline):
    total = 0.0
    for row, action, reward in zip(logits, actions, rewards, strict=True):
        total -= jnp.log(jax.nn.softmax(row)[action]) * sg(reward - baseline)
    return total / len(actions)


def rloo_loss(logits, actions, rewards):
    batch, k = actions.shape
    total = 0.0
    for i in range(batch):
        for j in range(k):
            others = sum(rewards[i, m] for m in range(k) if m != j) / (k - 1)
            total -= jnp.log(jax.nn.softmax(logits[i])[actions[i, j]]) * sg(rewards[i, j] - others)
    return total / (batch * k)


def dice_loss(logits, actions, rewards):
    total = 0.0
    for run, reward in zip(actions, rewards, strict=True):
        tau = 0.0
        for t, action in enumerate(run):
            tau += jnp.log(jax.nn.softmax(logits[t])[action])
            total -= jnp.exp(tau - sg(tau)) * reward[t]
    return total / len(actions)


def integers(rng, limit, shape):
    return rng.integers(limit, size=shape, dtype=np.int32)


CASES = {
    "reinforce_loss": Case(
        reinforce_loss,
        lambda _, rng: (rng.normal(size=(6, 3)), integers(rng, 3, 6), rng.normal(size=6), np.float64(0.3)),
        blocked=("rewards", "baseline"),
    ),
    "rloo_loss": Case(
        rloo_loss,
        lambda _, rng: (rng.normal(size=(4, 3)), integers(rng, 3, (4, 5)), rng.normal(size=(4, 5))),
        blocked=("rewards",),
    ),
    "dice_loss": Case(
        dice_loss,
        lambda _, rng: (rng.normal(size=(3, 4)), integers(rng, 4, (5, 3)), rng.normal(size=(5, 3))),
    ),
}
