"""A GAN's generator step on detached images.

Symptom: none
Seen in: nikhilsinghmus/image2reverb #37 ("`.detach()` should not be there for the generator step and is a
bug"), wangle53/CSA-CDGAN #5, tamarott/SinGAN PR #117 (review).

The detach belongs to the discriminator's step. In the generator's, it leaves the generator with nothing, or
with its other losses alone.
"""

import torch
from torch import nn
from torch.nn.functional import softplus

LEARNS = ("generator.weight", "generator.bias")


def broken(generator, discriminator, noise):
    fake = generator(noise)
    return softplus(-discriminator(fake.detach())).mean()  # <- here


def cured(generator, discriminator, noise):
    fake = generator(noise)
    return softplus(-discriminator(fake)).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(2, 3), nn.Linear(3, 1), torch.randn(4, 2)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
