"""Weights that are rounded: the gradient is not None, and zero.

Symptom: none
Seen in: MatthieuCourbariaux/BinaryConnect #7 (of the binarisation: "mostly 0"),
Justin-Tan/generative-compression #27; discuss.pytorch.org/t/torch-round-gradient/28628 ("because of the zero
gradient").

PyTorch differentiates `round`, and its derivative is 0 wherever it has one. A straight-through passes the
gradient on as if nothing had been rounded.
"""

import torch
from torch import nn

LEARNS = ("weight",)


def broken(model, x, y):
    quantized = torch.round(model.weight / 0.1) * 0.1  # <- here
    return ((x @ quantized.T - y) ** 2).mean()


def cured(model, x, y):
    quantized = torch.round(model.weight / 0.1) * 0.1
    passed = model.weight + (quantized - model.weight).detach()
    return ((x @ passed.T - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 1, bias=False), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
