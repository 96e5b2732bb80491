"""A stop on what is not asked about.

Symptom: idle
Seen in: d2l-ai/d2l-en PR #2635 ("the `x` in `u(x)` is different from one in lambdas, so `stop_gradient` was
doing nothing").

The target is computed from data alone. Harmless, until somebody trusts it and takes away another.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

import stopgrad.jax as sgj

LEARNS = ("params.w",)


def broken(params, x):
    target = lax.stop_gradient(x**2)  # <- here
    return ((jnp.tanh(x * params["w"]) - target) ** 2).mean()


def cured(params, x):
    return ((jnp.tanh(x * params["w"]) - x**2) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=3).astype("f4")}, rng.normal(size=3).astype("f4")


def ask(program):
    return sgj.explain(program, *example(), argnums=0)
