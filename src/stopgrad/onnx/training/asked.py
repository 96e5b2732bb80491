"""What a training graph is asked to be, as it was read from arguments or from a command line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import stopgrad as sg
from stopgrad.errors import ArgumentError
from stopgrad.imported import Model
from stopgrad.onnx.loading import load
from stopgrad.onnx.training.adapters import Lora
from stopgrad.onnx.training.losses import LOSSES
from stopgrad.onnx.training.specs import Spec, found, spec_of
from stopgrad.plain import is_whole, real

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": sg.optimizers.sgd,
    "adam": sg.optimizers.adam,
    "adamw": sg.optimizers.adamw,
}
"""The optimisers by name."""

SCHEDULES: dict[str, Callable[..., Any]] = {}
"""The schedules of learning rates by name."""

Loss = Spec | Model | Callable[..., Any]
"""A loss by its name, as a model of its own, or as a function of the outputs."""


@dataclass(frozen=True)
class Chosen:
    """Something of a table with options, or a function of the user's.

    Attributes:
        spec: its name, and its options.
        call: what it is.
    """

    spec: Spec
    call: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


@dataclass(frozen=True)
class Asked:
    """What a training graph is asked to be: the arguments of :func:`stopgrad.onnx.training`."""

    loss: Loss
    optimizer: Chosen
    freeze: list[str]
    only: list[str]
    stop: list[str]
    outputs: list[str]
    clip: float | None
    lora: Lora | None
    accumulate: int
    schedule: Chosen | None
    learning_rate: float | None
    mode: str
    opset: int

    def __post_init__(self) -> None:
        if self.clip is not None and not real(self.clip) > 0:
            raise ArgumentError(f"clip: the greatest norm is a number above 0, not {self.clip!r}")
        if not is_whole(self.accumulate) or self.accumulate < 1:
            raise ArgumentError(f"accumulate is a whole number from 1 on, not {self.accumulate!r}")
        if self.learning_rate is not None and self.schedule is not None:
            raise ArgumentError("a schedule gives the learning rate; leave one of the two out")

    def settings(self) -> dict[str, Any]:
        """Arguments of the optimiser that are no options of one optimiser."""
        asked: dict[str, Any] = {}
        if self.clip is not None:
            asked["clip_norm"] = float(self.clip)
        if self.accumulate > 1:
            asked["accumulate"] = int(self.accumulate)
        return asked

    def rate(self) -> float | None:
        """The learning rate that is fed where nothing else is said."""
        if self.schedule is not None:
            return None
        default = inspect.signature(self.optimizer.call).parameters.get("learning_rate")
        known = default.default if default is not None else None
        given = next(
            (x for x in (self.learning_rate, self.optimizer.spec.options.get("learning_rate"), known)
             if isinstance(x, (int, float))),
            1e-3,
        )
        if not real(given) >= 0:
            raise ArgumentError(f"learning_rate is a number from 0 on, not {given!r}")
        return float(given)


def loss_of(given: Any) -> Loss:
    """A loss: a name with options, the path of a model, or a function.

    Raises:
        ArgumentError: it is none of these, or there is none of this name.
    """
    if isinstance(given, (Spec, Model)):
        return given
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".onnx")):
        return load(given)
    if isinstance(given, str):
        spec = spec_of(given, "loss")
        found(spec, LOSSES, "loss")
        return spec
    if callable(given):
        return given
    raise ArgumentError(
        f"a loss is a name such as 'cross-entropy', the path of an ONNX model, or a function, not {given!r:.60}"
    )


def optimizer_of(given: Any) -> Chosen:
    """An optimiser: a name with options, or a function."""
    return _chosen(given, OPTIMIZERS, "optimizer", ("loss", "parameters"))


def schedule_of(given: Any) -> Chosen | None:
    """A schedule: a name with options, or a function of the number of the step."""
    if given is None:
        return None
    if isinstance(given, str):
        made = _chosen(given, SCHEDULES, "schedule", ())
        return Chosen(made.spec, made.call())
    if callable(given):
        return Chosen(Spec(getattr(given, "__name__", "function")), given)
    raise ArgumentError(f"a schedule is a name with options or a function, not {given!r:.60}")


def _chosen(
    given: Any, table: Mapping[str, Callable[..., Any]], what: str, own: tuple[str, ...]
) -> Chosen:
    """What a name with options stands for."""
    if isinstance(given, str):
        given = spec_of(given, what)
    if isinstance(given, Spec):
        function = found(given, table, what, own)
        options = {k: v for k, v in given.options.items() if what != "optimizer" or k != "learning_rate"}
        return Chosen(given, partial(function, **options))
    if callable(given):
        return Chosen(Spec(getattr(given, "__name__", "function")), given)
    raise ArgumentError(f"{what}: a name such as {next(iter(table))!r} or a function, not {given!r:.60}")
