"""SimSiam with both sides detached: the encoder gets no gradient at all.

Symptom: none
Seen in: asked about in lightly-ai/lightly #559 and PatrickHua/SimSiam #22, #39: which of the projections is
detached, and where. Detached as soon as they are made, both are.

The same z is a target, which is held, and what the predictor reads, which is not (Chen & He 2021, arXiv
2011.10566, algorithm 1). So the detach belongs where z is used as a target.
"""

import torch
from torch import nn
from torch.nn.functional import cosine_similarity

LEARNS = ("encoder.weight", "predictor.weight")


def distance(p, z):
    return -cosine_similarity(p, z, dim=-1).mean()


def broken(encoder, predictor, view1, view2):
    z1, z2 = encoder(view1).detach(), encoder(view2).detach()  # <- here
    return distance(predictor(z1), z2) + distance(predictor(z2), z1)


def cured(encoder, predictor, view1, view2):
    z1, z2 = encoder(view1), encoder(view2)
    return distance(predictor(z1), z2.detach()) + distance(predictor(z2), z1.detach())


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Linear(2, 2), torch.randn(5, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
