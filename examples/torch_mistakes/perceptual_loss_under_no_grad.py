"""A perceptual loss whose network is called under `no_grad`, for the prediction as well as for the target.

Symptom: inert
Seen in: junyanz/pytorch-CycleGAN-and-pix2pix #822 (a recipe that computes the features of the generated
images under `torch.no_grad`).

The features of the target need no gradient, those of the prediction do: what is to be held are the weights of
the network. Only the pixel loss trains.
"""

import torch
from torch import nn

LEARNS = ("generator.weight",)


def broken(generator, features, x, y):
    made = generator(x)
    with torch.no_grad():  # <- here
        far = ((features(made) - features(y)) ** 2).mean()
    return (made - y).abs().mean() + far


def cured(generator, features, x, y):
    made = generator(x)
    features.requires_grad_(False)
    far = ((features(made) - features(y)) ** 2).mean()
    return (made - y).abs().mean() + far


def example():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    return nn.Linear(3, 3), features, torch.randn(5, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
