"""DQN that has a target network and takes the maximum over the online one.

Symptom: leak
Seen in: abhi1345/deep-q-rank #4 ("not using target network in the dqn"), datawhalechina/easy-rl PR #117
(policy and target net were one).

Two networks of the same shape: the wrong name runs as well as the right one. The target network is reported
as disconnected, for the loss does not depend on it; the next states get a gradient through the online one.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("online",)
HELD = ("following", "target")


def broken(online, target, states, actions, rewards, following):
    q = (states @ online * actions).sum(axis=-1)
    y = rewards + 0.9 * (following @ online).max(axis=-1)  # <- here
    return ((q - y) ** 2).mean()


def cured(online, target, states, actions, rewards, following):
    q = (states @ online * actions).sum(axis=-1)
    y = sg.stop_gradient(rewards + 0.9 * (following @ target).max(axis=-1))
    return ((q - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    weights, states, following = rng.normal(size=(2, 3, 2)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    return *weights, states, np.eye(2)[[0, 1, 1, 0]], np.ones(4), following
