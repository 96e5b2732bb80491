"""The distance of a point from itself: the gradient of a norm at zero.

Symptom: nan
Seen in: jax-ml/jax #3058, #6484, #21723, #26248.

The value is 0, and the gradient divides by it. The *squared* distance has no root to take.
"""

import jax.numpy as jnp
import numpy as np

import stopgrad as sg
import stopgrad.jax as sgj


def broken(points):
    apart = points[:, None] - points
    return jnp.linalg.norm(apart, axis=-1).sum()  # <- here


def cured(points):
    apart = points[:, None] - points
    squared = (apart**2).sum(-1)
    own = jnp.eye(len(points), dtype=bool)
    return jnp.where(own, 0.0, jnp.sqrt(jnp.where(own, 1.0, squared))).sum()


def example():
    return (np.random.default_rng(0).normal(size=(3, 2)).astype("f4"),)


def ask(program):
    return sg.trace_nan(sgj.load(program, *example()), *example())
