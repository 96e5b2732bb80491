"""Follows the training of a script that is written with TensorFlow or Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stopgrad.base.source import RawLocation
from stopgrad.flow.problems.notes import problem_of
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.imports import Awaited
from stopgrad.interop.shared.lifetimes import Lifetime
from stopgrad.interop.shared.recorded_steps import USUAL, Schedule
from stopgrad.interop.tensorflow.explaining import explain
from stopgrad.interop.tensorflow.recording import internals, switches
from stopgrad.interop.tensorflow.recording.record import Asking
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.training.facts import Facts
from stopgrad.interop.tensorflow.training.findings import problems_of

if TYPE_CHECKING:
    import tensorflow as tf


class _Token:
    """What is held as long as a recorder runs."""


class Session:
    """A training in TensorFlow that is followed in the thread that began it.

    What runs eagerly is recorded in the first steps, and in one in so many afterwards; what ``tf.function``
    compiles is recorded when it is traced.

    Args:
        schedule: which of its steps are recorded, and how many are followed.
    """

    facts: Facts
    recorder: Recorder
    lost: dict[str, None]

    def __init__(self, schedule: Schedule = USUAL) -> None:
        self._schedule = schedule
        self.facts = Facts()
        self.recorder = Recorder()
        self.recorder.explain = explain
        self._steps: dict[int, int] = {}
        self._recorded = 0
        self._token: Any = None
        self._held: Lifetime | None = None
        self._is_over = False
        self.lost = self.recorder.lost
        switches.observe(self)
        self._awaited = Awaited(
            {internals.OPTIMIZERS: switches.patch_keras, internals.LEGACY: switches.patch_legacy_keras}
        )
        self._awaited.begin()
        self._record()

    # --------------------------------------------------------------------------- recording, and not

    def _record(self) -> None:
        self._token = _Token()
        self._held = Lifetime(self._token)
        switches.begin(self.recorder, self._held)

    def _rest(self) -> None:
        self._held = self._token = None
        self.recorder.forget()

    def close(self) -> None:
        """Follow the training no more."""
        if not self._is_over:
            self._is_over = True
            self._awaited.end()
            switches.observe_no_more(self)
            self._rest()

    # -------------------------------------------------------------------------------------- the steps

    @property
    def steps(self) -> int:
        """How many times an optimizer has stepped, also in what is compiled."""
        steps = max([*self._steps.values(), *self.facts.iterations()], default=0)
        return steps or max([point.calls for point in self.facts.points.values()], default=0)

    @property
    def recorded(self) -> int:
        """How many steps were recorded; of what is compiled, the trace counts as one."""
        if not self._steps:
            return min(self.steps, max([point.calls for point in self.facts.points.values()], default=0))
        return min(self.steps, max(self._recorded, int(bool(self.facts.points))))

    def asked(self, asking: Asking, gradients: Sequence[tf.Tensor | None]) -> None:
        """A gradient was asked for."""
        self.facts.asked(asking, gradients)
        while len(self.recorder.askings) > 1:
            self.recorder.askings.popleft()

    def made(self, optimizer: keras.Optimizer, place: RawLocation | None) -> None:
        """An optimizer was made."""
        self.facts.made(optimizer, place)

    def called(self) -> None:
        """A function of TensorFlow's is about to run."""
        self.facts.begin()

    def applies(
        self,
        optimizer: keras.Optimizer,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[tf.Variable],
        place: RawLocation | None,
    ) -> None:
        """An optimizer is about to step."""
        self.facts.applies(optimizer, gradients, variables, place)

    def applied(self, optimizer: keras.Optimizer) -> None:
        """An optimizer has stepped, or its step was traced."""
        if not switches.is_eager():
            return
        key = id(optimizer)
        self._steps[key] = steps = self._steps.get(key, 0) + 1
        if steps < max(self._steps.values()):
            return
        self._recorded += self._held is not None
        if self._schedule.has_ended(steps):
            self.close()
            self._schedule.notify()
            return
        is_due = self._schedule.records_after(steps)
        if is_due and self._held is None:
            self._record()
        elif not is_due and self._held is not None:
            self._rest()

    # --------------------------------------------------------------------------------------- the end

    @property
    def unknown(self) -> list[str]:
        """What could not be found out."""
        return [*self.recorder.lost, *self.facts.unknown]

    @property
    def norms(self) -> dict[str, list[tuple[int, float]]]:
        """For each variable, the norms of its gradients at recorded steps."""
        return self.facts.norms

    def problems(self, error: BaseException | None = None) -> list[Problem]:
        """What is wrong: the cause of an error that ended the training, and what the facts say."""
        problem = None if error is None else problem_of(error)
        if problem is None and error is not None:
            explain(self.recorder, error, None)
            problem = problem_of(error)
        cause = [] if problem is None else [problem]
        return [*cause, *problems_of(self.facts, self.recorder, cause)]
