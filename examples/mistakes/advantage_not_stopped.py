"""An actor's loss that trains the critic through the advantage.

Symptom: leak
Seen in: astariul/encode-attend-navigate-pytorch #2 and PR #3 ("leading to unstable training"),
keras-team/keras-io #194.

The advantage is a weight on the policy's gradient, not something to be improved: the critic would learn to
make good actions look worse than they are.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("policy",)
HELD = ("critic",)


def broken(policy, critic, states, actions, returns):
    log_p = (sg.log_softmax(states @ policy, axis=-1) * actions).sum(axis=-1)
    advantage = returns - states @ critic  # <- here
    return -(log_p * advantage).mean()


def cured(policy, critic, states, actions, returns):
    log_p = (sg.log_softmax(states @ policy, axis=-1) * actions).sum(axis=-1)
    advantage = sg.stop_gradient(returns - states @ critic)
    return -(log_p * advantage).mean()


def example():
    rng = np.random.default_rng(0)
    actions = np.eye(2)[[0, 1, 1, 0]]
    return rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=(4, 3)), actions, rng.normal(size=4)
