"""A small causal language model over letters, its adapters' training graphs, and pieces of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stopgrad as sg
import stopgrad.onnx as sgo

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
TEXT = "a fox ran to the river. a hen ran to the barn. the fox saw a hen. "
LENGTH, WIDTH = 12, 16


def language_model(path: Path, batch: str | int = "batch") -> None:
    """Write a transformer of one block: tokens [batch, 12] to logits [batch, 12, 28]."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        numbers = rng.normal(size=shape) / np.sqrt(shape[0])
        return sg.parameter(numbers.astype(np.float32), name=name)

    with sg.Graph().as_default():
        tokens = sg.placeholder(sg.int64, [batch, LENGTH], name="tokens")
        x = sg.gather(weight("letters", len(LETTERS), WIDTH), tokens) + weight("places", LENGTH, WIDTH)
        with sg.name_scope("block"):
            q, k, v = (x @ weight(name, WIDTH, WIDTH) for name in ("q", "k", "v"))
            later = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)
            scores = q @ sg.transpose(k, [0, 2, 1]) / WIDTH**0.5 + later
            x = x + sg.softmax(scores) @ v @ weight("out", WIDTH, WIDTH)
            x = x + sg.gelu(x @ weight("up", WIDTH, 4 * WIDTH)) @ weight("down", 4 * WIDTH, WIDTH)
        logits = x @ weight("head", WIDTH, len(LETTERS))
        sgo.save(path, {"logits": logits}, {"tokens": tokens})


def training_folder(home: Path, batch: str | int = "batch", **options: Any) -> Path:
    """A folder with graphs that train adapters of the model by AdamW."""
    home.mkdir(exist_ok=True)
    language_model(home / "model.onnx", batch)
    folder = home / "training"
    given: dict[str, Any] = {"optimizer": "adamw", "lora": {"weights": "block/*", "rank": 4, "alpha": 8}}
    sgo.training(home / "model.onnx", loss="cross-entropy", folder=folder, **{**given, **options})
    return folder


def pieces(count: int = 64) -> dict[str, Any]:
    """Pieces of the text, and the letter after each letter."""
    numbers = np.array([LETTERS.index(letter) for letter in TEXT])
    starts = np.random.default_rng(0).integers(len(numbers), size=(count, 1))
    found = numbers[(starts + np.arange(LENGTH + 1)) % len(numbers)]
    return {"tokens": found[:, :-1].copy(), "labels": found[:, 1:].copy()}
