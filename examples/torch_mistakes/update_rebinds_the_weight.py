"""An update that binds the weight anew: after the first step nothing requires a gradient.

Symptom: none
Seen in: pytorch/pytorch #74158 (`w = w - lr * w.grad` under `no_grad` "removes requires_grad"), mlverse/torch
#124.

`w -= ...` writes into the leaf; `w = w - ...` makes another tensor, under `no_grad` one without a gradient.
"""

import torch

LEARNS = ("w",)


def broken(w, x, y):
    (slope,) = torch.autograd.grad(((x @ w - y) ** 2).mean(), w)
    with torch.no_grad():  # <- here
        w = w - 0.1 * slope
    return ((x @ w - y) ** 2).mean()


def cured(w, x, y):
    (slope,) = torch.autograd.grad(((x @ w - y) ** 2).mean(), w)
    with torch.no_grad():
        w -= 0.1 * slope
    return ((x @ w - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    return torch.randn(3, requires_grad=True), torch.randn(4, 3), torch.randn(4)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
