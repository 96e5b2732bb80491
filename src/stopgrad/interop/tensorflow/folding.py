"""Folds computations of shapes in TensorFlow's operations, on numbers and on symbolic sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import DType
from stopgrad.interop.shared.folding import (
    COMMON,
    Unknown,
    chosen,
    computed,
    each,
    equals,
    is_small,
    larger,
    many,
    numbers_as,
    quotient,
    reduced,
    remainder,
    smaller,
    symbolic,
    updated,
)
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule

Array = np.ndarray[Any, Any]


def folded(node: Call, operands: Sequence[Any], rule: Rule) -> Sequence[Known] | None:
    """The results of a node if they can be computed while the graph is built; else None."""
    if not operands or not all(map(is_small, operands)):
        return None
    if any(x.is_symbolic for x in operands):
        fold = FOLDS.get(node.op_type)
        return None if fold is None else symbolic(node, fold, operands, _dtype(node, operands))
    return computed(node, operands, rule)


def _dtype(node: Call, operands: Sequence[Known]) -> DType | None:
    """The element type of the results for symbolic sizes."""
    if node.op_type == "Cast":
        to: DType | None = node.attribute("DstT")
        return to
    return next(x.dtype for x in operands if x.is_symbolic)


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _strided(node: Call, x: Array, begin: Array, end: Array, strides: Array) -> np.ndarray[Any, Any]:
    index: list[Any] = []
    for i, (first, last, step) in enumerate(zip(begin, end, map(int, strides), strict=True)):
        no_first, no_last, is_ellipsis, is_new, is_single = (
            bool(node.attribute(name, 0) >> i & 1) for name in _MASKS
        )
        if is_ellipsis or is_new:
            index.append(Ellipsis if is_ellipsis else None)
        elif is_single:
            index.append(int(first))
        else:
            index.append(slice(None if no_first else int(first), None if no_last else int(last), step))
    return x[tuple(index)]


def _padded(node: Call, x: Array, pairs: Array, value: Array | None = None) -> np.ndarray[Any, Any]:
    around = [(int(before), int(after)) for before, after in pairs]
    return np.pad(x.astype(object), around, constant_values=0 if value is None else value.item())


def _slice(node: Call, x: Array, begin: Array, size: Array) -> np.ndarray[Any, Any]:
    spans = [slice(int(b), None if s == -1 else int(b) + int(s)) for b, s in zip(begin, size, strict=True)]
    return x[tuple(spans)]


def _gather(node: Call, x: Array, indices: Array, axis: Array | None = None) -> np.ndarray[Any, Any]:
    if node.attribute("batch_dims", 0):
        raise Unknown
    return np.take(x, indices.astype(np.int64), axis=0 if axis is None else int(axis))


def _pack(node: Call, *xs: Array) -> np.ndarray[Any, Any]:
    return np.stack([x.astype(object) for x in xs], axis=node.attribute("axis", 0))


def _concat(node: Call, *xs: Array) -> np.ndarray[Any, Any]:
    return np.concatenate([x.astype(object) for x in xs[:-1]], axis=int(xs[-1]))


def _unpack(node: Call, x: Array) -> list[Any]:
    axis = node.attribute("axis", 0)
    return [np.take(x, i, axis=axis) for i in range(x.shape[axis])]


def _split(node: Call, axis: Array, x: Array) -> list[np.ndarray[Any, Any]]:
    return np.split(x, node.attribute("num_split"), axis=int(axis))


def _reduced(pair: Callable[..., Any]) -> Any:
    def fold(node: Call, x: Array, axes: Array) -> np.ndarray[Any, Any]:
        return reduced(pair, x, axes.reshape(-1).tolist(), node.attribute("keep_dims", False))

    return fold


def _reshape(node: Call, x: Array, shape: Array) -> np.ndarray[Any, Any]:
    return x.reshape([int(size) for size in shape])


def _squeeze(node: Call, x: Array) -> np.ndarray[Any, Any]:
    axes = node.attribute("squeeze_dims") or None
    return np.squeeze(x, None if axes is None else tuple(axes))


FOLDS: dict[str, Any] = {
    **COMMON,
    "Cast": lambda node, x: numbers_as(x, node.attribute("DstT")),
    "AddV2": each(operator.add),
    "AddN": many(operator.add),
    "FloorDiv": each(operator.floordiv),
    "TruncateDiv": each(quotient),
    "FloorMod": each(operator.mod),
    "TruncateMod": each(remainder),
    "Maximum": each(larger),
    "Minimum": each(smaller),
    "NotEqual": each(lambda a, b: not equals(a, b)),
    "LessEqual": each(operator.le),
    "GreaterEqual": each(operator.ge),
    "Select": chosen,
    "SelectV2": chosen,
    "Gather": _gather,
    "GatherV2": _gather,
    "StridedSlice": _strided,
    "Slice": _slice,
    "Pad": _padded,
    "PadV2": _padded,
    "Split": _split,
    "Unpack": _unpack,
    "Pack": _pack,
    "ConcatV2": _concat,
    "ExpandDims": lambda node, x, axis: np.expand_dims(x, int(axis)),
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Prod": _reduced(operator.mul),
    "Sum": _reduced(operator.add),
    "Max": _reduced(larger),
    "Min": _reduced(smaller),
    "TensorScatterUpdate": lambda node, x, indices, updates: updated(x, indices, updates),
}
"""What operations do with symbolic sizes in object arrays; other operations are built as tensors."""
