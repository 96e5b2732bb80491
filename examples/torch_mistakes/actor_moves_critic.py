"""An actor's loss that trains the critic as well: to call every action good.

Symptom: leak
Seen in: ray-project/ray PR #65125 ("stop actor-loss gradients from leaking into the critics": estimates that
grew without bound), astariul/encode-attend-navigate-pytorch #2.

With an optimizer for each, and both zeroed at the right time, it does no harm. With one for all, or gradients
that are gathered before the next zeroing, the critic learns to raise its values at the actor's actions.
"""

import torch
from torch import nn

LEARNS = ("actor.weight",)
HELD = ("critic.weight", "critic.bias")


def broken(actor, critic, states):
    actions = torch.tanh(actor(states))
    return -critic(torch.cat([states, actions], dim=-1)).mean()  # <- here


def cured(actor, critic, states):
    actions = torch.tanh(actor(states))
    held = {name: p.detach() for name, p in critic.named_parameters()}
    return -torch.func.functional_call(critic, held, torch.cat([states, actions], dim=-1)).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Linear(5, 1), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
