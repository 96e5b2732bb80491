"""Generated weights that are put into a layer's `.data`: the generator never learns.

Symptom: none
Seen in: pytorch/pytorch #12756 (`c_param.data = weight * a_param + (1 - weight) * b_param`: "which step is
blocking the gradient flow?"), KanishJebaMathewM/Truxify #13118 (MAML's inner step by `param.data -=`),
maorash/NeRN #25.

A parameter is a leaf: it has values, and nothing behind them. A layer with computed weights is called as a
function.
"""

import torch
from torch import nn

LEARNS = ("generator.weight", "generator.bias")


def broken(generator, layer, code, x, y):
    layer.weight.data[:] = generator(code).view(1, 3)  # <- here
    return ((layer(x) - y) ** 2).mean()


def cured(generator, layer, code, x, y):
    weight = generator(code).view(1, 3)
    return ((nn.functional.linear(x, weight, layer.bias) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(2, 3), nn.Linear(3, 1), torch.randn(2), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
