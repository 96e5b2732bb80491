"""Batch normalisation whose mean is a constant to the gradient.

Symptom: large
Seen in: keras-team/keras PR #19102 (`moments` used `mean.detach()`), abhiskk/ladder #2, anthonymlortiz/lcn
#2.

Forward everything is the same. The gradient lacks the part through the statistics, which is what keeps it
orthogonal to the batch's mean.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, y):
    h = x @ w
    mean = sg.stop_gradient(h.mean(axis=0))  # <- here
    h = (h - mean) / sg.sqrt(((h - mean) ** 2).mean(axis=0) + 1e-5)
    return ((sg.tanh(h) - y) ** 2).mean()


def cured(w, x, y):
    h = x @ w
    mean = h.mean(axis=0)
    h = (h - mean) / sg.sqrt(((h - mean) ** 2).mean(axis=0) + 1e-5)
    return ((sg.tanh(h) - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
