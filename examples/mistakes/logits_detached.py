"""A policy gradient whose log-probability is stopped instead of the advantage.

Symptom: none
Seen in: alexhernandezgarcia/gflownet PR #251: "the clone of policy_outputs into logits was incorrectly
detached"; the title calls it the "reason why TB was not training well".

A product of two tensors, one of which is to be held: -log π · sg(A).
"""

import numpy as np

import stopgrad as sg

LEARNS = ("policy",)
HELD = ("baseline",)


def broken(policy, baseline, states, actions, returns):
    log_p = (sg.log_softmax(sg.stop_gradient(states @ policy), axis=-1) * actions).sum(axis=-1)  # <- here
    advantage = returns - states @ baseline
    return -(log_p * advantage).mean()


def cured(policy, baseline, states, actions, returns):
    log_p = (sg.log_softmax(states @ policy, axis=-1) * actions).sum(axis=-1)
    advantage = returns - states @ baseline
    return -(log_p * sg.stop_gradient(advantage)).mean()


def example():
    rng = np.random.default_rng(0)
    actions = np.eye(2)[[0, 1, 1, 0]]
    return rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=(4, 3)), actions, rng.normal(size=4)
