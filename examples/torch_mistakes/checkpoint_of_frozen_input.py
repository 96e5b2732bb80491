"""A reentrant checkpoint whose input needs no gradient: what is inside gets none either.

Symptom: none
Seen in: huggingface/transformers #21381 and #23170 ("freezing the first layers of a model and using
gradient-checkpointing": all gradients are lost), Lyken17/pytorch-memonger #4.

"None of the inputs have requires_grad=True. Gradients will be None" is a warning, and it is about the
weights, too. `use_reentrant=False` looks at what is inside.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

LEARNS = ("block.weight", "block.bias", "head.weight")


def broken(embedding, block, head, words):
    x = checkpoint(block, embedding(words), use_reentrant=True)  # <- here
    return head(x).square().mean()


def cured(embedding, block, head, words):
    x = checkpoint(block, embedding(words), use_reentrant=False)
    return head(x).square().mean()


def example():
    torch.manual_seed(0)
    embedding = nn.Embedding(5, 3).requires_grad_(False)
    return embedding, nn.Linear(3, 3), nn.Linear(3, 1), torch.tensor([0, 3, 1])


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
