"""Williams and Peng 1990: the gradient of a sequence is the sum of its windows', each run by itself.

The reference has no stop at all: its windows begin at numbers, found by running the network without a
gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from examples_references import Case, moved


def window(params, h, x, y):
    error = 0.0
    for now, wanted in zip(x, y, strict=True):
        h = jnp.tanh(jnp.outer(now, params["U"][0]) + jnp.dot(h, params["W"]) + params["b"])
        error += jnp.mean(jnp.square(jnp.dot(h, params["v"])[:, 0] - wanted))
    return error / len(x), h


def whole(params, x, y, size=4):
    """A value whose gradient is put together from the windows' own."""

    @jax.custom_vjp
    def total(params, x, y):
        return backward(params, x, y)[0]

    def backward(params, x, y):
        h, value, gradients = jnp.zeros((x.shape[1], len(params["b"]))), 0.0, []
        for t in range(0, len(x), size):
            part = slice(t, t + size)
            of_window = jax.value_and_grad(window, (0, 2, 3), has_aux=True)
            (error, h), gradient = of_window(params, h, x[part], y[part])
            share = len(x[part]) / len(x)
            value += error * share
            gradients.append(jax.tree.map(lambda g, share=share: g * share, gradient))
        summed = jax.tree.map(lambda *each: sum(each), *[g[0] for g in gradients])
        return value, (summed, *(jnp.concatenate([g[i] for g in gradients]) for i in (1, 2)))

    total.defvjp(backward, lambda kept, g: jax.tree.map(lambda k: g * k, kept))
    return total(params, x, y)


def arguments(example, rng):
    x, y = example.data(rng, steps=10, sequences=3)
    return moved(example.init(rng, hidden=5), rng), x, y


def of_window(example, rng):
    params, x, y = arguments(example, rng)
    return params, rng.normal(size=(3, 5)), x, y


CASES = {
    "loss": Case(
        lambda *args: window(*args)[0],
        of_window,
        call=lambda example: lambda params, h, x, y: example.loss(params, h, x, y)[0],
    ),
    "whole_loss": Case(
        whole,
        arguments,
        call=lambda example: lambda params, x, y: example.whole_loss(params, x, y, 4),
    ),
}
