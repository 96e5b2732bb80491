"""Composite operations that are one operator of ONNX, or a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import number
from stopgrad.engines.onnxruntime.nodes.forms.indexing import bounded
from stopgrad.engines.onnxruntime.nodes.kernels import computed_in
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.composite import LayerNorm, LogSoftmax, Softmax
from stopgrad.ops.losses.cross_entropy import (
    SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits,
)
from stopgrad.ops.neural.activations import Elu, Gelu, LeakyRelu, Relu, Relu6, Sigmoid, Silu
from stopgrad.ops.neural.units import Softsign
from stopgrad.ops.reductions.reduce import Mean

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_LONG = 2048
"""For longer rows, operators are written out: runtimes add a row's numbers one by one in float32."""


def _is_long(sizes: Sequence[Size]) -> bool:
    return is_known(sizes) and math.prod(sizes) > _LONG


def _softmax(xp: Writing, x: Array, *, axis: tuple[int, ...]) -> Any:
    if len(axis) != 1 or _is_long([x.shape[axis[0]]]):
        return Softmax.lower(xp, x, axis=axis)
    return xp.node("Softmax", [x], x.dtype, x.shape, axis=axis[0])


def _log_softmax(xp: Writing, x: Array, *, axis: tuple[int, ...]) -> Any:
    """Not for float64, for which the runtime's operator gets infinities wrong."""
    if len(axis) != 1 or _is_long([x.shape[axis[0]]]) or x.dtype == _FLOAT64:
        return LogSoftmax.lower(xp, x, axis=axis)
    return xp.node("LogSoftmax", [x], x.dtype, x.shape, axis=axis[0])


def _layer_norm(xp: Writing, x: Array, *, axis: tuple[int, ...], epsilon: float) -> Any:
    """LayerNormalization over the last axes. Scale and offset are operations of their own."""
    first = min(axis, default=0)
    last = tuple(range(first, x.ndim))
    sizes = x.shape[first:]
    rounded = x.dtype == _FLOAT64 and float(np.float32(epsilon)) != epsilon  # Attributes are float32.
    if (
        tuple(sorted(axis)) != last
        or not is_known(sizes)
        or not math.prod(sizes)
        or rounded
        or _is_long(sizes)
    ):
        return LayerNorm.lower(xp, x, axis=axis, epsilon=epsilon)
    ones = np.ones(sizes, x.dtype)
    return xp.node("LayerNormalization", [x, ones], x.dtype, x.shape, axis=first, epsilon=epsilon)


def _mean(xp: Writing, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """ReduceMean where the number of elements is known: of none, its result is 0 instead of NaN."""
    sizes = [x.shape[a] for a in axis]
    if x.dtype not in (_FLOAT32, _FLOAT64) or not is_known(sizes) or not math.prod(sizes):
        return Mean.lower(xp, x, axis=axis, keepdims=keepdims)
    return xp.mean(x, axis=axis, keepdims=keepdims)


# ---------------------------------------------------------------------------------------------- losses


def _sparse_cross_entropy(xp: Writing, labels: Array, logits: Array) -> Any:
    """Minus the log-probability of the label's class; NaN where the label is no class."""
    axis = logits.ndim - 1
    logs = _log_softmax(xp, logits, axis=(axis,))
    clipped, inside = bounded(xp, labels, logits.shape[axis])
    chosen = xp.node(
        "GatherElements", [logs, xp.expand_dims(clipped, axis)], logits.dtype, (*clipped.shape, 1), axis=axis
    )
    losses = xp.negative(xp.squeeze(chosen, axis))
    return losses if inside is None else xp.where(inside, losses, number(math.nan, logits.dtype))


def _cross_entropy(xp: Writing, labels: Array, logits: Array, *, axis: int) -> Any:
    terms = xp.multiply(labels, _log_softmax(xp, logits, axis=(axis,)))
    zero = number(0, labels.dtype)
    return xp.negative(xp.sum(xp.where(xp.equal(labels, zero), zero, terms), axis=axis, dtype=labels.dtype))


# ----------------------------------------------------------------------------------------- activations


def _unary(xp: Writing, op_type: str, x: Array, **attributes: object) -> Any:
    within = computed_in(op_type, np.dtype(x.dtype))
    return xp.astype(xp.node(op_type, [xp.value(x, within)], within, x.shape, **attributes), x.dtype)


def _in_float32(
    definition: type[Elu | LeakyRelu | Softsign], op_type: str, opset: int = 1
) -> Callable[..., Any]:
    """The form by an operator that runtimes have for float32 only. Other dtypes get the usual lowering."""

    def form(xp: Writing, x: Array, **attributes: object) -> Any:
        if x.dtype != _FLOAT32:
            return definition.lower(xp, x, **attributes)
        return xp.node(op_type, [x], x.dtype, x.shape, **attributes)

    return form


def _relu(xp: Writing, x: Array) -> Any:
    return _unary(xp, "Relu", x) if x.dtype.kind not in "iu" else xp.maximum(x, number(0, x.dtype))


def _relu6(xp: Writing, x: Array) -> Any:
    return xp.minimum(xp.maximum(x, number(0, x.dtype)), number(6, x.dtype))


def _sigmoid(xp: Writing, x: Array) -> Any:
    """The usual lowering for float64: the operator has an absolute error of 10⁻¹⁶, and is 0 below -40."""
    return Sigmoid.lower(xp, x) if x.dtype == _FLOAT64 else _unary(xp, "Sigmoid", x)


def _silu(xp: Writing, x: Array) -> Any:
    """Written out, because onnxruntime 1.31 lacks Swish."""
    return xp.multiply(x, _sigmoid(xp, x))


def _gelu(xp: Writing, x: Array, *, approximate: bool) -> Any:
    if x.dtype != _FLOAT32 or xp.opset < 20:
        return Gelu.lower(xp, x, approximate=approximate)
    attributes = {"approximate": "tanh"} if approximate else {}
    return xp.node("Gelu", [x], x.dtype, x.shape, **attributes)


COMPOSITES: Mapping[type[Op], Callable[..., Any]] = {
    Softmax: _softmax,
    LogSoftmax: _log_softmax,
    LayerNorm: _layer_norm,
    Mean: _mean,
    SparseSoftmaxCrossEntropyWithLogits: _sparse_cross_entropy,
    SoftmaxCrossEntropyWithLogits: _cross_entropy,
    Relu: _relu,
    Relu6: _relu6,
    Sigmoid: _sigmoid,
    Silu: _silu,
    Elu: _in_float32(Elu, "Elu"),
    LeakyRelu: _in_float32(LeakyRelu, "LeakyRelu"),
    Softsign: _in_float32(Softsign, "Softsign"),
    Gelu: _gelu,
}
