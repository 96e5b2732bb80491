"""A value that a derivative needs was changed in place: which, where it is needed, what wrote into it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.context import UNRECORDED, Context, located, sites, variable_of
from stopgrad.interop.torch.recording.autograd_nodes import LEAF_NODE
from stopgrad.interop.torch.recording.observed import STEP
from stopgrad.interop.torch.recording.record import Kind, Value
from stopgrad.interop.torch.recording.tensor_tables import Store, Write

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")

UNSHOWN = "this release of PyTorch does not show what derivatives need: from 2.10 on, the lines are named"
"""What helps where PyTorch does not tell which value it is."""


class _Stale(NamedTuple):
    """A node whose saved tensor was changed."""

    node: Any
    tensor: Any
    expected: int
    version: int


def modified(context: Context) -> Problem | None:
    """The finding; None where it is not known which value that was."""
    if not context.is_recorded or not internals.SHOWS_SAVED:
        message = "a value was changed in place before a derivative that needs it was computed"
        here = context.here("second", "this backward needs the old value")
        return Problem(
            "modified-in-place", message, here, cure=UNRECORDED if internals.SHOWS_SAVED else UNSHOWN
        )
    stale = _stale(context)
    if stale is None:
        return None
    recorder = context.recorder
    needs = next(iter(recorder.values_at(stale.node).values()), None)
    store = None if stale.tensor is None else recorder.memory.store(stale.tensor)
    value = None if store is None else _saved_value(context, stale, store)
    write = None if store is None else _first_write(store, stale)
    tensor = _leaf(context, store)
    name = context.name_of(tensor) if tensor is not None else "" if value is None else variable_of(value)
    origin = None if value is None else value.event
    needing = None if needs is None else needs.event
    places = []
    if origin is not None and origin.kind is Kind.OPERATION and tensor is None:
        places += sites("computed", "computed here", origin.place)
    if needing is not None:
        needed = "its derivative needs the result" if needing is origin else f"{needing.call} needs it here"
        places += sites("needed", f"{needed} as it was, for the gradient", needing.place)
    if write is not None:
        places += sites("written", f"written into here, by {write.call.removeprefix('torch.')}", write.place)
    places += context.here("second", "this backward needs the old value")
    what = name or ("a value" if origin is None else f"the result of {origin.call}")
    return Problem(
        "modified-in-place",
        f"{what} was changed in place before a derivative that needs it was computed",
        places,
        [name] if name else [],
        {"version": stale.version, "expected version": stale.expected},
        _cure(name, write),
    )


def _stale(context: Context) -> _Stale | None:
    """The node that raised the error: the first in the backward pass whose own error is the same."""
    reason = context.message.partition(" Hint:")[0]
    for node in context.nodes():
        for saved in internals.saved_by(node):
            if saved.error and saved.error.partition(" Hint:")[0] == reason:
                versions = _VERSIONS.search(reason)
                if versions is not None:
                    return _Stale(node, saved.tensor, int(versions[2]), int(versions[1]))
    return None


def _saved_value(context: Context, stale: _Stale, store: Store) -> Value:
    """The value that was saved: the node's result, or one that it took, which was in this memory."""
    nodes = context.recorder.nodes
    operands = [
        value
        for node, number in stale.node.next_functions
        if node is not None and type(node) is not LEAF_NODE
        for value in [nodes.values(node).get(number)]
        if value is not None
    ]
    results = list(context.recorder.values_at(stale.node).values())
    for value in (*operands, *results):
        if _was_in(value, store):
            return value
    return store.origin


def _was_in(value: Value, store: Store) -> bool:
    """Whether a value was in a stretch of memory: it, or what it is a view of, was there first."""
    ancestor: Value | None = value
    for _ in range(64):
        if ancestor is store.origin:
            return True
        if ancestor is None or not ancestor.event.inputs:
            return False
        ancestor = ancestor.event.inputs[0]
    return False


def _leaf(context: Context, store: Store | None) -> Any:
    """The parameter, buffer or leaf in this memory; None if there is none."""
    memory = None if store is None else store.ref()
    if memory is None:
        return None
    buffers = [x for module in context.recorder.modules for x in module.buffers()]
    for tensor in (*context.recorder.seen().values(), *buffers):
        own_store = context.recorder.memory.store(tensor)
        if own_store is store:
            return tensor
    return None


def _first_write(store: Store, stale: _Stale) -> Write | None:
    """What wrote into the memory first after the value was saved."""
    later = [write for write in store.writes if stale.expected < write.version <= stale.version]
    return later[0] if later else None


def _cure(name: str, write: Write | None) -> str:
    """What helps against this kind of write."""
    if write is None:
        return (
            "find what writes into it between its computation and backward; under DistributedDataParallel "
            "buffers are broadcast at each forward: broadcast_buffers=False, or one forward per backward"
        )
    call = write.call.removeprefix("torch.").removeprefix("Tensor.")
    if write.call == STEP:
        return (
            "call backward before the step for every loss computed with the old weights, or compute the "
            "loss again after it"
        )
    source = located(write.place)
    line = "" if source is None else source.source
    augmented = re.match(r"([\w.\[\]]+)\s*([-+*/%@&|^]|\*\*|//)=\s*(.*)", line)
    if augmented is not None:
        target, sign, right = augmented.groups()
        return f"write {target} = {target} {sign} {right} in place of {line}: that makes a new tensor"
    if call == "__setitem__":
        copied = f"{name} = {name}.clone()" if name else "made by clone()"
        return f"write into a copy, {copied}, or build it with torch.where, torch.stack or torch.cat"
    if call in ("copy_", "fill_", "zero_", "set_"):
        return "write it after backward, or compute the loss again with the new value"
    if call.endswith("_"):
        return f"use {call.rstrip('_')} in place of {call}: that makes a new tensor"
    return "without inplace=True the line makes a new tensor; or clone() what the derivative needs"
