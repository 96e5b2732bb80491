"""How many steps a loop makes, as its condition and its body tell: counters with a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import stopgrad as sg
from stopgrad.base.sizes import Dim, Size, at_least
from stopgrad.interop.shared.calling import Known
from stopgrad.interop.tensorflow.function_library import Library
from stopgrad.interop.tensorflow.nodes import Body, Node, Source
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

    def after(self, steps: Any) -> sg.Output:
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
    name, _ = origin(body, source)
    names = [parameter.name for parameter in body.arguments]
    return names.index(name) if name in names else None


def unchanged(body: Body) -> set[int]:
    """The arguments that a loop's body returns as they are."""
    return {k for k, source in enumerate(body.outputs) if argument(body, source) == k}


def trips_of(
    condition: Body,
    body: Body,
    states: Sequence[object],
    value_in_condition: Callable[[Source], object],
    library: Library,
) -> Trips:
    """How often a loop runs.

    Args:
        condition, body: its functions.
        states: the first values of the states, :class:`Known` where they are known.
        value_in_condition: the value of a result in the condition, or None if it changes with the steps.
        library: the functions of the graph.
    """
    counters = {k: counter for k in range(len(states)) if (counter := _counter(body, k, states)) is not None}
    bounds: list[Size] = []
    exact = True
    for source in _conjuncts(condition, condition.outputs[0], library):
        bound = _bound(condition, source, counters, value_in_condition)
        exact = exact and bound is not None
        if bound is not None:
            bounds.append(bound)
    count = _least(bounds)
    return Trips(count, exact and count is not None, counters)


def _least(bounds: Sequence[Size]) -> Size | None:
    least = None
    for bound in bounds:
        try:
            least = bound if least is None or bound <= least else least
        except sg.StopgradError:  # Nothing is known about which is smaller.
            return None
    return least


def _counter(body: Body, k: int, states: Sequence[object]) -> Counter | None:
    start = states[k]
    if not isinstance(start, Known) or start.is_symbolic or start.ndim or start.array.dtype.kind != "i":
        return None
    node = body.nodes.get(origin(body, body.outputs[k])[0])
    if node is None or node.op not in ("Add", "AddV2") or len(node.inputs) != 2:
        return None
    for counted, added in (node.inputs, node.inputs[::-1]):
        step = _number(body, added, states)
        if argument(body, counted) == k and step is not None:
            return Counter(int(start.array), step)
    return None


def _number(body: Body, source: Source, states: Sequence[Any]) -> int | None:
    """The number that a constant, or an argument that does not change, holds."""
    k = argument(body, source)
    if k is not None:
        state = states[k]
        fixed = isinstance(state, Known) and not state.is_symbolic and argument(body, body.outputs[k]) == k
        return int(state.array) if fixed and state.ndim == 0 and state.array.dtype.kind == "i" else None
    node = body.nodes.get(origin(body, source)[0])
    value = node.attributes.get("value") if node is not None and node.op == "Const" else None
    if value is None or value.WhichOneof("value") != "tensor":
        return None
    array = array_from(value.tensor, f"the constant {source[0]!r}")
    return int(array) if array.ndim == 0 and array.dtype.kind == "i" else None


def _conjuncts(condition: Body, source: Source, library: Library) -> list[Source]:
    """The parts of a condition that all must hold.

    Python's ``a and b`` becomes a branch that returns b if a holds, and else a or False.
    """
    conjuncts: list[Source] = []
    waiting = [source]
    while waiting:
        conjunct = origin(condition, waiting.pop())
        node = condition.nodes.get(conjunct[0])
        if node is not None and node.op == "LogicalAnd":
            waiting += node.inputs
            continue
        conjuncts.append(conjunct)
        if node is not None and node.op in ("If", "StatelessIf") and _is_false_else(condition, node, library):
            waiting.append(node.inputs[0])
    return conjuncts


def _is_false_else(condition: Body, node: Node, library: Library) -> bool:
    """Whether a branch is false where its condition is."""
    attribute = node.attributes.get("else_branch")
    name = attribute.func.name if attribute is not None else ""
    if name not in library or not node.inputs:
        return False
    branch = library.body(name)
    if len(branch.outputs) != 1:
        return False
    k = argument(branch, branch.outputs[0])
    if k is not None:
        same = k + 1 < len(node.inputs)
        return same and origin(condition, node.inputs[k + 1]) == origin(condition, node.inputs[0])
    constant = branch.nodes[origin(branch, branch.outputs[0])[0]]
    value = constant.attributes.get("value") if constant.op == "Const" else None
    if value is None or value.WhichOneof("value") != "tensor":
        return False
    return not array_from(value.tensor, f"the constant {constant.name!r}").any()


_COMPARISONS = {"Less": (0, 1, 0), "LessEqual": (0, 1, 1), "Greater": (1, 0, 0), "GreaterEqual": (1, 0, 1)}
"""Which operand is to be smaller, which larger, and whether they may be equal."""


def _bound(
    condition: Body,
    source: Source,
    counters: dict[int, Counter],
    value_in_condition: Callable[[Source], Any],
) -> Dim | int | None:
    """How many steps pass until a comparison of a counter with a limit fails; None if it is none."""
    node = condition.nodes.get(source[0])
    if node is None or node.op not in _COMPARISONS:
        return None
    smaller, larger, inclusive = _COMPARISONS[node.op]
    for counted, limiting, sign in ((smaller, larger, 1), (larger, smaller, -1)):
        k = argument(condition, node.inputs[counted])
        counter = counters.get(k) if k is not None else None
        limit = value_in_condition(node.inputs[limiting])
        if counter is None or counter.step * sign <= 0 or not isinstance(limit, Known):
            continue
        last = limit.array.reshape(-1).tolist()[0] if limit.array.size == 1 else None
        if isinstance(last, (int, sg.Dim)):
            return _steps((last - counter.start) * sign + inclusive, counter.step * sign)
    return None


def _steps(distance: Any, step: int) -> Dim | int:
    """How many steps lie in a distance."""
    steps = (distance + step - 1) // step
    if isinstance(steps, sg.Dim):
        return steps if steps.is_at_least(0) else at_least(steps, 0)
    return max(int(steps), 0)
