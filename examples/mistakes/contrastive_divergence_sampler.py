"""Contrastive divergence that is differentiated through its sampler.

Symptom: large
Seen in: Hinton 2002, "Training products of experts by minimizing contrastive divergence": the gradient
through the sampled point is the term that is left out. With Langevin steps, whose points depend on the
weights, automatic differentiation puts it back in, and unrolls the chain.

The noise of the sampler enters the loss through the sampled point alone, so it shows the leak.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("w",)
HELD = ("noise",)


def energy(w, v):
    return -sg.softplus(v @ w).sum() + 0.5 * (v**2).sum()


def broken(w, v, noise):
    slope = sg.grad(energy, argnums=1)(w, v)
    sample = v - 0.1 * slope + noise  # <- here
    return energy(w, v) - energy(w, sample)


def cured(w, v, noise):
    slope = sg.grad(energy, argnums=1)(w, v)
    sample = sg.stop_gradient(v - 0.1 * slope + noise)
    return energy(w, v) - energy(w, sample)


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(4, 3)), 0.1 * rng.normal(size=(4, 3))
