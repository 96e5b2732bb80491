"""The description of a training graph, read from arguments or from a command line."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import onnx

import stopgrad as sg
from stopgrad.base.coercion import is_whole, real
from stopgrad.base.errors import ArgumentError
from stopgrad.base.types import DType
from stopgrad.graph.graph import Output
from stopgrad.interop.onnx.reading import Source, read
from stopgrad.interop.onnx.training.adapters import Lora
from stopgrad.interop.onnx.training.budget.fitting import Budget
from stopgrad.interop.onnx.training.specs import Spec, function_of, spec_of
from stopgrad.interop.onnx.training.training_losses import LOSSES
from stopgrad.train.optimizers.schedules import Schedule
from stopgrad.train.optimizers.update import Update

OPTIMIZERS: dict[str, Callable[..., Update]] = {
    name: getattr(sg.optimizers, name)
    for name in ("sgd", "adam", "adamw", "lion", "rmsprop", "adagrad", "adafactor", "muon")
}
"""The optimisers by name."""

PRECISIONS = {"float16": sg.float16, "bfloat16": sg.bfloat16}
"""The dtypes of mixed precision by name."""

FIRST_SCALE = 65536.0
"""The loss scale of float16, unless another is given: that of ``torch.amp.GradScaler``."""

_BESIDES = ("no_decay", "clip_value", "average")
"""Options that all optimisers have; their other common options are arguments of ``training`` itself."""

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    name: getattr(sg.optimizers, name)
    for name in ("constant", "linear", "polynomial", "cosine", "exponential", "piecewise")
}
"""The schedules of learning rates by name."""

_WARMUP = "warmup"
"""The option of all schedules: for how many steps the rate first grows from 0."""

Loss = Spec | Source | Callable[..., Output]
"""A loss: by name, as an ONNX model, or as a function of the outputs."""


R = TypeVar("R")


@dataclass(frozen=True)
class Chosen(Generic[R]):
    """An optimiser or schedule: one of ours with options, or a user's function.

    Attributes:
        spec: its name, and its options by name.
        call: the function.
    """

    spec: Spec
    call: Callable[..., R]


@dataclass(frozen=True)
class Asked:
    """The arguments of :func:`stopgrad.onnx.training`."""

    loss: Loss
    optimizer: Chosen[Update]
    freeze: list[str]
    only: list[str]
    train: list[str]
    stop: list[str]
    outputs: list[str]
    clip: float | None
    lora: Lora | None
    accumulate: int
    schedule: Chosen[Output] | None
    learning_rate: float | None
    mode: str
    opset: int
    split_shared: bool = False
    precision: DType | None = None
    loss_scale: float | None = None
    straight: bool = True
    most: int | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if self.clip is not None and not real(self.clip) > 0:
            raise ArgumentError(f"clip: the greatest norm is a number above 0, not {self.clip!r}")
        if not is_whole(self.accumulate) or self.accumulate < 1:
            raise ArgumentError(f"accumulate is a whole number from 1 on, not {self.accumulate!r}")
        if self.learning_rate is not None and self.schedule is not None:
            raise ArgumentError("a schedule gives the learning rate; leave one of the two out")

    def settings(self, rate: Any) -> dict[str, Any]:
        """The optimiser's arguments besides its options, among them the learning rate of the step."""
        arguments: dict[str, Any] = {"learning_rate": rate}
        if self.optimizer.spec.name == "muon":
            arguments["others"] = sg.optimizers.AdamW(rate)
        if self.clip is not None:
            arguments["clip_norm"] = float(self.clip)
        if self.accumulate > 1:
            arguments["accumulate"] = int(self.accumulate)
        if self.loss_scale is not None:
            arguments["loss_scale"] = self.loss_scale
        return arguments

    def named(self, stored: Iterable[str]) -> list[str]:
        """The patterns of all tensors that are spoken of, which thus are parameters.

        Adapters stand beside what is a weight by all evidence, and beside what is named alone: a scope does
        not make parameters of the scales of quantised weights in it.

        Args:
            stored: the names of the floating-point tensors of the file.
        """
        adapted = set(self.lora.weights) if self.lora else set()
        alone = [glob.escape(name) for name in stored if name in adapted]
        return [*self.freeze, *self.only, *self.train, *alone]

    def rate(self) -> float | None:
        """The default of the learning rate that is fed."""
        if self.schedule is not None:
            return None
        rate = self.learning_rate
        if rate is None:
            rate = self.optimizer.spec.options.get("learning_rate")
        if rate is None:
            parameter = inspect.signature(self.optimizer.call).parameters.get("learning_rate")
            rate = 1e-3
            if parameter is not None and parameter.default is not parameter.empty:
                rate = parameter.default
        return float(real(rate))


def loss_of(loss: object) -> Loss:
    """A loss: a name with options, the path of a model, or a function.

    Raises:
        ArgumentError: it is none of these, or there is none of this name.
    """
    if isinstance(loss, os.PathLike) or (isinstance(loss, str) and loss.endswith(".onnx")):
        return read(loss)
    if isinstance(loss, (bytes, onnx.ModelProto)):
        return read(loss)
    if isinstance(loss, str):
        spec = spec_of(loss, "loss")
        return Spec(spec.name, function_of(spec, LOSSES, "loss")[1])
    if callable(loss):
        return loss
    raise ArgumentError(
        f"a loss is a name such as 'cross-entropy', the path of a model or a function, not {loss!r:.60}"
    )


def optimizer_of(optimizer: object) -> Chosen[Update]:
    """An optimiser: a name with options, or a function.

    Raises:
        ArgumentError: it is neither, or there is none of this name.
    """
    if isinstance(optimizer, str):
        spec = spec_of(optimizer, "optimizer")
        own = ("loss", "parameters", "others")
        function, options = function_of(spec, OPTIMIZERS, "optimizer", own, _BESIDES)
        if function is sg.optimizers.muon:  # Runtimes compute bfloat16 slowly, or not at all.
            options.setdefault("ns_dtype", "float32")
        rest = {key: value for key, value in options.items() if key != "learning_rate"}
        return Chosen(Spec(spec.name, options), partial(function, **rest))
    if callable(optimizer):
        return Chosen(Spec(getattr(optimizer, "__name__", "function")), optimizer)
    raise ArgumentError(f"an optimizer is a name such as 'adamw' or a function, not {optimizer!r:.60}")


def precision_of(precision: object, loss_scale: object) -> tuple[DType | None, float | None]:
    """The dtype of mixed precision, and the first loss scale; None for none.

    Raises:
        ArgumentError: there is no such precision, or the scale is no number above 0.
    """
    if precision is not None and precision not in PRECISIONS:
        raise ArgumentError(f"precision is one of {', '.join(PRECISIONS)}, or None; not {precision!r:.60}")
    dtype = None if precision is None else PRECISIONS[str(precision)]
    if loss_scale is None:
        return dtype, FIRST_SCALE if dtype is sg.float16 else None
    if not real(loss_scale) > 0:
        raise ArgumentError(f"loss_scale is a number above 0, not {loss_scale!r:.60}")
    return dtype, float(real(loss_scale))


def schedule_of(schedule: object) -> Chosen[Output] | None:
    """A schedule: a name with options, or a function of the number of the step.

    Raises:
        ArgumentError: it is neither, or there is none of this name.
    """
    if schedule is None:
        return None
    if isinstance(schedule, str):
        spec = spec_of(schedule, "schedule")
        function, options = function_of(spec, SCHEDULES, "schedule", (), (_WARMUP,))
        steps = options.get(_WARMUP, 0)
        by_step = function(**{key: value for key, value in options.items() if key != _WARMUP})
        if steps:
            by_step = sg.optimizers.warmup(by_step, steps)
        return Chosen(Spec(spec.name, options), by_step)
    if callable(schedule):
        return Chosen(Spec(getattr(schedule, "__name__", None) or repr(schedule)), schedule)
    raise ArgumentError(f"a schedule is a name with options or a function, not {schedule!r:.60}")
