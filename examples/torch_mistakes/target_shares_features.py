"""A moving average that shares its features with the network that it follows: to hold one is to freeze both.

Symptom: none
Seen in: DLR-RM/stable-baselines3 PR #132 ("DQN main and target network accidentally shared feature extractor
network"), andri27-ts/Reinforcement-Learning #14 (the target is a reference to the moving network).

`copy.copy` copies the module and not what is in it. The parameters of the copy *are* those of the original,
and so is their `requires_grad`.
"""

import copy

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(online, x1, x2):
    target = copy.copy(online).requires_grad_(False)  # <- here
    return ((online(x1) - target(x2)) ** 2).mean()


def cured(online, x1, x2):
    target = copy.deepcopy(online).requires_grad_(False)
    return ((online(x1) - target(x2)) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
