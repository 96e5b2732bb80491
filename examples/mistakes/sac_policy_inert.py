"""A SAC policy that reads its critic inside a no-gradient block: only the entropy is learnt.

Symptom: inert
Seen in: ooples/AiDotNet PR #2219: the critics were read through `Predict`, which opens a `NoGradScope`. One
of six defects, each of which silenced the Q term of the policy's loss.

Nothing fails, for a gradient still arrives through the entropy. What is meant: the critic's *weights* are
held, and the action's gradient passes through it.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("policy",)
HELD = ("critic.W1", "critic.W2")


def value(critic, states, actions):
    return sg.tanh(sg.concat([states, actions], axis=-1) @ critic["W1"]) @ critic["W2"]


def act(policy, states, noise):
    mean, log_std = sg.split(states @ policy, 2, axis=-1)
    return sg.tanh(mean + sg.exp(log_std) * noise), log_std.sum(axis=-1)


def broken(policy, critic, states, noise):
    actions, entropy = act(policy, states, noise)
    with sg.no_gradient():  # <- here
        q = value(critic, states, actions)
    return -(q.squeeze(-1) + 0.1 * entropy).mean()


def cured(policy, critic, states, noise):
    actions, entropy = act(policy, states, noise)
    q = value(sg.stop_gradient(critic), states, actions)
    return -(q.squeeze(-1) + 0.1 * entropy).mean()


def example():
    rng = np.random.default_rng(0)
    critic = {"W1": rng.normal(size=(3, 4)), "W2": rng.normal(size=(4, 1))}
    return rng.normal(size=(2, 2)), critic, rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
