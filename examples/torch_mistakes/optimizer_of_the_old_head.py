"""An optimizer that was made before the head was replaced: it steps weights that nobody uses.

Symptom: none
Seen in: pytorch/pytorch #54765 ("You need to reinitialize the optimizer; otherwise it doesn't know anything
about the new nets parameters"), #14467, microsoft/nni #4521.

The gradient arrives, at the new head. The optimizer holds the old one, whose gradient stays None, and skips
it.
"""

import torch
from torch import nn

LEARNS = ("group0.0", "group0.1")


def broken(x, labels):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(3, 4)  # <- here
    return nn.functional.cross_entropy(model(x), labels), optimizer


def cured(x, labels):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    model[1] = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return nn.functional.cross_entropy(model(x), labels), optimizer


def example():
    torch.manual_seed(0)
    return torch.randn(5, 3), torch.tensor([0, 3, 1, 2, 2])


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
