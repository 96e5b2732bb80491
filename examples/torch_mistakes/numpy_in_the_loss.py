"""A loss through NumPy and back.

Symptom: none
Seen in: isayev/ReLeaSE #39 (`log_probs[0, top_i].cpu().detach().numpy()`),
kevinzakka/recurrent-visual-attention #4; "Can't call numpy() on Tensor that requires grad. Use
tensor.detach().numpy() instead" (pytorch/pytorch #44023) tells people to write it.

The message says what to do for NumPy to read the values, not that the gradient ends there. The array shares
its memory with the tensor, and so does the tensor that is made of it: the values are the same, their history
is gone.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(model, x, y):
    made = model(x).detach().numpy()  # <- here
    return (torch.from_numpy(made) - y).abs().mean()


def cured(model, x, y):
    return (model(x) - y).abs().mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(5, 3), torch.randn(5, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
