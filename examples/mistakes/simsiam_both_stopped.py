"""SimSiam with both sides stopped: the encoder gets no gradient at all.

Symptom: none
Seen in: asked about in lightly-ai/lightly #559 and PatrickHua/SimSiam #22, #39: which of the projections is
detached, and where. Detached as soon as they are made, both are.

The same z is a target, which is held, and the predictor's input, which is not (Chen & He 2021, arXiv
2011.10566, algorithm 1). So the stop belongs where z is used as a target.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("encoder", "predictor")


def distance(p, z):
    return -sg.cosine_similarity(p, z).mean()


def broken(encoder, predictor, view1, view2):
    z1, z2 = sg.stop_gradient((view1 @ encoder, view2 @ encoder))  # <- here
    return distance(z1 @ predictor, z2) + distance(z2 @ predictor, z1)


def cured(encoder, predictor, view1, view2):
    z1, z2 = view1 @ encoder, view2 @ encoder
    return distance(z1 @ predictor, sg.stop_gradient(z2)) + distance(z2 @ predictor, sg.stop_gradient(z1))


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
