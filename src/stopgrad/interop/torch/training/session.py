"""Follows the training of a script: which steps are recorded, and what is known when it ends."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stopgrad.flow.problems.notes import problem_of
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.shared.imports import Awaited
from stopgrad.interop.shared.lifetimes import Lifetime
from stopgrad.interop.shared.recorded_steps import FIRST, USUAL, Schedule
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining import error_explanations
from stopgrad.interop.torch.recording import switches
from stopgrad.interop.torch.recording.places import place_of, user_frame
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.training.audit import Audit
from stopgrad.interop.torch.training.findings import problems_of
from stopgrad.interop.torch.training.keras_steps import OPTIMIZERS, KerasSteps, Stepper

UNLIKE = 20
"""The most steps that are recorded because they differ from those before."""


class _Token:
    """What is held as long as a recorder runs."""


class Session:
    """A training that is followed in the thread that began it.

    Args:
        schedule: which of its steps are recorded, and how many are followed.
    """

    audit: Audit
    steps: int
    recorded: int

    def __init__(self, schedule: Schedule = USUAL) -> None:
        self.audit = Audit()
        self._schedule = schedule
        self._recorders: list[Recorder] = []
        self._token: Any = None
        self._lifetime: Lifetime | None = None
        self._here = os.getpid(), threading.get_ident()
        self._counts: dict[int, int] = {}
        self._last = 0  # The optimizer whose step ends a step of the training.
        self._before = 0
        self.steps = self.recorded = 0
        self._nodes = internals.next_node()
        self._sizes: set[int] = set()  # How many nodes of autograd's the steps made.
        self._unlike = 0
        self._is_over = self._is_in_hook = False
        self._handles = [
            register_optimizer_step_pre_hook(self._steps),
            register_optimizer_step_post_hook(self._stepped),
        ]
        self._keras = KerasSteps(self._steps, self._stepped, self._lose)
        self._awaited = Awaited({OPTIMIZERS: self._keras.begin})
        self._awaited.begin()
        self._record()

    # --------------------------------------------------------------------------- recording, and not

    @property
    def is_recording(self) -> bool:
        return self._lifetime is not None

    def _record(self) -> None:
        self.audit.resume()
        recorder = Recorder()
        recorder.explain, recorder.observer = error_explanations.explain, self.audit
        self.audit.recorder = recorder
        self._recorders = [*self._recorders[:1], recorder]
        self._token = _Token()
        self._lifetime = Lifetime(self._token)
        recorder.begin()
        switches.begin(recorder, self._lifetime, beneath=True)

    def _rest(self) -> None:
        """Record no more until a step that is to be recorded."""
        if self._lifetime is not None and self.audit.recorder is not None:
            switches.end_beneath(self.audit.recorder, self._lifetime)
            self.audit.suspect()
        self._lifetime = self._token = None

    def close(self) -> None:
        """Follow the training no more."""
        self._rest()
        self._is_over = True
        self._awaited.end()
        self._keras.end()
        if not self._is_in_hook:  # PyTorch is looking at its hooks.
            for handle in self._handles:
                handle.remove()
            self._handles = []

    # -------------------------------------------------------------------------------------- the steps

    def _steps(self, optimizer: Stepper, *_: object) -> None:
        if not self._is_here():
            return
        if self.is_recording:
            self.audit.before_step(optimizer)
        else:
            self.audit.look(optimizer)

    def _is_here(self) -> bool:
        """Whether this is the thread that is followed, and no fork of its process."""
        here = (os.getpid(), threading.get_ident()) == self._here
        return here and not self._is_over and not torch.compiler.is_compiling()

    def _stepped(self, optimizer: Stepper, *_: object) -> None:
        if not self._is_here():
            return
        if self.is_recording:
            self.audit.after_step(optimizer, place_of(user_frame(sys._getframe(1))))
        key = id(optimizer)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] > 1 and not self._last:
            self._last = self._before or key  # The one before the first that stepped twice ends each step.
        self._before = key
        if not self._last or key == self._last:
            self._is_in_hook = True
            try:
                self._ends_step()
            finally:
                self._is_in_hook = False

    def _lose(self, what: str) -> None:
        self.audit.unknown[f"{what} was not followed"] = None

    def _ends_step(self) -> None:
        self.steps = self._counts[self._last] if self._last else 1
        self.audit.steps = self.steps
        self.recorded += self.is_recording
        if self._schedule.has_ended(self.steps):
            self.close()
            self._schedule.notify()
            return
        self.audit.keeps = self.steps < FIRST
        differs = self._differs()
        records = self._schedule.records_after(self.steps) or differs
        if records and not self.is_recording:
            self._record()
        elif not records and self.is_recording:
            self._rest()

    def _differs(self) -> bool:
        """Whether the step that has ended differed from those seen: the next one is then recorded."""
        before, self._nodes = self._nodes, internals.next_node()
        size, differs = self._nodes - before, self.audit.differs
        self.audit.differs = False
        if size not in self._sizes:
            differs = differs or len(self._sizes) > 0
            if len(self._sizes) < UNLIKE:
                self._sizes.add(size)
        self._unlike += differs
        return differs and self._unlike <= UNLIKE

    # --------------------------------------------------------------------------------------- the end

    @property
    def unknown(self) -> list[str]:
        """What could not be found out."""
        return list(self.audit.unknown)

    @property
    def norms(self) -> dict[str, list[tuple[int, float]]]:
        """For each layer, the norms of its gradients at recorded steps."""
        return self.audit.norms

    def problems(self, error: BaseException | None = None) -> list[Problem]:
        """What is wrong: the cause of an error that ended the training, and what the facts say."""
        with internals.DisableTorchFunction():
            cause = [] if error is None else self._cause(error)
            findings = problems_of(self.audit, self._recorders, cause)
            return [*cause, *findings]

    def _cause(self, error: BaseException) -> list[Problem]:
        problem = problem_of(error)
        if problem is None and self._recorders:
            error_explanations.explain(self._recorders[-1], error, None, ())
            problem = problem_of(error)
        return [] if problem is None else [problem]
