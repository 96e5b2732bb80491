"""Coordinates that are cast to integers, to look up what is there.

Symptom: none
Seen in: pytorch/pytorch #91431 ("The float type is converted to the long type, and the gradient information
is lost"), discuss.pytorch.org/t/is-the-type-conversion-differentiable/45436.

A pixel has no gradient with respect to where it lies. Interpolated between its neighbours it has.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(model, x, image):
    where = (torch.sigmoid(model(x)) * 6.0).long()  # <- here
    return -image[where[:, 0], where[:, 1]].mean()


def cured(model, x, image):
    where = 2.0 * torch.sigmoid(model(x)) - 1.0
    images = image.expand(len(x), 1, *image.shape)
    there = nn.functional.grid_sample(images, where[:, None, None, :], align_corners=True)
    return -there.mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(5, 3), torch.randn(7, 7)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
