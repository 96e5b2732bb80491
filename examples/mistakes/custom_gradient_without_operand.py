"""A custom gradient that returns None for an operand that matters.

Symptom: none
Seen in: pytorch/pytorch #4355, whose `backward` returns `..., None`: right for a setting, wrong for a tensor.

None says that there is no gradient, and nobody asks again. Here the scale of an activation never learns.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w", "scale")


@sg.custom_gradient
def forgetful(x, scale):
    y = sg.tanh(scale * x)
    return y, lambda g: (g * scale * (1.0 - y**2), None)


@sg.custom_gradient
def complete(x, scale):
    y = sg.tanh(scale * x)
    return y, lambda g: (g * scale * (1.0 - y**2), (g * x * (1.0 - y**2)).sum())


def broken(w, scale, x, y):
    return ((forgetful(x @ w, scale) - y) ** 2).mean()  # <- here


def cured(w, scale, x, y):
    return ((complete(x @ w, scale) - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), np.float64(0.7), rng.normal(size=(5, 3)), rng.normal(size=5)
