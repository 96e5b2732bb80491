"""What is measured: the rows, their sizes, and their numbers from fixed seeds.

All is float32, labels are int32. *Step* means value, gradient and new parameters ``p - 0.1 g``, always
from the same parameters, so that every call does the same and its results can be compared; no row donates
memory.

- S1 ``softmax_loss``: z = x - stop(max(x)), p = exp(z) / Σ exp(z), loss = Σ w p; value and gradient with
  respect to x [B, N].
- S2 ``cross_entropy``: mean of -log softmax(x)[label] in the library's own words for it; value and
  gradient with respect to x [B, N].
- S3 ``mlp``: a step of 784-512-512-10 with relu, batch 128, cross entropy.
- S4 ``cnn``: a step of conv 3×3×1→32, relu, conv 3×3×32→64, relu ("SAME" both), max-pool 2×2, dense 128,
  relu, dense 10, cross entropy; 64 images of 28×28×1. PyTorch has the channels first, all others last.
- S5 ``rbm``: a CD-1 step of a Boltzmann machine of 784 × 500, batch 100, binary units, both layers drawn
  by the library's own generator; loss = mean F(v) - mean F(stop(sample)), F the free energy.
- S6 ``mixture``: one gradient of expectation maximisation for 8 components with diagonal covariance,
  10,000 points in 16 dimensions; log p(x|k) from Σ ((x - μ) / σ)² as differences; loss = -mean Σ stop(r)
  log p(x, k); value and gradients with respect to means, log σ and logits of the weights.
- S7 ``pgd``: a training step on adversarial examples: the MLP of S3, 7 steps of x ← clip(x + .02
  sign(∂loss/∂x)) within .1 of the image and [0, 1], then the step of S3 at what they find.
- S8 ``call``: Σ of all arguments, times 2; each argument 8 numbers: one, ten, a dict of ten; as NumPy
  arrays, and as the library's own arrays; ``session``: one feed and one fetch, NumPy arrays in and out.
- S9 ``transformer``: a step of 2 layers (norm first, causal attention of 4 heads, GELU), width 256, hidden
  1,024, 1,000 words, 8 sequences of 64, next-word cross entropy.
- S10 ``lstm``: 100 steps, batch 32, 64 → 128; loss = mean of (h - target)² over all states; value and
  gradient with respect to both weights and the bias.
- S11 ``norms``: 6 times [layer norm with scale and offset, GELU], 2048×1024; loss = mean of w y; value and
  gradient with respect to x, scales and offsets. GELU is its tanh approximation here and in S9.
- S12 ``deep``: an MLP of 100 or 1,000 layers of width 32, h ← tanh(h w + b), batch 32; loss = mean h²;
  value and gradient with respect to all weights. stopgrad's layers are a loop of Python, or a scan
  (``deep_scan``); JAX's are always a scan.
- S13 to S21, in ``steps_ours.py``, ``steps_jax.py`` and their like: training steps with an optimiser, each
  from what the last one left; what the first ones lose is compared. ``steps.py`` says what each is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from runtime.rows import Data, Problem
from runtime.steps import STEPS, StepNumbers

RATE = 0.1
ATTACKS, REACH, STRIDE = 7, 0.1, 0.02
EPSILON = 1e-5


class LeftOut(Exception):  # noqa: N818 - nothing went wrong
    """Why a library does not take part in a row."""


def _matrices(row: str, kind: str, title: str) -> list[Problem]:
    sizes = ((64, 1000), (4096, 1024), (256, 32000))
    small = ((8, 10), (32, 16), (4, 100))
    return [
        Problem(row, f"{title} {b}×{n}", kind, {"batch": b, "classes": n}, {"batch": q[0], "classes": q[1]})
        for (b, n), q in zip(sizes, small, strict=True)
    ]


_MLP = {"batch": 128, "widths": (784, 512, 512, 10)}
_SMALL_MLP = {"batch": 8, "widths": (16, 12, 12, 10)}
PROBLEMS = [
    *_matrices("S1", "softmax_loss", "stable softmax loss"),
    *_matrices("S2", "cross_entropy", "cross entropy, labels"),
    Problem("S3", "MLP step", "mlp", _MLP, _SMALL_MLP),
    Problem("S4", "CNN step", "cnn", {"batch": 64, "side": 28}, {"batch": 2, "side": 8}),
    Problem(
        "S5",
        "RBM CD-1 step",
        "rbm",
        {"batch": 100, "visible": 784, "hidden": 500},
        {"batch": 50, "visible": 40, "hidden": 30},
        tolerance=0.1,  # Every library draws other numbers; only Σ |gradient| is compared.
    ),
    Problem(
        "S6",
        "Gaussian mixture, EM",
        "mixture",
        {"points": 10_000, "dimensions": 16, "components": 8},
        {"points": 50, "dimensions": 4, "components": 3},
    ),
    # A gradient near 0 may have the other sign, and moves that pixel the other way.
    Problem("S7", "PGD training step", "pgd", _MLP, _SMALL_MLP, tolerance=2e-2),
    *[
        Problem("S8", f"call, {count}, {kind} arrays", "call", sizes := {"count": count, "kind": kind}, sizes)
        for count in ("one", "ten", "dict of ten")
        for kind in ("NumPy", "own")
    ],
    Problem("S8", "Session.run, one feed", "session"),
    Problem(
        "S9",
        "transformer step",
        "transformer",
        {"batch": 8, "length": 64, "width": 256, "hidden": 1024, "heads": 4, "layers": 2, "words": 1000},
        {"batch": 2, "length": 4, "width": 8, "hidden": 16, "heads": 2, "layers": 1, "words": 11},
    ),
    Problem(
        "S10",
        "LSTM of 100 steps",
        "lstm",
        {"steps": 100, "batch": 32, "inputs": 64, "width": 128},
        {"steps": 5, "batch": 2, "inputs": 3, "width": 4},
    ),
    Problem(
        "S11",
        "6 × [layer norm, GELU]",
        "norms",
        {"rows": 2048, "width": 1024, "layers": 6},
        {"rows": 4, "width": 8, "layers": 2},
    ),
    *[
        Problem(
            "S12",
            f"MLP of {layers:,} layers, {way}",
            kind,
            {"layers": layers, "width": 32},
            {"layers": layers // 20, "width": 4},
        )
        for kind, way in (("deep", "a loop"), ("deep_scan", "a scan"))
        for layers in (100, 1000)
    ],
    *STEPS,
]


class Numbers(StepNumbers):
    """The data of each kind of problem, as NumPy arrays in dicts and lists."""

    def softmax_loss(self, batch: int, classes: int) -> Data:
        return {"x": self.normal(batch, classes, scale=3.0), "w": self.normal(batch, classes)}

    def cross_entropy(self, batch: int, classes: int) -> Data:
        return {"x": self.normal(batch, classes, scale=3.0), "labels": self.labels(classes, batch)}

    def mlp(self, batch: int, widths: tuple[int, ...]) -> Data:
        return {
            "params": [self.dense(a, b) for a, b in pairwise(widths)],
            "x": self.rng.uniform(size=(batch, widths[0])).astype(np.float32),
            "labels": self.labels(widths[-1], batch),
        }

    pgd = mlp

    def cnn(self, batch: int, side: int) -> Data:
        return {
            "params": {
                "conv1": {"w": self.weights(3, 3, 1, 32), "b": self.normal(32, scale=0.1)},
                "conv2": {"w": self.weights(3, 3, 32, 64), "b": self.normal(64, scale=0.1)},
                "dense1": self.dense((side // 2) ** 2 * 64, 128),
                "dense2": self.dense(128, 10),
            },
            "x": self.normal(batch, side, side, 1),
            "labels": self.labels(10, batch),
        }

    def rbm(self, batch: int, visible: int, hidden: int) -> Data:
        return {
            "params": {
                "w": self.normal(visible, hidden, scale=0.05),
                "a": self.normal(visible, scale=0.1),
                "b": self.normal(hidden, scale=0.1),
            },
            "v": (self.rng.random((batch, visible)) < 0.2).astype(np.float32),
        }

    def mixture(self, points: int, dimensions: int, components: int) -> Data:
        means = self.normal(components, dimensions, scale=2.0)
        return {
            "params": {
                "mean": means + self.normal(components, dimensions),
                "log_scale": self.normal(components, dimensions, scale=0.1),
                "logit": self.normal(components, scale=0.1),
            },
            "x": means[self.rng.integers(0, components, points)] + self.normal(points, dimensions),
        }

    def call(self, count: str, kind: str) -> Data:
        arrays = [np.full(8, i + 1, np.float32) for i in range(1 if count == "one" else 10)]
        as_dict = [{f"p{i}": x for i, x in enumerate(arrays)}]
        return {"arguments": as_dict if count == "dict of ten" else arrays, "kind": kind}

    def session(self) -> Data:
        return {"x": np.ones(8, np.float32)}

    def transformer(
        self, batch: int, length: int, width: int, hidden: int, heads: int, layers: int, words: int
    ) -> Data:
        def layer() -> Data:
            return {
                **{name: self.weights(width, width) for name in ("query", "key", "value", "out")},
                "up": self.weights(width, hidden),
                "down": self.weights(hidden, width),
                "norm1": {
                    "scale": 1 + self.normal(width, scale=0.1),
                    "offset": self.normal(width, scale=0.1),
                },
                "norm2": {
                    "scale": 1 + self.normal(width, scale=0.1),
                    "offset": self.normal(width, scale=0.1),
                },
            }

        return {
            "params": {
                "words": self.normal(words, width),
                "places": self.normal(length, width, scale=0.1),
                "layers": [layer() for _ in range(layers)],
                "head": self.weights(width, words),
            },
            "x": self.labels(words, batch, length),
            "labels": self.labels(words, batch, length),
            "heads": heads,
        }

    def lstm(self, steps: int, batch: int, inputs: int, width: int) -> Data:
        return {
            "params": {  # Gates in the order input, forget, cell, output.
                "w": self.weights(inputs, 4 * width),
                "u": self.weights(width, 4 * width),
                "b": self.normal(4 * width, scale=0.1),
            },
            "x": self.normal(steps, batch, inputs),
            "targets": self.normal(steps, batch, width, scale=0.3),
        }

    def norms(self, rows: int, width: int, layers: int) -> Data:
        return {
            "params": {
                "x": self.normal(rows, width),
                "scales": [1 + self.normal(width, scale=0.1) for _ in range(layers)],
                "offsets": [self.normal(width, scale=0.1) for _ in range(layers)],
            },
            "w": self.normal(rows, width),
        }

    def deep(self, layers: int, width: int) -> Data:
        return {"params": [self.dense(width, width) for _ in range(layers)], "x": self.normal(width, width)}

    deep_scan = deep


def data_of(problem: Problem, quick: bool) -> Data:
    return getattr(Numbers(), problem.kind)(**(problem.quick if quick else problem.sizes))


def leaves(tree: Any) -> Iterator[Any]:
    """What stands in dicts (by sorted keys), lists and tuples."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from leaves(tree[key])
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def mapped(f: Any, tree: Any, *others: Any) -> Any:
    """The structure with f of each leaf, and of those in the same places of others."""
    if isinstance(tree, dict):
        return {key: mapped(f, part, *[o[key] for o in others]) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [mapped(f, part, *rest) for part, *rest in zip(tree, *others, strict=True)]
    return f(tree, *others)
