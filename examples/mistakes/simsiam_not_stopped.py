"""SimSiam without a stop: both sides move towards each other, to one point.

Symptom: leak
Seen in: google-deepmind/optax PR #1531 (self-supervised losses whose target projections were differentiable);
the collapse is figure 2 of Chen & He 2021, arXiv 2011.10566.

The second view is only ever a target in this half of the loss, so no gradient may arrive at it.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("encoder", "predictor")
HELD = ("view2",)


def broken(encoder, predictor, view1, view2):
    p = view1 @ encoder @ predictor
    z = view2 @ encoder  # <- here
    return -sg.cosine_similarity(p, z).mean()


def cured(encoder, predictor, view1, view2):
    p = view1 @ encoder @ predictor
    z = sg.stop_gradient(view2 @ encoder)
    return -sg.cosine_similarity(p, z).mean()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
