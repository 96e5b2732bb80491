"""Models of the sizes that people train, with random weights: what `full_size.py` measures.

The shapes are those of GPT-2 small, ViT-B/16, Whisper base and a Llama of 160 million parameters; the modules
are written with `torch.nn` alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Sizes(NamedTuple):
    """Of a transformer."""

    words: int
    length: int
    width: int
    heads: int
    layers: int
    wide: int


class Attention(nn.Module):
    """Attention of several heads, to what it is given or to something else."""

    def __init__(self, width: int, heads: int, causal: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def apart(self, x: Any) -> Any:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Any, to: Any = None, turned: Any = None) -> Any:
        to = x if to is None else to
        q, k, v = self.apart(self.q(x)), self.apart(self.k(to)), self.apart(self.v(to))
        if turned is not None:
            q, k = turned(q), turned(k)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """A block of a transformer, the norms first; with a second attention where it reads an encoder."""

    def __init__(self, sizes: Sizes, causal: bool, reads: bool = False, approximate: str = "none") -> None:
        super().__init__()
        width = sizes.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, sizes.heads, causal)
        self.norm3, self.reading = (
            (nn.LayerNorm(width), Attention(width, sizes.heads)) if reads else (None, None)
        )
        self.wide, self.narrow = nn.Linear(width, sizes.wide), nn.Linear(sizes.wide, width)
        self.approximate = approximate

    def forward(self, x: Any, read: Any = None) -> Any:
        x = x + self.attention(self.norm1(x))
        if self.reading is not None:
            x = x + self.reading(self.norm3(x), read)
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate=self.approximate))


class GPT2(nn.Module):
    """Words in, logits of the next out; the head is the table of the words."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(sizes.words, sizes.width), nn.Embedding(1024, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, True, approximate="tanh") for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ViT(nn.Module):
    """Images in, logits of their classes out."""

    def __init__(self, sizes: Sizes, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, sizes.width, side, side)
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, sizes.width))
        self.places = nn.Parameter(0.02 * torch.randn(1, sizes.length, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes, False) for _ in range(sizes.layers))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.words)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Whisper(nn.Module):
    """A spectrogram and words in, logits of the next words out."""

    def __init__(self, sizes: Sizes, frames: int) -> None:
        super().__init__()
        width = sizes.width
        self.conv1, self.conv2 = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        half = torch.arange(width // 2) / (width // 2 - 1)
        angles = torch.arange(frames // 2)[:, None] * torch.exp(-9.2103 * half)
        self.register_buffer("waves", torch.cat([angles.sin(), angles.cos()], 1))
        self.encoder = nn.ModuleList(Block(sizes, False) for _ in range(sizes.layers))
        self.encoded = nn.LayerNorm(width)
        self.words, self.places = nn.Embedding(sizes.words, width), nn.Embedding(448, width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.decoder = nn.ModuleList(Block(sizes, True, True) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, sound: Any, x: Any) -> Any:
        read = functional.gelu(self.conv2(functional.gelu(self.conv1(sound)))).transpose(1, 2) + self.waves
        for block in self.encoder:
            read = block(read)
        read = self.encoded(read)
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.decoder:
            x = block(x, read)
        return functional.linear(self.norm(x), self.words.weight)


class Llama(nn.Module):
    """Words in, logits of the next out: norms by the root mean square, turned positions, gated layers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(sizes.words, sizes.width), None
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.ModuleList(Gated(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)
        half = sizes.width // sizes.heads // 2
        angles = torch.arange(sizes.length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cat([angles, angles], 1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], 1).sin())

    def turned(self, x: Any) -> Any:
        length, half = x.shape[-2], x.shape[-1] // 2
        other = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[:length] + other * self.sin[:length]

    def forward(self, x: Any) -> Any:
        x = self.words(x)
        for block in self.blocks:
            x = block(x, self.turned)
        return self.head(self.norm(x))


class Gated(nn.Module):
    """A block of a Llama."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, wide = sizes.width, sizes.wide
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, sizes.heads, True, bias=False)
        self.gate, self.up = nn.Linear(width, wide, bias=False), nn.Linear(width, wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: Any, turned: Any) -> Any:
        x = x + self.attention(self.norm1(x), turned=turned)
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def text_of(count: int, sizes: Sizes) -> tuple[Any, Any]:
    """So many texts, and the next word of each of their words."""
    words = torch.randint(sizes.words, (count, sizes.length + 1))
    return words[:, :-1], words[:, 1:]


def gpt2(quick: bool, batch: int, length: int) -> tuple[nn.Module, tuple[Any, ...], Any]:
    sizes = Sizes(60, 8, 16, 2, 1, 64) if quick else Sizes(50257, length, 768, 12, 12, 3072)
    words, labels = text_of(batch, sizes)
    return GPT2(sizes), (words,), labels


def vit(quick: bool, batch: int, length: int) -> tuple[nn.Module, tuple[Any, ...], Any]:
    side, patch = (8, 4) if quick else (224, 16)
    places = (side // patch) ** 2 + 1
    sizes = Sizes(10, places, 16, 2, 1, 64) if quick else Sizes(1000, places, 768, 12, 12, 3072)
    return ViT(sizes, patch), (torch.randn(batch, 3, side, side),), torch.randint(sizes.words, (batch,))


def whisper(quick: bool, batch: int, length: int) -> tuple[nn.Module, tuple[Any, ...], Any]:
    sizes = Sizes(60, 8, 16, 2, 1, 64) if quick else Sizes(51865, length, 512, 8, 6, 2048)
    frames = 16 if quick else 600  # Six seconds; its own window has thirty.
    words, labels = text_of(batch, sizes)
    return Whisper(sizes, frames), (torch.randn(batch, 80, frames), words), labels


def llama(quick: bool, batch: int, length: int) -> tuple[nn.Module, tuple[Any, ...], Any]:
    sizes = Sizes(60, 8, 16, 2, 1, 64) if quick else Sizes(32000, length, 768, 12, 12, 3072)
    words, labels = text_of(batch, sizes)
    return Llama(sizes), (words,), labels


CASES = {"gpt2": gpt2, "vit": vit, "whisper": whisper, "llama": llama}


def made(case: str, quick: bool, batch: int = 1, length: int = 64) -> tuple[nn.Module, tuple[Any, ...], Any]:
    """A module that trains, its arguments and labels.

    Args:
        case: its name.
        quick: whether it is tiny.
        batch: how many examples there are.
        length: how many words there are in each, where there are words.
    """
    torch.manual_seed(0)
    model, inputs, labels = CASES[case](quick, batch, length)
    return model.train(), inputs, labels
