"""Coordinates that are cast to integers, to index an image with.

Symptom: none
Seen in: jax-ml/jax #8684 and #5248 ask why a resampled image has a gradient of zero in the shift.

The pixel that is read does not change when the shift changes a little. Linear interpolation weighs the two
neighbours with the rest, and that has a gradient.
"""

import jax.numpy as jnp
import numpy as np

LEARNS = ("shift",)


def broken(shift, row, target):
    at = jnp.arange(4) + shift
    index = at.astype(jnp.int32)  # <- here
    return ((row[index] - target) ** 2).mean()


def cured(shift, row, target):
    at = jnp.arange(4) + shift
    index = at.astype(jnp.int32)
    rest = at - index
    return (((1.0 - rest) * row[index] + rest * row[index + 1] - target) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return np.float32(0.3), rng.normal(size=8).astype("f4"), rng.normal(size=4).astype("f4")
