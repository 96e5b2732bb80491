"""Branches and loops, as control flow of ours; or unrolled, if all that decides is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Body, Call, Known, Table, Value, knows
from stopgrad.interop.onnx.operators.moving import checked_axis
from stopgrad.interop.onnx.operators.trips import Trips
from stopgrad.interop.shared.conversions import Refused
from stopgrad.ops.structural.checks import ensured

_UNROLLED = 1024
"""The most steps of a loop that are unrolled."""


@knows(0)
def _branched(node: Call, condition: sg.Output | Known) -> tuple[Value, ...]:
    """One branch if the condition is known; otherwise a ``cond`` of both."""
    branches: list[Body] = [node.attribute("then_branch"), node.attribute("else_branch")]
    if isinstance(condition, Known):
        return tuple(node.run_known(branches[0 if bool(node.number(0, condition)) else 1], []))
    first, second = ((lambda body=body: node.run(body, [])) for body in branches)
    with node.trying():
        try:
            return tuple(sg.cond(sg.reshape(condition, []), first, second))
        except (sg.ShapeError, sg.DTypeError, sg.ArgumentError) as error:
            node.unknown(0, f"the model computes it, and its branches differ: {error.message}")


# -------------------------------------------------------------------------------------------------- loops


class _Loop:
    """Builds a ``Loop``.

    Attributes:
        count: the most steps: a number, a symbolic size, a tensor or None.
        condition: whether to make the first step: a bool or a tensor.
        states: the values carried from step to step, as they are known.
        lasts: whether it is known that no condition ends the loop before its count.
    """

    def __init__(
        self, node: Call, count: sg.Output | Known, condition: sg.Output | Known | None, states: Sequence[Any]
    ) -> None:
        self.node, self.body = node, node.attribute("body")
        self.count = node.number(0, count) if isinstance(count, Known) else count
        self.condition: Any = True if condition is None else condition
        if isinstance(condition, Known):
            self.condition = bool(node.number(1, condition))
        self.states = [node.raw(x) for x in states]
        self.lasts = False
        self.stacked = len(self.body.outputs) - 1 - len(self.states)
        if self.stacked < 0:
            node.fail("its body computes fewer results than it has states")

    def built(self) -> tuple[Any, ...]:
        if self.condition is False or (isinstance(self.count, int) and self.count <= 0):
            self.count = 0
        counted = isinstance(self.count, (int, sg.Dim))
        ways = []
        self.lasts = counted and Trips(self.body, self.states, self.count).all_made(self.condition)
        if self.lasts or (counted and self.condition is True):
            ways.append(self._scanned)
        if self._is_short():
            ways.append(self._unrolled)
        if not self.stacked:
            ways.append(self._repeated)
        if not ways:
            unknown = 1 if isinstance(self.condition, sg.Output) else 0
            self.node.unknown(unknown, "it decides about the size of what the loop stacks")
        return self._first_that_works(ways)

    def _is_short(self) -> bool:
        if isinstance(self.condition, sg.Output):
            return False
        return not isinstance(self.count, (sg.Dim, sg.Output)) and (self.count or 0) <= _UNROLLED

    def _first_that_works(self, ways: Sequence[Any]) -> tuple[Any, ...]:
        failed: list[str] = []
        for way in ways:
            with self.node.trying():
                try:
                    results: tuple[Any, ...] = way()
                    return results
                except (Refused, sg.ShapeError, sg.DTypeError, sg.ArgumentError, sg.GraphError) as error:
                    failed.append(getattr(error, "message", None) or str(error))
        self.node.fail(failed[0] if len(set(failed)) == 1 else "; or ".join(failed))

    def _step(
        self, i: sg.Output | Known, states: Sequence[Any], condition: sg.Output | Known
    ) -> tuple[Any, list[Any], list[Any]]:
        """Build one step: whether the loop goes on, the next states, and the rows to be stacked."""
        going, *results = self.node.run_known(self.body, [i, condition, *states])
        return going, results[: len(self.states)], results[len(self.states) :]

    def _scanned(self) -> tuple[Any, ...]:
        """The loop as a ``scan`` of a fixed number of steps, which has a gradient.

        States that the body hands on as they are, such as weights and limits, are not carried.
        """
        carried = [k for k, name in enumerate(self.body.inputs[2:]) if self.body.outputs[1 + k] != name]

        def step(carry: Sequence[sg.Output], i: sg.Output) -> tuple[list[Any], list[Any]]:
            states: list[Any] = list(self.states)
            for k, x in zip(carried, carry, strict=True):
                states[k] = x
            going, states, rows = self._step(i, states, Known(np.bool_(True)))
            if not self.lasts and not (isinstance(going, Known) and bool(going.array)):
                raise Refused("its loop may end before its count")
            return [self.node.tensor(states[k]) for k in carried], [self.node.tensor(x) for x in rows]

        steps = sg.range(0, self.count, dtype=sg.int64)
        carry, rows = sg.scan(step, [self._tensor(self.states[k]) for k in carried], steps)
        finals = [self._tensor(x) for x in self.states]
        for k, x in zip(carried, carry, strict=True):
            finals[k] = x
        return (*finals, *rows)

    def _tensor(self, x: sg.Output | Known | Sequence[Any]) -> sg.Output:
        if x is None or isinstance(x, list):
            raise Refused("a state of its loop is a sequence or optional")
        return self.node.tensor(x)

    def _unrolled(self) -> tuple[Any, ...]:
        """The loop unrolled, which needs to know at each step whether there is a next one."""
        states: list[Any] = list(self.states)
        rows: list[list[Any]] = [[] for _ in range(self.stacked)]
        i, going = 0, True
        while going and (self.count is None or i < self.count):
            if i == _UNROLLED:
                raise Refused(f"its loop makes more than {_UNROLLED} steps")
            more, states, new_rows = self._step(Known(np.int64(i)), states, Known(np.bool_(True)))
            if not isinstance(more, Known):
                raise Refused("whether its loop goes on is known only when the model runs")
            for row, x in zip(rows, new_rows, strict=True):
                row.append(x)
            i, going = i + 1, bool(more.array)
        return (*states, *[self._stack(row) for row in rows])

    def _stack(self, row: Sequence[Any]) -> sg.Output:
        if not row:
            raise Refused("its loop makes no step, so that nothing tells the shape of what it stacks")
        return sg.stack([self.node.tensor(x) for x in row])

    def _repeated(self) -> tuple[Any, ...]:
        """The loop as a ``while_loop``."""
        zero = sg.constant(np.int64(0))
        first = sg.constant(np.bool_(True)) if self.condition is True else sg.reshape(self.condition, [])
        limit = self.count if isinstance(self.count, int) else self.node.maximum_iterations
        bound = None if isinstance(self.count, int) or self.count is None else self._bound()

        def going(i: sg.Output, more: sg.Output, *states: sg.Output) -> sg.Output:
            return more if bound is None else sg.logical_and(more, sg.less(i, bound))

        def step(i: sg.Output, more: sg.Output, *states: sg.Output) -> tuple[Any, ...]:
            condition, states_, _ = self._step(i, states, more)
            going_on = sg.reshape(self.node.tensor(condition), [])
            return (sg.add(i, np.int64(1)), going_on, *[self.node.tensor(x) for x in states_])

        states = [self._tensor(x) for x in self.states]
        finals = sg.while_loop(going, step, (zero, first, *states), maximum_iterations=limit)
        if limit is None or isinstance(self.count, int):
            return tuple(finals[2:])
        ended = ensured(
            sg.logical_not(going(*finals)),
            f"loop {self.node.name!r} passed its bound of {limit} iterations: raise maximum_iterations",
        )
        return tuple(_ended(x, ended) for x in finals[2:])

    def _bound(self) -> sg.Output:
        if isinstance(self.count, sg.Dim):
            return sg.size(sg.range(0, self.count, dtype=sg.int64), sg.int64)
        return sg.reshape(self.count, [])


def _ended(x: sg.Output, ended: sg.Output) -> sg.Output:
    """A result of a loop; where an engine cannot raise if the loop was broken off, NaN, also in gradients."""
    if not x.dtype.is_floating:
        return sg.where(ended, x, np.zeros((), x.dtype.numpy))
    one, broken = (np.asarray(number, x.dtype.numpy) for number in (1, np.nan))
    return sg.multiply(x, sg.where(ended, one, broken))


@knows(0, 1)
def _looped(
    node: Call,
    count: sg.Output | Known,
    condition: sg.Output | Known | None,
    *states: sg.Output | Sequence[Any],
) -> tuple[Any, ...]:
    return _Loop(node, count, condition, states).built()


# -------------------------------------------------------------------------------------------------- scans


def _scanned(node: Call, *operands: sg.Output) -> tuple[Any, ...]:
    """``Scan``: steps along axes of tensors."""
    body: Body = node.attribute("body")
    count = node.attribute("num_scan_inputs")
    if not 1 <= count <= len(operands):
        node.fail(f"it scans {count} of {len(operands)} operands")
    states, xs = list(operands[: len(operands) - count]), list(operands[len(operands) - count :])
    rows = len(body.outputs) - len(states)
    axes = _numbers(node, "scan_input_axes", count)
    turned = _numbers(node, "scan_input_directions", count)
    moved = [_moved(node, x, axis, 0, back) for x, axis, back in zip(xs, axes, turned, strict=True)]

    def step(carry: Sequence[sg.Output], row: Sequence[sg.Output]) -> tuple[list[Any], list[Any]]:
        results = node.run(body, [*carry, *row])
        return results[: len(states)], results[len(states) :]

    carry, ys = sg.scan(step, states, moved)
    out_axes = _numbers(node, "scan_output_axes", rows)
    out_turned = _numbers(node, "scan_output_directions", rows)
    stacked = [
        sg.moveaxis(sg.flip(y, 0) if back else y, 0, checked_axis(node, axis, y.ndim))
        for y, axis, back in zip(ys, out_axes, out_turned, strict=True)
    ]
    return (*carry, *stacked)


def _numbers(node: Call, name: str, count: int) -> list[int]:
    numbers = node.attribute(name, [0] * count)
    if len(numbers) != count:
        node.fail(f"its attribute {name} has {len(numbers)} numbers for {count} tensors")
    return list(numbers)


def _moved(node: Call, x: sg.Output, axis: int, to: int, back: int) -> sg.Output:
    """A tensor with an axis moved, and reversed if *back*."""
    x = sg.moveaxis(x, checked_axis(node, axis, x.ndim), to)
    return sg.flip(x, to) if back else x


CONTROL: Table = {
    "If": _branched,
    "Loop": _looped,
    "Scan": _scanned,
}
