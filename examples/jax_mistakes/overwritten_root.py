"""An element is overwritten, and the gradient of what stood there is NaN all the same.

Symptom: nan
Seen in: jax-ml/jax #28262 ("calls to `Array.set` do not override previous operations when performing
gradient calculations").

`.at[0].set` sends 0 back to what it overwrote. The square root there has the slope ∞ at 0, and 0 · ∞ = NaN.
"""

import jax.numpy as jnp
import numpy as np

import stopgrad as sg
import stopgrad.jax as sgj


def broken(x):
    y = jnp.sqrt(x)  # <- here
    y = y.at[0].set(x[0] - 1.0)
    return (y**2).sum()


def cured(x):
    return (x[0] - 1.0) ** 2 + (jnp.sqrt(x[1:]) ** 2).sum()


def example():
    return (np.array([0.0, 4.0, 9.0], np.float32),)


def ask(program):
    return sg.trace_nan(sgj.load(program, *example()), *example())
