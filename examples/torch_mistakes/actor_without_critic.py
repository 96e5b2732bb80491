"""An actor whose critic is read under `no_grad`: the actor gets no gradient.

Symptom: none
Seen in: ooples/AiDotNet PR #2219 (critics read without gradient in the actor's loss);
toshikwa/sac-discrete.pytorch #24 asks why `no_grad` is right there, which it is for discrete actions only.

To hold the critic, its weights are held, or its gradients thrown away. `no_grad` also cuts what goes through
it, and that is all that the actor has.
"""

import torch
from torch import nn

LEARNS = ("actor.weight", "actor.bias")


def broken(actor, critic, states):
    actions = torch.tanh(actor(states))
    with torch.no_grad():  # <- here
        values = critic(torch.cat([states, actions], dim=-1))
    return -values.mean()


def cured(actor, critic, states):
    actions = torch.tanh(actor(states))
    critic.requires_grad_(False)
    values = critic(torch.cat([states, actions], dim=-1))
    critic.requires_grad_(True)
    return -values.mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Linear(5, 1), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
