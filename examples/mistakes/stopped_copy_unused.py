"""Weights are stopped, and the function goes on to use the ones that are not.

Symptom: leak
Seen in: jax-ml/jax PR #892: a stop on a dict was silently ignored, with the same effect. Here the whole dict
is stopped; what is ignored is the result.

`stop_gradient` returns a stopped copy and leaves its argument as it was; so does `detach()`. The frozen
encoder is trained.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("params.head",)
HELD = ("params.encoder.W", "params.encoder.b")


def broken(params, x, y):
    frozen = sg.stop_gradient(params["encoder"])
    features = sg.tanh(x @ params["encoder"]["W"] + frozen["b"])  # <- here
    return ((features @ params["head"] - y) ** 2).mean()


def cured(params, x, y):
    frozen = sg.stop_gradient(params["encoder"])
    features = sg.tanh(x @ frozen["W"] + frozen["b"])
    return ((features @ params["head"] - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    encoder = {"W": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
    return {"encoder": encoder, "head": rng.normal(size=2)}, rng.normal(size=(5, 3)), rng.normal(size=5)
