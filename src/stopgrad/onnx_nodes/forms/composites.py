"""Composite operations that are one operator of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.onnx_nodes.nodes import is_known
from stopgrad.op import Op
from stopgrad.ops.composite import LayerNorm, LogSoftmax, Softmax


def _softmax(definition: type[Op], precise: bool) -> Callable[..., Any]:
    """Along one axis. *precise*: whether the runtime's result is ours for infinities of float64, too."""

    def form(xp: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
        if len(axis) != 1 or (x.dtype == np.float64 and not precise):
            return definition.lower(xp, x, axis=axis)  # type: ignore[operator]
        return xp.node(definition.type, [x], x.dtype, x.shape, axis=axis[0])

    return form


def _layer_norm(xp: Any, x: Any, *, axis: tuple[int, ...], epsilon: float) -> Any:
    """Over the last axes, without scale and offset: these are operations of their own."""
    first = min(axis, default=0)
    last = tuple(range(first, x.ndim))
    if tuple(sorted(axis)) != last or not is_known(x.shape[first:]) or not math.prod(x.shape[first:]):
        return LayerNorm.lower(xp, x, axis=axis, epsilon=epsilon)  # type: ignore[operator]
    ones = np.ones(x.shape[first:], x.dtype)
    return xp.node("LayerNormalization", [x, ones], x.dtype, x.shape, axis=first, epsilon=epsilon)


COMPOSITES: Mapping[type[Op], Callable[..., Any]] = {
    Softmax: _softmax(Softmax, True),
    LogSoftmax: _softmax(LogSoftmax, False),
    LayerNorm: _layer_norm,
}
