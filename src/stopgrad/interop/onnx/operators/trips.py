"""Whether a loop makes all its steps, as its condition and its body tell: counters with a limit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.onnx.operators.calling import Body, Known
from stopgrad.interop.onnx.reading import array_from

_PASSES = frozenset({"Identity", "Cast", "Squeeze", "Reshape", "Unsqueeze"})
"""Operators that hand one number on, as it is or as another dtype."""

_ORDER = {"Less": (False, 1), "LessOrEqual": (False, 0), "Greater": (True, 1), "GreaterOrEqual": (True, 0)}
"""Comparisons: whether the operands change places, and by how much they must differ at least."""


class _Line(NamedTuple):
    """A whole number as a function of the step: start + slope * step; sizes may be symbolic."""

    slope: int
    start: Size

    def at(self, step: Size) -> Size:
        return self.start + self.slope * step


class Trips:
    """What the body of a ``Loop`` says of its condition.

    Args:
        body: of the loop.
        states: the first values of the states.
        count: the most steps, a number or a symbolic size.
    """

    def __init__(self, body: Body, states: list[Any], count: Any) -> None:
        self._nodes = {str(y): node for node in body.graph.node for y in node.output}
        self._arrays = {str(t.name): t for t in body.graph.initializer}
        self._body, self._states, self._count = body, states, count

    def all_made(self, condition: Any) -> bool:
        """Whether no condition ends the loop before its count."""
        return self._begins(condition) and self._holds(self._body.outputs[0])

    # ------------------------------------------------------------------------------------ the first step

    def _begins(self, x: sg.Output | bool) -> bool:
        """Whether the first condition, a tensor of our graph, holds where the count is above 0."""
        if x is True:
            return True
        if not isinstance(x, sg.Output):
            return False
        if x.op.type in ("LogicalAnd", "Reshape", "Identity"):
            return all(self._begins(y) for y in x.op.inputs)
        if x.op.type not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
            return False
        low, high = x.op.inputs if x.op.type.startswith("Less") else x.op.inputs[::-1]
        a, b = _size(low), _size(high)
        if a is None or b is None:
            return False
        least = 0 if x.op.type.endswith("Equal") else 1
        return _surely(b - a - least) or _surely(b - a - least - (self._count - 1))

    # -------------------------------------------------------------------------------------- all later ones

    def _holds(self, name: str) -> bool:
        """Whether a condition of the body holds after every step but the last."""
        node = self._nodes.get(name)
        if node is None:
            position = self._argument(name)
            return position == 1 or self._is_true(name)  # A condition that the body hands on.
        if node.op_type in ("And", "Identity", "Cast"):
            return all(self._holds(str(x)) for x in node.input)
        if node.op_type == "Constant":
            return self._is_true(name)
        if node.op_type not in _ORDER:
            return False
        turned, least = _ORDER[node.op_type]
        low, high = (self._line(str(x)) for x in (reversed(node.input) if turned else node.input))
        if low is None or high is None:
            return False
        ends = [high.at(step) - low.at(step) - least for step in (0, self._count - 2)]
        return all(map(_surely, ends)) or (_surely(ends[1]) and low.slope >= high.slope)

    def _is_true(self, name: str) -> bool:
        value = self._value(name)
        return value is not None and value is not False and bool(value)

    def _line(self, name: str) -> _Line | None:
        """A number of the body as a function of the step, if it is one."""
        position = self._argument(name)
        if position is not None:
            return _Line(1, 0) if position == 0 else self._state(position - 2)
        node = self._nodes.get(name)
        if node is not None and node.op_type in _PASSES:
            return self._line(str(node.input[0]))
        if node is not None and node.op_type in ("Add", "Sub"):
            a, b = (self._line(str(x)) for x in node.input)
            if a is None or b is None:
                return None
            sign = 1 if node.op_type == "Add" else -1
            return _Line(a.slope + sign * b.slope, a.start + sign * b.start)
        value = self._value(name)
        return None if value is None or isinstance(value, bool) else _Line(0, value)

    def _state(self, k: int) -> _Line | None:
        """A state that does not change, or to which the body adds a constant."""
        state = self._states[k] if k >= 0 else None
        if not isinstance(state, Known):
            return None
        start, end = _number(state.array), self._body.outputs[1 + k]
        slope = self._grows(end, self._body.inputs[2 + k])
        return None if start is None or slope is None else _Line(slope, start)

    def _grows(self, end: str, begin: str) -> int | None:
        """By how much a state grows in a step."""
        while (node := self._nodes.get(end)) is not None and node.op_type == "Identity":
            end = str(node.input[0])
        if end == begin:
            return 0
        if node is None or node.op_type != "Add":
            return None
        others = [str(x) for x in node.input if x != begin]
        value = self._value(others[0]) if len(others) == 1 else None
        return int(value) if isinstance(value, (int, float)) and value == int(value) else None

    def _argument(self, name: str) -> int | None:
        return self._body.inputs.index(name) if name in self._body.inputs else None

    def _value(self, name: str) -> Size | None:
        """One number that is stored in the body or known around it; None if it is none."""
        if name in self._arrays:
            return _number(array_from(self._arrays[name], None, "a number of a loop"))
        node = self._nodes.get(name)
        if node is not None:
            stored = [
                a.t for a in node.attribute if a.name == "value" and a.type == onnx.AttributeProto.TENSOR
            ]
            is_stored = node.op_type == "Constant" and stored
            return _number(array_from(stored[0], None, "a number of a loop")) if is_stored else None
        around = self._body.around.values.get(name)
        return _number(around.array) if isinstance(around, Known) else None


def _number(array: np.ndarray[Any, Any]) -> Size | None:
    """The one number or size in an array; None if it has more, or no whole one."""
    if array.size != 1:
        return None
    number = array.reshape(-1)[0]
    if isinstance(number, sg.Dim):
        return number
    if array.dtype.kind == "b":
        return bool(number)
    return int(number) if array.dtype.kind in "iuf" and float(number).is_integer() else None


def _size(x: sg.Output) -> Size | None:
    """A constant or size of our graph, through conversions; None if it is none."""
    while x.op.type in ("Cast", "Identity", "Reshape", "Squeeze"):
        x = x.op.inputs[0]
    if x.op.type == "Size":
        return x.op.size
    return _number(np.asarray(x.op.value.array)) if x.op.type == "Const" else None


def _surely(difference: Size) -> bool:
    """Whether a difference is a number, and not negative."""
    return not isinstance(difference, sg.Dim) and difference >= 0
