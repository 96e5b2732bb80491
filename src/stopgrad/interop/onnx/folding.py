"""Folds computations of shapes while the graph is built, on numbers and on symbolic sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import DType
from stopgrad.interop.onnx.operators.calling import Body, Call, Known, Rule, dtype_of_code
from stopgrad.interop.shared.folding import (
    COMMON,
    Fold,
    Unknown,
    chosen,
    computed,
    each,
    is_small,
    larger,
    many,
    numbers_as,
    reduced,
    same,
    smaller,
    symbolic,
    updated,
)


def folded(node: Call, operands: Sequence[Any], rule: Rule) -> Sequence[Known] | None:
    """The results of a node if they can be computed while the graph is built; else None."""
    if node.op_type == "DequantizeLinear":  # Weights stay as small as they are stored.
        return None
    if not operands or not all(x is None or is_small(x) for x in operands):
        return None
    if any(x is not None and x.is_symbolic for x in operands):
        fold = FOLDS.get(node.op_type) if not node.domain else None
        return None if fold is None else symbolic(node, fold, operands, _dtype(node, operands))
    if any(isinstance(x, (Body, list)) for x in node.attributes.values() if _holds_bodies(x)):
        return None
    return computed(node, operands, rule)


def _holds_bodies(x: object) -> bool:
    return isinstance(x, Body) or (isinstance(x, list) and bool(x) and isinstance(x[0], Body))


def _dtype(node: Call, operands: Sequence[Any]) -> DType | None:
    """The element type of the results for symbolic sizes."""
    if node.op_type == "Cast":
        return dtype_of_code(node.attribute("to"))
    symbolic_ones = (x for x in operands if x is not None and (x.is_symbolic or node.op_type != "Where"))
    return next(symbolic_ones).dtype


def _gather(node: Call, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.take(x, indices.astype(np.int64), axis=node.attribute("axis", 0))


def _slice(
    node: Call,
    x: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    ends: np.ndarray[Any, Any],
    axes: np.ndarray[Any, Any] | None = None,
    steps: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    axes = np.arange(len(starts)) if axes is None else axes
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    slices: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = int(end)
        if step < 0 and stop < -x.shape[axis]:
            slices[axis] = slice(int(start), None, int(step))
        else:
            slices[axis] = slice(int(start), stop, int(step))
    return x[tuple(slices)]


def _split(node: Call, x: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any] | None = None) -> list[Any]:
    size = x.shape[node.attribute("axis", 0)]
    step = -(-size // node.attribute("num_outputs", node.outputs))
    ends = np.cumsum(lengths)[:-1] if lengths is not None else np.arange(step, size, step)
    return np.split(x, ends.astype(np.int64), axis=node.attribute("axis", 0))


def _concat(node: Call, *xs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([x.astype(object) for x in xs], axis=node.attribute("axis"))


def _unsqueeze(node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.expand_dims(x, tuple(axes.reshape(-1).tolist()))


def _squeeze(
    node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    return np.squeeze(x, None if axes is None else tuple(axes.reshape(-1).tolist()))


def _reshape(node: Call, x: np.ndarray[Any, Any], shape: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    sizes = [x.shape[i] if s == 0 and not node.attribute("allowzero", 0) else s for i, s in enumerate(shape)]
    return x.reshape(sizes)


def _expand(node: Call, x: np.ndarray[Any, Any], shape: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, shape))))


def _reduced(pair: Callable[..., Any]) -> Any:
    def fold(
        node: Call, x: np.ndarray[Any, Any], axes: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        named = node.attribute("axes") if axes is None else axes.reshape(-1).tolist()
        if not named and node.attribute("noop_with_empty_axes", 0):
            return x
        return reduced(pair, x, named or [0], node.attribute("keepdims", 1))

    return fold


def _scatter(
    node: Call, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], updates: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    if node.attribute("axis", 0) not in (0, -1) or node.attribute("reduction", "none") != "none":
        raise Unknown
    return updated(x, indices, updates)


FOLDS: dict[str, Fold] = {
    **COMMON,
    "Cast": lambda node, x: numbers_as(x, dtype_of_code(node.attribute("to"))),
    "Floor": same,
    "Ceil": same,
    "Round": same,
    "Max": many(larger),
    "Min": many(smaller),
    "Sum": many(operator.add),
    "LessOrEqual": each(operator.le),
    "GreaterOrEqual": each(operator.ge),
    "Where": chosen,
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
    "ReduceMax": _reduced(larger),
    "ReduceMin": _reduced(smaller),
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
}
"""What operators do with symbolic sizes in object arrays; other operators are built as tensors."""
