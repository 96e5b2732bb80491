"""A gradient that is itself part of the loss, and stopped: the second derivative is lost.

Symptom: none
Seen in: uvm-neurobotics-lab/ANML #3 (an inner gradient without `create_graph=True`); pytorch/functorch #353
is about what a detach has to mean at the second order.

Forces are the negative gradient of an energy. Fitting them to data differentiates that gradient once more,
with respect to the weights.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("weights",)


def energy(weights, positions):
    return (sg.tanh(positions @ weights) ** 2).sum()


def broken(weights, positions, measured):
    forces = -sg.stop_gradient(sg.grad(energy, argnums=1)(weights, positions))  # <- here
    return ((forces - measured) ** 2).mean()


def cured(weights, positions, measured):
    forces = -sg.grad(energy, argnums=1)(weights, positions)
    return ((forces - measured) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
