"""Features that a forward hook stores detached: the loss is far from where it was cut.

Symptom: none
Seen in: lucidrains/CoCa-pytorch #6 (the extractor detached what it stored: "gradient may not propagate back
to image encoder").

A hook that was written to look at features detaches them, which is right for looking. Who trains on them
reads `features["middle"]` and sees no detach.
"""

import torch
from torch import nn

LEARNS = ("0.weight", "0.bias")
features = {}


def watch_middle(module, inputs, output):
    features["middle"] = output.clone().detach()  # <- here


def keep_middle(module, inputs, output):
    features["middle"] = output


def distilled(model, hook, x, teacher):
    handle = model[0].register_forward_hook(hook)
    model(x)
    handle.remove()
    return ((features["middle"] - teacher) ** 2).mean()


def broken(model, x, teacher):
    return distilled(model, watch_middle, x, teacher)


def cured(model, x, teacher):
    return distilled(model, keep_middle, x, teacher)


def example():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, torch.randn(5, 3), torch.randn(5, 4)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
