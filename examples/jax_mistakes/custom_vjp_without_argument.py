"""A custom_vjp that returns None for an argument that mattered after all.

Symptom: none
Seen in: jax-ml/jax #17496 ("the gradient for the first matrix is observed to be zero"), of two such layers,
one after the other.

A rule that leaves out the vector is right for the first layer, whose vector is data. In the second layer it
is what the first one has computed.
"""

import jax
import jax.numpy as jnp
import numpy as np

LEARNS = ("first", "second")


@jax.custom_vjp
def product(matrix, vector):
    return matrix @ vector


def product_fwd(matrix, vector):
    return matrix @ vector, (matrix, vector)


def product_bwd(kept, g):
    return jnp.outer(g, kept[1]), None


product.defvjp(product_fwd, product_bwd)


def broken(first, second, x):
    h = jnp.tanh(product(first, x))
    return (product(second, h) ** 2).sum()  # <- here


def cured(first, second, x):
    h = jnp.tanh(first @ x)
    return ((second @ h) ** 2).sum()


def example():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=s).astype("f4") for s in [(3, 2), (2, 3), 2])
