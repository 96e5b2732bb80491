"""Layers in a list of Python: the optimizer never hears of them.

Symptom: none
Seen in: pytorch/pytorch #666, #715, #1053, #59925 ("permits silent programming errors").

A module registers what is assigned to it, and a list is no module. The layers compute, their gradients
arrive, and `parameters()` does not have them; an `nn.ModuleList` is a list that is one.
"""

import torch
from torch import nn

LEARNS = ("group0.0", "group0.1")


class Tower(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.hidden = kind([nn.Linear(3, 3)])  # <- here
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.head(x)


def step(kind, x, y):
    model = Tower(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return ((model(x) - y) ** 2).mean(), optimizer


def broken(x, y):
    return step(list, x, y)


def cured(x, y):
    return step(nn.ModuleList, x, y)


def example():
    torch.manual_seed(0)
    return torch.randn(5, 3), torch.randn(5, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
