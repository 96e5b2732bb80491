"""Bai et al. 2019, theorem 1, by one step of Newton's method from the solution; Fung et al. 2022.

Newton's step z + (I - ∂f/∂z)⁻¹ (f(z) - z) from z = sg(z*) has the value z* and, since f(z*) - z* is 0, the
gradient of the implicit function theorem, exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg

from examples_references import Case, moved


def f(layer, z, x):
    sums = jnp.sum(jnp.abs(layer["A"]), 0)
    A = jnp.where(sums > 0.9, layer["A"] * 0.9 / sums, layer["A"])
    return jnp.tanh(jnp.dot(z, A) + jnp.dot(x, layer["B"]) + layer["c"])


def loss(params, x, labels, newton=True):
    layer = params["layer"]

    def of_one(x, label):
        z = sg(jax.lax.fori_loop(0, 400, lambda _, z: f(layer, z, x), jnp.zeros(len(layer["c"]))))
        step = f(layer, z, x)
        if newton:
            jacobian = jax.jacobian(lambda z: f(layer, z, x))(z)
            step = z + jnp.linalg.solve(jnp.eye(len(z)) - jacobian, step - z)
        return -jnp.log(jax.nn.softmax(jnp.dot(step, params["output"]))[label])

    return jnp.mean(jax.vmap(of_one)(x, labels))


def arguments(example, rng):
    params = moved(example.init(rng, hidden=6), rng)
    return params, rng.normal(size=(5, 2)), rng.integers(2, size=5, dtype=np.int32)


EXACT = {"TOLERANCE": 1e-14, "LIMIT": 1000}
CASES = {
    "loss": Case(loss, arguments, settings=EXACT),
    "loss of one step": Case(
        lambda params, x, labels: loss(params, x, labels, newton=False),
        arguments,
        settings=EXACT,
        call=lambda example: lambda params, x, labels: example.loss(params, x, labels, example.one_step),
    ),
}
