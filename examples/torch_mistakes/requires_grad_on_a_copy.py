"""A copy that is made to require a gradient in the middle of the graph, and ends it.

Symptom: none
Seen in: VITA-Group/NeuralLift-360 #10 ("Why `sample = sample.detach().requires_grad_()` ... the grad of the
sample cannot be backward to NeRF"), facebookresearch/fairseq2 PR #733 (review: "This removes x from the
autograd graph right, why is it necessary?").

The score needs the gradient with respect to the sample, and for that no new leaf: `autograd.grad` takes any
tensor of the graph.
"""

import torch
from torch import nn

LEARNS = ("renderer.weight", "renderer.bias")


def broken(renderer, critic, view):
    image = renderer(view)
    image = image.detach().requires_grad_()  # <- here
    score = torch.autograd.grad(critic(image).sum(), image)[0].detach()
    return (score * image).sum()


def cured(renderer, critic, view):
    image = renderer(view)
    score = torch.autograd.grad(critic(image).sum(), image)[0].detach()
    return (score * image).sum()


def example():
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    return nn.Linear(3, 4), critic, torch.randn(2, 3)
