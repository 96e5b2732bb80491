"""A policy gradient whose log-probabilities went through `.item()`.

Symptom: none
Seen in: isayev/ReLeaSE #39 (`rl_loss -= (log_probs[0, top_i].item()*discounted_reward)`, to be rid of an
error about devices: "my weights don't seem to be changing"); somuchtome/SimAC #3 (`loss +
target_loss.detach().item()`).

The loss is a number of Python, and looks the same when it is printed. Wrapped into a tensor that requires a
gradient it even has a `backward`.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(policy, states, actions, rewards):
    logs = torch.log_softmax(policy(states), dim=-1)
    loss = 0.0
    for log, action, reward in zip(logs, actions, rewards, strict=True):
        loss -= log[action].item() * reward  # <- here
    return loss / len(states)


def cured(policy, states, actions, rewards):
    logs = torch.log_softmax(policy(states), dim=-1)
    loss = 0.0
    for log, action, reward in zip(logs, actions, rewards, strict=True):
        loss -= log[action] * reward
    return loss / len(states)


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 1, 0]), torch.randn(4)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
