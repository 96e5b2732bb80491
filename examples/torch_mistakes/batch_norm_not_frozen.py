"""A batch normalisation that is frozen by `eval()`: its scale and shift go on learning.

Symptom: leak
Seen in: VectXmy/FCOS.Pytorch #9 ("eval() is not equivalent to requires_grad"), isht7/pytorch-deeplab-resnet
#39, chemprop/chemprop PR #952.

`eval()` says which statistics are used and that they stay as they are. Whether weights learn is said by
`requires_grad`.
"""

import torch
from torch import nn

LEARNS = ("head.weight",)
HELD = ("norm.weight", "norm.bias")


def broken(norm, head, x, y):
    norm.eval()
    return ((head(norm(x)) - y) ** 2).mean()  # <- here


def cured(norm, head, x, y):
    norm.eval().requires_grad_(False)
    return ((head(norm(x)) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.BatchNorm1d(3), nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
