"""An embedding looked up by what a network has computed.

Symptom: none
Seen in: keras-team/keras #11157 (dense layer, argmax, embedding), google-research-datasets/seq2act #2.

The lookup itself passes the gradient on to the table, so *something* learns. To its index it passes none: the
index is an integer. A mixture of the entries has a gradient.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w", "table")


def broken(w, table, x, y):
    index = sg.cast(3.0 * sg.sigmoid(x @ w), sg.int32)  # <- here
    return ((sg.one_hot(index, 3, dtype=sg.float64) @ table - y) ** 2).mean()


def cured(w, table, x, y):
    at = 3.0 * sg.sigmoid(x @ w)
    weights = sg.softmax(-((at[:, None] - np.arange(3.0)) ** 2), axis=-1)
    return ((weights @ table - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(3, 2)), rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
