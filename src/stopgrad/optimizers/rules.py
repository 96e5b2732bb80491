"""What all optimisers have in common: hyperparameters that are checked, and one step of one parameter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from stopgrad.errors import ArgumentError, DTypeError, GraphError, ShapeError
from stopgrad.graph import Output, describe
from stopgrad.operands import Array, Tensor
from stopgrad.ops.convert import cast
from stopgrad.plain import flag, real
from stopgrad.public import call
from stopgrad.types import DType, float32, float64

Rate: TypeAlias = "float | Output | Callable[[Any], Any]"
"""A learning rate: a number, a scalar tensor of the graph (a placeholder, for instance), or a schedule."""

Betas: TypeAlias = tuple[float, ...]
"""How much of two averages is kept in a step."""

Scalar: TypeAlias = Any
"""A Python number, or a scalar output of float64."""


class Clock:
    """The numbers of one step that all parameters under one rule share, each computed once.

    They are computed in float64, as PyTorch computes them in Python's numbers, and rounded to the dtype of a
    parameter where they meet it.

    Attributes:
        count: the number of the step, 1 for the first, as a scalar of float64.
        rate: the learning rate of the step.
    """

    def __init__(self, count: Output, rate: Scalar) -> None:
        self.count = count
        self.rate = rate
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Scalar]) -> Scalar:
        """What *make* makes, made once for each key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def correction(self, beta: float) -> Scalar:
        """``1 - beta ** count``, which an average that began at 0 is divided by."""
        return self.once(("correction", beta), lambda: 1.0 - beta**self.count)

    def rounded(self, x: Scalar, dtype: DType) -> Scalar:
        """A number of the step as it meets tensors of *dtype*."""
        return self.once((x, dtype), lambda: cast(x, dtype)) if isinstance(x, Output) else x


@dataclass(frozen=True)
class Moment:
    """One parameter in one step, in the dtype of the arithmetic.

    Attributes:
        value: the parameter before the step.
        gradient: what it goes against.
        state: what the rule keeps for the parameter, as it is before the step, by slot.
        clock: the numbers of the step.
    """

    value: Tensor
    gradient: Tensor
    state: Mapping[str, Tensor]
    clock: Clock

    def scalar(self, key: Hashable, make: Callable[[], Scalar]) -> Scalar:
        """A number of the step, made once for all parameters, as it meets this one."""
        return self.clock.rounded(self.clock.once(key, make), self.value.dtype)

    @property
    def rate(self) -> Scalar:
        """The learning rate, as it meets this parameter."""
        return self.clock.rounded(self.clock.rate, self.value.dtype)

    def decayed(self, weight_decay: float) -> Tensor:
        """The value, shrunk by the rate times the weight decay, apart from the gradient."""
        if not weight_decay:
            return self.value
        rate = self.clock.rate
        return self.value * self.scalar(("decay", weight_decay), lambda: 1.0 - rate * weight_decay)

    def regularised(self, weight_decay: float) -> Tensor:
        """The gradient with that of ``weight_decay / 2 * sum(value ** 2)``."""
        return self.gradient + weight_decay * self.value if weight_decay else self.gradient


@dataclass(frozen=True, eq=False)
class Rule:
    """How an optimiser moves one parameter, with its hyperparameters as fields.

    Attributes:
        learning_rate: see :data:`Rate`.
        maximize: whether the loss is to grow.
    """

    learning_rate: Rate = 1e-3
    maximize: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_rate(self.learning_rate)
        for one in fields(self):
            check = _CHECKS.get(str(one.type))
            if check is not None:
                object.__setattr__(self, one.name, check(getattr(self, one.name), one.name))
        self.check()

    def check(self) -> None:
        """Refuse hyperparameters that mean nothing."""

    def refusal(self, parameter: Output) -> str:
        """Why the rule cannot move a parameter; empty where it can."""
        return ""

    def slots(self, parameter: Output, dtype: DType) -> dict[str, Array]:
        """What is kept for a parameter, by name, with the first values."""
        return {}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameter after the step, and what is kept."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return type(self).__name__.lower()


def arithmetic(dtype: DType) -> DType:
    """In what the steps of parameters of *dtype* are computed, and their state is kept."""
    return dtype if dtype.itemsize >= 4 else float32


def zeros_for(parameter: Output, dtype: DType) -> Array:
    """Zeros of a parameter's shape."""
    return np.zeros(parameter.op.value.array.shape, dtype.numpy)


# ---------------------------------------------------------------------------------------------- checks


def at_least(value: Any, name: str, least: float = 0.0, below: float = float("inf")) -> float:
    """A number from *least* on, and less than *below*."""
    found = real(value)
    if not least <= found < below:
        bound = f"from {least:g} on" if below == float("inf") else f"from {least:g} to below {below:g}"
        raise ArgumentError(f"{name} is a number {bound}, not {value!r:.60}")
    return found


def numbers(values: Any, name: str, count: int) -> tuple[float, ...]:
    """So many plain numbers."""
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise ArgumentError(f"{name} is a tuple of {count} numbers, not {values!r:.60}")
    return tuple(real(value) for value in values)


def betas(values: Any, name: str) -> tuple[float, ...]:
    """How much of two averages is kept in a step."""
    return tuple(at_least(x, f"{name}[{i}]", 0.0, 1.0) for i, x in enumerate(numbers(values, name, 2)))


_CHECKS: dict[str, Callable[[Any, str], Any]] = {"bool": flag, "float": at_least, "Betas": betas}
"""What the annotations of hyperparameters mean: each is checked, and made plain."""


def check_rate(rate: Any) -> None:
    """Refuse what is no learning rate."""
    if isinstance(rate, Output):
        if not rate.dtype.is_floating:
            raise DTypeError(f"the learning rate is a floating-point number, not {describe(rate)}")
        if rate.type.ndim:
            raise ShapeError(f"the learning rate is a scalar, not {describe(rate)}")
    elif not callable(rate):
        at_least(rate, "learning_rate")


def rate_at(rate: Rate, done: Output) -> Scalar:
    """The learning rate of a step, from the number of steps done before it; numbers stay numbers."""
    if isinstance(rate, Output):
        if rate.op.graph is not done.op.graph:
            raise GraphError(f"the learning rate {describe(rate)} belongs to another graph than the loss")
        return cast(rate, float64)
    if not callable(rate):
        return real(rate)
    found = call(rate, cast(done, float64))
    if not isinstance(found, Output):
        return at_least(found, "the schedule's learning rate")
    check_rate(found)
    return cast(found, float64)
