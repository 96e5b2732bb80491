"""NaN through `torch.where(condition, torch.sqrt(x), 0)`.

Symptom: nan
Seen in: pytorch/pytorch #187297, #68425, #36923, #18287, #156212.

`where` picks the right value, and its gradient sends 0 to the side that was not picked; there the square root
makes 0 · ∞ = NaN of it. The cure is a second `where`, inside, that gives the square root a harmless operand.
PyTorch's own report is the program's; that of `stopgrad` is of the program that `sgt.load` makes of it.
"""

import torch

import stopgrad as sg
import stopgrad.torch as sgt


class Broken(torch.nn.Module):
    def forward(self, x):
        return torch.where(x > 0.0, torch.sqrt(x), 0.0).sum()  # <- here


class Cured(torch.nn.Module):
    def forward(self, x):
        inside = torch.where(x > 0.0, x, 1.0)
        return torch.where(x > 0.0, torch.sqrt(inside), 0.0).sum()


def broken(x):
    return Broken()(x)


def cured(x):
    return Cured()(x)


def example():
    return (torch.tensor([4.0, 0.0, 1.0], requires_grad=True),)


def ask(program):
    module = Broken() if program is broken else Cured()
    (x,) = [x.detach() for x in example()]
    return sg.trace_nan(sgt.load(module, x), x.numpy())


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
