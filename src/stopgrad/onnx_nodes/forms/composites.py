"""Composite operations that are one operator of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stopgrad.op import Op
from stopgrad.ops.composite import LogSoftmax, Softmax


def _softmax(definition: type[Op]) -> Callable[..., Any]:
    def form(xp: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
        if len(axis) != 1:
            return definition.lower(xp, x, axis=axis)  # type: ignore[operator]
        x = xp.value(x)
        return xp.node(definition.type, [x], x.dtype, x.shape, axis=axis[0])

    return form


COMPOSITES: Mapping[type[Op], Callable[..., Any]] = {
    Softmax: _softmax(Softmax),
    LogSoftmax: _softmax(LogSoftmax),
}
