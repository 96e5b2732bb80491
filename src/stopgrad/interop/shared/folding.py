"""Folds computations of shapes while a graph is built, on numbers and on symbolic sizes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.sizes import Dim, at_least
from stopgrad.base.types import DType, Size
from stopgrad.graph.interpreter import interpret
from stopgrad.interop.shared.calling import Call, Known, Rule, known_positions
from stopgrad.interop.shared.conversions import Number, Refused
from stopgrad.interop.shared.sizing import settled

LARGEST = 2**14
"""The most elements of an array that is computed while a graph is built."""


def is_small(x: object) -> bool:
    return isinstance(x, Known) and not x.initializer and x.dtype is not None and x.array.size <= LARGEST


def computed(node: Call, operands: Sequence[Any], rule: Rule) -> Sequence[Any] | None:
    """The results of a node for numbers: built in a graph of its own, and computed if that stays small."""
    knows = known_positions(rule, len(operands))
    graph = sg.Graph()
    with graph.as_default():
        node._operands = [
            x if x is None or i in knows else sg.constant(x.array, x.dtype) for i, x in enumerate(operands)
        ]
        try:
            result = rule(node, *node._operands)
        except (Refused, sg.StopgradError):  # Building the node meets the same error again, and reports it.
            return None
        results = list(result) if isinstance(result, tuple) else [result]
        built = [y for y in results if isinstance(y, sg.Output)]
        if any(not isinstance(y, (sg.Output, Known, type(None))) for y in results):
            return None
        if any(y.op.graph is not graph for y in built):  # It draws, with the model's random key.
            return None
        if any(not _is_plain(op) for op in graph.subgraph_to(built)):
            return None
    values = iter(interpret(built, {}) if built else [])
    return [Known(np.asarray(next(values)), y.dtype) if isinstance(y, sg.Output) else y for y in results]


def _is_plain(op: sg.Operation) -> bool:
    """Whether an operation can be computed at once, and is small."""
    if op.definition.fed or op.definition.stateful:
        return False
    return all(
        all(isinstance(size, int) for size in y.shape) and math.prod(y.shape) <= LARGEST for y in op.outputs
    )


# ----------------------------------------------------------------------------------------------- symbolic


Fold = Callable[..., np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]]
"""What a node makes of arrays of sizes."""


class Unknown(Exception):  # noqa: N818 - says that nothing is folded
    """The result for symbolic sizes is no size."""


def symbolic(node: Call, fold: Fold, operands: Sequence[Any], dtype: DType | None) -> Sequence[Known] | None:
    """The results of a node for symbolic sizes, if they are sizes again."""
    if dtype is None:
        return None
    arrays = [None if x is None else x.array for x in operands]
    try:
        folded = fold(node, *arrays)
    except (Unknown, sg.StopgradError, ZeroDivisionError, TypeError, ValueError, IndexError):
        return None  # The operand becomes a tensor, and the rule says what is wrong.
    values = [settled(y, dtype) for y in (folded if isinstance(folded, list) else [folded])]
    return values if all(y.array.size <= LARGEST for y in values) else None


def each(function: Callable[..., object]) -> Callable[..., np.ndarray[Any, Any]]:
    """A fold that applies a function to each element."""
    apply = np.frompyfunc(lambda *xs: function(*map(whole, xs)), 2, 1)
    return lambda node, x, y: apply(x.astype(object), y.astype(object))


def whole(x: Number) -> Dim | bool | complex | int:
    """A number as an integer, as computations of sizes need it."""
    if isinstance(x, (sg.Dim, bool)) or not isinstance(x, (float, np.floating)):
        return x
    if not float(x).is_integer():
        raise Unknown
    return int(x)


def quotient(a: Size, b: Size) -> Size:
    """Truncating division of integers; for sizes, which are not negative, it is ``//``."""
    if not (is_natural(a) and is_natural(b)):
        raise Unknown
    return a // b


def remainder(a: Size, b: Size) -> Size:
    if not (is_natural(a) and is_natural(b)):
        raise Unknown
    return a % b


def is_natural(x: Size) -> bool:
    return bool(x.is_at_least(0)) if isinstance(x, sg.Dim) else x >= 0


def larger(a: Size, b: Size) -> Dim | int:
    if isinstance(a, sg.Dim):
        if isinstance(b, sg.Dim):
            return a if a >= b else b  # The comparison raises if the order is not known.
        return at_least(a, b)
    return at_least(b, a) if isinstance(b, sg.Dim) else max(a, b)


def smaller(a: Size, b: Size) -> int | Dim:
    return a if a <= b else b


def equals(a: Size, b: Size) -> bool:
    if a is b or (not isinstance(a, sg.Dim) and not isinstance(b, sg.Dim) and a == b):
        return True
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    if difference.is_at_least(1) or (-difference).is_at_least(1):
        return False
    raise Unknown


def divided(node: Call, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
    kinds = {a.dtype.kind for a in (x, y)}
    if "f" in kinds:  # The quotient of floats may be no integer.
        raise Unknown
    return each(quotient)(node, x, y)


def many(pair: Callable[..., Any]) -> Any:
    """A fold of any number of operands, from a function of two."""

    def fold(node: Call, first: np.ndarray[Any, Any], *more: np.ndarray[Any, Any]) -> Any:
        folded = first
        for x in more:
            folded = each(pair)(node, folded, np.asarray(x))
        return folded

    return fold


def chosen(
    node: Call, condition: np.ndarray[Any, Any], x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    if condition.dtype.kind == "O":
        raise Unknown
    return np.where(condition, x.astype(object), y.astype(object))


def numbers_as(x: np.ndarray[Any, Any], dtype: DType | None) -> np.ndarray[Any, Any]:
    """Sizes cast to an element type, which must be one of numbers."""
    if dtype is None or dtype.is_bool or dtype.is_complex:
        raise Unknown
    return x


def updated(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """A vector with other elements at these places."""
    if x.ndim != 1:
        raise Unknown
    changed = x.astype(object)
    changed[indices.reshape(-1).astype(np.int64)] = updates.reshape(-1)
    return changed


def reduced(
    pair: Callable[[Any, Any], Any], x: np.ndarray[Any, Any], axes: Sequence[int], keeps: bool
) -> np.ndarray[Any, Any]:
    """The elements of a vector made one by a function of two."""
    if x.ndim != 1 or not len(x) or list(axes) not in ([0], [-1]):
        raise Unknown
    array = np.empty(1, object)
    array[0] = functools.reduce(pair, x)
    return array if keeps else array.reshape(())


def same(node: Call, x: np.ndarray[Any, Any], *_: object) -> np.ndarray[Any, Any]:
    """What a node makes of sizes that it does not change."""
    return x


def not_negative(node: Call, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a node makes of sizes that it does not change unless they are negative."""
    if not all(is_natural(one) for one in x.reshape(-1).tolist()):
        raise Unknown
    return x


COMMON: dict[str, Fold] = {
    "Identity": same,
    "Abs": not_negative,
    "Relu": not_negative,
    "Neg": lambda node, x: each(operator.mul)(node, x, np.asarray(-1)),
    "Add": each(operator.add),
    "Sub": each(operator.sub),
    "Mul": each(operator.mul),
    "Div": divided,
    "Mod": each(remainder),
    "Equal": each(equals),
    "Less": each(operator.lt),
    "Greater": each(operator.gt),
}
"""What operators that ONNX and TensorFlow call alike do with symbolic sizes in object arrays."""
