"""A count of violations as a loss: a comparison has no gradient.

Symptom: none
Seen in: wtl52656/Diff-RNTraj #9 (`mask = ... == 1e-10; loss = torch.sum(mask).float()`: "this term never
contributes to network optimization").

The number of distances beyond the limit does not change when one changes a little. By how much they are
beyond it does.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(model, x):
    far = model(x).norm(dim=-1) > 0.5  # <- here
    return torch.sum(far).float()


def cured(model, x):
    return torch.relu(model(x).norm(dim=-1) - 0.5).sum()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
