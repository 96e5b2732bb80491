"""Expectation maximisation whose E-step is differentiated.

Symptom: large
Seen in: jax-ml/jax #1937: "I would not want the parameter updates of W be influenced by their contributing to
the posteriors"; asked there for a no-gradient block.

The M-step maximises Σ q log p(x, z; θ) with q given. Without the stop the gradient has another term, which
vanishes for the likelihood itself and not for this bound. The temperature of annealed EM enters the loss
through q alone, so it shows the leak.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("means",)
HELD = ("temperature",)


def broken(means, temperature, x):
    log_joint = -0.5 * (x[:, None] - means) ** 2
    q = sg.softmax(log_joint / temperature, axis=-1)  # <- here
    return -(q * log_joint).sum()


def cured(means, temperature, x):
    log_joint = -0.5 * (x[:, None] - means) ** 2
    q = sg.softmax(sg.stop_gradient(log_joint / temperature), axis=-1)
    return -(q * log_joint).sum()


def example():
    return np.array([-1.0, 2.0]), np.float64(2.0), np.array([-1.5, -0.2, 0.4, 1.9, 2.2])
