"""A GAN's discriminator step that trains the generator as well: to be found out.

Symptom: leak
Seen in: heykeetae/Self-Attention-GAN #48, yunjey/pytorch-tutorial #56, alterzero/DBPN-Pytorch #37.

Where one optimizer holds all weights the generator learns to look fake; where each has its own, the gradient
is only computed for nothing.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("discriminator",)
HELD = ("generator",)


def broken(generator, discriminator, noise, real):
    fake = sg.tanh(noise @ generator)  # <- here
    return sg.softplus(fake @ discriminator).mean() + sg.softplus(-(real @ discriminator)).mean()


def cured(generator, discriminator, noise, real):
    fake = sg.stop_gradient(sg.tanh(noise @ generator))
    return sg.softplus(fake @ discriminator).mean() + sg.softplus(-(real @ discriminator)).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=(4, 2)), rng.normal(size=(4, 3))
