"""Rules that divide each element by the size that its gradient has had."""

from __future__ import annotations

from dataclasses import dataclass

from stopgrad.graph import Output
from stopgrad.operands import Array, Tensor
from stopgrad.ops.arithmetic import maximum
from stopgrad.ops.powers import sqrt
from stopgrad.optimizers.rules import Betas, Moment, Rate, Rule, zeros_for
from stopgrad.types import DType


@dataclass(frozen=True, eq=False)
class Adam(Rule):
    """The rule of :func:`stopgrad.optimizers.adam`."""

    learning_rate: Rate = 1e-3
    betas: Betas = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def slots(self, parameter: Output, dtype: DType) -> dict[str, Array]:
        names = ("m", "v", "v_max") if self.amsgrad else ("m", "v")
        return {name: zeros_for(parameter, dtype) for name in names}

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
        length = at.scalar(("length", beta1), lambda: clock.rate / clock.correction(beta1))
        scale = at.scalar(("scale", beta2), lambda: sqrt(clock.correction(beta2)))
        return value - length * (kept["m"] / (sqrt(square) / scale + self.eps)), kept


@dataclass(frozen=True, eq=False)
class AdamW(Adam):
    """The rule of :func:`stopgrad.optimizers.adamw`."""

    weight_decay: float = 1e-2

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        return self._moved(at, at.decayed(self.weight_decay), at.gradient)
