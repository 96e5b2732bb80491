"""The training steps that are compiled: their parameters, how these are divided, and their losses.

Each is written once, in words (:class:`Words`) that either library says in its own way: JAX with optax,
stopgrad with its own layers and losses.

- ``mlp``: blocks of x + gelu(norm(x) @ up + b) @ down, squared error.
- ``transformer``: words and places, blocks of causal attention and such a layer, logits of words, cross
  entropy.
- ``siamese``: two views through one ``mlp``, a prediction of the one from the other, squared error; the other
  is stopped (SimSiam).

Layouts are Megatron's: ``data``, the batch alone is divided; ``model``, heads, hidden units and words alone;
``both``.

References:
    M. Shoeybi et al.: Megatron-LM: Training multi-billion parameter language models using model parallelism.
    arXiv:1909.08053 (2019).
    X. Chen, K. He: Exploring simple Siamese representation learning. CVPR (2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RATE = 1e-3
Spec = tuple[str | None, ...]


@dataclass(frozen=True)
class Tensor:
    """The shape of an array, its dtype, and which axes of the mesh divide its axes."""

    shape: tuple[int, ...]
    spec: Spec
    dtype: type = np.float32


@dataclass(frozen=True)
class Sizes:
    """How large the models are; *batch* examples together, or *each* for every part of the axis ``data``."""

    width: int
    hidden: int
    layers: int
    heads: int
    length: int
    words: int
    batch: int
    each: int


WHOLE = {
    "mlp": Sizes(1024, 4096, 4, 1, 1, 1, 8192, 64),
    "siamese": Sizes(1024, 4096, 4, 1, 1, 1, 8192, 64),
    "transformer": Sizes(1024, 4096, 4, 16, 128, 8192, 1024, 8),
}
QUICK = {
    "mlp": Sizes(16, 64, 2, 1, 1, 1, 32, 4),
    "siamese": Sizes(16, 64, 2, 1, 1, 1, 32, 4),
    "transformer": Sizes(16, 64, 2, 8, 4, 32, 16, 2),
}


@dataclass(frozen=True)
class Case:
    """One training step.

    Attributes:
        model: a key of WHOLE.
        layout: ``"data"``, ``"model"`` or ``"both"``.
        rule: ``"sgd"`` or ``"adamw"``.
        stop: whether the other view of ``siamese`` is stopped, or, of the other models, all behind the lower
            half of the blocks. None: it has no stop, and needs none.
    """

    model: str
    layout: str
    rule: str
    stop: bool | None = None

    @property
    def name(self) -> str:
        stop = {None: "", True: ", stopped", False: ", not stopped"}[self.stop]
        return f"{self.model} {self.layout} {self.rule}{stop}"

    def mesh(self, devices: int) -> dict[str, int] | None:
        """The mesh for so many devices; None where the layout has none of its own or the sizes end."""
        model = {"data": 1, "model": devices, "both": 2 ** (int(math.log2(devices)) // 2)}[self.layout]
        model = min(model, 8) if self.layout == "both" else model
        sizes = WHOLE[self.model]
        most = sizes.heads if self.model == "transformer" else sizes.hidden
        if model > most or (self.layout == "both" and model == 1):
            return None
        return {"data": devices // model, "model": model}


CASES = (
    Case("mlp", "data", "sgd"),
    Case("mlp", "model", "sgd"),
    Case("mlp", "both", "sgd"),
    Case("transformer", "data", "adamw"),
    Case("transformer", "model", "adamw"),
    Case("transformer", "both", "adamw"),
    Case("siamese", "both", "sgd", stop=True),
    Case("siamese", "both", "sgd", stop=False),
    Case("transformer", "both", "sgd", stop=True),
    Case("transformer", "both", "sgd", stop=False),
)


def parameters(case: Case, sizes: Sizes) -> dict[str, Tensor]:
    """The trained tensors by name."""
    found: dict[str, Tensor] = {}
    width, hidden = sizes.width, sizes.hidden
    column, row = (None, "model"), ("model", None)
    for i in range(sizes.layers):
        if case.model == "transformer":
            found |= {f"query{i}": Tensor((width, width), column), f"key{i}": Tensor((width, width), column)}
            found |= {f"value{i}": Tensor((width, width), column), f"out{i}": Tensor((width, width), row)}
            found[f"before{i}"] = Tensor((width,), ())
        found |= {f"scale{i}": Tensor((width,), ()), f"up{i}": Tensor((width, hidden), column)}
        found |= {f"bias{i}": Tensor((hidden,), ("model",)), f"down{i}": Tensor((hidden, width), row)}
    if case.model == "transformer":
        found["words"] = Tensor((sizes.words, width), row)
        found["places"] = Tensor((sizes.length, width), ())
        found["last"] = Tensor((width,), ())
        found["head"] = Tensor((width, sizes.words), column)
    if case.model == "siamese":
        found["predict_up"] = Tensor((width, hidden), column)
        found["predict_down"] = Tensor((hidden, width), row)
    return found


def batch(case: Case, sizes: Sizes, examples: int) -> dict[str, Tensor]:
    """What is fed, by name."""
    if case.model == "transformer":
        tokens = Tensor((examples, sizes.length), ("data", None), np.int32)
        return {"x": tokens, "y": tokens}
    rows = Tensor((examples, sizes.width), ("data", None))
    return {"x": rows, "y": rows}


def values(tensors: dict[str, Tensor], most: int, seed: int) -> dict[str, Any]:
    """Numbers for all of them: weights that keep what goes through them in size, or words."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name, one in tensors.items():
        if one.dtype is np.int32:
            found[name] = rng.integers(0, most, one.shape, np.int32)
        else:
            size = one.shape[0] ** -0.5 if len(one.shape) > 1 else 1.0
            found[name] = (size * rng.standard_normal(one.shape)).astype(np.float32)
    return found


# --------------------------------------------------------------------------------------------- losses


@dataclass(frozen=True)
class Words:
    """What the models say, in a library's own functions.

    Attributes:
        norm: (x, scale), along the last axis.
        cross_entropy: (logits, labels), the mean.
        take: (rows, which).
    """

    gelu: Callable[..., Any]
    norm: Callable[..., Any]
    softmax: Callable[..., Any]
    cross_entropy: Callable[..., Any]
    take: Callable[..., Any]
    mean: Callable[..., Any]
    square: Callable[..., Any]
    reshape: Callable[..., Any]
    transpose: Callable[..., Any]
    where: Callable[..., Any]
    stop: Callable[..., Any]


def feed_forward(say: Words, p: Any, x: Any, i: int) -> Any:
    return x + say.gelu(say.norm(x, p[f"scale{i}"]) @ p[f"up{i}"] + p[f"bias{i}"]) @ p[f"down{i}"]


def attention(say: Words, p: Any, x: Any, i: int, sizes: Sizes) -> Any:
    count, length, width = x.shape
    each = width // sizes.heads
    normed = say.norm(x, p[f"before{i}"])

    def split(name: str) -> Any:
        parts = say.reshape(normed @ p[f"{name}{i}"], (count, length, sizes.heads, each))
        return say.transpose(parts, (0, 2, 1, 3))

    scores = split("query") @ say.transpose(split("key"), (0, 1, 3, 2)) / each**0.5
    scores = say.where(np.tri(length, dtype=bool), scores, np.float32(-1e9))
    mixed = say.transpose(say.softmax(scores) @ split("value"), (0, 2, 1, 3))
    return x + say.reshape(mixed, (count, length, width)) @ p[f"out{i}"]


def loss(say: Words, case: Case, sizes: Sizes, p: Any, data: Any) -> Any:
    """Of a batch."""
    half = sizes.layers // 2

    def blocks(x: Any, stop: bool | None) -> Any:
        for i in range(sizes.layers):
            x = say.stop(x) if stop and i == half else x
            x = attention(say, p, x, i, sizes) if case.model == "transformer" else x
            x = feed_forward(say, p, x, i)
        return x

    if case.model == "transformer":
        x = blocks(say.take(p["words"], data["x"]) + p["places"], case.stop)
        return say.cross_entropy(say.norm(x, p["last"]) @ p["head"], data["y"])
    if case.model == "siamese":
        predicted = say.gelu(blocks(data["x"], None) @ p["predict_up"]) @ p["predict_down"]
        other = blocks(data["y"], None)
        return say.mean(say.square(predicted - (say.stop(other) if case.stop else other)))
    return say.mean(say.square(blocks(data["x"], case.stop) - data["y"]))
