"""Loops and branches as ``StatelessWhile`` and ``StatelessCase`` of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, Shape
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation
from stopgrad.interop.tensorflow.writing.function_defs import (
    function_attribute,
    one_function,
    types_attribute,
)
from stopgrad.interop.tensorflow.writing.graph_def_nodes import NUMBERS, Nodes
from stopgrad.interop.tensorflow.writing.node_rules import scalar

_VARIANT = 21
"""The number of the element type of lists."""


class State(NamedTuple):
    """The type of an argument or result of a function; lists have no dtype."""

    dtype: DType | None
    shape: Shape

    @property
    def number(self) -> int:
        return _VARIANT if self.dtype is None else NUMBERS[self.dtype]


class Writing(Protocol):
    """What writing control flow asks of the graph around."""

    nodes: Nodes

    def function(
        self,
        role: str,
        takes: Sequence[State],
        returns: Sequence[State],
        build: Callable[[Any, list[str]], list[str]],
    ) -> str: ...
    def body(self, body: Body, arguments: Sequence[str]) -> list[str]: ...


def _states(outputs: Sequence[Any]) -> list[State]:
    return [State(x.dtype, x.shape) for x in outputs]


_COUNT = State(sg.int32, ())
_TRUTH = State(sg.bool_, ())


def case(writing: Writing, op: Operation, xs: list[str]) -> list[str]:
    """One of several bodies."""
    takes, returns = _states(op.inputs[1:]), _states(op.outputs)

    def build(branch: Body) -> Callable[[Any, list[str]], list[str]]:
        return lambda inner, arguments: inner.body(branch, arguments)

    names = [
        writing.function(f"branch_{i}", takes, returns, build(branch)) for i, branch in enumerate(op.branches)
    ]
    nodes = writing.nodes
    # TensorFlow takes the last body for every index that is none, and we the first for negative ones.
    index = nodes.add("Maximum", [xs[0], nodes.constant(np.int32(0))], T=sg.int32)
    node = nodes.add(
        "StatelessCase",
        [index, *xs[1:]],
        Tin=types_attribute([state.number for state in takes]),
        Tout=types_attribute([state.number for state in returns]),
        branches=function_attribute(*names),
    )
    return _results(node, range(len(returns)))


def _results(name: str, places: Sequence[int]) -> list[str]:
    return [name if not i else f"{name}:{i}" for i in places]


def _loop(
    writing: Writing,
    states: Sequence[State],
    first: Sequence[str],
    condition: Callable[[Any, list[str]], list[str]],
    step: Callable[[Any, list[str]], list[str]],
) -> str:
    condition_name = writing.function("condition", states, [_TRUTH], condition)
    body = writing.function("body", states, states, step)
    kinds = types_attribute([state.number for state in states])
    return writing.nodes.add(
        "StatelessWhile", first, T=kinds, cond=one_function(condition_name), body=one_function(body)
    )


def repeated(writing: Writing, op: Operation, xs: list[str]) -> list[str]:
    """A loop with a condition. Its first states are the step and the most steps, as in TensorFlow's own."""
    count = len(op.outputs)
    states = [_COUNT, _COUNT, *_states(op.inputs)]

    def going(inner: Any, arguments: list[str]) -> list[str]:
        condition: list[str] = inner.body(op.condition, arguments[2:])
        if op.limit < 0:
            return condition
        less = inner.nodes.add("Less", arguments[:2], T=sg.int32)
        return [inner.nodes.add("LogicalAnd", [less, *condition])]

    def step(inner: Any, arguments: list[str]) -> list[str]:
        results = inner.body(op.body, arguments[2:])
        return [_next(inner.nodes, arguments[0]), arguments[1], *results, *arguments[2 + count :]]

    first = [writing.nodes.constant(np.int32(number)) for number in (0, op.limit)]
    loop = _loop(writing, states, [*first, *xs], going, step)
    return _results(loop, range(2, 2 + count))


def _next(nodes: Nodes, i: str) -> str:
    return nodes.add("AddV2", [i, nodes.constant(np.int32(1))], T=sg.int32)


def scanned(writing: Writing, op: Operation, xs: list[str]) -> list[str]:
    """A scan: the states are the step, their number, the carry, lists for rows, sequences and constants."""
    nodes, carries, rows = writing.nodes, op.carries, op.outputs[op.carries :]
    length = scalar(nodes, op.length, sg.int32)
    shapes = [nodes.shape(y.shape[1:]) for y in rows]
    lists = [
        nodes.add("TensorListReserve", [shape, length], element_dtype=y.dtype, shape_type=sg.int64)
        for y, shape in zip(rows, shapes, strict=True)
    ]
    inputs = _states(op.inputs)
    states = [_COUNT, _COUNT, *inputs[:carries], *[State(None, ()) for _ in rows], *inputs[carries:]]
    first = [nodes.constant(np.int32(0)), length, *xs[:carries], *lists, *xs[carries:]]
    start = 2 + carries

    def going(inner: Any, arguments: list[str]) -> list[str]:
        return [inner.nodes.add("Less", arguments[:2], T=sg.int32)]

    def step(inner: Any, arguments: list[str]) -> list[str]:
        i, count = arguments[:2]
        place = i
        if op.reverse:
            place = inner.nodes.add(
                "Sub", [inner.nodes.add("Sub", [count, i], T=sg.int32), _one(inner)], T=sg.int32
            )
        tensor_lists = arguments[start : start + len(rows)]
        rest = arguments[start + len(rows) :]
        zero = inner.nodes.constant(np.int32(0))
        slices = [
            inner.nodes.add(
                "GatherV2", [x, place, zero], Tparams=kind.dtype, Tindices=sg.int32, Taxis=sg.int32
            )
            for x, kind in zip(rest[: op.sequences], inputs[carries:], strict=False)
        ]
        results = inner.body(op.body, [*arguments[2:start], *slices, *rest[op.sequences :]])
        written = [
            inner.nodes.add("TensorListSetItem", [tensor_list, place, row], element_dtype=y.dtype)
            for tensor_list, row, y in zip(tensor_lists, results[carries:], rows, strict=True)
        ]
        return [_next(inner.nodes, i), count, *results[:carries], *written, *rest]

    loop = _loop(writing, states, first, going, step)
    stacked = [
        nodes.add("TensorListStack", [f"{loop}:{start + k}", shape], element_dtype=y.dtype, num_elements=-1)
        for k, (y, shape) in enumerate(zip(rows, _narrow(nodes, shapes), strict=True))
    ]
    return [*_results(loop, range(2, start)), *stacked]


def _one(inner: Any) -> str:
    constant: str = inner.nodes.constant(np.int32(1))
    return constant


def _narrow(nodes: Nodes, shapes: Sequence[str]) -> list[str]:
    """Sizes as int32, in which lists are stacked."""
    return [nodes.add("Cast", [shape], SrcT=sg.int64, DstT=sg.int32) for shape in shapes]


CONTROL: dict[str, Callable[[Writing, Operation, list[str]], list[str]]] = {
    "Case": case,
    "While": repeated,
    "Scan": scanned,
}
