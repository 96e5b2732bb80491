"""An evaluation that switches gradients off, and not on again.

Symptom: none
Seen in: huggingface/transformers PR #13257 ("Disabling gradient computation here will affect all next
operations using torch").

`torch.set_grad_enabled(False)` as a statement holds for the rest of the thread. As a context it ends.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def accuracy(model, x, y):
    torch.set_grad_enabled(False)  # <- here
    return ((model(x) > 0.0) == (y > 0.0)).float().mean()


def careful_accuracy(model, x, y):
    with torch.set_grad_enabled(False):
        return ((model(x) > 0.0) == (y > 0.0)).float().mean()


def broken(model, x, y):
    print(f"accuracy: {accuracy(model, x, y):.2f}")
    return ((model(x) - y) ** 2).mean()


def cured(model, x, y):
    print(f"accuracy: {careful_accuracy(model, x, y):.2f}")
    return ((model(x) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
