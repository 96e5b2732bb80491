"""Pretrained embeddings that were to be tuned: `from_pretrained` freezes them.

Symptom: none
Seen in: huggingface/optimum-graphcore PR #304 ("This may not be what the user intends to do"),
RUCAIBox/RecBole #2027, 649453932/Chinese-Text-Classification-Pytorch #117.

`freeze=True` is the default of `nn.Embedding.from_pretrained`, and of no other layer.
"""

import torch
from torch import nn

LEARNS = ("words.weight", "head.weight")


def broken(head, vectors, sentence):
    words = nn.Embedding.from_pretrained(vectors)  # <- here
    return head(words(sentence).mean(dim=0)).square().sum(), {"words": words, "head": head}


def cured(head, vectors, sentence):
    words = nn.Embedding.from_pretrained(vectors, freeze=False)
    return head(words(sentence).mean(dim=0)).square().sum(), {"words": words, "head": head}


def example():
    torch.manual_seed(0)
    return nn.Linear(2, 1), torch.randn(5, 2), torch.tensor([0, 3, 1])


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
