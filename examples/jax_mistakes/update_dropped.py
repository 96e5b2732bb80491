"""An update whose result is dropped: `.at[].set` changes nothing.

Symptom: none
Seen in: apirrone/Open_Duck_Playground PR #24 ("the +1.3 offset was never applied during training").

Arrays of JAX do not change; `.at[].set` returns a new one. The parameter that was to be written is used
nowhere.
"""

import jax.numpy as jnp
import numpy as np

LEARNS = ("offset",)


def broken(offset, w, x):
    x.at[:, 0].add(offset)  # <- here
    return (jnp.tanh(x @ w) ** 2).mean()


def cured(offset, w, x):
    x = x.at[:, 0].add(offset)
    return (jnp.tanh(x @ w) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    w, x = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in [(3, 2), (4, 3)])
    return np.float32(1.3), w, x
