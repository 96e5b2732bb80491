"""Batch normalisation whose statistics are constants to the gradient.

Symptom: large
Seen in: elixir-nx/axon PR #12 (a `stop_grad` in its statistics), keras-team/keras PR #19102,
facebookresearch/CrypTen PR #143 (a backward pass that "ignores the fact that the mean and variance are a
function of the input").

Forward everything is the same. The stop belongs to the running averages that are kept for later, not to the
statistics that normalise this batch.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.w",)


def normalise(x, mean, variance):
    return (x - mean) / jnp.sqrt(variance + 1e-5)


def broken(params, x, y):
    h = x @ params["w"]
    mean, variance = lax.stop_gradient((h.mean(0), h.var(0)))  # <- here
    return ((normalise(h, mean, variance) * params["scale"] - y) ** 2).mean()


def cured(params, x, y):
    h = x @ params["w"]
    return ((normalise(h, h.mean(0), h.var(0)) * params["scale"] - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    w, scale, x, y = (rng.normal(size=s).astype("f4") for s in [(3, 2), 2, (5, 3), (5, 2)])
    return {"w": w, "scale": scale}, x, y
