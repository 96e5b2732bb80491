"""A frozen weight that the regulariser still reaches.

Symptom: leak
Seen in: ahrefs/ocannl #673 (frozen weights decay), patrick-kidger/equinox #866 (a stopped buffer is still
regularised), marin-community/levanter PR #504 (rotary embeddings, stopped and decayed all the same).

A stop is where it is: it freezes one use of the weight. The other use is the sum of squares.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("head",)
HELD = ("frozen",)


def broken(frozen, head, x, y):
    error = ((sg.tanh(x @ sg.stop_gradient(frozen)) @ head - y) ** 2).mean()
    decay = 0.01 * sum((w**2).sum() for w in (frozen, head))  # <- here
    return error + decay


def cured(frozen, head, x, y):
    frozen = sg.stop_gradient(frozen)
    error = ((sg.tanh(x @ frozen) @ head - y) ** 2).mean()
    return error + 0.01 * (head**2).sum()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=(5, 3)), rng.normal(size=5)
