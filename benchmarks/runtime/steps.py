"""Training steps as people write them: what they are, their sizes, and their numbers.

A step is value, gradient and the optimiser's move, and goes on from what the last one left. Noise that a step
needs comes with its batch, so that all libraries compute the same. All is float32.

- S13 ``sac``: soft actor-critic, 17 observations, 6 actions, networks of 2 × 256, batch 256: two critics
  against a stopped target, the actor through critics whose parameters are stopped, the temperature; one
  Adam for all three losses, and the target's critics follow.
- S14 ``vqvae``: images 32 × 32 × 32 × 3, two convolutions down, the nearest of 256 codes straight through,
  two transposed convolutions up; reconstruction, codebook and commitment; Adam.
- S15 ``simsiam``: two views of 64 × 16 × 16 × 3, two convolutions, projector and predictor, all with batch
  norm in training; the other view's projection stopped; SGD with momentum.
- S16 ``info_nce``: two towers 512-512-128, batch 512, both directions, temperature .1; Adam.
- S17 ``deq``: a layer in equilibrium, z ← tanh(z w + x u + b), 30 times behind a stop and once with its
  gradient, 128 × 256; Adam.
- S18 ``gru``: 100 steps of a GRU, batch 32, 64 → 128; mean squared error; Adam.
- S19 ``gpt``: 4 blocks, width 256, 4 heads, 8 sequences of 128, 1,000 words; AdamW.
- S20 ``small_mlp``: 16-64-64-4, batch 32, Adam: from device arrays; from NumPy arrays to NumPy arrays, all
  parameters and the optimiser's state among them; and as a user of a Session has it, batches in and losses
  out.
- S21 ``chain``: value and gradient, not compiled, of 400 tanh of 10⁶ numbers.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from runtime.rows import Data, Problem

ADAM = 1e-3
MOMENTUM = 0.9
DISCOUNT, FOLLOW = 0.99, 0.005
TEMPERATURE, COMMIT, SETTLE = 0.1, 0.25, 30


_Step = partial(Problem, trains=True)
_SMALL = {"batch": 32, "widths": (16, 64, 64, 4)}
STEPS = [
    _Step(
        "S13",
        "SAC step",
        "sac",
        {"batch": 256, "observed": 17, "actions": 6, "width": 256},
        {"batch": 8, "observed": 5, "actions": 2, "width": 8},
    ),
    _Step(
        "S14",
        "VQ-VAE step",
        "vqvae",
        {"batch": 32, "side": 32, "width": 64, "codes": 256, "size": 32},
        {"batch": 2, "side": 8, "width": 4, "codes": 8, "size": 4},
        tolerance=1e-2,  # A code at nearly the same distance as another may be the other.
    ),
    _Step(
        "S15",
        "SimSiam step",
        "simsiam",
        {"batch": 64, "side": 16, "width": 256},
        {"batch": 8, "side": 8, "width": 8},
    ),
    _Step(
        "S16",
        "InfoNCE step",
        "info_nce",
        {"batch": 512, "widths": (512, 512, 128)},
        {"batch": 8, "widths": (12, 8, 4)},
    ),
    _Step("S17", "DEQ step", "deq", {"batch": 128, "width": 256}, {"batch": 4, "width": 8}),
    _Step(
        "S18",
        "GRU of 100 steps",
        "gru",
        {"steps": 100, "batch": 32, "inputs": 64, "width": 128},
        {"steps": 5, "batch": 2, "inputs": 3, "width": 4},
    ),
    _Step(
        "S19",
        "GPT step",
        "gpt",
        {"batch": 8, "length": 128, "width": 256, "heads": 4, "layers": 4, "words": 1000},
        {"batch": 2, "length": 4, "width": 8, "heads": 2, "layers": 1, "words": 11},
    ),
    *[
        _Step("S20", f"small MLP step, {way}", f"small_mlp_{name}", _SMALL, _SMALL)
        for way, name in (("device arrays", "device"), ("NumPy arrays", "numpy"), ("Session", "session"))
    ],
    Problem(
        "S21",
        "400 tanh, immediate",
        "chain",
        {"size": 10**6, "count": 400},
        {"size": 10, "count": 5},
    ),
]


class StepNumbers:
    """The data of each kind of step: parameters, and the batch in the order of the loss's arguments."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        return (self.rng.normal(size=shape) * scale).astype(np.float32)

    def weights(self, *shape: int) -> Any:
        return self.normal(*shape, scale=float(np.prod(shape[:-1])) ** -0.5)

    def labels(self, classes: int, *shape: int) -> Any:
        return self.rng.integers(0, classes, shape).astype(np.int32)

    def dense(self, fan_in: int, fan_out: int) -> dict[str, Any]:
        return {"w": self.weights(fan_in, fan_out), "b": self.normal(fan_out, scale=0.1)}

    def layers(self, *widths: int) -> list[dict[str, Any]]:
        return [self.dense(a, b) for a, b in pairwise(widths)]

    def sac(self, batch: int, observed: int, actions: int, width: int) -> Data:
        critics = [self.layers(observed + actions, width, width, 1) for _ in range(2)]
        return {
            "params": {
                "actor": self.layers(observed, width, width, 2 * actions),
                "critics": critics,
                "log_alpha": np.zeros((), np.float32),
            },
            "batch": [
                self.normal(batch, observed),
                np.tanh(self.normal(batch, actions)),
                self.normal(batch, 1),
                self.normal(batch, observed),
                self.normal(batch, actions),
                self.normal(batch, actions),
            ],
        }

    def vqvae(self, batch: int, side: int, width: int, codes: int, size: int) -> Data:
        def filters(kernel: int, into: int, out: int, bias: int) -> Data:
            return {"w": self.weights(kernel, kernel, into, out), "b": self.normal(bias, scale=0.1)}

        return {
            "params": {
                "down": [
                    filters(4, 3, width, width),
                    filters(4, width, width, width),
                    filters(1, width, size, size),
                ],
                "codes": self.normal(codes, size, scale=0.3),
                # TensorFlow's order: height, width, channels out, channels in.
                "up": [filters(4, width, size, width), filters(4, 3, width, 3)],
            },
            "batch": [self.rng.uniform(size=(batch, side, side, 3)).astype(np.float32)],
        }

    def normed(self, *shape: int) -> Data:
        width = shape[-1]
        return {
            "w": self.weights(*shape),
            "scale": np.ones(width, np.float32),
            "offset": np.zeros(width, np.float32),
        }

    def simsiam(self, batch: int, side: int, width: int) -> Data:
        return {
            "params": {
                "convolutions": [self.normed(3, 3, 3, 32), self.normed(3, 3, 32, 64)],
                "projector": [self.normed(64, width), self.normed(width, width)],
                "predictor": [self.normed(width, width // 4), self.dense(width // 4, width)],
            },
            "batch": [self.normal(batch, side, side, 3), self.normal(batch, side, side, 3)],
        }

    def info_nce(self, batch: int, widths: tuple[int, ...]) -> Data:
        return {
            "params": [self.layers(*widths), self.layers(*widths)],
            "batch": [self.normal(batch, widths[0]), self.normal(batch, widths[0])],
        }

    def deq(self, batch: int, width: int) -> Data:
        return {
            "params": {
                "w": self.normal(width, width, scale=0.5 * width**-0.5),
                "u": self.weights(width, width),
                "b": self.normal(width, scale=0.1),
                "head": self.dense(width, 10),
            },
            "batch": [self.normal(batch, width), self.labels(10, batch)],
        }

    def gru(self, steps: int, batch: int, inputs: int, width: int) -> Data:
        return {
            "params": {  # Gates in the order reset, update, new.
                "w": self.weights(inputs, 3 * width),
                "u": self.weights(width, 3 * width),
                "b": self.normal(3 * width, scale=0.1),
            },
            "batch": [self.normal(steps, batch, inputs), self.normal(steps, batch, width, scale=0.3)],
        }

    def gpt(self, batch: int, length: int, width: int, heads: int, layers: int, words: int) -> Data:
        def norm() -> Data:
            return {"scale": np.ones(width, np.float32), "offset": np.zeros(width, np.float32)}

        def block() -> Data:
            return {
                "norm1": norm(),
                "qkv": self.dense(width, 3 * width),
                "out": self.dense(width, width),
                "norm2": norm(),
                "up": self.dense(width, 4 * width),
                "down": self.dense(4 * width, width),
            }

        text = self.labels(words, batch, length + 1)
        return {
            "params": {
                "words": self.normal(words, width, scale=0.1),
                "places": self.normal(length, width, scale=0.1),
                "blocks": [block() for _ in range(layers)],
                "norm": norm(),
                "head": self.dense(width, words),
            },
            "batch": [text[:, :-1].copy(), text[:, 1:].copy()],
            "heads": heads,
        }

    def small_mlp(self, batch: int, widths: tuple[int, ...]) -> Data:
        x, y = self.normal(batch, widths[0]), self.normal(batch, widths[-1])
        return {"params": self.layers(*widths), "batch": [x, y]}

    small_mlp_device = small_mlp_numpy = small_mlp_session = small_mlp

    def chain(self, size: int, count: int) -> Data:
        return {"x": self.normal(size), "count": count}
