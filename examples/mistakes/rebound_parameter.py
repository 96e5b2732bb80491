"""A parameter that rides along in a stopped loop, and is bound to its stopped copy.

Symptom: none
Seen in: jax-ml/jax #13710, reported as a bug of `stop_gradient` with `scan` and `while_loop`.

Only the state was to be held: all steps but the last run without gradient. But the loop hands the parameter
back as well, and the last step takes the one that came out of it.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("theta",)
HELD = ("x",)


def step(carry, _):
    x, theta = carry
    return (theta * x, theta), None


def broken(theta, x, y):
    (x, theta), _ = sg.stop_gradient(sg.scan(step, (x, theta), length=5))  # <- here
    return (theta * x - y) ** 2


def cured(theta, x, y):
    (x, _), _ = sg.stop_gradient(sg.scan(step, (x, theta), length=5))
    return (theta * x - y) ** 2


def example():
    return np.float64(1.1), np.float64(0.5), np.float64(2.0)
