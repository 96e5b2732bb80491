"""Truncated backpropagation that detaches one half of an LSTM's state.

Symptom: leak
Seen in: Lightning-AI/pytorch-lightning PR #8145 ("Fix truncated_bptt_steps hiddens detach()"); the question
in dpressel/dliss-tutorial #1 is why "both h, and c"; yunjey/pytorch-tutorial #90, MorvanZhou/PyTorch-Tutorial
#57.

The state is a pair. The hidden value is detached at the edge of the window, the cell is carried on, and the
gradient goes back through all windows after all: into memory that was to be free, or "a second time".
"""

import torch
from torch import nn

LEARNS = ("lstm.weight_hh_l0",)
HELD = ("first",)


def broken(lstm, first, second):
    _, (h, c) = lstm(first)  # <- here
    out, _ = lstm(second, (h.detach(), c))
    return (out**2).sum()


def cured(lstm, first, second):
    _, (h, c) = lstm(first)
    out, _ = lstm(second, (h.detach(), c.detach()))
    return (out**2).sum()


def example():
    torch.manual_seed(0)
    return nn.LSTM(3, 2), torch.randn(4, 5, 3, requires_grad=True), torch.randn(4, 5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
