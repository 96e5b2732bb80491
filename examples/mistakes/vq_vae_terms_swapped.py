"""VQ-VAE's codebook loss with its stop on the codebook: the codebook never moves.

Symptom: inert
Seen in: MishaLaskin/vqvae PR #20 (the two detaches reversed); with beta on the wrong term for the same
confusion: CompVis/taming-transformers #57, karpathy/deep-vector-quantization #2.

Of the two terms ‖sg(z) - e‖² moves the entries and ‖z - sg(e)‖² commits the encoder. Swapped, the sum has the
same value and, with beta = 1, the same gradient; with any other beta the wrong side is slow, and the codebook
loss alone, as here, moves the encoder.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("codebook",)
HELD = ("encoder",)


def lookup(codebook, z):
    return codebook[((z[:, None, :] - codebook) ** 2).sum(axis=-1).argmin(axis=-1)]


def broken(encoder, codebook, x):
    """The codebook loss."""
    z = x @ encoder
    e = lookup(codebook, z)
    return ((z - sg.stop_gradient(e)) ** 2).mean()  # <- here


def cured(encoder, codebook, x):
    z = x @ encoder
    e = lookup(codebook, z)
    return ((sg.stop_gradient(z) - e) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=(5, 3))
