"""An encoder that is called under `no_grad`, and was to be trained.

Symptom: none
Seen in: rll-research/cic #5 ("the CNN weights will not be updated during pre-training"),
edreisMD/ConVIRT-pytorch #7.

It saves memory, the head learns, the loss goes down. The encoder stays as it was made.
"""

import torch
from torch import nn

LEARNS = ("encoder.weight", "encoder.bias", "head.weight")


def broken(encoder, head, x, labels):
    with torch.no_grad():  # <- here
        features = torch.relu(encoder(x))
    return nn.functional.cross_entropy(head(features), labels)


def cured(encoder, head, x, labels):
    features = torch.relu(encoder(x))
    return nn.functional.cross_entropy(head(features), labels)


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 4), nn.Linear(4, 2), torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
