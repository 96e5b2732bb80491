"""Ganin et al. 2016, eq. 9 and 18: R(x) = x with the gradient -λ, as a custom gradient of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from examples_references import Case, moved


@jax.custom_vjp
def reverse(x, strength):
    return x


reverse.defvjp(lambda x, strength: (x, strength), lambda strength, g: (-strength * g, None))


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.log(jax.nn.softmax(logits)[jnp.arange(len(labels)), labels]))


def loss(params, source, labels, target, strength):
    def f(x):
        return jnp.tanh(jnp.dot(jnp.tanh(jnp.dot(x, params["W1"])), params["W2"]))

    features = jnp.vstack([f(source), f(target)])
    domains = jnp.array([0] * len(source) + [1] * len(target))
    return cross_entropy(jnp.dot(f(source), params["class"]), labels) + cross_entropy(
        jnp.dot(reverse(features, strength), params["domain"]), domains
    )


def arguments(example, rng):
    source, target = rng.normal(size=(2, 10, 3))
    labels = rng.integers(2, size=10, dtype=np.int32)
    return moved(example.init(rng, hidden=8), rng), source, labels, target[:7], np.float64(0.7)


CASES = {
    "loss": Case(loss, arguments, blocked=("strength",)),
    "loss by the formula with a stop": Case(
        lambda *args: loss(*args, 0.7),
        lambda example, rng: arguments(example, rng)[:4],
        call=lambda example: (
            lambda params, source, labels, target: example.loss(
                params, source, labels, target, 0.7, example.reversed_by_a_stop
            )
        ),
    ),
}
