"""Loss scaling: gradients of 16 bits, multiplied so that they do not vanish, by a factor that adapts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from stopgrad.base.types import float32
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import Tensor
from stopgrad.ops.elementwise.compare import equal, is_finite, logical_and
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.reductions.reduce import reduce_all
from stopgrad.ops.structural.sources import parameter
from stopgrad.train.optimizers.rules import arithmetic

_INTERVAL = 2000
"""The number of steps made in a row after which the factor is doubled, as in ``torch.amp.GradScaler``."""


@dataclass(frozen=True)
class LossScale:
    """The factor of the gradients, as state.

    Attributes:
        factor: a scalar of float32.
        steps: the number of steps made since the factor last changed.
    """

    factor: Output
    steps: Output

    @staticmethod
    def of(first: float | None) -> LossScale | None:
        """The state, with a first factor; None for none."""
        if first is None:
            return None
        factor = parameter(np.float32(first), name="loss_scale")
        return LossScale(factor, parameter(np.zeros((), np.int64), name="scaled_steps"))

    @property
    def state(self) -> list[Output]:
        """The parameters that hold it."""
        return [self.factor, self.steps]

    def seed(self, loss: Output) -> Output:
        """The gradient at the loss."""
        return cast(self.factor, loss.dtype)

    def divided(self, gradients: Mapping[str, Output]) -> dict[str, Output]:
        """Gradients without the factor, in the dtype of the steps."""
        part = 1.0 / self.factor
        wide = {n: cast(g, arithmetic(g.dtype)) for n, g in gradients.items()}
        return {n: g * (part if g.dtype is float32 else cast(part, g.dtype)) for n, g in wide.items()}

    def renewed(self, finite: Output, full: Output | None) -> dict[Output, Tensor]:
        """The state after a step, which was made if the gradients were finite; unchanged unless *full*."""
        steps = self.steps + np.int64(1)
        enough = equal(steps, np.int64(_INTERVAL))
        factor = where(finite, where(enough, self.factor * 2.0, self.factor), self.factor * 0.5)
        steps = where(logical_and(finite, ~enough), steps, np.int64(0))
        if full is None:
            return {self.factor: factor, self.steps: steps}
        return {self.factor: where(full, factor, self.factor), self.steps: where(full, steps, self.steps)}


def all_finite(gradients: Iterable[Tensor]) -> Output:
    """Whether all elements of all gradients are finite."""
    return reduce(logical_and, [reduce_all(is_finite(g)) for g in gradients])
