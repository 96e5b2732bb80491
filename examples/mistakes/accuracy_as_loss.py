"""Accuracy as a loss: a comparison has no gradient.

Symptom: none
Seen in: tensorflow/tensorflow #8625 (a threshold in the loss); the first answer to most questions that quote
"No gradients provided for any variable".

A count of right answers does not change when a weight changes a little. Train on the cross-entropy and print
the accuracy.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, labels):
    right = (x @ w > 0.0) == labels  # <- here
    return 1.0 - sg.cast(right, sg.float64).mean()


def cured(w, x, labels):
    targets = sg.cast(labels, sg.float64)
    return sg.sigmoid_cross_entropy_with_logits(targets, x @ w).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(5, 3)), np.array([True, False, True, True, False])
