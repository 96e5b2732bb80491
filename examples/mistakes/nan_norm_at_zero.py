"""The gradient of a norm at zero.

Symptom: nan
Seen in: jax-ml/jax #3058, #4177; pytorch/pytorch #2421; HIPS/autograd #151.

The distance of a point from itself. The value is 0; the gradient divides by it. For the *squared* distance
there is no root to take.
"""

import numpy as np

import stopgrad as sg


def broken(points, centre):
    away = points - centre
    return (sg.sqrt((away**2).sum(axis=-1)) ** 2).sum()  # <- here


def cured(points, centre):
    away = points - centre
    return (away**2).sum()


def example():
    return np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([3.0, -1.0])


def ask(program):
    return sg.trace_nan(program, *example())
