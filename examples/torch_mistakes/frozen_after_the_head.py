"""A model that is frozen after its new head was put in: the head is frozen, too.

Symptom: none
Seen in: open-mmlab/mmdetection #3667 (backbone and head frozen: `backward` complains), asked in
facebookresearch/detectron2 #635, 935963004/LaBraM #32.

The order matters: freeze what is there, then add what is to learn.
"""

import torch
from torch import nn

LEARNS = ("head.weight", "head.bias")


def broken(model, x, y):
    model.head = nn.Linear(4, 1)
    for p in model.parameters():
        p.requires_grad = False  # <- here
    return ((model.head(model.body(x)) - y) ** 2).mean()


def cured(model, x, y):
    for p in model.parameters():
        p.requires_grad = False
    model.head = nn.Linear(4, 1)
    return ((model.head(model.body(x)) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(3, 4), "head": nn.Linear(4, 10)})
    return model, torch.randn(5, 3), torch.randn(5, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
