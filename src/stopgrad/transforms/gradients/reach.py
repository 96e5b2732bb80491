"""Which operations lie on the paths of gradients from ys to xs.

The first sweep walks from ys to the inputs and never passes a closed gate; the second goes through the
operations found, in order, and keeps those that depend on xs. The work is proportional to the live part only.
Operations with bodies are asked for each output separately, and answer by what their bodies compute. The
reasons why no gradient passes are found by :mod:`stopgrad.flow`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output, by_id
from stopgrad.graph.op import Wire
from stopgrad.graph.selective import NOBODY, Acting, by_gates, selective_gates, selective_in

T = TypeVar("T")
Step = tuple[Operation, Sequence[int]]
"""An operation on the path, and the positions of its inputs that lead to xs."""

_OPEN = (0,)
_WHOLE, _IN_PART = 1, 2


def open_inputs(op: Operation, acting: Acting) -> Sequence[int]:
    """The positions of the inputs to which a gradient passes through the operation."""
    definition = op.definition
    positions: Sequence[int] | None = definition.always_open
    if positions is not None:
        return positions
    return _OPEN if definition.selective and op not in acting else list(definition.open_inputs(op))


def between(
    ys: Iterable[Output], xs: Collection[Output], stops: Collection[Output] = (), acting: Acting = NOBODY
) -> list[Step]:
    """The operations that a gradient passes through from ys to xs, in order of their ids.

    Gradients reach the tensors in *stops* and go no further.
    """
    if not xs:
        return []
    size = max([y.op.id for y in ys], default=0) + 1
    lowest = min(x.op.id for x in xs)
    seen = bytearray(size)
    operations: list[Operation] = []
    stack: list[Operation] = []
    parts: dict[Operation, set[int]] = {}  # The outputs reached, of operations whose outputs differ.
    part_stack: list[Output] = []
    inputs: Sequence[Output] = tuple(ys)
    positions: Sequence[int] = range(len(inputs))
    while True:
        for i in positions:
            x = inputs[i]
            source = x.op
            id = source.id
            if id < lowest or seen[id] == _WHOLE or not x.type.differentiable or (stops and x in stops):
                continue
            if source.definition.always_open is None and source.definition.tells_apart:
                reached = parts.setdefault(source, set())
                if x.index in reached:
                    continue
                reached.add(x.index)
                part_stack.append(x)
                if seen[id]:
                    continue
                seen[id] = _IN_PART
            else:
                seen[id] = _WHOLE
                stack.append(source)
            operations.append(source)
        if stack:
            op = stack.pop()
            inputs = op.inputs
            positions = op.definition.always_open
            if positions is None:
                positions = open_inputs(op, acting)
        elif part_stack:
            y = part_stack.pop()
            inputs, positions = y.op.inputs, pairs(y.op, acting)[y.index]
        else:
            break
    operations.sort(key=by_id)
    return _carrying(operations, xs, stops, acting, parts, size)


def _carrying(
    operations: Sequence[Operation],
    xs: Collection[Output],
    stops: Collection[Output],
    acting: Acting,
    parts: Mapping[Operation, Collection[int]],
    size: int,
) -> list[Step]:
    """The operations among those found that depend on xs, with the inputs through which they do so."""
    carries = bytearray(size)
    carrying = {x for x in xs if x.op.id < size}  # Of operations that carry in part, or are stops.
    for x in carrying:
        carries[x.op.id] = _WHOLE if len(x.op.outputs) == 1 else _IN_PART
    path: list[Step] = []
    for op in operations:
        inputs, reached = op.inputs, None
        positions: Sequence[int] | None = op.definition.always_open
        if positions is None:
            reached = parts.get(op)
            if reached is None:
                positions = open_inputs(op, acting)
            else:
                by_output = [pairs(op, acting)[index] for index in reached]
                positions = sorted(set().union(*by_output))
        live = []
        for i in positions:
            x = inputs[i]
            carried = carries[x.op.id]
            if (
                carried
                and ((carried == _WHOLE and not (stops and x in stops)) or x in carrying)
                and x.type.differentiable
            ):
                live.append(i)
        if live:
            path.append((op, live))
            if reached is None:
                carries[op.id] = _WHOLE
                continue
            carries[op.id] = _IN_PART
            through = set(live)
            for index, some in zip(reached, by_output, strict=True):
                y = op.outputs[index]
                if y not in stops and not through.isdisjoint(some):
                    carrying.add(y)
    return path


# --------------------------------------------------------------------------------------------- bodies


def pairs(op: Operation, acting: Acting = NOBODY) -> Sequence[Sequence[int]]:
    """For each output of an operation, the inputs to which its gradient passes."""
    dependence = op.definition.dependence(op)
    if dependence is not None:
        return [[i for i in inputs if i in set(open_inputs(op, acting))] for inputs in dependence]
    reached: list[set[int]] = [set() for _ in op.outputs]
    wired: set[int] = set()
    for wire in op.definition.wires(op):
        wired.update(wire.operands)
        for mask, output in zip(masks_in_runs(wire, acting), wire.outputs, strict=True):
            if output is not None and op.outputs[output].type.differentiable:
                reached[output].update(i for k, i in enumerate(wire.operands) if mask >> k & 1)
    others = [i for i in open_inputs(op, acting) if i not in wired]
    return [sorted(inputs.union(others)) for inputs in reached]


def masks_in_runs(wire: Wire, acting: Acting = NOBODY) -> list[int]:
    """For each result of a body that runs as often as the wire says, as :func:`body_masks` for one run."""
    carried_from = {k: m for m, k in wire.feedback.items()}
    fed = sum(1 << k for k in carried_from)

    def then(later: list[int], earlier: list[int]) -> list[int]:
        masks = []
        for m, mask in enumerate(later):
            # What is no carry collects the results of all runs.
            through = mask & ~fed if m in wire.feedback else mask & ~fed | earlier[m]
            for k, source in carried_from.items():
                if mask >> k & 1:
                    through |= earlier[source]
            masks.append(through)
        return masks

    once = body_masks(wire.body, acting)
    never = [1 << wire.feedback[m] if m in wire.feedback else 0 for m in range(len(once))]
    if wire.skipped:
        once = [mask | idle for mask, idle in zip(once, never, strict=True)]
    return repeated(once, never, wire.runs, then)


def repeated(once: T, never: T, runs: int | None, then: Callable[[T, T], T]) -> T:
    """What so many runs do, from what one does, by squaring.

    Args:
        once: what one run does.
        never: what is true without a run.
        runs: how many there are. None for any number, where one more takes nothing away.
        then: what some runs do, given what the runs before them do.
    """
    done = never
    while runs is None or runs > 1:
        twice = then(once, once)
        if twice == once:
            break
        if runs is not None:
            if runs % 2:
                done = then(done, once)
            runs //= 2
        once = twice
    return done if runs == 0 else then(done, once)


def body_masks(body: Body, acting: Acting = NOBODY) -> list[int]:
    """For each result of a body, a bit mask of the parameters to which its gradient passes."""
    plain = acting.isdisjoint(selective_in(body))
    result_masks: list[int] | None = body.memo.get("masks") if plain else None
    if result_masks is None:
        masks = {x: 1 << k if x.type.differentiable else 0 for k, x in enumerate(body.inputs)}
        for op in body.operations():
            if op.definition.tells_apart:
                by_output: Sequence[Iterable[int]] = pairs(op, acting)
            else:
                by_output = [open_inputs(op, acting)] * len(op.outputs)
            for y, inputs in zip(op.outputs, by_output, strict=True):
                mask = 0
                if y.type.differentiable:
                    for i in inputs:
                        mask |= masks[op.inputs[i]]
                masks[y] = mask
        result_masks = [0 if y is None else masks[y] for y in body.outputs]
        if plain:
            body.memo["masks"] = result_masks
    return result_masks


def routes(
    ys: Sequence[Output], xs: Sequence[Output], stops: Collection[Output]
) -> list[tuple[Acting, list[Output], list[Step]]]:
    """The paths from ys to xs: one for each group of xs to which the same selective gates are closed.

    Each comes with those gates. Without selective gates, there is one path for all xs.
    """
    path = between(ys, set(xs), stops)
    gates = list(selective_gates([op for op, _ in path if op.definition.always_open is None]))
    if not gates:
        return [(NOBODY, list(xs), path)]
    return [
        (acting, group, between(ys, set(group), stops, acting))
        for acting, group in by_gates(gates, xs).items()
    ]
