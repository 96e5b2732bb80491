"""The facts about the losses of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.base.source import RawLocation
from stopgrad.flow.comparisons import may_compare
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.comparing import comparing
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.context import sites
from stopgrad.interop.torch.recording.record import Backward, Event, Kind, above

Tensor = torch.Tensor
Place = RawLocation | None


class Losses:
    """What the recorded losses had in common."""

    count: int

    def __init__(self) -> None:
        self.count = 0
        self.compared: dict[Place, tuple[list[Problem], int]] = {}
        self.emptied: dict[RawLocation | None, tuple[Event, int]] = {}
        self.ignored: dict[RawLocation | None, tuple[str, int]] = {}
        self.numbers: dict[RawLocation | None, tuple[float, int]] = {}
        self.all_classified: dict[RawLocation | None, int] = {}

    def begins(self, call: Backward, losses: Sequence[Tensor]) -> None:
        """A backward pass begins from losses: is one the same number as the last time at this line?"""
        if call.kind != "backward" or len(losses) != 1 or losses[0].numel() != 1:
            return
        if internals.is_functorch_wrapped_tensor(losses[0]) or losses[0].is_meta:
            return
        number = _number(losses[0])
        before, count = self.numbers.get(call.place, (math.nan, 0))
        self.numbers[call.place] = number, count + 1 if number == before else 1

    def ended(self, call: Backward, explain: Callable[[], Flow]) -> None:
        """A backward pass has ended: what do its losses compare? If need be, explain says it."""
        self.count += 1
        place: Place = None
        is_compared = False
        for event in above(call.losses):
            if event.kind is not Kind.OPERATION:
                continue
            if may_compare(event.call, [tuple(value.sizes[1:]) for value in event.inputs]):
                place, is_compared = event.place, True
            if any(_is_empty(sizes) for sizes in event.results) and not any(
                _is_empty(value.sizes) for value in event.inputs
            ):
                _count(self.emptied, event.place, event)
        if is_compared:
            problems, count = self.compared[place] if place in self.compared else (comparing(explain()), 0)
            self.compared[place] = problems, count + 1

    def classified(self, name: str, args: Sequence[Any], place: RawLocation | None) -> None:
        """A loss with classes to be left out was computed: are any left?"""
        ignored = next((x for x in args[2:] if isinstance(x, int) and not isinstance(x, bool)), -100)
        target = args[1] if len(args) > 1 else None
        self.all_classified[place] = self.all_classified.get(place, 0) + 1
        if isinstance(target, Tensor) and _is_all(target, ignored):
            self.ignored[place] = (name, self.ignored.get(place, (name, 0))[1] + 1)

    def problems(self) -> list[Problem]:
        """What is wrong with the losses."""
        findings = [
            problem
            for problems, count in self.compared.values()
            if count == self.count > 0
            for problem in problems
        ]
        findings += [
            _emptied(event) for event, count in self.emptied.values() if count == self.count and count > 1
        ]
        for place, (name, count) in self.ignored.items():
            if count == self.all_classified[place] and count > 1:
                findings.append(_ignored(name, place))
        return findings


def _is_all(classes: Tensor, number: int) -> bool:
    """Whether there are classes, and all are this one. What a transform of torch.func hides is not known."""
    if classes.is_floating_point() or not classes.numel() or internals.is_functorch_wrapped_tensor(classes):
        return False
    with internals.DisableTorchDispatch():
        return bool((internals.local_part(classes) == number).all())


def _number(loss: Tensor) -> float:
    """A loss as a number; no mode of the user's sees that it is read."""
    with internals.DisableTorchDispatch():
        return float(internals.local_part(loss).detach())


def _count(table: dict[Any, tuple[Event, int]], place: RawLocation | None, event: Event) -> None:
    table[place] = (event, table.get(place, (event, 0))[1] + 1)


def _is_empty(sizes: Sequence[Any]) -> bool:
    return 0 in sizes[1:]


def _emptied(event: Event) -> Problem:
    return Problem(
        "empty-loss",
        f"{event.call.removeprefix('torch.')} leaves no element at every step, and the loss is made of that",
        sites("made", "nothing is left here", event.place),
        [],
        {"shapes": [list(sizes[1:]) for sizes in event.results]},
        "check the mask or the index: what is to be trained on must be in it",
    )


def _ignored(name: str, place: RawLocation | None) -> Problem:
    return Problem(
        "empty-loss",
        "every target has the class that the loss leaves out (ignore_index): nothing is trained on",
        sites("made", f"{name.removeprefix('torch.nn.functional.')} of no class here", place),
        [],
        {},
        "check the labels, and the padding or masking that sets them to ignore_index",
    )
