"""A gradient penalty without `create_graph`: its value is right, and it does nothing.

Symptom: inert
Seen in: ooples/AiDotNet #1844 ("computes the penalty VALUE but does not backpropagate"), caogang/wgan-gp #4;
uvm-neurobotics-lab/ANML #3 is the same in meta-learning.

The gradient that `autograd.grad` returns is a constant unless its own graph is built.
"""

import torch
from torch import nn
from torch.nn.functional import softplus

LEARNS = ("0.weight", "2.weight")


def broken(critic, real, fake):
    between = (0.5 * (real + fake)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between)  # <- here
    penalty = ((slope.norm(dim=-1) - 1.0) ** 2).mean()
    return (softplus(critic(fake)) + softplus(-critic(real))).mean() + 10.0 * penalty


def cured(critic, real, fake):
    between = (0.5 * (real + fake)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((slope.norm(dim=-1) - 1.0) ** 2).mean()
    return (softplus(critic(fake)) + softplus(-critic(real))).mean() + 10.0 * penalty


def example():
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return critic, torch.randn(5, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
