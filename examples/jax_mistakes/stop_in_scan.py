"""A recurrent network whose scan stops the carry at every step.

Symptom: inert
Seen in: truncated backpropagation by `lax.scan` (patrick-kidger/diffrax #204; in PyTorch
yunjey/pytorch-tutorial #90) with the stop inside the step, not between two windows.

The weights still learn, from one step each. Nothing that takes two steps is learnt, and the first state gets
no gradient.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.w", "params.start")


def broken(params, xs, y):
    def step(state, x):
        state = lax.stop_gradient(state)  # <- here
        return jnp.tanh(state @ params["w"] + x), None

    state, _ = lax.scan(step, params["start"], xs)
    return ((state - y) ** 2).mean()


def cured(params, xs, y):
    def step(state, x):
        return jnp.tanh(state @ params["w"] + x), None

    state, _ = lax.scan(step, params["start"], xs)
    return ((state - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    w, start, xs, y = (rng.normal(size=s).astype("f4") for s in [(2, 2), 2, (4, 2), 2])
    return {"w": w, "start": start}, xs, y
