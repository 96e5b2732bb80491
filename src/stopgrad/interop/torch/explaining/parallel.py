"""Errors of DistributedDataParallel: the parameters it waited for or saw twice, and where paths end."""

from __future__ import annotations

import re
from typing import Any

import torch

from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.interop.torch.explaining.context import Context, sites
from stopgrad.interop.torch.recording.graphs import report_of

_NAME = "DistributedDataParallel"
_INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_TWICE = re.compile(r"Parameter at index (\d+)")


def unfinished(context: Context) -> Problem | None:
    """Parameters for whose gradients DDP waits in vain: why none comes."""
    module = _module(context)
    match = _INDICES.search(context.message)
    if module is None or match is None:
        return None
    parameters = _parameters(module)
    unused = {parameters[i][0]: parameters[i][1] for i in map(int, match[1].split()) if i < len(parameters)}
    places = _cuts(context, unused)
    dropped = False
    for owner in module.modules():
        if any(p is q for p in owner.parameters(recurse=False) for q in unused.values()):
            place = context.recorder.called_at(owner)
            dropped = dropped or place is not None
            places += sites("called", "called here, and the result plays no part in the loss", place)
    if not places:
        why = "what holds them was not called"
    else:
        why = "the result of what holds them is dropped" if dropped else "their paths are cut"
    return Problem(
        "ddp-unused",
        f"DDP waits for the gradients of {some(list(unused), 3)}, and none comes: {why}",
        list(dict.fromkeys(places))[:5],
        list(unused),
        {"indices": match[1].strip()},
        "let the loss depend on them in every step, take them out of the model, or freeze them before "
        "it is wrapped; find_unused_parameters=True where a branch is meant to be left out",
    )


def ready_twice(context: Context) -> Problem | None:
    """A parameter whose gradient comes twice in one backward pass."""
    module = _module(context)
    match = _TWICE.search(context.message)
    if module is None or match is None:
        return None
    parameters = _parameters(module)
    i = int(match[1])
    name = parameters[i][0] if i < len(parameters) else f"parameter {i}"
    return Problem(
        "ddp-twice",
        f"the gradient of {name} comes twice in one backward pass: a reentrant checkpoint around it, or a "
        "second forward of a shared part",
        context.here("second", "this backward brings it twice"),
        [name],
        {"index": i},
        "checkpoint(..., use_reentrant=False), one forward per backward, or static_graph=True if the graph "
        "never changes",
    )


def _module(context: Context) -> torch.nn.Module | None:
    """The module of DDP that raised an error: from the frames of its traceback, or among those called."""
    traceback = context.error.__traceback__
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if type(owner).__name__ == _NAME:
            return owner
        traceback = traceback.tb_next
    return next((module for module in context.recorder.modules if type(module).__name__ == _NAME), None)


def _parameters(module: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that DDP numbers: those that require a gradient, by the names of the wrapped module."""
    return [(name, p) for name, p in module.module.named_parameters() if p.requires_grad]


def _cuts(context: Context, unused: dict[str, Any]) -> list[Site]:
    """The lines that cut the paths from the last loss to parameters."""
    recorder = context.recorder
    if not recorder.backwards:
        return []
    targets = {name: recorder.target(x) for name, x in unused.items()}
    flow = report_of(recorder.backwards[-1].losses, targets, recorder.departures.remembered())
    return cutting(flow, unused)
