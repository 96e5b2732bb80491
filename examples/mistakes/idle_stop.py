"""A stop on the input of the network that was to be held, not on its output.

Symptom: idle
Seen in: target networks whose *observation* is detached: a search for `detach` finds it, and the target
learns.

The data depend on no weight, so there is nothing to stop.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("target",)


def broken(w, target, x):
    y = sg.stop_gradient(x) @ target  # <- here
    return ((x @ w - y) ** 2).mean()


def cured(w, target, x):
    y = sg.stop_gradient(x @ target)
    return ((x @ w - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=3), rng.normal(size=(5, 3))


def ask(program):
    return sg.explain(program, *example(), argnums=(0, 1))
