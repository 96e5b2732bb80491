"""Writes a schedule into a model: nodes once more, which no runtime runs too early or merges with the first.

What is computed again reads kept tensors through a ``Reshape`` to their own shape, to which a zero is added
that is computed from what must have been done before: a gradient that has arrived, and the gradients of
parameters before it. To a runtime, the inputs of both computations differ, and the second cannot begin
before. A ``Reshape`` copies nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.training.budget.schedules import Place, Schedule
from stopgrad.interop.onnx.training.budget.tape import FLOATS
from stopgrad.interop.onnx.training.manifest import unique

_APART = 8
"""Nodes of the backward pass between two points that computations wait for, unless there are fewer."""


def written(model: Any, schedule: Schedule) -> list[Any]:
    """The nodes of a schedule, made from those of its model, which has one for each step."""
    return _Writing(model, schedule).nodes_in_order()


class _Writing:
    def __init__(self, model: Any, schedule: Schedule) -> None:
        self.tape, self.schedule = schedule.tape, schedule
        self.old = list(model.graph.node)
        self.nodes: list[Any] = []
        names = {text(x) for node in self.old for x in (*node.input, *node.output)}
        self.taken = names | {text(x.name) for x in (*model.graph.input, *model.graph.initializer)}
        self.copies: dict[str, str] = {}
        self.done: list[str] = [schedule.tape.loss]
        self.since = _APART
        self.zero = ""
        self.waiting: dict[str, str] = {}
        self.constants: dict[str, str] = {}

    def nodes_in_order(self) -> list[Any]:
        for place in self.schedule.places:
            if place.again:
                self._again(place)
            else:
                self._once(place)
        return self.nodes

    def _once(self, place: Place) -> None:
        node, step, copied = onnx.NodeProto(), self.tape.steps[place.number], self.schedule.copied(place)
        node.CopyFrom(self.old[place.number])
        for i, x in enumerate(node.input):
            if text(x) in copied:
                node.input[i] = self.copies[text(x)]
        self.nodes.append(node)
        if place.number not in self.tape.forward and step.inputs:
            self.since += 1
            floating = [y for y in step.outputs if self._floating(y)]
            if floating:
                ready = [y for y in self.done if y in self.tape.results]
                self.done = list(dict.fromkeys([*ready, floating[0]]))

    def _floating(self, x: str) -> bool:
        return x in self.tape.tensors and self.tape.tensors[x].dtype in FLOATS

    def _again(self, place: Place) -> None:
        if self.since >= _APART or not self.zero:
            self._wait()
        node, copied = onnx.NodeProto(), self.schedule.copied(place)
        node.CopyFrom(self.old[place.number])
        waits = False
        for i, x in enumerate(map(text, node.input)):
            if x in copied:
                node.input[i] = self.copies[x]
                waits = True
            elif x in self.tape.stored:
                node.input[i] = self._later(x)
                waits = True
        if not waits:  # It reads parameters and inputs alone.
            first = next(i for i, x in enumerate(node.input) if x)
            node.input[first] = self._later(text(node.input[first]))
        for i, y in enumerate(map(text, node.output)):
            if y:
                node.output[i] = self.copies[y] = unique(f"{y}/again", self.taken)
        node.name = node.output[0]
        self.nodes.append(node)

    def _later(self, x: str) -> str:
        """A tensor as it is read by what has to wait."""
        if x not in self.waiting:
            shape = self._node("Shape", [x], f"{x}/shape")
            same = self._node("Add", [shape, self.zero], f"{x}/same_shape")
            self.waiting[x] = self._node("Reshape", [x, same], f"{x}/kept", allowzero=1)
        return self.waiting[x]

    def _wait(self) -> None:
        """A zero that is computed from one element of each tensor that must be done."""
        elements = [self._first_element(x) for x in self.done]
        joined = self._node("Concat", elements, "again/done", axis=0) if len(elements) > 1 else elements[0]
        odd = self._node("IsNaN", [joined], "again/odd")
        number = self._node("Cast", [odd], "again/number", to=TensorProto.INT64)
        none = self._node("Mul", [number, self._constant("zero", np.array([0]))], "again/none")
        self.zero = self._node("ReduceSum", [none], "again/zero", keepdims=0)
        self.done, self.since, self.waiting = self.done[-1:], 0, {}

    def _first_element(self, x: str) -> str:
        flat = self._node("Reshape", [x, self._constant("flat", np.array([-1]))], f"{x}/flat")
        first, end = self._constant("zero", np.array([0])), self._constant("one", np.array([1]))
        element = self._node("Slice", [flat, first, end, first], f"{x}/first")
        if self.tape.tensors[x].dtype == TensorProto.FLOAT:
            return element
        return self._node("Cast", [element], f"{x}/first", to=TensorProto.FLOAT)

    def _constant(self, name: str, value: Any) -> str:
        if name not in self.constants:
            self.constants[name] = unique(f"again/{name}", self.taken)
            array = numpy_helper.from_array(value.astype(np.int64), self.constants[name])
            outputs = [self.constants[name]]
            self.nodes.append(helper.make_node("Constant", [], outputs, name=outputs[0], value=array))
        return self.constants[name]

    def _node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        output = unique(name, self.taken)
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output
