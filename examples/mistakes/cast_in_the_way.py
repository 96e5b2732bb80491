"""A cast to integers between the weights and the loss.

Symptom: none
Seen in: tensorflow/tensorflow #1511 and #47083: "No gradients provided for any variable".

The loss is a floating-point number again, so nothing looks wrong; but whole numbers do not change when a
weight changes a little. Counting belongs into what is printed, not into what is trained.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, counts):
    predicted = sg.cast(x @ w, sg.int32)  # <- here
    return ((sg.cast(predicted, sg.float64) - counts) ** 2).mean()


def cured(w, x, counts):
    return ((x @ w - counts) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(5, 3)), np.array([0.0, 1.0, 3.0, 2.0, 1.0])
