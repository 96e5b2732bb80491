"""A no-gradient block that encloses one line too many.

Symptom: none
Seen in: replicate/cog #1681 (`inference_mode` around the whole function: "Such a silly mistake, I spent whole
night over it!"), dragen1860/MAML-Pytorch #40 (the last loss computed under `no_grad`).

The target is to be held; the prediction, one line below, has slipped into the block.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("target",)


def broken(w, target, x):
    with sg.no_gradient():  # <- here
        y = sg.tanh(x @ target)
        predicted = sg.tanh(x @ w)
    return ((predicted - y) ** 2).mean()


def cured(w, target, x):
    with sg.no_gradient():
        y = sg.tanh(x @ target)
    predicted = sg.tanh(x @ w)
    return ((predicted - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=3), rng.normal(size=(5, 3))
