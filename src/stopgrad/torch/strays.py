"""Parameters that get gradients and that the module or optimizer asked about does not have.

Such are the layers of a list of Python, and those that a model was given after its optimizer was made: a
gradient arrives, and nobody steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from stopgrad.flow.parts import Finding
from stopgrad.flow.words import counted
from stopgrad.graph import Operation
from stopgrad.torch.record import Event, Kind, Target, Value

NEW = "torch.nn.Parameter"
"""What the record calls the making of a parameter."""


def strays(
    xs: Any, losses: Sequence[Value], targets: Mapping[str, Target], made: Callable[[Event], Operation]
) -> list[Finding]:
    """Findings about parameters that were made in the watch, by the line that made them.

    Args:
        xs: what was asked about; of a selection of tensors there is nothing to find.
        losses: what is differentiated.
        targets: the values that are asked about.
        made: what an event is in the graph.
    """
    if not isinstance(xs, (torch.nn.Module, torch.optim.Optimizer)):
        return []
    asked = {target.value.event for target in targets.values()}
    lines: dict[Any, list[Event]] = {}
    for event in open_leaves(losses):
        if event.call == NEW and event.place is not None and event not in asked:
            lines.setdefault(event.place, []).append(event)
    home = "module" if isinstance(xs, torch.nn.Module) else "optimizer"
    return [
        Finding("stray", _message(len(events), home), tuple([made(event) for event in events]))
        for events in lines.values()
    ]


def _message(count: int, home: str) -> str:
    get, them = ("gets", "it") if count == 1 else ("get", "them")
    made = f"{counted(count, 'parameter')} made here {get} a gradient"
    return f"{made}, and the {home} asked about does not have {them}"


def open_leaves(losses: Sequence[Value]) -> list[Event]:
    """The leaves at which gradients of losses arrive, in order."""
    found = dict.fromkeys([value.event for value in losses])
    stack = list(found)
    while stack:
        event = stack.pop()
        for value in _passed(event):
            if value.event not in found:
                found[value.event] = None
                stack.append(value.event)
    return sorted([event for event in found if event.kind is Kind.LEAF], key=lambda event: event.serial)


def _passed(event: Event) -> Sequence[Value]:
    """The inputs of an event to which it hands gradients on."""
    if event.kind is Kind.WRITTEN:
        return event.inputs[:1]
    if event.kind is not Kind.OPERATION:
        return ()
    blocked = {position for position, _, _ in event.walls}
    return [value for i, value in enumerate(event.inputs) if i not in blocked and value.open]
