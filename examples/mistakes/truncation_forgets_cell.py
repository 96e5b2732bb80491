"""Truncated backpropagation that stops one half of an LSTM's state.

Symptom: leak
Seen in: Lightning-AI/pytorch-lightning PR #8145 ("Fix truncated_bptt_steps hiddens detach()"); the question
in dpressel/dliss-tutorial #1 is why "both h, and c".

The state is a pair. The hidden value is stopped at the edge of the window, the cell is carried on, and the
gradient goes back through all windows after all.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("first", "start")


def cell(w):
    def step(state, x):
        h, c = state
        c = c * sg.sigmoid(h @ w + x) + sg.tanh(h + x)
        return (sg.tanh(c), c), None

    return step


def broken(w, start, first, second):
    (h, c), _ = sg.scan(cell(w), (start, start), first)  # <- here
    (h, c), _ = sg.scan(cell(w), (sg.stop_gradient(h), c), second)
    return (h**2).mean()


def cured(w, start, first, second):
    (h, c), _ = sg.scan(cell(w), (start, start), first)
    (h, c), _ = sg.scan(cell(w), sg.stop_gradient((h, c)), second)
    return (h**2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 2)), rng.normal(size=2), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
