"""What is told of a run beyond the record: to an observer, and to whoever explains errors."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch.recording.places import place_of, user_frame
from stopgrad.interop.torch.recording.record import Observer
from stopgrad.interop.torch.recording.tensor_values import Values

STEP = "optimizer.step()"
"""What writes into parameters, as reports call it."""
Explains = Callable[[Any, Exception, RawLocation | None, Sequence[Any]], None]
"""Adds what a recorder knows to an error, given the line that was called, and the arguments."""


class Observed(Values):
    """Knows the modules that were called, and tells what happens.

    Attributes:
        observer: told what happens beyond what is recorded, if anybody wants to know.
        explain: adds to an error what the record knows of its cause.
    """

    def __init__(self) -> None:
        super().__init__()
        self._modules: dict[int, tuple[weakref.ref[torch.nn.Module], RawLocation | None]] = {}
        self.observer: Observer | None = None
        self.explain: Explains = _explains_nothing

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The modules that were called, as far as they are still there."""
        return [module for ref, _ in self._modules.values() if (module := ref()) is not None]

    def called_at(self, module: torch.nn.Module) -> RawLocation | None:
        """The line that called a module first; None if none did."""
        entry = self._modules.get(id(module))
        return None if entry is None or entry[0]() is not module else entry[1]

    def called(self, module: torch.nn.Module) -> None:
        """Note that a module is called."""
        entry = self._modules.get(id(module))
        if entry is None or entry[0]() is not module:
            self._modules[id(module)] = weakref.ref(module), place_of(user_frame(sys._getframe(1)))
        if self.observer is not None:
            self.observer.called(module)

    def made(self, optimizer: torch.optim.Optimizer, place: RawLocation | None) -> None:
        """Note that an optimizer was made."""
        if self.observer is not None:
            self.observer.made(optimizer, place)

    def stepped(self, optimizer: torch.optim.Optimizer, place: RawLocation | None) -> None:
        """Note that an optimizer wrote into its parameters."""
        for group in optimizer.param_groups:
            self.memory.note_writes(group["params"], STEP, place)


def _explains_nothing(*_: object) -> None:
    """Adds nothing to an error."""
