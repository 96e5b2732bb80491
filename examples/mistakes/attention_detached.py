"""An attention matrix that is detached: the weights that make it never learn.

Symptom: none
Seen in: queenie88/A-GCN #4: the adjacency was detached, so that W_theta and W_phi kept their first values.

The loss falls all the same, for the other weights learn around it.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("theta", "phi", "w")


def broken(theta, phi, w, x, y):
    adjacency = sg.softmax((x @ theta) @ (x @ phi).T, axis=-1)
    features = sg.stop_gradient(adjacency) @ x  # <- here
    return ((features @ w - y) ** 2).mean()


def cured(theta, phi, w, x, y):
    adjacency = sg.softmax((x @ theta) @ (x @ phi).T, axis=-1)
    features = adjacency @ x
    return ((features @ w - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.normal(size=3)
    return *weights, rng.normal(size=(5, 3)), rng.normal(size=5)
