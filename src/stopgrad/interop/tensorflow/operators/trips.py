"""How many steps a loop makes, as its condition and its body tell: counters with a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import stopgrad as sg
from stopgrad.base.sizes import at_least
from stopgrad.interop.shared.calling import Known
from stopgrad.interop.tensorflow.nodes import Body, Source
from stopgrad.interop.tensorflow.reading import array_from

_PASSES = frozenset({"Identity", "Snapshot", "LoopCond"})


class Counter(NamedTuple):
    """A state that grows by a fixed number in each step.

    Attributes:
        start: its first value.
        step: by how much it grows.
    """

    start: int
    step: int

    def after(self, steps: Any) -> Any:
        """Its value after so many steps."""
        return self.start + steps * self.step


class Trips(NamedTuple):
    """How often a loop runs.

    Attributes:
        count: a number or a symbolic size: of all steps if *exact*, else the most that there may be; None
            if nothing tells.
        exact: whether nothing else ends the loop.
        counters: the states that count, by their positions.
    """

    count: Any
    exact: bool
    counters: dict[int, Counter]


def origin(body: Body, source: Source) -> Source:
    """The result that is handed on to another one unchanged."""
    node = body.nodes.get(source[0])
    while node is not None and node.op in _PASSES:
        source = node.inputs[0]
        node = body.nodes.get(source[0])
    return source


def argument(body: Body, source: Source) -> int | None:
    """The position of the argument that a result is; None if it is none."""
    found = origin(body, source)
    names = [one.name for one in body.arguments]
    return names.index(found[0]) if found[0] in names else None


def unchanged(body: Body) -> set[int]:
    """The arguments that a loop's body returns as they are."""
    return {k for k, source in enumerate(body.outputs) if argument(body, source) == k}


def trips_of(
    condition: Body, body: Body, states: Sequence[Any], value_in_condition: Callable[[Source], Any]
) -> Trips:
    """How often a loop runs.

    Args:
        condition, body: its functions.
        states: the first values of the states, :class:`Known` where they are known.
        value_in_condition: the value of a result in the condition, or None if it changes with the steps.
    """
    counters = {k: one for k in range(len(states)) if (one := _counter(body, k, states)) is not None}
    bounds: list[Any] = []
    exact = True
    for source in _conjuncts(condition, condition.outputs[0]):
        found = _bound(condition, source, counters, value_in_condition)
        exact = exact and found is not None
        if found is not None:
            bounds.append(found)
    count = _least(bounds)
    return Trips(count, exact and count is not None, counters)


def _least(bounds: Sequence[Any]) -> Any:
    found = None
    for one in bounds:
        try:
            found = one if found is None or one <= found else found
        except sg.StopgradError:  # Nothing is known about which is smaller.
            return None
    return found


def _counter(body: Body, k: int, states: Sequence[Any]) -> Counter | None:
    start = states[k]
    if not isinstance(start, Known) or start.is_symbolic or start.ndim or start.array.dtype.kind != "i":
        return None
    node = body.nodes.get(origin(body, body.outputs[k])[0])
    if node is None or node.op not in ("Add", "AddV2") or len(node.inputs) != 2:
        return None
    for one, other in (node.inputs, node.inputs[::-1]):
        step = _number(body, other, states)
        if argument(body, one) == k and step is not None:
            return Counter(int(start.array), step)
    return None


def _number(body: Body, source: Source, states: Sequence[Any]) -> int | None:
    """The number that a constant, or an argument that does not change, holds."""
    k = argument(body, source)
    if k is not None:
        held = states[k]
        fixed = isinstance(held, Known) and not held.is_symbolic and argument(body, body.outputs[k]) == k
        return int(held.array) if fixed and held.ndim == 0 and held.array.dtype.kind == "i" else None
    node = body.nodes.get(origin(body, source)[0])
    value = node.attributes.get("value") if node is not None and node.op == "Const" else None
    if value is None or value.WhichOneof("value") != "tensor":
        return None
    array = array_from(value.tensor, f"the constant {source[0]!r}")
    return int(array) if array.ndim == 0 and array.dtype.kind == "i" else None


def _conjuncts(condition: Body, source: Source) -> list[Source]:
    """The parts of a condition that all must hold."""
    found: list[Source] = []
    waiting = [source]
    while waiting:
        here = origin(condition, waiting.pop())
        node = condition.nodes.get(here[0])
        if node is not None and node.op == "LogicalAnd":
            waiting += node.inputs
        else:
            found.append(here)
    return found


_SMALLER = {"Less": (0, 1, 0), "LessEqual": (0, 1, 1), "Greater": (1, 0, 0), "GreaterEqual": (1, 0, 1)}
"""Comparisons: which operand counts, which limits, and whether the limit itself is allowed."""


def _bound(
    condition: Body,
    source: Source,
    counters: dict[int, Counter],
    value_in_condition: Callable[[Source], Any],
) -> Any:
    """How many steps pass until a comparison of a counter with a limit fails; None if it is none."""
    node = condition.nodes.get(source[0])
    if node is None or node.op not in _SMALLER:
        return None
    left, right, inclusive = _SMALLER[node.op]
    k = argument(condition, node.inputs[left])
    counter = counters.get(k) if k is not None else None
    limit = value_in_condition(node.inputs[right])
    if counter is None or counter.step <= 0 or not isinstance(limit, Known) or limit.array.size != 1:
        return None
    last = limit.array.reshape(-1).tolist()[0]
    if not isinstance(last, (int, sg.Dim)):
        return None
    found = (last + inclusive - counter.start + counter.step - 1) // counter.step
    if isinstance(found, sg.Dim):
        return found if found.is_at_least(0) else at_least(found, 0)
    return max(int(found), 0)
