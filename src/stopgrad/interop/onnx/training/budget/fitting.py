"""Makes the graphs of a training fit into a budget of memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stopgrad.base.coercion import is_whole
from stopgrad.base.errors import ArgumentError
from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.training.budget.choosing import choices
from stopgrad.interop.onnx.training.budget.computed_sizes import check_sizes
from stopgrad.interop.onnx.training.budget.running import peak_of
from stopgrad.interop.onnx.training.budget.schedules import Schedule
from stopgrad.interop.onnx.training.budget.tape import Tape, tape_of
from stopgrad.interop.onnx.training.budget.writing import written

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for kind, base in (("b", 1000), ("ib", 1024))
}


@dataclass(frozen=True)
class Budget:
    """A budget of memory.

    Attributes:
        bytes: how many there are.
        sizes: of the axes that the model leaves open, by name.
    """

    bytes: int
    sizes: Mapping[str, int]


def budget_of(memory: object, sizes: Mapping[str, int] | None) -> Budget | None:
    """A budget: a number of bytes, or a text such as ``"2GiB"``; None for none.

    Raises:
        ArgumentError: it is neither, or a size is no whole number from 1 on.
    """
    lengths = dict(sizes or {})
    for name, size in lengths.items():
        if not is_whole(size) or size < 1:
            raise ArgumentError(f"sizes: {name!r} is a whole number from 1 on, not {size!r:.60}")
    if memory is None:
        if lengths:
            raise ArgumentError(
                "sizes= (--sizes) are those for which memory= (--memory) is reckoned; give it, too"
            )
        return None
    number: float | None = None
    if isinstance(memory, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory)
        if parts and parts[2].lower() in _UNITS:
            number = float(parts[1]) * _UNITS[parts[2].lower()]
    elif is_whole(memory):
        number = float(memory)  # type: ignore[arg-type] # is_whole says so.
    if number is None or number < 1:
        raise ArgumentError(f"memory: a number of bytes, or a text such as '2GiB', not {memory!r:.60}")
    return Budget(int(number), {name: int(size) for name, size in lengths.items()})


@dataclass(frozen=True)
class Held:
    """What a training holds besides what the forward and backward pass make.

    Attributes:
        state: the bytes of parameters and of the optimiser's state, as often as they are held.
        gradients: of parameters, where they have memory of their own.
        frozen: of what stands in the graph.
    """

    state: int
    gradients: int
    frozen: int

    @property
    def bytes(self) -> int:
        return self.state + self.gradients + self.frozen


def held_by(main: Any, state: Iterable[Any], gradients: Iterable[Any], in_place: bool) -> Held:
    """What a training holds.

    Args:
        main: the model that makes the gradients.
        state: the tensors that are carried from step to step.
        gradients: of the parameters.
        in_place: whether a step writes over the state.
    """
    state_bytes = sum(math.prod(map(int, x.shape)) * x.dtype.itemsize for x in state)
    gradient_bytes = sum(math.prod(map(int, x.shape)) * x.dtype.itemsize for x in gradients)
    frozen = sum(len(x.raw_data) for x in main.graph.initializer)
    return Held(state_bytes, gradient_bytes, frozen) if in_place else Held(2 * state_bytes, 0, frozen)


def fit(models: Mapping[str, Any], main: str, loss: str, budget: Budget, held: Held) -> dict[str, Any]:
    """Have the backward pass compute again what the budget has no room for, in all models.

    Args:
        models: those with gradients, by name. They are changed.
        main: the name of the model that a Trainer runs, by which the choice is made.
        loss: the name of the loss in all of them.
        budget: the budget.
        held: what the training holds besides.

    Returns:
        What the manifest says of it.

    Raises:
        ArgumentError: the size of an axis is not known, or nothing fits.
    """
    check_sizes(models[main], budget.sizes)
    tape = tape_of(models[main], budget.sizes, loss)
    whole = Schedule(tape, tape.kept)
    without = held.bytes + peak_of(models[main], tape)
    schedule, peak = whole, without
    if without > budget.bytes:
        schedule, peak = _fitting(models[main], whole, budget, held)
    again = frozenset(schedule.tape.steps[place.number].outputs for place in schedule.places if place.again)
    if again:
        for name, model in models.items():
            other = tape if name == main else tape_of(model, budget.sizes, loss)
            kept = schedule.kept | {x for x in other.kept if x not in tape.kept}
            nodes = written(model, Schedule(other, kept))
            del model.graph.node[:]
            model.graph.node.extend(nodes)
    return {
        "budget": budget.bytes,
        "sizes": dict(budget.sizes),
        "estimate": peak,
        "without": without,
        "state": held.state,
        "gradients": held.gradients,
        "unsized": list(tape.unsized),
        "again": len(again),
        "share": round(schedule.seconds / sum(step.seconds for step in tape.steps), 3),
    }


def _fitting(model: Any, whole: Schedule, budget: Budget, held: Held) -> tuple[Schedule, int]:
    """A schedule that fits, as a runtime orders its nodes, and the bytes of a step."""
    tape: Tape = whole.tape
    room = budget.bytes - held.bytes
    aim, least = room, math.inf
    while aim > 0:
        tried = choices(tape, aim)
        smallest = tried[0].peak > aim
        for schedule in tried if smallest else tried[:1]:
            peak = peak_of(model, tape, written(model, schedule))
            if peak <= room:
                return schedule, held.bytes + peak
            least = min(least, peak)
        if smallest:
            break
        aim -= max(int(least) - room, room // _LOWER)  # A runtime's order of the nodes takes more than ours.
    raise ArgumentError(
        f"memory: a step does not fit into {_in_units(budget.bytes)}; the smallest that was found takes "
        f"{_in_units(held.bytes + least)}: {_in_units(held.state)} of weights and optimizer state, "
        f"{_in_units(held.gradients)} of gradients, {_in_units(held.frozen)} of frozen weights, and "
        f"{_in_units(least)} of what the passes make, with all else computed again"
    )


_LOWER = 32
"""By what part of the room is aimed lower at least, where a runtime's order takes more.

With ViT and GPT-2 of four layers and 40 to 85 % of the activations, what fits does so at the first or second
aim; GPT-2 small at the second.
"""


def _in_units(count: float) -> str:
    if count < 2**20:
        return f"{count / 2**10:,.1f} KiB"
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def notes_of(entry: Mapping[str, Any]) -> list[str]:
    """Notes about what was chosen, and about what is not known."""
    estimated = f"memory: a step is estimated at {_in_units(entry['estimate'])}"
    chosen = f"{estimated}; nothing is computed again"
    if entry["again"]:
        chosen = (
            f"{estimated}, without the budget at {_in_units(entry['without'])}; {entry['again']} nodes are "
            f"computed again, about {entry['share']:.0%} more time"
        )
    unsized = entry["unsized"]
    if not unsized:
        return [chosen]
    more = f" and {len(unsized) - _SHOWN} more" if len(unsized) > _SHOWN else ""
    are = "the size of 1 tensor is" if len(unsized) == 1 else f"the sizes of {len(unsized)} tensors are"
    return [
        chosen,
        f"memory: {are} not known, and not in the estimate: {', '.join(unsized[:_SHOWN])}{more}; say how "
        f"many elements there are with sizes={{{unsized[0]!r}: 4096}} (--sizes {unsized[0]}=4096)",
    ]


_SHOWN = 3


def loss_in(outputs: Iterable[Any]) -> str:
    """The name of the loss among the outputs of a graph."""
    return next(text(port.name) for port in outputs if port.role == "loss")
