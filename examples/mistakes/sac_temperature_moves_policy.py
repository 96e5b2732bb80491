"""SAC's temperature loss without its stop: the policy is trained by it, too.

Symptom: leak
Seen in: mani-skill/ManiSkill #899 (`alpha_loss` in examples/baselines/sac/sac.py).

The temperature answers to the policy's entropy as to a number (Haarnoja et al. 2018, arXiv 1812.05905, eq.
18). Without the stop, minimising -α (log π + H) makes the policy less random the larger α is.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("log_alpha",)
HELD = ("policy",)

ENTROPY = -1.0


def broken(log_alpha, policy, states):
    log_p = sg.log_softmax(states @ policy).max(axis=-1)  # <- here
    return -(sg.exp(log_alpha) * (log_p + ENTROPY)).mean()


def cured(log_alpha, policy, states):
    log_p = sg.stop_gradient(sg.log_softmax(states @ policy).max(axis=-1))
    return -(sg.exp(log_alpha) * (log_p + ENTROPY)).mean()


def example():
    rng = np.random.default_rng(0)
    return np.float64(0.3), rng.normal(size=(2, 3)), rng.normal(size=(5, 2))
