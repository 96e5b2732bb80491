"""An `autograd.Function` that returns None for an operand that matters.

Symptom: none
Seen in: meder411/PyTorch-EMDLoss #11 ("the gradients of inputs are just None after backward"),
pytorch/pytorch #959, #45405.

For an operand that is no tensor, None is the answer; for one that learns, it says that there is no gradient,
and nobody asks again. Here the slope of an activation never moves.
"""

import torch
from torch import nn

LEARNS = ("slope", "0.weight")


class Forgetful(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0.0, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0.0, g, slope * g), None


class Complete(Forgetful):
    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0.0, g, slope * g), torch.where(x > 0.0, 0.0, x * g).sum()


def broken(model, x, y):
    return ((Forgetful.apply(model(x), model.slope) - y) ** 2).mean()  # <- here


def cured(model, x, y):
    return ((Complete.apply(model(x), model.slope) - y) ** 2).mean()


def example():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2))
    model.slope = nn.Parameter(torch.tensor(0.1))
    return model, torch.randn(6, 3), torch.randn(6, 2)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
