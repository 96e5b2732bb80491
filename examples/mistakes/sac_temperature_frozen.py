"""SAC's temperature loss with the stop on the wrong factor: the temperature never changes.

Symptom: none
Seen in: Felhof/DiscreteSAC #4 and UoA-CARES/cares_reinforcement_learning PR #325 are about where alpha is to
be detached: in the *policy's* loss, always; in its own, never.

A product has two factors, and the stop is on the one that was to learn.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("log_alpha",)
HELD = ("log_p",)

ENTROPY = -1.0


def broken(log_alpha, log_p):
    alpha = sg.stop_gradient(sg.exp(log_alpha))  # <- here
    return -(alpha * (log_p + ENTROPY)).mean()


def cured(log_alpha, log_p):
    return -(sg.exp(log_alpha) * sg.stop_gradient(log_p + ENTROPY)).mean()


def example():
    return np.float64(0.3), np.array([-0.2, -1.5, -0.7])
