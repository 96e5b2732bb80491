"""A sample that was to be differentiated, drawn by `sample()`.

Symptom: none
Seen in: jankrepl/deepdow #101, mended in PR #106 ("The `sample` function makes it impossible to compute the
gradients, used `rsample` instead"); pytorch/pytorch PR #5086 made it so.

Distributions of PyTorch have both: `sample()` runs under `no_grad`, `rsample()` writes the sample as a
function of the parameters and noise.
"""

import torch
from torch import nn
from torch.distributions import Normal

LEARNS = ("encoder.weight", "encoder.bias")


def broken(encoder, decoder, x):
    z = Normal(encoder(x), 1.0).sample()  # <- here
    return ((decoder(z) - x) ** 2).mean()


def cured(encoder, decoder, x):
    z = Normal(encoder(x), 1.0).rsample()
    return ((decoder(z) - x) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Linear(2, 3), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
