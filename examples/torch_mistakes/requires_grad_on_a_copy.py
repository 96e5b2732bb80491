"""A copy that is made to require a gradient in the middle of the graph, and ends it.

Symptom: none
Seen in: VITA-Group/NeuralLift-360 #10 ("Why `sample = sample.detach().requires_grad_()` ... the grad of the
sample cannot be backward to NeRF"), facebookresearch/fairseq2 PR #733 (review: "This removes x from the
autograd graph right, why is it necessary?").

It is written to have the gradient with respect to the image, too. For that no new leaf is needed:
`retain_grad()` keeps it at any tensor of the graph, and `autograd.grad` takes any.
"""

import torch
from torch import nn

LEARNS = ("renderer.weight", "renderer.bias")


def broken(renderer, critic, view):
    image = renderer(view)
    image = image.detach().requires_grad_()  # <- here
    return -critic(image).mean()


def cured(renderer, critic, view):
    image = renderer(view)
    image.retain_grad()
    return -critic(image).mean()


def example():
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    return nn.Linear(3, 4), critic, torch.randn(2, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
