"""A stop whose result is dropped.

Symptom: leak
Seen in: a comment in eriklindernoren/PyTorch-GAN #136, where `fake.detach()` stands on a line of its own
and is said to keep the generator's weights as they are.

Neither `detach()` nor `stop_gradient` changes its argument: it returns another tensor, which is unused here.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("discriminator",)
HELD = ("generator",)


def broken(generator, discriminator, noise, real):
    fake = sg.tanh(noise @ generator)
    sg.stop_gradient(fake)  # <- here
    return sg.softplus(fake @ discriminator).mean() + sg.softplus(-(real @ discriminator)).mean()


def cured(generator, discriminator, noise, real):
    fake = sg.tanh(noise @ generator)
    fake = sg.stop_gradient(fake)
    return sg.softplus(fake @ discriminator).mean() + sg.softplus(-(real @ discriminator)).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=(4, 2)), rng.normal(size=(4, 3))


def ask(program):
    return sg.explain(program, *example())
