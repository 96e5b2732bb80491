"""Follows the training of a script, in whichever framework it is written."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Protocol

from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.flow.problems.notes import problem_of
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.shared.imports import Awaited
from stopgrad.interop.shared.recorded_steps import Schedule
from stopgrad.tools.running.warned import Warned

SESSIONS = {
    "torch": "stopgrad.interop.torch.training.session",
    "jax": "stopgrad.interop.jax.training.session",
    "tensorflow": "stopgrad.interop.tensorflow.training.session",
}
"""The modules that follow a training, by the package that it is written with."""


EVERY = 100
"""Of the steps after the first ones, one in so many is recorded unless that is said."""


class Session(Protocol):
    """Follows a training in one framework."""

    steps: int
    recorded: int

    @property
    def unknown(self) -> list[str]:
        """What could not be found out."""

    @property
    def norms(self) -> dict[str, list[tuple[int, float]]]:
        """For each layer, the norms of its gradients at recorded steps."""

    def problems(self, error: BaseException | None = None) -> list[Problem]:
        """What is wrong, with the cause of an error that ended it."""

    def close(self) -> None:
        """Follow it no more."""


class Following:
    """Follows a script: each framework from when the script has imported it.

    Args:
        schedule: which steps are recorded, and how many are followed.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.sessions: list[Session] = []
        self.failed: list[str] = []
        self._warned = Warned()
        self._awaited = Awaited({name: self._beginner(name) for name in SESSIONS})

    def begin(self) -> None:
        """Begin to wait for frameworks."""
        self._awaited.begin()
        self._warned.begin()

    def _beginner(self, package: str) -> Callable[[], None]:
        def begin() -> None:
            try:
                module = importlib.import_module(SESSIONS[package])
                self.sessions.append(module.Session(self._schedule))
            except Exception as error:  # The script goes on as without us.
                self.failed.append(f"{package} could not be followed ({type(error).__name__}: {error})")

        return begin

    def end(self, error: BaseException | None) -> Diagnosis:
        """Follow no more; what is known."""
        self._awaited.end()
        self._warned.end()
        problems: list[Problem] = []
        unknown = list(self.failed)
        for session in self.sessions:
            try:
                session.close()
                problems += session.problems(error)
                unknown += session.unknown
            except Exception as failure:
                unknown.append(f"the training could not be judged ({type(failure).__name__}: {failure})")
        steps = max([session.steps for session in self.sessions], default=0)
        recorded = max([session.recorded for session in self.sessions], default=0)
        if not self.sessions and not unknown and not (sys.modules.keys() & SESSIONS.keys()):
            unknown.append(f"the script imports none of {', '.join(SESSIONS)}")
        diagnosis = Diagnosis(problems, steps, recorded, unknown)
        for session in self.sessions:
            diagnosis.norms |= session.norms
        cause = None if error is None else problem_of(error)
        diagnosis.noted = [problem for problem in diagnosis.problems if problem is cause]
        return diagnosis
