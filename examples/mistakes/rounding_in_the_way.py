"""Rounding between the weights and the loss.

Symptom: none
Seen in: tensorflow/tensorflow #8625 (`tf.floor` of a probability), #5888 (`tf.round`); every hand-written
quantiser.

Rounding is flat between its steps. Where the rounded value is needed forward, `straight_through` sends the
gradient past it (Bengio et al. 2013, arXiv 1308.3432).
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, y):
    step = 0.25
    quantised = step * sg.round(w / step)  # <- here
    return ((x @ quantised - y) ** 2).mean()


def cured(w, x, y):
    step = 0.25
    quantised = sg.straight_through(step * sg.round(w / step), w)
    return ((x @ quantised - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(5, 3)), rng.normal(size=5)
