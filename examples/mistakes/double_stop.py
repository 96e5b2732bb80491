"""A target that is stopped twice: one of the stops does nothing.

Symptom: idle
Seen in: nikhilbarhate99/PPO-PyTorch #18 (`old_logprobs.detach()` of what was detached when it was stored),
PacktPublishing/Deep-Reinforcement-Learning-Hands-On #29.

Harmless until somebody takes away the one that worked, trusting the other, or looks for the one that matters.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("target",)


def broken(w, target, x):
    y = sg.stop_gradient(x @ target)  # <- here
    return ((x @ w - sg.stop_gradient(y)) ** 2).mean()


def cured(w, target, x):
    y = x @ target
    return ((x @ w - sg.stop_gradient(y)) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3), rng.normal(size=3), rng.normal(size=(5, 3))
