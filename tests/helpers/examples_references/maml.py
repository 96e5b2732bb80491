"""Finn et al. 2017, eq. 1; for the first order, the inner gradient is a number."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from examples_references import Case, doubled, moved


def error(w, x, y):
    h = jnp.tanh(jnp.dot(x, w["W1"]) + w["b1"])
    return jnp.mean(jnp.square(jnp.dot(jnp.tanh(jnp.dot(h, w["W2"]) + w["b2"]), w["W3"]) - y))


def loss(params, tasks, stop=lambda g: g):
    def of_one(task):
        x_train, y_train, x_test, y_test = task
        inner = stop(jax.grad(error)(params, x_train, y_train))
        return error(jax.tree.map(lambda p, g: p - 0.05 * g, params, inner), x_test, y_test)

    return jnp.mean(jax.lax.map(of_one, tasks))


def arguments(example, rng):
    return moved(example.init(rng, hidden=6), rng), doubled(example.sinusoids(rng, 3))


CASES = {
    "loss": Case(loss, arguments),
    "loss of the first order": Case(
        lambda params, tasks: loss(params, tasks, jax.lax.stop_gradient),
        arguments,
        blocked=("tasks.0", "tasks.1"),
        call=lambda example: lambda params, tasks: example.loss(params, tasks, first_order=True),
    ),
}
