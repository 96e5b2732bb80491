"""Branches and loops: If, Loop and Scan. Their bodies can use all values of the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size
from stopgrad.engines.onnxruntime.nodes.forms.cumulative import scanned
from stopgrad.engines.onnxruntime.nodes.known import content
from stopgrad.engines.onnxruntime.nodes.layouts import producer
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.values import Value
from stopgrad.graph.body import Body
from stopgrad.graph.interpreter import RunBody, Types
from stopgrad.graph.op import Op
from stopgrad.transforms.control.branches import Case
from stopgrad.transforms.control.loops import While
from stopgrad.transforms.control.scans import Scan

_BOOL, _INT64 = np.dtype(bool), np.dtype(np.int64)


def _results(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _kinds(types: Sequence[Any]) -> list[Any]:
    return [(t.dtype.numpy, t.shape) for t in types]


def _case(
    xp: Writing,
    index: Array,
    *operands: Array,
    branches: Sequence[Body],
    run: RunBody,
    types: Types,
) -> Any:
    """A binary search for the branch: each If halves the branches that are left.

    A known branch is written in its place: ONNX Runtime 1.32 crashes on some Ifs with constant conditions.
    """
    known_index = content(xp.nodes, index)
    if known_index is not None:
        return _results(run(branches[min(max(int(known_index), 0), len(branches) - 1)], operands))
    kinds = _kinds(types.outputs)

    def among(low: int, high: int) -> Sequence[Any]:
        if high - low == 1:
            results: Sequence[Any] = run(branches[low], operands)
            return results
        middle = (low + high) // 2
        later = _condition(xp, index) if len(branches) == 2 else None
        later = xp.greater_equal(index, np.int32(middle)) if later is None else later
        return xp.write(
            "If",
            [later],
            kinds,
            then_branch=xp.body([], lambda: among(middle, high)),
            else_branch=xp.body([], lambda: among(low, middle)),
        )

    return _results(among(0, len(branches)))


def _condition(xp: Writing, index: Array) -> Any:
    """The boolean that was cast to the number of a branch; None if there was none."""
    node = producer(xp, index)
    if node is None or node.op_type != "Cast" or xp.nodes.types[node.inputs[0]] != (_BOOL, ()):
        return None
    return Value(xp, node.inputs[0], _BOOL, ())


def _while(
    xp: Writing, *operands: Array, condition: Body, body: Body, limit: int, run: RunBody, types: Types
) -> Any:
    """A Loop whose body computes at its end whether there is another round."""
    count = len(types.outputs)
    rest, kinds = operands[count:], _kinds(types.outputs)

    def step(number: Array, holds: Array, *carry: Array) -> list[Any]:
        after = run(body, [*carry, *rest])
        return [run(condition, [*after, *rest])[0], *after]

    first = [xp.value(x) for x in operands[:count]]
    holds = run(condition, [*first, *rest])[0]
    most = None if limit < 0 else np.asarray(limit, np.int64)
    inner = xp.body([(_INT64, ()), (_BOOL, ()), *kinds], step)
    return _results(xp.write("Loop", [most, holds, *first], kinds, body=inner))


def _scan(
    xp: Writing,
    *operands: Array,
    body: Body,
    carries: int,
    sequences: int,
    length: Size,
    reverse: bool,
    unroll: int,
    run: RunBody,
    types: Types,
) -> Any:
    """A Scan. One without sequences gets a range that it does not read, for the number of steps."""
    first, parts = operands[:carries], operands[carries : carries + sequences]
    rest, kinds = operands[carries + sequences :], _kinds(types.outputs[carries:])
    if length == 0:
        return _results([*first, *(xp.zeros(shape, dtype) for dtype, shape in kinds)])

    def step(*carry_and_slices: Array) -> Sequence[Any]:
        results: Sequence[Any] = run(body, [*carry_and_slices[: carries + sequences], *rest])
        return results

    return _results(scanned(xp, step, first, parts or [xp.arange(length)], kinds, 0, reverse))


CONTROL: Mapping[type[Op], Callable[..., Any]] = {Case: _case, While: _while, Scan: _scan}
