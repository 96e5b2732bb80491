"""A straight-through estimator with its signs mixed up.

Symptom: large
Seen in: pytorch/pytorch #48574 and #68941 doubt the spelling in `gumbel_softmax`, which is right. One that is
not needs only the stop on the other of the two soft values.

`hard - sg(soft) + soft` and `hard - soft + sg(soft)` have the same value. The second passes the gradient with
its sign turned: the report shows which of the two soft values is held.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("logits",)


def broken(logits, costs):
    soft = sg.softmax(logits, axis=-1)
    hard = sg.one_hot(soft.argmax(axis=-1), 3, dtype=sg.float64)
    choice = hard - soft + sg.stop_gradient(soft)  # <- here
    return (choice * costs).sum()


def cured(logits, costs):
    soft = sg.softmax(logits, axis=-1)
    hard = sg.one_hot(soft.argmax(axis=-1), 3, dtype=sg.float64)
    choice = sg.straight_through(hard, soft)
    return (choice * costs).sum()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
