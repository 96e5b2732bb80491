"""A stop in one branch of a condition: no gradient for half of the batches.

Symptom: inert
Seen in: losses that are a constant for some batches, such as open-mmlab/mmpretrain PR #1426 (a loss of 0
where nothing is labelled).

The report does not run the program, so it knows both branches: the weight is partly stopped, by the line in
the branch.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)


def broken(w, x, y):
    error = ((x @ w - y) ** 2).mean()
    return sg.cond(
        error < 1.0,
        lambda e: sg.stop_gradient(e),  # <- here
        lambda e: sg.sqrt(e),
        error,
    )


def cured(w, x, y):
    error = ((x @ w - y) ** 2).mean()
    return sg.cond(error < 1.0, lambda e: e, lambda e: sg.sqrt(e), error)


def example():
    rng = np.random.default_rng(0)
    return 0.1 * rng.normal(size=3), rng.normal(size=(5, 3)), 0.1 * rng.normal(size=5)
