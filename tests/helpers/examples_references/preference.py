"""Rafailov et al. 2023, eq. 7; Shao et al. 2024, eq. 3 and 4: one answer at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case


def policy(params, question, answer):
    return jax.nn.softmax(params["logits"][question])[answer]


def dpo_loss(params, reference, question, better, worse):
    total = 0.0
    for q, good, bad in zip(question, better, worse, strict=True):
        odds = [policy(params, q, y) / sg(policy(reference, q, y)) for y in (good, bad)]
        total -= jnp.log(jax.nn.sigmoid(0.5 * jnp.log(odds[0]) - 0.5 * jnp.log(odds[1])))
    return total / len(question)


def grpo_loss(params, old, reference, question, answers, rewards):
    total = 0.0
    for q, row, given in zip(question, answers, rewards, strict=True):
        for answer, reward in zip(row, given, strict=True):
            advantage = sg((reward - jnp.mean(given)) / (jnp.std(given) + 1e-6))
            p = policy(params, q, answer)
            ratio = p / sg(policy(old, q, answer))
            bounded = jnp.where(advantage > 0, jnp.minimum(ratio, 1.2), jnp.maximum(ratio, 0.8))
            rho = sg(policy(reference, q, answer)) / p
            total += bounded * advantage - 0.05 * (rho - jnp.log(rho) - 1)
    return -total / answers.size


def policies(example, rng, count):
    return [{"logits": 0.5 * rng.normal(size=(3, 4))} for _ in range(count)]


def pairs(example, rng):
    better, worse = rng.permuted(np.tile(np.arange(4, dtype=np.int32), (6, 1)), axis=1).T[:2]
    return *policies(example, rng, 2), np.array([0, 1, 2, 0, 1, 2], np.int32), better, worse


def groups(example, rng):
    now, old, reference = policies(example, rng, 3)
    answers = rng.integers(4, size=(3, 6), dtype=np.int32)
    return now, old, reference, np.arange(3, dtype=np.int32), answers, rng.normal(size=(3, 6))


CASES = {
    "dpo_loss": Case(dpo_loss, pairs, blocked=("reference.",)),
    "grpo_loss": Case(grpo_loss, groups, blocked=("old.", "reference.", "rewards")),
}
