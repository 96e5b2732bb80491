"""An argmax between the weights and the loss.

Symptom: none
Seen in: tensorflow/tensorflow #1511 (the squared difference of two `arg_max`), #15278; keras-team/keras
#11157.

The position of the largest logit is an integer; the error belongs to the operation that made it, not to the
one that turned it into floating point again. A loss of the logits themselves has a gradient.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, labels):
    predicted = (x @ w).argmax(axis=-1)  # <- here
    return (sg.cast(predicted - labels, sg.float64) ** 2).mean()


def cured(w, x, labels):
    return sg.sparse_softmax_cross_entropy_with_logits(labels, x @ w).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 4)), rng.normal(size=(5, 3)), np.array([0, 3, 1, 1, 2])
