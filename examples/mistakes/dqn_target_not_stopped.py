"""DQN without the stop on its target: the target is pulled towards the prediction.

Symptom: leak
Seen in: philtabor/Deep-Q-Learning-Paper-To-Code #9 and #16, datawhalechina/easy-rl PR #117 (the temporal
difference's target without `detach()`).

The next states enter the loss through the target alone, so a gradient at them shows the leak, even where one
network has both parts.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("weights",)
HELD = ("following",)


def broken(weights, states, actions, rewards, following):
    q = (states @ weights * actions).sum(axis=-1)
    y = rewards + 0.9 * (following @ weights).max(axis=-1)  # <- here
    return ((q - y) ** 2).mean()


def cured(weights, states, actions, rewards, following):
    q = (states @ weights * actions).sum(axis=-1)
    y = rewards + 0.9 * sg.stop_gradient(following @ weights).max(axis=-1)
    return ((q - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    states, following = rng.normal(size=(2, 4, 3))
    return rng.normal(size=(3, 2)), states, np.eye(2)[[0, 1, 1, 0]], np.ones(4), following
