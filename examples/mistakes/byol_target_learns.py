"""BYOL whose target network is differentiated: it learns instead of following.

Symptom: leak
Seen in: google-deepmind/optax PR #1531, which puts the stop into the loss, because forgetting it "silently
broke BYOL"; asked about in Lightning-Universe/lightning-bolts #801.

The target network is a running mean of the online one. An optimizer that is given all weights moves it.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("online", "predictor")
HELD = ("target", "view2")


def broken(online, predictor, target, view1, view2):
    p = sg.tanh(view1 @ online) @ predictor
    z = sg.tanh(view2 @ target)  # <- here
    return ((sg.l2_normalize(p, -1) - sg.l2_normalize(z, -1)) ** 2).sum(axis=-1).mean()


def cured(online, predictor, target, view1, view2):
    p = sg.tanh(view1 @ online) @ predictor
    z = sg.stop_gradient(sg.tanh(view2 @ target))
    return ((sg.l2_normalize(p, -1) - sg.l2_normalize(z, -1)) ** 2).sum(axis=-1).mean()


def example():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.normal(size=(3, 2))
    return *weights, rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
