"""DQN without a detach on its target: the target is pulled towards the prediction.

Symptom: leak
Seen in: philtabor/Deep-Q-Learning-Paper-To-Code #9 and #16, datawhalechina/easy-rl PR #117,
boyu-ai/Hands-on-RL #28.

With a target network of its own the target's weights get gradients that nobody wants; with one network for
both it is another algorithm (residual gradients).
"""

import torch
from torch import nn

LEARNS = ("online.weight", "online.bias")
HELD = ("target.weight", "target.bias")


def broken(online, target, states, actions, rewards, following):
    q = online(states).gather(1, actions)
    best = target(following).amax(dim=1, keepdim=True)  # <- here
    return nn.functional.mse_loss(q, rewards + 0.9 * best)


def cured(online, target, states, actions, rewards, following):
    q = online(states).gather(1, actions)
    with torch.no_grad():
        best = target(following).amax(dim=1, keepdim=True)
    return nn.functional.mse_loss(q, rewards + 0.9 * best)


def example():
    torch.manual_seed(0)
    actions = torch.tensor([[0], [1], [1], [0]])
    return nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(4, 3), actions, torch.randn(4, 1), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
