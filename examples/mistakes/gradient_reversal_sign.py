"""Gradient reversal whose sign is turned twice.

Symptom: large
Seen in: CuthbertCai/pytorch_DANN #10 (a negative lambda, and a `neg()` in the layer: the features learnt to
*help* the domain classifier).

Spelt with a stop, reversal is sg((1 + λ) x) - λ x. The value is x for either sign of λ. Beside the gradient
of the value, which `stops="ignore"` shows, a reversed one is to have the *other* sign, so the broken program
is the one in which the two agree.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("features",)


def broken(features, domain):
    strength = -0.5
    turned = sg.stop_gradient((1.0 + strength) * features) - strength * features  # <- here
    return sg.softplus(turned @ domain).mean()


def cured(features, domain):
    turned = sg.reverse_gradient(features, 0.5)
    return sg.softplus(turned @ domain).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 3)), rng.normal(size=3)


def ask(program):
    return sg.check_gradients(program, *example(), stops="ignore", raises=False)
