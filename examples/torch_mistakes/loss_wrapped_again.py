"""A loss that is wrapped anew with `requires_grad=True`, for `backward` to stop complaining.

Symptom: none
Seen in: speechbrain/speechbrain #735 (`loss=Variable(loss,requires_grad=True)`), brian6091/Dreambooth #23,
Kostis-S-Z/exploring_meta #16; the complaint is "element 0 of tensors does not require grad and does not have
a grad_fn".

`torch.tensor` of tensors reads their values. The new tensor requires a gradient, gets one, and keeps it: it
is a leaf, and the model is not behind it.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


def broken(model, xs, ys):
    losses = [((model(x) - y) ** 2).mean() for x, y in zip(xs, ys, strict=True)]
    return torch.tensor(losses, requires_grad=True).mean()  # <- here


def cured(model, xs, ys):
    losses = [((model(x) - y) ** 2).mean() for x, y in zip(xs, ys, strict=True)]
    return torch.stack(losses).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(2, 4, 3), torch.randn(2, 4, 1)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
