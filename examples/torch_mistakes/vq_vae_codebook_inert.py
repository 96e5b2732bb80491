"""VQ-VAE's codebook loss on the straight-through value: the codebook never moves.

Symptom: inert
Seen in: showlab/Olaf-World #8 ("the reconstruction loss still goes down, which makes this easy to miss"),
EdoardoBotta/RQ-VAE-Recommender #24.

The straight-through value is the entry to the decoder and the encoder's output to the gradient: the codebook
is in it behind the detach only. The codebook loss takes the entry itself.
"""

import torch
from torch import nn

LEARNS = ("codebook.weight",)


def broken(encoder, codebook, decoder, x):
    z = encoder(x)
    entry = codebook(torch.cdist(z, codebook.weight).argmin(dim=-1))
    quantized = z + (entry - z).detach()  # <- here
    codebook_loss = ((quantized - z.detach()) ** 2).mean()
    return ((decoder(quantized) - x) ** 2).mean() + codebook_loss


def cured(encoder, codebook, decoder, x):
    z = encoder(x)
    entry = codebook(torch.cdist(z, codebook.weight).argmin(dim=-1))
    quantized = z + (entry - z).detach()
    codebook_loss = ((entry - z.detach()) ** 2).mean()
    return ((decoder(quantized) - x) ** 2).mean() + codebook_loss


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Embedding(4, 2), nn.Linear(2, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
