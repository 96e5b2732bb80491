"""VQ-VAE whose codebook loss is taken after the straight-through: the codebook never moves.

Symptom: none
Seen in: andylolu2/jax-vqvae-gpt #2; in #3 the two stops are on the wrong factors.

The straight-through estimator binds the quantised value to its own name. What comes after it and means the
codebook's vectors gets the encoder's output with a constant added.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("codebook",)


def nearest(z, codebook):
    distances = ((z[:, None, :] - codebook) ** 2).sum(-1)
    return codebook[jnp.argmin(distances, axis=-1)]


def broken(encoder, codebook, x):
    z = x @ encoder
    e = nearest(z, codebook)
    e = z + lax.stop_gradient(e - z)  # <- here
    codebook_loss = ((e - lax.stop_gradient(z)) ** 2).mean()
    return ((e - x) ** 2).mean() + codebook_loss


def cured(encoder, codebook, x):
    z = x @ encoder
    e = nearest(z, codebook)
    codebook_loss = ((e - lax.stop_gradient(z)) ** 2).mean()
    quantised = z + lax.stop_gradient(e - z)
    return ((quantised - x) ** 2).mean() + codebook_loss


def example():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=s).astype("f4") for s in [(2, 2), (4, 2), (6, 2)])
