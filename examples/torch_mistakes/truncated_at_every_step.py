"""A recurrent network whose state is detached at every step, not at the edge of the window.

Symptom: inert
Seen in: yhs968/pyGRU4REC #8 (the loss "can only propagate to time t-1, which make the model more like a
Markov Chain Model"), norse/norse PR #131 ("it would break autograd and BPTT").

It was written to be rid of "Trying to backward through the graph a second time", and is. The encoder of the
first step learns from the first step only.
"""

import torch
from torch import nn

LEARNS = ("weight_hh", "weight_ih")


def broken(cell, window, state):
    for step in window:
        state = cell(step, state)
        state = state.detach() if step is not window[-1] else state  # <- here
    return (state**2).sum()


def cured(cell, window, state):
    state = state.detach()
    for step in window:
        state = cell(step, state)
    return (state**2).sum()


def example():
    torch.manual_seed(0)
    window = list(torch.randn(4, 5, 3))
    return nn.GRUCell(3, 2), window, torch.zeros(5, 2)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
