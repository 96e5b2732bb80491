"""BYOL whose moving average is updated inside the loss, from one tree of parameters.

Symptom: leak
Seen in: google-deepmind/optax PR #1531, which puts the stop into the loss, because forgetting it "silently
broke BYOL".

The new target depends on the old one and on the online network, and `jax.grad` follows both.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.online", "params.predictor")
HELD = ("params.target",)


def distance(p, z):
    return ((p / jnp.linalg.norm(p) - z / jnp.linalg.norm(z)) ** 2).sum()


def broken(params, view1, view2):
    target = 0.99 * params["target"] + 0.01 * params["online"]
    p = view1 @ params["online"] @ params["predictor"]
    z = view2 @ target  # <- here
    return distance(p, z)


def cured(params, view1, view2):
    target = lax.stop_gradient(0.99 * params["target"] + 0.01 * params["online"])
    p = view1 @ params["online"] @ params["predictor"]
    z = view2 @ target
    return distance(p, z)


def example():
    rng = np.random.default_rng(0)
    a, b, c, x, y = (rng.normal(size=s).astype("f4") for s in [(3, 2), (3, 2), (2, 2), (4, 3), (4, 3)])
    return {"online": a, "target": b, "predictor": c}, x, y
