"""What is shipped: a small language model of PyTorch's, exported, and graphs that fine-tune it with LoRA.

The model, a causal transformer over letters, learns one text in PyTorch. Of the exported file the graphs are
made by which it takes on another text where it is used: adapters beside the weights of its attention and its
dense layers are trained, all else is frozen.

    python prepare.py out

    out/model.onnx             the model as torch.onnx.export wrote it
    out/training/              train_step.onnx, predict.onnx, ..., state.safetensors, manifest.json

The same graphs by the command line:

    stopgrad train-graph out/model.onnx --loss cross-entropy --optimizer adamw \\
        --lora 'blocks.*.qkv.weight' --lora 'blocks.*.out.weight' \\
        --lora 'blocks.*.up.weight' --lora 'blocks.*.down.weight' --rank 4 --alpha 8 -o out/training
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import stopgrad.onnx as sgo

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
HEADS, WIDTH, LENGTH = 4, 32, 32
FIRST = "the cat sat on the mat. the dog sat on the log. the cat saw the dog. "
ADAPTED = ["blocks.*.qkv.weight", "blocks.*.out.weight", "blocks.*.up.weight", "blocks.*.down.weight"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(self.before(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    """Logits of the next letter, after each of the letters [batch, length]."""

    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, tokens):
        x = self.letters(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def batch(rng, text, count=16, length=LENGTH):
    """Pieces of a text that goes on for ever: letters, and the letter after each."""
    numbers = np.array([LETTERS.index(letter) for letter in text])
    starts = rng.integers(len(numbers), size=(count, 1))
    pieces = numbers[(starts + np.arange(length + 1)) % len(numbers)]
    return pieces[:, :-1], pieces[:, 1:]


def pretrained(steps=120):
    """The model after some steps on the first text."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # For so small a model, more of them wait for each other.
    rng, model = np.random.default_rng(0), Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        tokens, following = (torch.from_numpy(x) for x in batch(rng, FIRST))
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def export(model, path):
    tokens = torch.zeros((2, LENGTH), dtype=torch.int64)
    sizes = {"tokens": {0: torch.export.Dim("batch"), 1: LENGTH}}
    torch.onnx.export(
        model, (tokens,), path, input_names=["tokens"], output_names=["logits"], dynamo=True,
        dynamic_shapes=sizes, external_data=False, optimize=False, verbose=False,
    )  # fmt: skip


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    export(pretrained(), folder / "model.onnx")
    lora = {"weights": ADAPTED, "rank": 4, "alpha": 8}
    sgo.training(
        folder / "model.onnx", loss="cross-entropy", optimizer="adamw", lora=lora, folder=folder / "training"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
