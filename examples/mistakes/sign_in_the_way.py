"""A sign between the weights and the loss: the gradient is not None, and zero.

Symptom: none
Seen in: what binarised networks had to solve first (Hubara et al. 2016, arXiv 1602.02830: the
derivative of the sign is zero almost everywhere).

As in TensorFlow and JAX the sign has a gradient, which is zero, so `explain` says "flows". `ablate` looks at
numbers. The cure is a straight-through, here with the paper's clipping: no gradient where |a| > 1.
"""

import numpy as np

import stopgrad as sg


def broken(w, v, x, y):
    h = sg.sign(x @ w)  # <- here
    return ((h @ v - y) ** 2).mean()


def cured(w, v, x, y):
    a = x @ w
    h = sg.straight_through(sg.sign(a), sg.clip(a, -1.0, 1.0))
    return ((h @ v - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=(5, 3)), rng.normal(size=5)


def ask(program):
    return sg.ablate(program, *example(), argnums=(0, 1))
