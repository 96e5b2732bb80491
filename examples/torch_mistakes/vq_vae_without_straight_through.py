"""VQ-VAE without the straight-through: the lookup keeps the encoder from learning.

Symptom: none
Seen in: Biohub/esm #92 (only indices are passed on: "a disconnect"), ritheshkumar95/pytorch-vqvae #8; what
repairs it is asked about in zalandoresearch/pytorch-vq-vae #6, rosinality/vq-vae-2-pytorch #20,
CompVis/taming-transformers #35.

The nearest entry is an index, and an index has no gradient. The decoder and the codebook learn, the encoder
does not. The straight-through hands the gradient of the entry to the encoder's output.
"""

import torch
from torch import nn

LEARNS = ("encoder.weight", "encoder.bias")


def broken(encoder, codebook, decoder, x):
    z = encoder(x)
    nearest = torch.cdist(z, codebook.weight).argmin(dim=-1)  # <- here
    return ((decoder(codebook(nearest)) - x) ** 2).mean()


def cured(encoder, codebook, decoder, x):
    z = encoder(x)
    nearest = torch.cdist(z, codebook.weight).argmin(dim=-1)
    quantized = z + (codebook(nearest) - z).detach()
    return ((decoder(quantized) - x) ** 2).mean()


def example():
    torch.manual_seed(0)
    return nn.Linear(3, 2), nn.Embedding(4, 2), nn.Linear(2, 3), torch.randn(5, 3)


if __name__ == "__main__":
    from _train import train

    train(vars(), example)
