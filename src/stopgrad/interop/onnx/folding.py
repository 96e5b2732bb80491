"""Folds computations of shapes while the graph is built, on numbers and on symbolic sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import at_least
from stopgrad.base.types import Size
from stopgrad.graph.interpreter import interpret
from stopgrad.interop.onnx.operators.calling import KNOWS, Body, Call, Known, Refused, Rule, dtype_of_code
from stopgrad.interop.onnx.sizing import settled
from stopgrad.interop.shared.conversions import Number

LARGEST = 2**14
"""The most elements of an array that is computed while a graph is built."""


def folded(node: Call, operands: Sequence[Any], rule: Rule) -> Sequence[Known] | None:
    """The results of a node if they can be computed while the graph is built; else None."""
    if not operands or not all(x is None or _is_small(x) for x in operands):
        return None
    if any(x is not None and x.is_symbolic for x in operands):
        fold = FOLDS.get(node.op_type) if not node.domain else None
        return None if fold is None else _symbolic(node, fold, operands)
    if any(isinstance(x, (Body, list)) for x in node.attributes.values() if _holds_bodies(x)):
        return None
    return _computed(node, operands, rule)


def _holds_bodies(x: object) -> bool:
    return isinstance(x, Body) or (isinstance(x, list) and bool(x) and isinstance(x[0], Body))


def _is_small(x: object) -> bool:
    return isinstance(x, Known) and not x.initializer and x.dtype is not None and x.array.size <= LARGEST


def _computed(node: Call, operands: Sequence[Any], rule: Rule) -> Sequence[Known] | None:
    """The results of a node for numbers: built in a graph of its own, and computed if that stays small."""
    knows = KNOWS.get(rule, frozenset())
    graph = sg.Graph()
    with graph.as_default():
        node._given = [
            x if x is None or i in knows else sg.constant(x.array, x.dtype) for i, x in enumerate(operands)
        ]
        try:
            made = rule(node, *node._given)
        except (Refused, sg.StopgradError):  # Building the node meets the same error again, and reports it.
            return None
        results = list(made) if isinstance(made, tuple) else [made]
        built = [y for y in results if isinstance(y, sg.Output)]
        if any(not isinstance(y, (sg.Output, Known)) for y in results):
            return None
        if any(not _is_plain(op) for op in graph.subgraph_to(built)):
            return None
    values = iter(interpret(built, {}) if built else [])
    return [y if isinstance(y, Known) else Known(np.asarray(next(values)), y.dtype) for y in results]


def _is_plain(op: sg.Operation) -> bool:
    """Whether an operation can be computed at once, and is small."""
    if op.definition.fed or op.definition.stateful:
        return False
    return all(
        all(isinstance(size, int) for size in y.shape) and math.prod(y.shape) <= LARGEST for y in op.outputs
    )


# ----------------------------------------------------------------------------------------------- symbolic


class _Unknown(Exception):  # noqa: N818 - says that nothing is folded
    """The result for symbolic sizes is no size."""


def _symbolic(node: Call, fold: Callable[..., Any], operands: Sequence[Any]) -> Sequence[Known] | None:
    """The results of a node for symbolic sizes, if they are sizes again."""
    arrays = [None if x is None else x.array for x in operands]
    try:
        found = fold(node, *arrays)
    except (_Unknown, sg.StopgradError, ZeroDivisionError, TypeError, ValueError, IndexError):
        return None  # The operand becomes a tensor, and the rule says what is wrong.
    kind = next(x.dtype for x in operands if x is not None and (x.is_symbolic or node.op_type != "Where"))
    if node.op_type == "Cast":
        kind = dtype_of_code(node.attribute("to"))
    made = [settled(y, kind) for y in (found if isinstance(found, list) else [found])]
    return made if all(y.array.size <= LARGEST for y in made) else None


def _each(function: Callable[..., Any]) -> Any:
    """A fold that applies a function to each element."""
    apply = np.frompyfunc(lambda *xs: function(*map(_whole, xs)), 2, 1)
    return lambda node, x, y: apply(x.astype(object), y.astype(object))


def _whole(x: Number) -> Any:
    """A number as an integer, as computations of sizes need it."""
    if isinstance(x, (sg.Dim, bool)) or not isinstance(x, (float, np.floating)):
        return x
    if not float(x).is_integer():
        raise _Unknown
    return int(x)


def _quotient(a: Size, b: Size) -> Any:
    """Truncating division of integers; for sizes, which are not negative, it is ``//``."""
    if not (_is_natural(a) and _is_natural(b)):
        raise _Unknown
    return a // b


def _remainder(a: Size, b: Size) -> Any:
    if not (_is_natural(a) and _is_natural(b)):
        raise _Unknown
    return a % b


def _is_natural(x: Size) -> bool:
    return bool(x.is_at_least(0)) if isinstance(x, sg.Dim) else x >= 0


def _divided(node: Call, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
    kinds = {a.dtype.kind for a in (x, y)}
    if "f" in kinds:  # The quotient of floats may be no integer.
        raise _Unknown
    return _each(_quotient)(node, x, y)


def _larger(a: Size, b: Size) -> Any:
    if isinstance(a, sg.Dim):
        if isinstance(b, sg.Dim):
            return a if a >= b else b  # The comparison raises if the order is not known.
        return at_least(a, b)
    return at_least(b, a) if isinstance(b, sg.Dim) else max(a, b)


def _smaller(a: Size, b: Size) -> Any:
    return a if a <= b else b


def _equals(a: Size, b: Size) -> bool:
    if a is b or (not isinstance(a, sg.Dim) and not isinstance(b, sg.Dim) and a == b):
        return True
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    if difference.is_at_least(1) or (-difference).is_at_least(1):
        return False
    raise _Unknown


def _many(pair: Callable[..., Any]) -> Any:
    """A fold of any number of operands, from a function of two."""

    def fold(node: Call, first: np.ndarray[Any, Any], *more: np.ndarray[Any, Any]) -> Any:
        found = first
        for x in more:
            found = _each(pair)(node, found, np.asarray(x))
        return found

    return fold


def _chosen(
    node: Call, condition: np.ndarray[Any, Any], x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]
) -> Any:
    if condition.dtype.kind == "O":
        raise _Unknown
    return np.where(condition, x.astype(object), y.astype(object))


def _gather(node: Call, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> Any:
    return np.take(x, indices.astype(np.int64), axis=node.attribute("axis", 0))


def _slice(
    node: Call,
    x: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    ends: np.ndarray[Any, Any],
    axes: np.ndarray[Any, Any] | None = None,
    steps: np.ndarray[Any, Any] | None = None,
) -> Any:
    axes = np.arange(len(starts)) if axes is None else axes
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    at: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = int(end)
        if step < 0 and stop < -x.shape[axis]:
            at[axis] = slice(int(start), None, int(step))
        else:
            at[axis] = slice(int(start), stop, int(step))
    return x[tuple(at)]


def _split(node: Call, x: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any] | None = None) -> list[Any]:
    size = x.shape[node.attribute("axis", 0)]
    step = -(-size // node.attribute("num_outputs", node.outputs))
    ends = np.cumsum(lengths)[:-1] if lengths is not None else np.arange(step, size, step)
    return np.split(x, ends.astype(np.int64), axis=node.attribute("axis", 0))


def _concat(node: Call, *xs: np.ndarray[Any, Any]) -> Any:
    return np.concatenate([x.astype(object) for x in xs], axis=node.attribute("axis"))


def _unsqueeze(node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any]) -> Any:
    return np.expand_dims(x, tuple(axes.reshape(-1).tolist()))


def _squeeze(node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any] | None = None) -> Any:
    return np.squeeze(x, None if axes is None else tuple(axes.reshape(-1).tolist()))


def _reshape(node: Call, x: np.ndarray[Any, Any], shape: np.ndarray[Any, Any]) -> Any:
    sizes = [x.shape[i] if s == 0 and not node.attribute("allowzero", 0) else s for i, s in enumerate(shape)]
    return x.reshape(sizes)


def _expand(node: Call, x: np.ndarray[Any, Any], shape: np.ndarray[Any, Any]) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, shape))))


def _reduced(pair: Callable[..., Any]) -> Any:
    def fold(node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any] | None = None) -> Any:
        given = node.attribute("axes") if axes is None else axes.reshape(-1).tolist()
        if x.ndim != 1 or (given and list(given) not in ([0], [-1])) or not len(x):
            raise _Unknown
        if not given and node.attribute("noop_with_empty_axes", 0):
            return x
        found = x[0]
        for one in x[1:]:
            found = pair(found, one)
        array = np.empty(1, object)
        array[0] = found
        return array if node.attribute("keepdims", 1) else array[0]

    return fold


def _cast(node: Call, x: np.ndarray[Any, Any]) -> Any:
    kind = dtype_of_code(node.attribute("to"))
    if kind is None or kind.is_bool or kind.is_complex:
        raise _Unknown
    return x


def _scatter(
    node: Call, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any]
) -> Any:
    axis = node.attribute("axis", 0)
    if x.ndim != 1 or axis not in (0, -1) or node.attribute("reduction", "none") != "none":
        raise _Unknown
    found = x.astype(object)
    found[indices.reshape(-1).astype(np.int64)] = updates.reshape(-1)
    return found


def _scatter_nd(
    node: Call, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any]
) -> Any:
    return _scatter(node, x, indices, updates)


def _same(node: Call, x: np.ndarray[Any, Any], *_: object) -> Any:
    return x


def _not_negative(node: Call, x: np.ndarray[Any, Any]) -> Any:
    if not all(_is_natural(one) for one in x.reshape(-1).tolist()):
        raise _Unknown
    return x


FOLDS: dict[str, Any] = {
    "Identity": _same,
    "Cast": _cast,
    "Floor": _same,
    "Ceil": _same,
    "Round": _same,
    "Abs": _not_negative,
    "Relu": _not_negative,
    "Neg": lambda node, x: _each(operator.mul)(node, x, np.asarray(-1)),
    "Add": _each(operator.add),
    "Sub": _each(operator.sub),
    "Mul": _each(operator.mul),
    "Div": _divided,
    "Mod": _each(_remainder),
    "Max": _many(_larger),
    "Min": _many(_smaller),
    "Sum": _many(operator.add),
    "Equal": _each(_equals),
    "Less": _each(operator.lt),
    "LessOrEqual": _each(operator.le),
    "Greater": _each(operator.gt),
    "GreaterOrEqual": _each(operator.ge),
    "Where": _chosen,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Expand": _expand,
    "ReduceProd": _reduced(operator.mul),
    "ReduceSum": _reduced(operator.add),
    "ReduceMax": _reduced(_larger),
    "ReduceMin": _reduced(_smaller),
    "ScatterElements": _scatter,
    "ScatterND": _scatter_nd,
}
"""What operators do with symbolic sizes in object arrays; other operators are built as tensors."""
