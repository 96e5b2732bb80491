"""Findings that are certain as soon as they are seen, while a training runs."""

from __future__ import annotations

from typing import Any

import torch

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.troubles import NOT_FINITE
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.interop.torch.explaining.context import located, sites, variable_of
from stopgrad.interop.torch.recording.graphs import report_of
from stopgrad.interop.torch.recording.record import Backward, Kind, Value
from stopgrad.interop.torch.recording.recorder import Recorder

Tensor = torch.Tensor


def flow_of(recorder: Recorder, call: Backward, tensors: dict[str, Tensor]) -> Flow:
    """The report on a backward pass."""
    targets = {name: recorder.target(tensor) for name, tensor in tensors.items()}
    return report_of(call.losses, targets, recorder.departures.remembered(), sizes=call.sizes)


def not_finite(recorder: Recorder, call: Backward, tensors: dict[str, Tensor], step: int) -> Problem:
    """An optimizer steps by gradients that are no numbers: where they begin."""
    flow = flow_of(recorder, call, tensors)
    places: list[Site] = []
    reasons: list[str] = []
    for trouble in flow.troubles:
        if trouble.kind == NOT_FINITE:
            for cause in trouble.causes:
                reasons.append(str(cause))
                if cause.location is not None:
                    places.append(Site("made", f"begins here: {cause}", cause.location.own))
    places = list(dict.fromkeys(places))
    places += sites("first", "differentiated here", call.place)
    names = list(tensors)
    return Problem(
        "nan-gradient",
        f"the gradient of {some(names, 3)} is NaN or infinite at step {step}, and the optimizer steps by it",
        places,
        names,
        {"step": step, "reasons": reasons},
        "keep the argument where the derivative is finite: x.clamp_min(eps).sqrt(), a where() on the input "
        "rather than on the result, (x + eps) / (y + eps), or a smaller learning rate if values overflow",
        step,
    )


def not_finite_unseen(step: int) -> Problem:
    """Gradients became no numbers in a step that was not recorded."""
    return Problem(
        "nan-gradient",
        f"gradients are NaN or infinite since step {step}, which was not recorded",
        step=step,
        cure="stopgrad run --every 1 --steps N names the line where that begins",
    )


def read_of_non_leaf(value: Value, place: Any) -> Problem:
    """The ``grad`` of what is no leaf was read, which is always None."""
    name = variable_of(value)
    location = located(value.event.place)
    text = (
        "made here"
        if value.event.kind is Kind.LEAF
        else f"{value.event.call.removeprefix('torch.')} makes it"
    )
    places = [] if location is None else [Site("made", f"{text} a result, not a leaf", location)]
    return Problem(
        "non-leaf",
        f"{name or 'what .grad is read of'} is the result of an operation: its .grad is None, whatever "
        "arrives",
        [*places, *sites("read", "its .grad is read here", place)],
        [name] if name else [],
        {},
        f"convert first, then make it a leaf: nn.Parameter(...), {name or 'it'}.detach().requires_grad_(), "
        f"or {name or 'it'}.retain_grad() to look at it",
    )
