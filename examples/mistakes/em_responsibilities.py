"""Expectation maximisation whose E-step is differentiated.

Symptom: large
Seen in: jax-ml/jax #1937: "I would not want the parameter updates of W be influenced by their contributing to
the posteriors"; asked there for a no-gradient block.

The M-step maximises Σ q log p(x, z; θ) with q given. Without the stop the gradient has another term, which
vanishes for the likelihood itself and not for this bound.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("means",)
HELD = ("q",)


def log_joint(means, x):
    return -0.5 * (x[:, None] - means) ** 2


def broken(means, x):
    q = sg.softmax(log_joint(means, x), axis=-1, name="q")  # <- here
    return -(q * log_joint(means, x)).sum(), q


def cured(means, x):
    with sg.no_gradient():
        q = sg.softmax(log_joint(means, x), axis=-1, name="q")
    return -(q * log_joint(means, x)).sum(), q


def example():
    return np.array([-1.0, 2.0]), np.array([-1.5, -0.2, 0.4, 1.9, 2.2])


def ask(program):
    with sg.Graph().as_default():
        means, x = map(sg.placeholder, (sg.float64, sg.float64), ([2], [5]), ("means", "x"))
        loss, q = program(means, x)
        return sg.explain(loss, [means, q])
