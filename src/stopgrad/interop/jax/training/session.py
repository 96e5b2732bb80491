"""Follows the training of a script that is written with JAX, and says what is wrong when it ends."""

from __future__ import annotations

import jax.extend.source_info_util as source_info

from stopgrad.flow.problems.comparing import comparing
from stopgrad.flow.problems.notes import note, problem_of
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.jax.training import gradient_calls, optimizing
from stopgrad.interop.jax.training.findings import Silent, problems_of, silent_leaves
from stopgrad.interop.jax.training.gradient_calls import Calls, Point
from stopgrad.interop.jax.training.optimizing import Updates
from stopgrad.interop.jax.training.retraced_flow import flow_for
from stopgrad.interop.jax.training.training_errors import explained
from stopgrad.interop.shared.recorded_steps import USUAL, Schedule

for _module in (gradient_calls, optimizing):  # As JAX's own, their lines are no places of operations.
    source_info.register_exclusion(str(_module.__file__))


class Session:
    """A training in JAX that is followed in the thread that began it.

    ``jax.grad``, ``jax.value_and_grad`` and ``optax.apply_updates`` are looked at when they are called
    outside of other derivatives; no number changes. At each place, the function that is differentiated is
    examined once: within a trace as long as that lasts, else when the script has ended.

    Args:
        schedule: how many of its steps are followed; each program point is asked about once.
    """

    def __init__(self, schedule: Schedule = USUAL) -> None:
        self._schedule = schedule
        self._silent: list[Silent] = []
        self._compared: list[Problem] = []
        self._later: list[Point] = []
        self._gradients = self._applied = 0
        self._is_open = True
        self._calls = Calls(self._met, self._called)
        self._updates = Updates(lambda: (self._calls.last, self._calls.latest), self._stepped)
        self._updates.begin()

    @property
    def steps(self) -> int:
        """How many steps were seen outside of traces; of what is compiled, the trace counts as one."""
        steps = max(self._applied, 0) or self._gradients
        return steps or int(bool(self._calls.points))

    @property
    def recorded(self) -> int:
        """How many program points were looked at."""
        return min(self.steps, sum(point is not None for point in self._calls.points.values()))

    @property
    def norms(self) -> dict[str, list[tuple[int, float]]]:
        """The norms of gradients at recorded steps: none, since values are not kept."""
        return {}

    @property
    def unknown(self) -> list[str]:
        """What could not be found out."""
        return [*self._calls.unknown, *self._updates.unknown]

    def close(self) -> None:
        """Follow the training no more."""
        self._is_open = False
        self._updates.close()
        self._calls.close()

    # -------------------------------------------------------------------------------------- the steps

    def _met(self, point: Point) -> None:
        self._updates.begin()
        if point.call is not None and point.is_traced:
            self._ask(point)
        elif point.call is not None:
            self._later.append(point)

    def _ask(self, point: Point) -> None:
        """Ask why gradients are zero; where JAX or we cannot tell, nothing is said."""
        if point.call is None:
            return
        try:
            flow = flow_for(point.call)
            self._silent += silent_leaves(point._replace(call=None), flow)
            self._compared += [problem for problem in comparing(flow) if problem not in self._compared]
        except Exception:  # Of JAX, the user's own, or ours.
            return

    def _called(self) -> None:
        self._updates.begin()
        self._gradients += 1
        if not self._applied:
            self._ends_step(self._gradients)

    def _stepped(self) -> None:
        self._applied += 1
        self._ends_step(self._applied)

    def _ends_step(self, steps: int) -> None:
        if self._is_open and self._schedule.has_ended(steps):
            self.close()
            self._schedule.notify()

    # --------------------------------------------------------------------------------------- the end

    def problems(self, error: BaseException | None = None) -> list[Problem]:
        """What is wrong: the cause of an error that ended the training, and what was seen of gradients."""
        later, self._later = self._later, []
        for point in later:
            self._ask(point)
        points = {key: point for key, point in self._calls.points.items() if point is not None}
        findings = list(problems_of(points, self._silent, list(self._updates.places.values())))
        return [*_causes(error), *findings, *self._compared]


def _causes(error: BaseException | None) -> list[Problem]:
    """The finding that explains an error; it becomes a note on it."""
    if error is None:
        return []
    problem = problem_of(error)
    if problem is None:
        problem = explained(error)
        if problem is not None:
            note(error, problem)
    return [] if problem is None else [problem]
