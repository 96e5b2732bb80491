"""The base of all optimisers: rules with checked hyperparameters that update one parameter in one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

import numpy as np

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import flag, real
from stopgrad.base.errors import ArgumentError, DTypeError, GraphError, ShapeError, StopgradError
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import DType, float32
from stopgrad.graph.graph import Output, describe
from stopgrad.graph.operands import NumpyArray, Tensor, type_of
from stopgrad.graph.public import call, guarded, reads_arguments
from stopgrad.ops.elementwise.arithmetic import add
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.powers import expm1

Rate: TypeAlias = float | Output | Callable[[Any], Any]
"""A learning rate: a number, a scalar tensor of the graph (a placeholder, for instance), or a schedule."""

Betas: TypeAlias = tuple[float, ...]
"""The decays of two averages."""

Scalar: TypeAlias = Any
"""A Python number, or a scalar output of the dtype of the arithmetic."""


class Clock:
    """The numbers of one step that all parameters under one rule share, each computed once.

    They are computed in the dtype of the parameters' arithmetic, so that what trains float32 runs where there
    is no float64, as in a browser. PyTorch uses Python's numbers; the forms are chosen such that they differ
    from those by a few roundings only, whatever the number of the step.

    Attributes:
        count: the number of the step, 1 for the first, as a scalar of the dtype.
        rate: the learning rate of the step.
    """

    def __init__(self, count: Output, rate: Scalar) -> None:
        self.count = count
        self.rate = rate
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Scalar]) -> Scalar:
        """The result of *make*, which is called once for each key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def correction(self, beta: float) -> Scalar:
        """``1 - beta ** count``, the bias correction by which an average that began at 0 is divided.

        In float32, the distance of a decay of 0.999 from 1 would be wrong by 1.3e-5 of itself. The logarithm
        is taken before rounding, and expm1 does not subtract.
        """
        if not beta:
            return 1.0
        return self.once(("correction", beta), lambda: -expm1(self.count * math.log(beta)))


@dataclass(frozen=True)
class Moment:
    """One parameter in one step, in the dtype of the arithmetic.

    Attributes:
        value: the parameter before the step.
        gradient: its gradient, or with maximize the negative.
        state: the rule's state for the parameter before the step, by slot.
        clock: the numbers of the step.
    """

    value: Tensor
    gradient: Tensor
    state: Mapping[str, Tensor]
    clock: Clock

    def scalar(self, key: Hashable, make: Callable[[], Scalar]) -> Scalar:
        """A number of the step, computed once for all parameters."""
        return self.clock.once(key, make)

    @property
    def rate(self) -> Scalar:
        """The learning rate."""
        return self.clock.rate

    def decayed(self, weight_decay: float) -> Tensor:
        """The value, shrunk by the rate times the weight decay (decoupled weight decay)."""
        if not weight_decay:
            return self.value
        rate = self.clock.rate
        return self.value * self.scalar(("decay", weight_decay), lambda: 1.0 - rate * weight_decay)

    def regularised(self, weight_decay: float) -> Tensor:
        """The gradient plus that of ``weight_decay / 2 * sum(value ** 2)`` (L2 regularisation)."""
        return self.gradient + weight_decay * self.value if weight_decay else self.gradient


class _Checked(type):
    """A metaclass that checks every hyperparameter here, after the dataclass's generated ``__init__``."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        try:
            try:
                rule = super().__call__(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(
                    f"{error}; help(sg.optimizers.{cls.__name__}) says what it takes"
                ) from None
            rule._check_all()
        except StopgradError as error:
            error.name_after(f"optimizers.{cls.__name__}")
            raise
        return rule


@dataclass(frozen=True, eq=False)
class Rule(metaclass=_Checked):
    """How an optimiser updates one parameter, with its hyperparameters as fields.

    Attributes:
        learning_rate: see :data:`Rate`.
        maximize: whether to maximise the loss.
    """

    learning_rate: Rate = 1e-3
    maximize: bool = field(default=False, kw_only=True)

    def _check_all(self) -> None:
        check_rate(self.learning_rate)
        for entry in fields(self):
            check = _CHECKS.get(str(entry.type))
            if check is not None:
                object.__setattr__(self, entry.name, check(getattr(self, entry.name), entry.name))
        self.check()

    def altered(self, **changes: object) -> Self:
        """The same rule with other hyperparameters."""
        present = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return type(self)(**{**present, **changes})

    def check(self) -> None:
        """Raise for invalid combinations of hyperparameters."""

    def refusal(self, shape: tuple[int, ...]) -> str:
        """Why the rule cannot update parameters of a shape; empty if it can."""
        return ""

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        """The initial state for a parameter, by the names of slots."""
        return {}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameter and its state after the step."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @guarded("optimizers.Rule.init")
    def init(self, parameters: object) -> dict[str, Any]:
        """The initial state for :meth:`apply`.

        Args:
            parameters: an array, or a nested structure of arrays.

        Returns:
            A structure of arrays, to pass to :meth:`apply`.

        Raises:
            ArgumentError: the rule cannot move one of them.
            DTypeError: one is not floating-point.
        """
        return {
            "step": np.zeros((), np.int64),
            "slots": [self.slots(*self._movable(x)) for x in flatten(parameters)[0]],
        }

    @guarded("optimizers.Rule.apply")
    def apply(
        self, parameters: object, gradients: object, state: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """One step for parameters that a function takes and returns, instead of parameters of a session.

        Args:
            parameters: arrays or outputs, in a nested structure.
            gradients: of a loss, in the same structure, as from :func:`value_and_grad`.
            state: the result of :meth:`init`, or the state after the previous step.

        Returns:
            The parameters after the step, in their structure, and the state after it.

        Raises:
            ArgumentError: parameters, gradients and state do not belong together.
            DTypeError, ShapeError: a parameter is not floating-point, or a gradient has another shape.

        Examples:
            >>> rule = sg.optimizers.AdamW(0.1)
            >>> @sg.function
            ... def step(params, state, x):
            ...     loss = lambda params: sg.reduce_sum(sg.square(x @ params["w"] - 1.0))
            ...     return rule.apply(params, sg.grad(loss)(params), state)
            >>> params = {"w": np.zeros((3, 2))}
            >>> state = rule.init(params)
            >>> for _ in range(3):
            ...     params, state = step(params, state, np.ones((4, 3)))
            >>> params["w"].shape, int(state["step"])
            ((3, 2), 3)
        """
        leaves, spec = flatten(parameters)
        gs, slots, step = flatten(gradients)[0], _slots(state, len(leaves)), _done(state)
        if len(gs) != len(leaves):
            raise ArgumentError(f"there are {len(leaves)} parameters, and {len(gs)} gradients")
        done = add(step, np.int64(1))
        clocks: dict[DType, Clock] = {}
        moved, states = [], []
        for x, g, slot in zip(leaves, gs, slots, strict=True):
            shape, dtype = self._movable(x)
            if tuple(type_of(g).shape) != shape:
                raise ShapeError(f"a parameter is {type_of(x)!r}, and its gradient {type_of(g)!r}")
            if dtype not in clocks:
                clocks[dtype] = Clock(cast(done, dtype), rate_at(self.learning_rate, step, dtype))
            gradient = cast(g, dtype)
            at = Moment(cast(x, dtype), -gradient if self.maximize else gradient, slot, clocks[dtype])
            new, state_of_x = self.step(at)
            moved.append(cast(new, type_of(x).dtype))
            states.append(state_of_x)
        return unflatten(spec, moved), {"step": done, "slots": states}

    def _movable(self, x: ArrayLike) -> tuple[tuple[int, ...], DType]:
        """The shape of a parameter, and the dtype in which its steps are computed."""
        kind = type_of(x)
        if not kind.dtype.is_floating:
            raise DTypeError(f"parameters are floating-point, not {kind!r}")
        if kind.symbolic:
            raise ShapeError(f"the sizes of parameters are known, unlike those of {kind!r}")
        shape = tuple(map(int, kind.shape))
        why = self.refusal(shape)
        if why:
            raise ArgumentError(f"{self.name} cannot move a parameter {kind!r}: {why}")
        return shape, arithmetic(kind.dtype)


def arithmetic(dtype: DType) -> DType:
    """The dtype of the steps and the state for parameters of *dtype*."""
    return dtype if dtype.itemsize >= 4 else float32


def zeros(shape: tuple[int, ...], dtype: DType) -> NumpyArray:
    return np.zeros(shape, dtype.numpy)


@reads_arguments
def _slots(state: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The slots of each parameter in a state."""
    if not isinstance(state, Mapping) or "slots" not in state or len(state["slots"]) != count:
        raise ArgumentError(f"the state is what init returned for these {count} parameters")
    return list(state["slots"])


def _done(state: Mapping[str, Any]) -> Any:
    """The number of steps done, from a state."""
    step = state.get("step")
    if step is None or type_of(step).ndim or not type_of(step).dtype.is_integer:
        raise ArgumentError("the state is what init returned, with the number of steps in it")
    return step


# ---------------------------------------------------------------------------------------------- checks


def at_least(value: float, name: str, least: float = 0.0, below: float = float("inf")) -> float:
    """A number that is at least *least*, and less than *below*."""
    number = real(value)
    if not least <= number < below:
        bound = f"from {least:g} on" if below == float("inf") else f"from {least:g} to below {below:g}"
        raise ArgumentError(f"{name} is a number {bound}, not {value!r:.60}")
    return number


def numbers(values: Sequence[float], name: str, count: int) -> tuple[float, ...]:
    """A tuple of *count* plain numbers."""
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise ArgumentError(f"{name} is a tuple of {count} numbers, not {values!r:.60}")
    return tuple(real(value) for value in values)


def betas(values: Sequence[float], name: str) -> tuple[float, ...]:
    """The decays of two averages, each from 0 to below 1."""
    return tuple(at_least(x, f"{name}[{i}]", 0.0, 1.0) for i, x in enumerate(numbers(values, name, 2)))


_CHECKS: dict[str, Callable[[Any, str], Any]] = {"bool": flag, "float": at_least, "Betas": betas}
"""For each annotation of a hyperparameter, the function that checks it and makes it a plain value."""


def check_rate(rate: Rate) -> None:
    """Raise unless this is a learning rate."""
    if isinstance(rate, Output):
        if not rate.dtype.is_floating:
            raise DTypeError(f"the learning rate is a floating-point number, not {describe(rate)}")
        if rate.type.ndim:
            raise ShapeError(f"the learning rate is a scalar, not {describe(rate)}")
    elif not callable(rate):
        at_least(rate, "learning_rate")


def rate_at(rate: Rate, done: Output, dtype: DType) -> Scalar:
    """The learning rate of a step, from the number of steps done before it; a number remains a number.

    A tensor is converted to *dtype*, in which schedules are computed, too.
    """
    if isinstance(rate, Output):
        if isinstance(done, Output) and rate.op.graph is not done.op.graph:
            raise GraphError(f"the learning rate {describe(rate)} belongs to another graph than the loss")
        return cast(rate, dtype)
    if not callable(rate):
        return real(rate)
    scheduled = call(rate, cast(done, dtype))
    if not isinstance(scheduled, Output):
        return at_least(scheduled, "the schedule's learning rate")
    check_rate(scheduled)
    return cast(scheduled, dtype)
