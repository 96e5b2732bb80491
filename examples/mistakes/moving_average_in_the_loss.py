"""A moving average that is updated inside the loss, and differentiated with it.

Symptom: leak
Seen in: teachers written as `target = 0.99 * target + 0.01 * online` above the loss instead of after the
step.

The new target depends on the online weights, a little; the old one on nothing. Both get a gradient.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("online",)
HELD = ("target",)


def broken(online, target, x):
    teacher = 0.99 * target + 0.01 * online  # <- here
    return ((x @ online - x @ teacher) ** 2).mean()


def cured(online, target, x):
    teacher = sg.stop_gradient(0.99 * target + 0.01 * online)
    return ((x @ online - x @ teacher) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=3), rng.normal(size=(5, 3))
