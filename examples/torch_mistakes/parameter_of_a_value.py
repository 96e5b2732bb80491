"""A computed weight that is wrapped as an `nn.Parameter`: the graph behind it is gone.

Symptom: none
Seen in: lezcano/geotorch #12 (`self.weights = nn.Parameter(weights.squeeze())` of a hypernetwork);
discuss.pytorch.org/t/what-is-the-most-convenient-way-to-make-model-weights-dependent-on-some-parameter/47645
("nn.Parameter() ignores the history of computation").

`nn.Parameter(w)` is a new leaf with the values of w.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(generator, code, x, y):
    weight = nn.Parameter(generator(code).view(1, 3))  # <- here
    return ((nn.functional.linear(x, weight) - y) ** 2).mean()


def cured(generator, code, x, y):
    weight = generator(code).view(1, 3)
    return ((nn.functional.linear(x, weight) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(2, 3), torch.randn(2), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
