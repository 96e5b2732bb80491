"""PPO with its whole ratio stopped.

Symptom: none
Seen in: proposed in nikhilbarhate99/PPO-PyTorch #18, seungeunrho/minimalRL #33 and thu-ml/tianshou #742,
where it was taken for a cure.

The ratio *is* what is differentiated. Held is its denominator, the policy that acted.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("policy",)
HELD = ("old_policy",)


def log_probability(policy, states, actions):
    return (sg.log_softmax(states @ policy, axis=-1) * actions).sum(axis=-1)


def broken(policy, old_policy, states, actions, advantages):
    new, old = (log_probability(p, states, actions) for p in (policy, old_policy))
    ratio = sg.stop_gradient(sg.exp(new - old))  # <- here
    return -sg.minimum(ratio * advantages, sg.clip(ratio, 0.8, 1.2) * advantages).mean()


def cured(policy, old_policy, states, actions, advantages):
    new, old = (log_probability(p, states, actions) for p in (policy, old_policy))
    ratio = sg.exp(new - sg.stop_gradient(old))
    return -sg.minimum(ratio * advantages, sg.clip(ratio, 0.8, 1.2) * advantages).mean()


def example():
    rng = np.random.default_rng(0)
    policy, actions = rng.normal(size=(3, 2)), np.eye(2)[[0, 1, 1, 0]]
    old = policy + 0.05 * rng.normal(size=(3, 2))
    return policy, old, rng.normal(size=(4, 3)), actions, rng.normal(size=4)
