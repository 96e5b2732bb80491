"""A GAN's discriminator step that trains the generator as well: to be found out.

Symptom: leak
Seen in: heykeetae/Self-Attention-GAN #48, yunjey/pytorch-tutorial #56, alterzero/DBPN-Pytorch #37.

Where one optimizer holds all weights the generator learns to look fake; where each has its own, the gradient
is only computed for nothing.
"""

import torch
from torch import nn
from torch.nn.functional import softplus

LEARNS = ("discriminator.weight",)
HELD = ("generator.weight", "generator.bias")


def broken(generator, discriminator, real, noise):
    fake = generator(noise)  # <- here
    return (softplus(-discriminator(real)) + softplus(discriminator(fake))).mean()


def cured(generator, discriminator, real, noise):
    fake = generator(noise).detach()
    return (softplus(-discriminator(real)) + softplus(discriminator(fake))).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(2, 3), nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 2)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
