"""A graph that is differentiated a second time: the tensor by which the new graph hangs on the old one."""

from __future__ import annotations

from typing import Any, NamedTuple

from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.context import UNRECORDED, Context, reachable, sites, variable_of
from stopgrad.interop.torch.recording.autograd_nodes import LEAF_NODE
from stopgrad.interop.torch.recording.record import Backward, Event, Kind, Value, above


class _Tie(NamedTuple):
    """Where a new graph hangs on one that was differentiated before."""

    values: list[Value]
    first: Backward
    is_root: bool


def second(context: Context) -> Problem | None:
    """The finding; None where no backward pass through the graph was recorded."""
    if not context.is_recorded:
        text = "the loss hangs on a graph that was differentiated before"
        return Problem("second-backward", text, context.here("second", "again here"), cure=UNRECORDED)
    tie = _tie(context)
    if tie is None:
        return None
    names = [name for name in dict.fromkeys(map(variable_of, tie.values)) if name]
    form, cure = _form(context, tie, " and ".join(names) or "it")
    text = "made here, in the graph that was differentiated before"
    places = [site for value in tie.values for site in sites("made", text, value.event.place)]
    places += sites("first", "differentiated here first, which frees the graph", tie.first.place)
    places += context.here("second", "and here again")
    return Problem("second-backward", form, list(dict.fromkeys(places)), names, {}, cure)


def _tie(context: Context) -> _Tie | None:
    earlier = [call for call in context.recorder.backwards if not _is_current(context, call)]
    freed = _freed(context)
    for call in reversed(earlier):
        covered = set(above(call.losses))
        values, is_root = _edges(context, covered, freed)
        if values:
            return _Tie(values, call, is_root)
    return None


def _is_current(context: Context, call: Backward) -> bool:
    return call is context.recorder.backwards[-1]


def _freed(context: Context) -> set[Any]:
    """The nodes whose saved tensors are gone, and those that lead to them."""
    nodes = reachable(context.roots())
    gone = {node for node in nodes if any("second time" in saved.error for saved in internals.saved_by(node))}
    for node in reversed(nodes):
        if any(to in gone for to, _ in node.next_functions):
            gone.add(node)
    return gone


def _edges(context: Context, covered: set[Event], freed: set[Any]) -> tuple[list[Value], bool]:
    """The values at which the graph enters one that was differentiated; and whether the loss is in that."""
    nodes = context.recorder.nodes
    roots = [(node, None) for node in context.roots()]
    for node, _ in roots:
        inside = [value for value in nodes.values(node).values() if value.event in covered]
        if inside:
            return inside[:1], True
    values: dict[Value, None] = {}
    stack: list[Any] = [node for node, _ in roots]
    seen = set(stack)
    while stack:
        for node, number in stack.pop().next_functions:
            if node is None or type(node) is LEAF_NODE or node in seen:
                continue
            value = nodes.values(node).get(number)
            if value is not None and value.event in covered and value.event.kind is Kind.OPERATION:
                if node in freed or not freed:
                    values[value] = None
                continue
            seen.add(node)
            stack.append(node)
    return list(values)[:4], False


def _form(context: Context, tie: _Tie, name: str) -> tuple[str, str]:
    """What happened, in a sentence, and what helps."""
    if tie.is_root:
        return (
            "the same loss is differentiated a second time; the first time freed its graph",
            "compute the loss again before the second backward, or call backward once; retain_graph=True on "
            "the first call only if both gradients of the same values are meant",
        )
    roots = {value for call in context.recorder.backwards for value in call.losses}
    repeated = any(event.place in {value.event.place for value in tie.values} for event in _events(context))
    if any(value in roots or (repeated and len(value.sizes) == 1) for value in tie.values):
        return (
            f"{name} is a number kept from an earlier step, with its graph, and the new loss is made of it",
            f"keep {name}.detach() or {name}.item(): what is kept for a sum or an average needs no graph",
        )
    began = tie.first.number
    if repeated:
        return (
            f"{name} is kept from an earlier step, with the graph of that step",
            f"{name} = {name}.detach() before it is used in the next step"
            if " and " not in name
            else f"detach {name} before they are used in the next step",
        )
    if context.roots() and all(internals.number_of(node) < began for node in context.roots()):
        return (
            f"two losses share {name}, and the first backward has freed the graph behind it",
            "add the losses and call backward once; or retain_graph=True on the first call",
        )
    return (
        f"{name} was computed once, with a graph that the first backward has freed",
        f"compute {name} anew for each backward; or, if what made it is not trained, compute it under "
        "torch.no_grad() or detach it",
    )


def _events(context: Context) -> list[Event]:
    """The events of the new part of the graph."""
    nodes, events = context.recorder.nodes, []
    began = context.recorder.backwards[-2].number if len(context.recorder.backwards) > 1 else 0
    for node in context.nodes():
        if type(node) is not LEAF_NODE and internals.number_of(node) >= began:
            events += [value.event for value in nodes.values(node).values()]
    return events
