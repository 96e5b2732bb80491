"""The PyTorch modules whose training steps `onnx_training.py` measures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions with batch norms, and the input added."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short = (
            nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()
        )

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.short(x))


class Attending(nn.Module):
    """A block of a transformer, the norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class Transformer(nn.Module):
    """Words in, logits of their classes out."""

    def __init__(self, words: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*[Attending(width, max(1, width // 64)) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.blocks(self.words(x) + self.places)))


def mlp(quick: bool) -> tuple[nn.Module, Any, Any]:
    width, batch = (16, 4) if quick else (512, 64)
    sizes = [784, width, width, width]
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10)), torch.randn(batch, 784), torch.randint(10, (batch,))


def resnet(quick: bool) -> tuple[nn.Module, Any, Any]:
    width, batch, size = (4, 2, 8) if quick else (32, 8, 32)
    blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))
    return model, torch.randn(batch, 3, size, size), torch.randint(10, (batch,))


def transformer(quick: bool) -> tuple[nn.Module, Any, Any]:
    words, length, width, layers, batch = (50, 8, 16, 1, 2) if quick else (1000, 64, 256, 4, 8)
    model = Transformer(words, length, width, layers)
    return model, torch.randint(words, (batch, length)), torch.randint(words, (batch, length))


CASES = {"mlp": mlp, "resnet": resnet, "transformer": transformer}


def made(case: str, quick: bool) -> tuple[nn.Module, Any, Any]:
    """A module that trains, a batch and its labels."""
    torch.manual_seed(0)
    model, x, labels = CASES[case](quick)
    return model.train(), x, labels


def loss_of(y: Any, labels: Any) -> Any:
    """Cross entropy along the last axis."""
    return functional.cross_entropy(y.flatten(0, -2), labels.flatten())
