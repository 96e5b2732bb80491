"""VQ-VAE without the straight-through: the lookup keeps the encoder from learning.

Symptom: none
Seen in: what the straight-through of VQ-VAE is there for (van den Oord et al. 2017, arXiv 1711.00937, section
3.2); left out, the encoder keeps its random weights and only the decoder learns.

The number of the nearest entry is an integer; no gradient passes it. `straight_through(e, z)` has the value
of e and sends the gradient to z.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("encoder",)


def broken(encoder, codebook, decoder, x):
    z = x @ encoder
    nearest = ((z[:, None, :] - codebook) ** 2).sum(axis=-1).argmin(axis=-1)  # <- here
    e = codebook[nearest]
    return ((x - e @ decoder) ** 2).mean()


def cured(encoder, codebook, decoder, x):
    z = x @ encoder
    nearest = ((z[:, None, :] - codebook) ** 2).sum(axis=-1).argmin(axis=-1)
    e = codebook[nearest]
    codebook_loss = ((sg.stop_gradient(z) - e) ** 2).mean()
    return ((x - sg.straight_through(e, z) @ decoder) ** 2).mean() + codebook_loss


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=(2, 3)), rng.normal(size=(5, 3))
