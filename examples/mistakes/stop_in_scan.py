"""A recurrent network that stops its state at every step.

Symptom: inert
Seen in: truncated backpropagation (yunjey/pytorch-tutorial #90 explains its `detach(states)`) with the stop
moved from the edge of a window into the loop.

The weights still learn, from one step each; nothing that takes two steps is learnt, and the first state gets
no gradient.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w", "state")


def broken(w, state, xs, y):
    def step(state, x):
        state = sg.stop_gradient(state)  # <- here
        return sg.tanh(state @ w + x), None

    state, _ = sg.scan(step, state, xs)
    return ((state - y) ** 2).mean()


def cured(w, state, xs, y):
    def step(state, x):
        return sg.tanh(state @ w + x), None

    state, _ = sg.scan(step, state, xs)
    return ((state - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 2)), rng.normal(size=2), rng.normal(size=(4, 2)), rng.normal(size=2)
