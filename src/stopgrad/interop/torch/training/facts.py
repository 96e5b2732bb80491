"""The facts about each parameter and each optimizer of a training, as they add up over the recorded steps."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch.recording.record import Backward
from stopgrad.interop.torch.training.keras_steps import KerasOptimizer, Stepper
from stopgrad.interop.torch.training.measures import state_of

Tensor = torch.Tensor


class Parameter:
    """What happened to a parameter.

    Attributes:
        tensor: the parameter, while it lives.
        name: the user's name for it.
        owner: the module that holds it; None if none that was called does.
        holders: the optimizers that hold it, by their keys.
        passes: how many recorded backward passes could have reached it, since it was first seen.
        arrived, zeros: in how many of them a gradient arrived; in how many it was exactly zero.
        steps, moved: how many recorded steps of optimizers that hold it; how many changed its values.
        cleared, clipped: before how many of these steps the gradient that had arrived was taken away, or
            made exactly zero by something else.
        dead, dead_from: for how many passes up to the last the gradient was zero, and since which step.
        frozen_moves: how many of these steps changed it although it required no gradient.
        put_back: how often hardly anything was left of a step's change when the next one began.
        kept: before how many steps what the step before had used was still in the gradient.
        used: before how many it could have been.
        still: how many of the steps left its values as they were although there was a gradient.
        used_twice: before how many steps the gradient was the one that another optimizer had stepped by.
        given: before how many steps there was a gradient that no recorded pass had brought.
        dropped: how often a gradient was taken away before any optimizer used it.
        first, last: fingerprints of the first and of the last values that were seen.
    """

    shape: tuple[int, ...]
    is_parameter: bool
    required: bool
    norm: float
    stepped_by: float
    ref: weakref.ReferenceType[torch.Tensor]
    dtype: torch.dtype

    def __init__(self, tensor: Tensor, name: str) -> None:
        self.ref = weakref.ref(tensor)
        self.name = name
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype
        self.is_parameter = isinstance(tensor, torch.nn.Parameter)
        self.owner: weakref.ref[torch.nn.Module] | None = None
        self.holders: set[int] = set()
        self.passes = self.arrived = self.zeros = 0
        self.steps = self.moved = self.cleared = self.clipped = self.frozen_moves = 0
        self.put_back = self.kept = self.used = self.still = self.dropped = self.given = self.used_twice = 0
        self.stepper = 0  # The optimizer that stepped it last, by its key.
        self.required = bool(tensor.requires_grad)
        self.dead = self.dead_from = 0
        self.start: Tensor | None = None  # Some of its values before the first step.
        self.first: int | None = None
        self.last: int | None = None
        self.before: int | None = None  # Its values before the last step.
        self.samples: tuple[Tensor | None, Tensor | None] = (None, None)
        self.norm = 0.0  # Of the gradient that arrived last.
        self.stepped_by = 0.0  # The norm of the gradient at the last step.
        self.arrival: tuple[int, int] | None = None  # The gradient after the last backward that reached it.
        self.followed = 0  # Before how many steps it was looked whether the last one's change was there.
        self.follows = False  # Whether the step before was recorded.
        self.since_step = False  # Whether a gradient arrived since the last step.
        self.old: tuple[int, int] | None = None  # The gradient with what the last step has used in it.
        self.call: Backward | None = None  # The last backward pass that could have reached it.
        self.reached_by: Backward | None = None
        self.call_in: Any = None  # The recorder that recorded that pass, and the one of the next line.
        self.reached_in: Any = None
        self.cleared_at: RawLocation | None = None
        self.written_at: RawLocation | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether it may become a finding that a later step would refute."""
        if not self.passes or not self.required:
            return False
        return self.arrived == self.zeros or self.dead > 0 or not self.moved

    @property
    def loses_gradients(self) -> bool:
        """Whether each step found nothing of a gradient that had arrived; weight decay may move it still."""
        return 0 < self.steps in (self.cleared, self.clipped)

    @property
    def last_norm_is_broken(self) -> bool:
        """Whether the last gradient that arrived was no number."""
        return not math.isfinite(self.norm)

    @property
    def tensor(self) -> Tensor | None:
        return self.ref()

    def is_same_gradient(self, grad: Tensor | None, state: tuple[int, int] | None) -> bool:
        """Whether a gradient is still the one that was seen."""
        return state is not None and state_of(grad) == state


class Optimizer:
    """What an optimizer did.

    Attributes:
        name: the variable that holds it.
        kind: its class.
        rate_at: where its learning rate is found.
        made_at: the line that made it.
        stepped: the line of its last step.
        steps: how many steps were recorded; of those, with a learning rate of zero everywhere.
        all_steps: how many steps there were, recorded or not.
    """

    name: str
    kind: str
    rate: float
    ref: weakref.ReferenceType[Stepper]

    def __init__(self, optimizer: Stepper, place: RawLocation | None) -> None:
        self.ref = weakref.ref(optimizer)
        self.name, self.kind, self.rate_at = "", type(optimizer).__name__, "optimizer.param_groups[0]['lr']"
        if isinstance(optimizer, KerasOptimizer):
            self.kind, self.rate_at = optimizer.kind, optimizer.rate_at
        self.made_at = place
        self.stepped: RawLocation | None = None
        self.steps = self.idle_steps = self.all_steps = 0
        self.rate = 0.0
        self.required: tuple[bool, ...] = ()

    @property
    def optimizer(self) -> Stepper | None:
        return self.ref()

    def holds(self, parameter: Parameter) -> bool:
        """Whether it holds a parameter."""
        return id(self.optimizer) in parameter.holders

    @property
    def title(self) -> str:
        """How messages call it."""
        return self.name or self.kind


class Module:
    """A module that was called.

    Attributes:
        name: the variable that holds it, if it is known.
        place: the line that called it first.
        statistics, weight: fingerprints of a normalisation's running mean and of its weight.
        moving, follows: in how many steps they changed.
        with_gradients, without: how often it was called with gradients on, and off.
    """

    name: str
    place: RawLocation | None
    ref: weakref.ReferenceType[torch.nn.Module]

    def __init__(self, module: torch.nn.Module, name: str, place: RawLocation | None) -> None:
        self.ref = weakref.ref(module)
        self.name, self.place = name, place
        self.with_gradients = self.without = 0
        self.statistics: int | None = None
        self.weight: int | None = None
        self.moving = self.follows = 0
