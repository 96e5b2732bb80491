"""First-order MAML without its stop: it is MAML, at MAML's price.

Symptom: large
Seen in: tristandeleu/pytorch-maml-rl #19 (a `first_order` argument without effect), facebookresearch/higher
#128 and #102 (is detaching the inner gradient enough?).

θ' = θ - α sg(g) holds the inner gradient, so that the outer one needs no second derivative. The examples that
are adapted to enter through g alone.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("x", "y")


def error(w, x, y):
    return ((sg.tanh(x @ w) - y) ** 2).mean()


def broken(w, x, y, x_test, y_test):
    inner = sg.grad(error)(w, x, y)  # <- here
    return error(w - 0.1 * inner, x_test, y_test)


def cured(w, x, y, x_test, y_test):
    inner = sg.stop_gradient(sg.grad(error)(w, x, y))
    return error(w - 0.1 * inner, x_test, y_test)


def example():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(5, 3)), rng.normal(size=5)
    return rng.normal(size=3), *data
