"""A helper that is decorated with `no_grad`, written for evaluation and used in the loss.

Symptom: none
Seen in: huggingface/transformers PR #42573 and kuprel/min-dalle PR #24 mend decorators of `no_grad`; that
what it decorates cannot train is seen far away, as in rll-research/cic #5.

Where the helper is called nothing shows that it has no gradient. The cure is a helper that leaves that to its
callers.
"""

import torch
from torch import nn

LEARNS = ("weight", "bias")


@torch.no_grad()  # <- here
def embed(model, x):
    return nn.functional.normalize(model(x), dim=-1)


def embed_plainly(model, x):
    return nn.functional.normalize(model(x), dim=-1)


def broken(model, anchors, positives):
    return -(embed(model, anchors) * embed(model, positives)).sum(dim=-1).mean()


def cured(model, anchors, positives):
    return -(embed_plainly(model, anchors) * embed_plainly(model, positives)).sum(dim=-1).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
