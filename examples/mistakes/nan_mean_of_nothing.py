"""The mean over a mask that is empty.

Symptom: nan
Seen in: keras-team/keras PR #11643 and #7517 (a batch whose mask is all zeros), Deci-AI/super-gradients #912.

0 / 0. One batch in ten thousand has nothing to learn from, and after it all weights are NaN.
"""

import numpy as np

import stopgrad as sg


def broken(w, x, y, mask):
    errors = mask * (x @ w - y) ** 2
    return errors.sum() / mask.sum()  # <- here


def cured(w, x, y, mask):
    errors = mask * (x @ w - y) ** 2
    return errors.sum() / sg.maximum(mask.sum(), 1.0)


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=(5, 3)), rng.normal(size=5), np.zeros(5)


def ask(program):
    return sg.trace_nan(program, *example())
