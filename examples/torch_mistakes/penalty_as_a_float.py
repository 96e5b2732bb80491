"""A penalty that is a float: the loss is larger, and nothing is penalised.

Symptom: inert
Seen in: somuchtome/SimAC #3 (`loss = loss + target_loss.detach().item()`); shenyangHuang/TGB PR #118 on what
`float(loss)` does to the graph.

A sum of a tensor and a number has the tensor's gradient. The printed loss contains the penalty, so that it
seems to be at work.
"""

import torch
from torch import nn

LEARNS = ("weight",)


def broken(model, x, y):
    penalty = 0.1 * (model.weight**2).sum()
    return ((model(x) - y) ** 2).mean() + penalty.item()  # <- here


def cured(model, x, y):
    penalty = 0.1 * (model.weight**2).sum()
    return ((model(x) - y) ** 2).mean() + penalty


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
