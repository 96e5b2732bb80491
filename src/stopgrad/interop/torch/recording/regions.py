"""The regions without gradients that a run enters and leaves."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.forwards import forwards_around
from stopgrad.interop.torch.recording.places import Entry, place_of, user_frame, with_caller
from stopgrad.interop.torch.recording.record import INSIDE, Region, now

OFF = "gradients are off"


def forward_name(function: type) -> str:
    """The reason that gradients do not pass operations inside the forward of an ``autograd.Function``."""
    if function is internals.CheckpointFunction:
        return "checkpoint(use_reentrant=True) of inputs that require no gradient"
    return f"{INSIDE}{function.__qualname__}.forward"


class Regions:
    """Keeps track of the region without gradients that is being run.

    Attributes:
        region: the innermost that was entered, or None.
        transforms: by how deep in others it ran, when the last function of ``torch.func`` began.
    """

    def __init__(self) -> None:
        self.region: Region | None = None
        self._around: Region | None = None  # That in which gradients were switched on last.
        self._before: dict[int, Region | None] = {}
        self.transforms: dict[int, int] = {}
        self._forwards: dict[Any, Region] = {}
        self._unknown = Region(None, OFF, None)

    def begin(self) -> None:
        """Begin to keep track."""
        self.region = None
        if not torch.is_grad_enabled():
            self.region = Region(None, "gradients were off when the watch began", None)

    def here(self) -> Region | None:
        """The region without gradients that is being run; None while gradients are on.

        A function of ``torch.func`` switches gradients on for itself alone.
        """
        if torch.is_grad_enabled():
            return self._around if _is_transformed_without_gradients() else None
        here = self.region
        if here is not None and here.ignored:
            return here
        # A forward is run without gradients of both modes. What else switches off one leaves the other.
        if internals.is_outside_of_apply():
            if here is None:
                here = self.region = Region(None, OFF, None)
            return here
        forwards = forwards_around(sys._getframe(1))
        if here is None and not forwards:  # Such as in a forward that is implemented in C. Others follow it.
            return self._unknown
        for forward in reversed(forwards):
            place = with_caller(place_of(user_frame(forward.frame.f_back)))
            here = self._forward(forward.function, place, here)
        return here

    def _forward(self, function: type, place: RawLocation | None, here: Region | None) -> Region:
        """The region of a function's forward: one around *here*, if that lies in it, or one inside."""
        around = here
        while around is not None:
            if around.runs is function and around.place == place:
                assert here is not None
                return here
            around = around.outer
        key = function, place, here
        if key not in self._forwards:
            self._forwards[key] = Region(here, forward_name(function), place, runs=function)
        region = self._forwards[key]
        if region.ended:
            region.began, region.ended = now(), False
        return region

    def switch(self, on: bool) -> None:
        """Note that gradients are switched on or off."""
        entry = Entry(sys._getframe(1))
        if entry.manager and entry.leaves:
            before = self._before.pop(entry.manager, self.region)
            self.region = None if on else before
            return
        if entry.manager and (entry.begins or entry.manager not in self._before):
            self._before[entry.manager] = self.region
        if on:
            # A forward which switches gradients on is known before it makes anything.
            self._around = self.here() or self._around
            self.region = None
            self.transforms[transform()] = now()
        elif not entry.recomputes:
            self.region = Region(self.here(), entry.why, entry.place, ignored=entry.optimizes)

    def infer(self, manager: torch.inference_mode, frame: FrameType) -> None:
        """Note that ``torch.inference_mode`` is entered."""
        self._before[id(manager)] = self.region
        entry = Entry(frame)
        self.region = Region(self.here(), "torch.inference_mode()", entry.place) if manager.mode else None

    def infer_no_more(self, manager: torch.inference_mode) -> None:
        """Note that ``torch.inference_mode`` was left."""
        self.region = self._before.pop(id(manager), None)


def transform() -> int:
    """How deep the function of ``torch.func`` that is being run is in others; 0 if there is none."""
    running = internals.peek_interpreter_stack()
    return 0 if running is None else int(running.level())


def _is_transformed_without_gradients() -> bool:
    """Whether a function of ``torch.func`` runs that was called while gradients were off."""
    if internals.peek_interpreter_stack() is None:
        return False
    running = internals.interpreters()
    return any(
        isinstance(interpreter, internals.GradInterpreter) and not interpreter.prev_grad_mode()
        for interpreter in running
    )
