"""SimSiam with the detach on the predictor's side: the predictor never learns.

Symptom: inert
Seen in: PatrickHua/SimSiam #22 and facebookresearch/simsiam #27 ask on which branch it belongs.

The loss has a gradient, for the encoder learns as the target. It moves towards a predictor that stays as it
was made: what the stop was to keep from collapsing, collapses.
"""

import torch
from torch import nn
from torch.nn.functional import cosine_similarity

LEARNS = ("predictor.weight",)


def broken(encoder, predictor, view1, view2):
    p1, z2 = predictor(encoder(view1)), encoder(view2)
    return -cosine_similarity(p1.detach(), z2, dim=-1).mean()  # <- here


def cured(encoder, predictor, view1, view2):
    p1, z2 = predictor(encoder(view1)), encoder(view2)
    return -cosine_similarity(p1, z2.detach(), dim=-1).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Linear(2, 2), torch.randn(5, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
