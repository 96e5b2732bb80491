"""A recurrent network that takes its state's `.data` at every step: it learns from one step back.

Symptom: inert
Seen in: allenai/allennlp #2530 (the augmented LSTM was less accurate than PyTorch's; removing `.data` closed
the gap).

`.data` shares the values and forgets where they came from, without a warning. The weights still get a
gradient from the step at hand, so that training goes down, and slowly.
"""

import torch
from torch import nn

LEARNS = ("weight_hh", "weight_ih")


def broken(cell, x):
    state = torch.zeros(x.shape[1], 2)
    for step in x:
        state = cell(step, state.data.clone())  # <- here
    return (state**2).sum()


def cured(cell, x):
    state = torch.zeros(x.shape[1], 2)
    for step in x:
        state = cell(step, state.clone())
    return (state**2).sum()


def example():
    torch.manual_seed(0)
    return nn.RNNCell(3, 2), torch.randn(4, 5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
