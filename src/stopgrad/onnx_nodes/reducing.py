"""NumPy's reductions, as nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.onnx_nodes.kernels import computed_in
from stopgrad.onnx_nodes.values import Value
from stopgrad.onnx_nodes.writing import BOOL, INT64, Writing, writes
from stopgrad.types import Dim


class Reducing(Writing):
    """Reductions."""

    def reduce(self, op_type: str, x: Value, axis: Any, keepdims: bool) -> Value:
        """A reduction along axes; along all where *axis* is None."""
        axes = list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
        axes = sorted(int(a) % x.ndim for a in axes) if x.ndim else []
        if not axes:
            return x
        within = computed_in(op_type, x.dtype)
        shape = [1 if a in axes else size for a, size in enumerate(x.shape) if keepdims or a not in axes]
        given = [self.value(x, within), np.array(axes, np.int64)]
        return self.cast(self.node(op_type, given, within, shape, keepdims=int(keepdims)), x.dtype)

    @writes
    def sum(self, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        made = self.reduce("ReduceSum", self.value(x, dtype), axis, keepdims)
        return made if dtype is None else self.cast(made, dtype)

    @writes
    def prod(self, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        return self.reduce("ReduceProd", self.value(x, dtype), axis, keepdims)

    @writes
    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.reduce("ReduceMax", x, axis, keepdims)

    @writes
    def min(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.reduce("ReduceMin", x, axis, keepdims)

    @writes
    def mean(self, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        return self.reduce("ReduceMean", self.value(x, dtype), axis, keepdims)

    @writes
    def all(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.cast(self.reduce("ReduceMin", self.cast(x, np.int32), axis, keepdims), BOOL)

    @writes
    def any(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.cast(self.reduce("ReduceMax", self.cast(x, np.int32), axis, keepdims), BOOL)

    @writes
    def argmax(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return self._arg("ArgMax", x, axis, keepdims)

    @writes
    def argmin(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return self._arg("ArgMin", x, axis, keepdims)

    def _arg(self, op_type: str, x: Value, axis: int, keepdims: bool) -> Value:
        axis %= x.ndim
        shape: list[int | Dim] = list(x.shape)
        shape[axis : axis + 1] = [1] if keepdims else []
        return self.node(op_type, [x], INT64, shape, axis=axis, keepdims=int(keepdims))
