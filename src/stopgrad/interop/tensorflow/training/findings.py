"""Findings from the facts of a training: each states what TensorFlow did, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.comparing import comparing
from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.problem import Problem
from stopgrad.flow.words import some
from stopgrad.graph.op import Status
from stopgrad.interop.shared import keras
from stopgrad.interop.tensorflow.explaining import sites
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.training.compared_shapes import may_be_compared
from stopgrad.interop.tensorflow.training.facts import Facts, Optimizer, Point
from stopgrad.interop.tensorflow.watching import explained, subjects_asked

if TYPE_CHECKING:
    pass

SEVERAL = 2
"""The fewest times that the same must have happened for it to be told."""
MANY = 3
"""The same of what may be so at the beginning of a training that is well."""


def problems_of(facts: Facts, recorder: Recorder, cause: Sequence[Problem] = ()) -> list[Problem]:
    """All findings of a training that the cause of the error which ended it does not explain."""
    if any(problem.kind == "no-gradients-provided" for problem in cause):
        return []
    training = _Training(facts)
    problems: list[Problem] = []
    for verdict in VERDICTS:
        problems += verdict(training, recorder)
    return problems


class _Training:
    """The facts, by variable."""

    points: list[Point]
    stepping: list[Optimizer]
    held: set[int]
    arriving: set[int]

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.points = list(facts.points.values())
        self.stepping = [optimizer for optimizer in facts.optimizers.values() if optimizer.steps]
        self.held = {key for optimizer in self.stepping for key in optimizer.held}
        self.arriving = {
            key for point in self.points for name, key in point.variables.items() if point.of[name].some
        }

    def silent(self, point: Point) -> list[str]:
        """The trainable variables that never get a gradient, here or elsewhere, and are to be trained.

        They are if an optimizer steps some of those for which gradients are asked for together.
        """
        is_stepped = bool(self.held & set(point.variables.values()))
        return [
            name
            for name, key in point.variables.items()
            if point.of[name].none
            and key not in self.arriving
            and self.is_trainable(key)
            and (not self.stepping or is_stepped)
        ]

    def has_gradient(self, key: int, optimizer: keras.Optimizer) -> bool:
        """Whether a gradient was seen that is not zero, or the optimizer's averages of it are not zero."""
        for point in self.points:
            for name, other in point.variables.items():
                if other == key and point.of[name].seen > point.of[name].zero:
                    return True
        return any(np.any(average) for average in self.facts.averages(key, optimizer))

    def has_directions(self, key: int) -> bool:
        """Whether a variable has two axes or more, and so is no bias."""
        variable = self.facts.variables[key].ref()
        return variable is not None and len(variable.shape) > 1

    def is_trainable(self, key: int) -> bool:
        variable = self.facts.variables[key].ref()
        return variable is None or bool(variable.trainable)


def no_gradient(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Variables for which TensorFlow gives None, each time."""
    for point in training.points:
        names = training.silent(point)
        if not names or not (training.stepping or training.arriving):
            continue
        asking = point.asking
        flow = explained("explain", recorder, asking.losses, subjects_asked(asking), None, asking)
        apart: dict[tuple[Any, ...], list[str]] = {}
        for name in names:
            key = point.variables[name]
            moves = bool(training.facts.has_moved(key))
            if moves and key not in training.held:
                continue  # The program itself moves it, such as the weights of a target.
            lines = tuple((site.location.file, site.location.line) for site in cutting(flow, [name]))
            is_unused = flow[name].status is Status.DISCONNECTED and not lines
            apart.setdefault((is_unused, moves, lines), []).append(name)
        for (is_unused, moves, _), group in apart.items():
            yield _without(point, flow, group, is_unused, moves)


def _without(point: Point, flow: Flow, names: list[str], is_unused: bool, moves: bool) -> Problem:
    """The finding about variables without gradient."""
    receive = "receives" if len(names) == 1 else "receive"
    pronoun = "it" if len(names) == 1 else "them"
    lines = [*cutting(flow, names), *sites("called", "differentiated here", point.asking.place)]
    evidence = {"calls": point.calls, "gradients": 0}
    if moves:
        return Problem(
            "moves-frozen",
            f"no gradient arrives at {some(names, 3)}, and the optimizer moves {pronoun} all the same",
            lines,
            names,
            {**evidence, "moved": True},
            "leave it out of what the optimizer steps: give it None, not zeros, as a gradient; or "
            "optimizer.exclude_from_weight_decay(var_names=[...])",
        )
    if is_unused:
        every = len(names) == len(point.of)
        return Problem(
            "no-gradient" if every else "held-unused",
            f"the loss does not depend on {some(names, 3)}",
            lines,
            names,
            evidence,
            "use it in the loss, or leave it out of what is differentiated",
        )
    return Problem(
        "no-gradient",
        f"{some(names, 3)} {receive} no gradient: all ways from the loss to {pronoun} are cut",
        lines,
        names,
        evidence,
        "take the cut out; or, if it is meant, set trainable = False for the layer, which says so",
    )


def not_finite(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Gradients, or what they made of variables, that are NaN or infinite."""
    for point in training.points:
        first = min([gradients.nan for gradients in point.of.values() if gradients.nan], default=0)
        names = [name for name, gradients in point.of.items() if first and gradients.nan == first]
        if names:
            yield Problem(
                "nan-gradient",
                f"the gradient of {some(names, 3)} is NaN or infinite since call {first}",
                sites("called", "differentiated here", point.asking.place),
                names,
                {"call": first},
                "tf.debugging.enable_check_numerics() names the operation that makes the first one",
                first,
            )
            return
    names = [
        training.facts.variables[key].name for key in training.held if training.facts.is_finite(key) is False
    ]
    if names:
        yield Problem(
            "nan-gradient",
            f"{some(sorted(names), 3)} became NaN or infinite in the training",
            [
                site
                for optimizer in training.stepping[:1]
                for site in sites("step", "stepped here", optimizer.stepped_at)
            ],
            sorted(names),
            {"variables": len(names)},
            "tf.debugging.enable_check_numerics() names the operation that makes the first one",
        )


def zero(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Gradients that were exactly zero, each time that they were seen."""
    for point in training.points:
        names = [
            name
            for name, gradients in point.of.items()
            if name in point.variables and gradients.seen >= MANY and gradients.zero == gradients.seen
        ]
        if len(names) < len(point.of) and not any(
            training.has_directions(point.variables[name]) for name in names
        ):
            continue  # A bias alone: where a loss is of differences, what is added to all cancels.
        if names:
            calls = point.of[names[0]].seen
            yield Problem(
                "zero-gradient",
                f"the gradient of {some(names, 3)} is exactly zero, in each of {calls} calls",
                sites("called", "differentiated here", point.asking.place),
                names,
                {"calls": calls, "norm": 0.0},
                "look for a ReLU that is off for all inputs, a saturated function, or a factor of 0",
            )


def not_stepped(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """An optimizer that was made, while gradients were computed, and never stepped."""
    idle = [
        optimizer
        for optimizer in training.facts.optimizers.values()
        if not optimizer.steps and optimizer.ref() is not None
    ]
    if training.stepping or not idle:
        return
    for point in training.points:
        keys = [key for name, key in point.variables.items() if point.of[name].some >= SEVERAL]
        if keys and all(training.facts.has_moved(key) is False for key in keys):
            yield Problem(
                "never-stepped",
                "gradients arrive, but the optimizer never steps: no variable changes",
                [
                    *sites("called", "gradients arrive here", point.asking.place),
                    *sites("made", "the optimizer is made here", idle[0].made_at),
                ],
                (),
                {"calls": point.calls, "steps": 0},
                "optimizer.apply_gradients(zip(gradients, model.trainable_variables))",
            )
            return


def not_held(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Variables that get gradients which no optimizer is given, and that never change."""
    if not training.stepping:
        return
    for point in training.points:
        if not set(point.variables.values()) & training.held and len(training.points) > 1:
            continue
        names = [
            name
            for name, key in point.variables.items()
            if point.of[name].some >= SEVERAL
            and key not in training.held
            and training.is_trainable(key)
            and training.facts.has_moved(key) is False
        ]
        if names:
            yield Problem(
                "not-held",
                f"gradients of {some(names, 3)} are computed, but no optimizer is given them",
                [
                    *sites("called", "gradients arrive here", point.asking.place),
                    *[
                        site
                        for optimizer in training.stepping[:1]
                        for site in sites("step", "stepped here", optimizer.stepped_at)
                    ],
                ],
                names,
                {"calls": point.calls, "moved": 0},
                "give the optimizer the gradients of all that is to be trained: "
                "apply_gradients(zip(gradients, model.trainable_variables))",
            )


def without_rate(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Optimizers that step with gradients and change nothing."""
    for record in training.stepping:
        optimizer = record.ref()
        keys = [key for key in record.held if key in training.arriving]
        steps = 0 if optimizer is None else _iterations(optimizer, record)
        if not keys or steps < MANY or any(training.facts.has_moved(key) is not False for key in keys):
            continue
        rate = _rate(optimizer)
        if rate == 0.0:
            yield Problem(
                "no-learning-rate",
                f"the learning rate is 0: in {steps} steps no variable changes",
                [
                    *sites("step", "stepped here", record.stepped_at),
                    *sites("made", "made here", record.made_at),
                ],
                sorted(record.held.values())[:MANY],
                {"learning rate": rate, "steps": steps},
                "set the learning rate, or look at what the schedule makes of it at the first steps",
            )


def rounded(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Weights of 16 bits that get gradients and are stepped, and of which no element changes."""
    for record in training.stepping:
        optimizer = record.ref()
        steps = 0 if optimizer is None else _iterations(optimizer, record)
        rate = _rate(optimizer)
        if steps < MANY or not rate:
            continue
        still = {
            key: name
            for key, name in record.held.items()
            if training.facts.is_small(key) and training.facts.has_moved(key) is False
        }
        names = [name for key, name in still.items() if training.has_gradient(key, optimizer)]
        if names:
            dtype = training.facts.dtype_of(next(key for key, name in still.items() if name in names))
            yield Problem(
                "lost-in-rounding",
                f"the updates of {some(names, 3)} are lost in rounding: added to {dtype} weights they change "
                "no element",
                sites("step", "stepped here", record.stepped_at),
                names,
                {"dtype": dtype, "learning rate": rate, "steps": steps},
                'keep the weights in float32: keras.mixed_precision.set_global_policy("mixed_bfloat16")',
            )


def compared(training: _Training, recorder: Recorder) -> Iterator[Problem]:
    """Losses that compare each prediction with every target."""
    for point in training.points:
        asking = point.asking
        if may_be_compared(asking):
            subjects = subjects_asked(asking)
            yield from comparing(explained("explain", recorder, asking.losses, subjects, None, asking))


def _iterations(optimizer: keras.Optimizer, record: Optimizer) -> int:
    try:
        return int(optimizer.iterations)
    except (AttributeError, TypeError, ValueError):
        return record.steps


def _rate(optimizer: keras.Optimizer) -> float | None:
    try:
        return float(optimizer.learning_rate)
    except (AttributeError, TypeError, ValueError):
        return None


VERDICTS = (no_gradient, not_finite, zero, not_stepped, not_held, without_rate, rounded, compared)
"""What is looked for, the worst first."""
