"""NaN through `jnp.where(x > 0, jnp.log(x), 0)`.

Symptom: nan
Seen in: jax-ml/jax #347, #1052, #5798, and the FAQ since; sail-sg/jax_xc PR #29 goes round it with
`lax.cond`.

`where` picks the right value, and its gradient sends 0 to the side that was not picked: 0 · ∞ = NaN. The
cure is a second `where`, inside, that gives the logarithm a harmless operand.
"""

import jax.numpy as jnp
import numpy as np

import stopgrad as sg
import stopgrad.jax as sgj


def broken(x):
    return jnp.where(x > 0.0, jnp.log(x), 0.0).sum()  # <- here


def cured(x):
    inside = jnp.where(x > 0.0, x, 1.0)
    return jnp.where(x > 0.0, jnp.log(inside), 0.0).sum()


def example():
    return (np.array([4.0, 0.0, 1.0], np.float32),)


def ask(program):
    return sg.trace_nan(sgj.load(program, *example()), *example())
