"""Training for the recipes: random weights, Adam on nested structures, and a decaying rate."""

from __future__ import annotations

from typing import Any

import numpy as np

import stopgrad as sg

Tree = dict[str, Any]


def weights(rng: np.random.Generator, layers: dict[str, tuple[int, int]]) -> Tree:
    """``W`` and ``b`` of each layer: He et al. 2015's scale (arXiv 1502.01852), and zeros."""
    tree: Tree = {}
    for name, (rows, columns) in layers.items():
        tree[f"W{name}"] = (rng.normal(size=(rows, columns)) * np.sqrt(2.0 / rows)).astype(np.float32)
        tree[f"b{name}"] = np.zeros(columns, np.float32)
    return tree


def initial_moments(tree: Tree) -> Tree:
    """Adam's moments before its first step."""
    zeros = {name: np.zeros_like(value) for name, value in tree.items()}
    return {"mean": zeros, "square": dict(zeros), "step": np.float32(0.0)}


def cosine(rate: float, done: float) -> np.float32:
    """The learning rate after a share of the training, from 0 to 1: half a cosine from *rate* to 0.

    Loshchilov & Hutter 2017, arXiv 1608.03983.

    Examples:
        >>> [float(cosine(0.5, done)) for done in (0.0, 0.5, 1.0)]
        [0.5, 0.25, 0.0]
    """
    return np.float32(0.5 * rate * (1.0 + np.cos(np.pi * done)))


def adam(
    tree: Tree,
    gradient: Tree,
    moments: Tree,
    rate: Any,
    weight_decay: float = 0.0,
    decay: tuple[float, float] = (0.9, 0.999),
) -> tuple[Tree, Tree]:
    """One step of Adam (Kingma & Ba 2015, arXiv 1412.6980): the new weights and moments.

    *weight_decay* shrinks matrices, and no biases, by that times the rate, apart from the gradient (AdamW:
    Loshchilov & Hutter 2019, arXiv 1711.05101).
    """
    n = moments["step"] + 1.0
    mean = {k: decay[0] * moments["mean"][k] + (1.0 - decay[0]) * g for k, g in gradient.items()}
    square = {k: decay[1] * moments["square"][k] + (1.0 - decay[1]) * g * g for k, g in gradient.items()}
    scale = rate * sg.sqrt(1.0 - decay[1] ** n) / (1.0 - decay[0] ** n)
    decayed = {k: w * (1.0 - rate * weight_decay) if w.ndim == 2 else w for k, w in tree.items()}
    new = {k: w - scale * mean[k] / (sg.sqrt(square[k]) + 1e-8) for k, w in decayed.items()}
    return new, {"mean": mean, "square": square, "step": n}
