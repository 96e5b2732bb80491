"""An argmax between two networks: the first never learns.

Symptom: none
Seen in: pytorch/pytorch #1339 ("I want to backprop through the argmax back to the weights of the first
module"), LZGMatrix/BOP19_CDPN_2019ICCV #4, Ugenteraan/Deep_Hierarchical_Classification #6.

The second network learns, from whatever the first one happens to pick. A mixture of the words, weighted by
their probabilities, has a gradient.
"""

import torch
from torch import nn

LEARNS = ("writer.weight", "writer.bias")


def broken(writer, words, reader, x, y):
    picked = words(writer(x).argmax(dim=-1))  # <- here
    return ((reader(picked) - y) ** 2).mean()


def cured(writer, words, reader, x, y):
    mixed = writer(x).softmax(dim=-1) @ words.weight
    return ((reader(mixed) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 4), nn.Embedding(4, 2), nn.Linear(2, 1), torch.randn(5, 3), torch.randn(5, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
