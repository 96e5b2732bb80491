"""Folds computations of shapes in TensorFlow's operations, on numbers and on symbolic sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import DType
from stopgrad.interop.shared.folding import (
    Unknown,
    chosen,
    computed,
    divided,
    each,
    equals,
    is_small,
    larger,
    many,
    not_negative,
    quotient,
    remainder,
    same,
    smaller,
    symbolic,
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


def _strided(node: Call, x: Array, begin: Array, end: Array, strides: Array) -> Any:
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


def _padded(node: Call, x: Array, pairs: Array, value: Array | None = None) -> Any:
    around = [(int(before), int(after)) for before, after in pairs]
    return np.pad(x.astype(object), around, constant_values=0 if value is None else value.item())


def _slice(node: Call, x: Array, begin: Array, size: Array) -> Any:
    spans = [slice(int(b), None if s == -1 else int(b) + int(s)) for b, s in zip(begin, size, strict=True)]
    return x[tuple(spans)]


def _gather(node: Call, x: Array, indices: Array, axis: Array | None = None) -> Any:
    if node.attribute("batch_dims", 0):
        raise Unknown
    return np.take(x, indices.astype(np.int64), axis=0 if axis is None else int(axis))


def _pack(node: Call, *xs: Array) -> Any:
    return np.stack([x.astype(object) for x in xs], axis=node.attribute("axis", 0))


def _concat(node: Call, *xs: Array) -> Any:
    return np.concatenate([x.astype(object) for x in xs[:-1]], axis=int(xs[-1]))


def _unpack(node: Call, x: Array) -> Any:
    axis = node.attribute("axis", 0)
    return [np.take(x, i, axis=axis) for i in range(x.shape[axis])]


def _split(node: Call, axis: Array, x: Array) -> Any:
    return np.split(x, node.attribute("num_split"), axis=int(axis))


def _reduced(pair: Callable[..., Any]) -> Any:
    def fold(node: Call, x: Array, axes: Array) -> Any:
        if x.ndim != 1 or not len(x) or axes.reshape(-1).tolist() not in ([0], [-1]):
            raise Unknown
        folded = x[0]
        for size in x[1:]:
            folded = pair(folded, size)
        array = np.empty(1, object)
        array[0] = folded
        return array if node.attribute("keep_dims", False) else array.reshape(())

    return fold


def _cast(node: Call, x: Array) -> Any:
    to = node.attribute("DstT")
    if to is None or to.is_bool or to.is_complex:
        raise Unknown
    return x


def _reshape(node: Call, x: Array, shape: Array) -> Any:
    return x.reshape([int(size) for size in shape])


def _squeeze(node: Call, x: Array) -> Any:
    axes = node.attribute("squeeze_dims") or None
    return np.squeeze(x, None if axes is None else tuple(axes))


def _updated(node: Call, x: Array, indices: Array, updates: Array) -> Any:
    if x.ndim != 1:
        raise Unknown
    updated = x.astype(object)
    updated[indices.reshape(-1).astype(np.int64)] = updates.reshape(-1)
    return updated


FOLDS: dict[str, Any] = {
    "Identity": same,
    "Cast": _cast,
    "Abs": not_negative,
    "Relu": not_negative,
    "Neg": lambda node, x: each(operator.mul)(node, x, np.asarray(-1)),
    "Add": each(operator.add),
    "AddV2": each(operator.add),
    "AddN": many(operator.add),
    "Sub": each(operator.sub),
    "Mul": each(operator.mul),
    "FloorDiv": each(operator.floordiv),
    "TruncateDiv": each(quotient),
    "Div": divided,
    "FloorMod": each(operator.mod),
    "Mod": each(remainder),
    "TruncateMod": each(remainder),
    "Maximum": each(larger),
    "Minimum": each(smaller),
    "Equal": each(equals),
    "NotEqual": each(lambda a, b: not equals(a, b)),
    "Less": each(operator.lt),
    "LessEqual": each(operator.le),
    "Greater": each(operator.gt),
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
    "TensorScatterUpdate": _updated,
}
"""What operations do with symbolic sizes in object arrays; other operations are built as tensors."""
