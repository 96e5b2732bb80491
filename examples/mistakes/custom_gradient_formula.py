"""A custom gradient that forgets the gradient that comes in.

Symptom: large
Seen in: pytorch/pytorch #4355 (`backward` of an activation returned `ctx.nisr ** 3`, without `grad_out`).

In a first test, of the activation alone and summed up, the gradient that comes in is 1, and all is well. In a
network it is not. `check_gradients` compares with differences of the value.
"""

import numpy as np

import stopgrad as sg


@sg.custom_gradient
def forgetful(x):
    nisr = sg.rsqrt(1.0 + sg.minimum(x, 0.0) ** 2)
    return x * nisr, lambda g: nisr**3


@sg.custom_gradient
def complete(x):
    nisr = sg.rsqrt(1.0 + sg.minimum(x, 0.0) ** 2)
    return x * nisr, lambda g: g * nisr**3


def broken(w, x, y):
    return ((forgetful(x @ w) - y) ** 2).mean()  # <- here


def cured(w, x, y):
    return ((complete(x @ w) - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(5, 3)), rng.normal(size=5)


def ask(program):
    return sg.check_gradients(program, *example(), raises=False)
