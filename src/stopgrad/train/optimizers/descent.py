"""Rules that follow the gradient, or its average, without dividing by its magnitude."""

from __future__ import annotations

from dataclasses import dataclass

from stopgrad.base.errors import ArgumentError
from stopgrad.base.types import DType
from stopgrad.graph.operands import NumpyArray, Tensor
from stopgrad.ops.elementwise.arithmetic import sign
from stopgrad.ops.elementwise.convert import cast
from stopgrad.train.optimizers.rules import Betas, Moment, Rate, Rule, zeros


@dataclass(frozen=True, eq=False)
class SGD(Rule):
    """The rule of :func:`stopgrad.optimizers.sgd`."""

    learning_rate: Rate = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def check(self) -> None:
        if self.nesterov and (not self.momentum or self.dampening):
            raise ArgumentError("nesterov needs a momentum, and a dampening of 0")

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        return {"momentum": zeros(shape, dtype)} if self.momentum else {}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        gradient, state = at.regularised(self.weight_decay), {}
        if self.momentum:
            added = gradient
            if self.dampening:  # The first gradient is not dampened.
                later = at.clock.once("later", lambda: cast(at.clock.count > 1.0, at.clock.count.dtype))
                added = gradient * at.scalar(("taken", self.dampening), lambda: 1.0 - self.dampening * later)
            average = state["momentum"] = self.momentum * at.state["momentum"] + added
            gradient = gradient + self.momentum * average if self.nesterov else average
        return at.value - at.rate * gradient, state


@dataclass(frozen=True, eq=False)
class Lion(Rule):
    """The rule of :func:`stopgrad.optimizers.lion`."""

    learning_rate: Rate = 1e-4
    betas: Betas = (0.9, 0.99)
    weight_decay: float = 0.0

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        return {"m": zeros(shape, dtype)}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        (beta1, beta2), average = self.betas, at.state["m"]
        direction = sign(beta1 * average + (1.0 - beta1) * at.gradient)
        state = {"m": beta2 * average + (1.0 - beta2) * at.gradient}
        return at.decayed(self.weight_decay) - at.rate * direction, state
