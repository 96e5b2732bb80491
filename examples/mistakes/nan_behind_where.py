"""NaN through `where(condition, sqrt(x), 0)`.

Symptom: nan
Seen in: jax-ml/jax #347, #1052, #5798; tensorflow/tensorflow #38349; pytorch/pytorch #187297; HIPS/autograd
#802.

`where` picks the right value, and its gradient sends 0 to the side that was not picked; there the square root
makes 0 · ∞ = NaN of it. The cure is a second `where`, inside, that gives the square root a harmless operand.
"""

import numpy as np

import stopgrad as sg


def broken(x):
    return sg.where(x > 0.0, sg.sqrt(x), 0.0).sum()  # <- here


def cured(x):
    inside = sg.where(x > 0.0, x, 1.0)
    return sg.where(x > 0.0, sg.sqrt(inside), 0.0).sum()


def example():
    return (np.array([4.0, 0.0, 1.0]),)


def ask(program):
    return sg.trace_nan(program, *example())
