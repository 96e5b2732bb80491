"""NumPy's functions that make, move and join arrays, as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.onnx_nodes.nodes import is_known
from stopgrad.onnx_nodes.values import Value
from stopgrad.onnx_nodes.writing import SMALL, Writing, has_value, writes
from stopgrad.types import Dim, exact_quotient, product, total


class Shaping(Writing):
    """Functions of shapes."""

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        if has_value(x):
            return self.value(x, dtype)
        return np.asarray(x, dtype)

    array = asarray

    # ------------------------------------------------------------------------------------------- made

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Any:
        shape = (shape,) if isinstance(shape, (int, Dim)) else tuple(shape)
        if not has_value(value):
            filled = np.asarray(value, dtype)
            if is_known(shape) and np.prod(shape, dtype=np.int64) <= SMALL:
                return np.full(shape, filled)
            if filled.ndim == 0:
                sizes = self.shape(shape)
                return self.node("ConstantOfShape", [sizes], filled.dtype, shape, value=filled.reshape(1))
        return self.broadcast_to(self.value(value, dtype), shape)

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        return self.full(shape, 0, dtype)

    def ones(self, shape: Any, dtype: Any = np.float64) -> Any:
        return self.full(shape, 1, dtype)

    def zeros_like(self, x: Any, dtype: Any = None) -> Any:
        return self.full(x.shape, 0, x.dtype if dtype is None else dtype)

    def ones_like(self, x: Any, dtype: Any = None) -> Any:
        return self.full(x.shape, 1, x.dtype if dtype is None else dtype)

    def full_like(self, x: Any, value: Any, dtype: Any = None) -> Any:
        return self.full(x.shape, value, x.dtype if dtype is None else dtype)

    empty, empty_like = zeros, zeros_like

    # ------------------------------------------------------------------------------------------ shaped

    @writes
    def broadcast_to(self, x: Any, shape: Any) -> Any:
        x = self.value(x)
        if x.shape == tuple(shape):
            return x
        return self.node("Expand", [x, self.shape(shape)], x.dtype, shape)

    @writes
    def reshape(self, x: Any, shape: Any) -> Any:
        x = self.value(x)
        shape = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        given = [size for size in shape if isinstance(size, Dim) or size != -1]
        if len(given) < len(shape):
            rest = exact_quotient(product(x.shape), product(given)) if product(given) != 0 else 0
            shape = tuple(rest if not isinstance(size, Dim) and size == -1 else size for size in shape)
        if x.shape == shape:
            return x
        # One symbolic size may be left to the runtime, where no other is 0.
        if sum(isinstance(size, Dim) for size in shape) == 1 and 0 not in _numbers(shape):
            sizes = self.value(np.array([-1 if isinstance(size, Dim) else size for size in shape], np.int64))
        else:
            sizes = self.shape(shape)
        return self.node("Reshape", [x, sizes], x.dtype, shape, allowzero=int(0 in _numbers(shape)))

    @writes
    def transpose(self, x: Any, axes: Any = None) -> Any:
        x = self.value(x)
        axes = tuple(range(x.ndim))[::-1] if axes is None else tuple(int(a) % x.ndim for a in axes)
        if axes == tuple(range(x.ndim)):
            return x
        return self.node("Transpose", [x], x.dtype, [x.shape[a] for a in axes], perm=list(axes))

    @writes
    def swapaxes(self, x: Any, a: int, b: int) -> Any:
        axes = list(range(x.ndim))
        axes[a], axes[b] = axes[b], axes[a]
        return self.transpose(x, axes)

    @writes
    def moveaxis(self, x: Any, source: Any, destination: Any) -> Any:
        order = np.moveaxis(np.empty(tuple(range(x.ndim))), source, destination).shape
        return self.transpose(x, order)

    @writes
    def expand_dims(self, x: Any, axis: Any) -> Any:
        axes = [axis] if isinstance(axis, int) else list(axis)
        ndim = x.ndim + len(axes)
        axes = sorted(a % ndim for a in axes)
        sizes = iter(x.shape)
        shape = [1 if a in axes else next(sizes) for a in range(ndim)]
        return self.node("Unsqueeze", [x, np.array(axes, np.int64)], x.dtype, shape)

    @writes
    def squeeze(self, x: Any, axis: Any = None) -> Any:
        if axis is None:
            axes = [i for i, size in enumerate(x.shape) if not isinstance(size, Dim) and size == 1]
        else:
            axes = sorted(a % x.ndim for a in ([axis] if isinstance(axis, int) else axis))
        shape = [size for i, size in enumerate(x.shape) if i not in axes]
        return self.node("Squeeze", [x, np.array(axes, np.int64)], x.dtype, shape) if axes else x

    # ------------------------------------------------------------------------------------------ joined

    @writes
    def concatenate(self, xs: Sequence[Any], axis: int = 0) -> Any:
        dtype = self.common(*xs)
        values = [self.value(x, dtype) for x in xs]
        axis %= values[0].ndim
        shape = list(values[0].shape)
        shape[axis] = total([x.shape[axis] for x in values])
        if len(values) == 1:
            return values[0]
        return self.node("Concat", values, dtype, shape, axis=axis)

    @writes
    def stack(self, xs: Sequence[Any], axis: int = 0) -> Any:
        dtype = self.common(*xs)
        return self.concatenate([self.expand_dims(self.value(x, dtype), axis) for x in xs], axis)

    # ----------------------------------------------------------------------------------------- indexed

    def getitem(self, x: Value, index: Any) -> Any:
        """Basic indexing: whole numbers, slices with known steps, None and an ellipsis."""
        index = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, (Value, np.ndarray, list)) for i in index):
            return self.take_elements(x, index)
        place = next((n for n, i in enumerate(index) if i is Ellipsis), len(index))
        used = sum(i is not None and i is not Ellipsis for i in index)
        whole = (*index[:place], *[slice(None)] * (x.ndim - used), *index[place + 1 :])
        starts, ends, steps, axes, dropped, added = [], [], [], [], [], []
        shape: list[Any] = []
        axis = 0
        for i in whole:
            if i is None:
                added.append(len(shape))
                shape.append(1)
                continue
            size = x.shape[axis]
            if isinstance(i, slice):
                if i != slice(None):
                    (first,) = self.known([size], "a size that is sliced")
                    span = range(*i.indices(first))
                    starts.append(span.start)
                    ends.append(span.stop if span.stop >= 0 else -(first + 1))
                    steps.append(span.step)
                    axes.append(axis)
                    size = len(span)
                shape.append(size)
            else:
                starts.append(int(i))
                ends.append(int(i) + 1 if i != -1 else np.iinfo(np.int64).max)
                steps.append(1)
                axes.append(axis)
                dropped.append(axis)
            axis += 1
        if axes:
            cut = list(x.shape)
            for a, first, last, step in zip(axes, starts, ends, steps, strict=True):
                cut[a] = 1 if a in dropped else len(range(first, last if last >= 0 else -1, step))
            parts = [np.array(part, np.int64) for part in (starts, ends, axes, steps)]
            x = self.node("Slice", [x, *parts], x.dtype, cut)
        if dropped:
            x = self.squeeze(x, dropped)
        return self.expand_dims(x, added) if added else x

    def take_elements(self, x: Value, index: Sequence[Any]) -> Any:
        raise self.missing("indexing by arrays")


def _numbers(shape: Sequence[Any]) -> list[int]:
    return [size for size in shape if not isinstance(size, Dim)]
