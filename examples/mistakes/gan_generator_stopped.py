"""A GAN's generator step on detached images.

Symptom: none
Seen in: nikhilsinghmus/image2reverb #37 ("`.detach()` should not be there for the generator step and is a
bug"), wangle53/CSA-CDGAN #5, tamarott/SinGAN PR #117 (review).

The detach belongs to the discriminator's step; copied into the generator's, it leaves the generator with
nothing, or with its other losses alone.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("generator",)
HELD = ("discriminator",)


def broken(generator, discriminator, noise):
    fake = sg.tanh(noise @ generator)
    return sg.softplus(-(sg.stop_gradient(fake) @ discriminator)).mean()  # <- here


def cured(generator, discriminator, noise):
    fake = sg.tanh(noise @ generator)
    return sg.softplus(-(fake @ sg.stop_gradient(discriminator))).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=(4, 2))
