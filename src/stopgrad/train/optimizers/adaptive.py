"""Adaptive rules, which divide each element of the gradient by its past magnitude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stopgrad.base.types import DType
from stopgrad.graph.operands import NumpyArray, Tensor
from stopgrad.ops.elementwise.arithmetic import maximum
from stopgrad.ops.elementwise.powers import sqrt
from stopgrad.train.optimizers.rules import Betas, Moment, Rate, Rule, at_least, zeros


@dataclass(frozen=True, eq=False)
class Adam(Rule):
    """The rule of :func:`stopgrad.optimizers.adam`."""

    learning_rate: Rate = 1e-3
    betas: Betas = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        names = ("m", "v", "v_max") if self.amsgrad else ("m", "v")
        return {name: zeros(shape, dtype) for name in names}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        return self._moved(at, at.value, at.regularised(self.weight_decay))

    def _moved(self, at: Moment, value: Tensor, gradient: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        beta1, beta2 = self.betas
        clock = at.clock
        kept = {
            "m": beta1 * at.state["m"] + (1.0 - beta1) * gradient,
            "v": beta2 * at.state["v"] + (1.0 - beta2) * (gradient * gradient),
        }
        square = kept["v"]
        if self.amsgrad:
            square = kept["v_max"] = maximum(at.state["v_max"], square)
        # Corrections of single numbers, so that each element is divided once.
        scale = at.scalar(("scale", beta2), lambda: sqrt(clock.correction(beta2)))
        least = at.scalar(("least", beta2, self.eps), lambda: self.eps * scale)
        length = at.scalar(("length", *self.betas), lambda: scale * (clock.rate / clock.correction(beta1)))
        return value - length * (kept["m"] / (sqrt(square) + least)), kept


@dataclass(frozen=True, eq=False)
class AdamW(Adam):
    """The rule of :func:`stopgrad.optimizers.adamw`."""

    weight_decay: float = 1e-2

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        return self._moved(at, at.decayed(self.weight_decay), at.gradient)


@dataclass(frozen=True, eq=False)
class RMSprop(Rule):
    """The rule of :func:`stopgrad.optimizers.rmsprop`."""

    learning_rate: Rate = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def check(self) -> None:
        at_least(self.alpha, "alpha", 0.0, 1.0)

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        names = ["v", *(["m"] if self.centered else []), *(["momentum"] if self.momentum else [])]
        return {name: zeros(shape, dtype) for name in names}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        gradient, alpha = at.regularised(self.weight_decay), self.alpha
        kept = {"v": alpha * at.state["v"] + (1.0 - alpha) * (gradient * gradient)}
        square = kept["v"]
        if self.centered:
            mean = kept["m"] = alpha * at.state["m"] + (1.0 - alpha) * gradient
            square = square - mean * mean
        way = gradient / (sqrt(square) + self.eps)
        if self.momentum:
            way = kept["momentum"] = self.momentum * at.state["momentum"] + way
        return at.value - at.rate * way, kept


@dataclass(frozen=True, eq=False)
class Adagrad(Rule):
    """The rule of :func:`stopgrad.optimizers.adagrad`."""

    learning_rate: Rate = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        first = self.initial_accumulator_value
        return {"sum": np.full(shape, first, dtype.numpy) if first else zeros(shape, dtype)}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        gradient, clock = at.regularised(self.weight_decay), at.clock
        kept = {"sum": at.state["sum"] + gradient * gradient}
        rate = at.rate
        if self.lr_decay:
            slower = lambda: clock.rate / (1.0 + (clock.count - 1.0) * self.lr_decay)
            rate = at.scalar(("slower", self.lr_decay), slower)
        return at.value - rate * (gradient / (sqrt(kept["sum"]) + self.eps)), kept
