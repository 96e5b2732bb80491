"""A clipped value loss one branch of which is a constant.

Symptom: inert
Seen in: ray-project/ray PR #22171 (the value loss of PPO "returns a zero-gradient when clipping is
applied").

The report does not run the program, so it knows both branches: the critic is partly stopped, by the line in
the branch.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("critic",)


def broken(critic, state, old, wanted):
    value = jnp.tanh(state @ critic)
    near = jnp.abs(value - old) < 0.2
    clipped = lax.cond(
        near,
        lambda v: v,
        lambda v: lax.stop_gradient(old + jnp.clip(v - old, -0.2, 0.2)),  # <- here
        value,
    )
    return (clipped - wanted) ** 2


def cured(critic, state, old, wanted):
    value = jnp.tanh(state @ critic)
    clipped = old + jnp.clip(value - old, -0.2, 0.2)
    return jnp.maximum((value - wanted) ** 2, (clipped - wanted) ** 2)


def example():
    rng = np.random.default_rng(0)
    critic, state = 0.1 * rng.normal(size=(2, 3)).astype("f4")
    return critic, state, np.float32(0.1), np.float32(-1.0)
