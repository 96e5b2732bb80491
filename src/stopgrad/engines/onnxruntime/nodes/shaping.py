"""NumPy's functions that make, move and join arrays, as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, Shape, Size, at_least, exact_quotient, product, total
from stopgrad.engines.onnxruntime.nodes.layouts import producer, source
from stopgrad.engines.onnxruntime.nodes.node_writing import INT64, SMALL, Writing, has_value, writes
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value


class Shaping(Writing):
    """Functions that make, reshape and join arrays."""

    def asarray(self, x: Operand, dtype: npt.DTypeLike | None = None) -> Any:
        if has_value(x):
            return self.value(x, dtype)
        return np.asarray(x, dtype)

    array = asarray

    # ------------------------------------------------------------------------------------------- made

    def full(self, shape: Size | Sequence[Size], value: Operand, dtype: npt.DTypeLike | None = None) -> Any:
        shape = _sizes(shape)
        if not has_value(value):
            filled = np.asarray(value, dtype)
            if is_known(shape) and np.prod(shape, dtype=np.int64) <= SMALL:
                return np.full(shape, filled)
            if filled.ndim == 0:
                sizes = self.shape(shape)
                return self.node("ConstantOfShape", [sizes], filled.dtype, shape, value=filled.reshape(1))
        return self.broadcast_to(self.value(value, dtype), shape)

    def zeros(self, shape: Size | Sequence[Size], dtype: npt.DTypeLike = np.float64) -> Any:
        return self.full(shape, 0, dtype)

    def ones(self, shape: Size | Sequence[Size], dtype: npt.DTypeLike = np.float64) -> Any:
        return self.full(shape, 1, dtype)

    def zeros_like(self, x: Array, dtype: npt.DTypeLike | None = None) -> Any:
        return self.full(x.shape, 0, x.dtype if dtype is None else dtype)

    def ones_like(self, x: Array, dtype: npt.DTypeLike | None = None) -> Any:
        return self.full(x.shape, 1, x.dtype if dtype is None else dtype)

    def full_like(self, x: Array, value: Operand, dtype: npt.DTypeLike | None = None) -> Any:
        return self.full(x.shape, value, x.dtype if dtype is None else dtype)

    empty = zeros
    empty_like = zeros_like

    @writes
    def arange(
        self, start: Size, stop: Size | None = None, step: int = 1, dtype: np.dtype[Any] | None = None
    ) -> Any:
        """A range of integers; its bounds may be symbolic."""
        first, last = (0, start) if stop is None else (start, stop)
        count = at_least((last - first + (step - (1 if step > 0 else -1))) // step, 0)
        whole = isinstance(count, int) and all(isinstance(n, int) for n in (first, last, step))
        if is_known([first, last]) and not (whole and count > SMALL):
            return np.arange(first, last, step, dtype)  # type: ignore[call-overload]
        bounds = [self.value(n, INT64) for n in (first, last, step)]
        numbers = self.node("Range", bounds, INT64, [count])
        return numbers if dtype is None else self.astype(numbers, dtype)

    # ------------------------------------------------------------------------------------------ shaped

    @writes
    def broadcast_to(self, x: Operand, shape: Size | Sequence[Size]) -> Any:
        x = self.value(x)
        shape = _sizes(shape)
        if x.shape == shape:
            return x
        aligned = (None,) * (len(shape) - x.ndim) + x.shape
        empty = [
            not isinstance(size, Dim) and size == 0 != old for old, size in zip(aligned, shape, strict=True)
        ]
        if any(empty):  # onnxruntime's Expand mistakes a size of 0 for 1.
            wide = self.broadcast_to(x, [1 if none else n for none, n in zip(empty, shape, strict=True)])
            return wide[tuple(slice(0) if none else slice(None) for none in empty)]
        # Given 1, Expand leaves an axis as it is, so no size has to be computed for it.
        sizes = [1 if old == size else size for old, size in zip(aligned, shape, strict=True)]
        return self.node("Expand", [x, self.shape(sizes)], x.dtype, shape)

    @writes
    def reshape(self, x: Operand, shape: Size | Sequence[Size]) -> Any:
        x = self.value(x)
        shape = _sizes(shape)
        others = [size for size in shape if isinstance(size, Dim) or size != -1]
        if len(others) < len(shape):
            rest: Any = exact_quotient(product(x.shape), product(others)) if product(others) != 0 else 0
            shape = tuple(rest if not isinstance(size, Dim) and size == -1 else size for size in shape)
        before = producer(self, x)
        if before is not None and before.op_type == "Reshape":  # Two in a row become one.
            x = Value(self, before.inputs[0], *self.nodes.types[before.inputs[0]])
        if x.shape == shape:
            return x
        zero = {"allowzero": 1} if 0 in _numbers(shape) else {}
        short = None if zero else _in_short(x.shape, shape)
        sizes = self.shape(shape) if short is None else np.array(short, np.int64)
        return self.node("Reshape", [x, sizes], x.dtype, shape, **zero)

    @writes
    def transpose(self, x: Operand, axes: Sequence[int] | None = None) -> Any:
        x = self.value(x)
        axes = tuple(range(x.ndim))[::-1] if axes is None else tuple(int(a) % x.ndim for a in axes)
        before = source(self, x)
        if before is not None:  # Two in a row become one.
            x, axes = before[0], tuple(before[1][a] for a in axes)
        if axes == tuple(range(x.ndim)):
            return x
        return self.node("Transpose", [x], x.dtype, [x.shape[a] for a in axes], perm=list(axes))

    @writes
    def swapaxes(self, x: Array, a: int, b: int) -> Any:
        axes = list(range(x.ndim))
        axes[a], axes[b] = axes[b], axes[a]
        return self.transpose(x, axes)

    @writes
    def moveaxis(self, x: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
        order = np.moveaxis(np.empty(tuple(range(x.ndim))), source, destination).shape
        return self.transpose(x, order)

    @writes
    def expand_dims(self, x: Array, axis: int | Sequence[int]) -> Any:
        axes = [axis] if isinstance(axis, int) else list(axis)
        ndim = x.ndim + len(axes)
        axes = sorted(a % ndim for a in axes)
        sizes = iter(x.shape)
        shape = [1 if a in axes else next(sizes) for a in range(ndim)]
        return self.node("Unsqueeze", [x, np.array(axes, np.int64)], x.dtype, shape)

    @writes
    def squeeze(self, x: Array, axis: int | Sequence[int] | None = None) -> Any:
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


def _sizes(shape: Size | Sequence[Size]) -> Shape:
    """A shape, which may be given as a single size."""
    return (shape,) if isinstance(shape, (int, np.integer, Dim)) else tuple(shape)


def _numbers(shape: Sequence[Any]) -> list[int]:
    return [size for size in shape if not isinstance(size, Dim)]


def _in_short(old: Sequence[Any], new: Sequence[Any]) -> list[int] | None:
    """A shape as Reshape takes it: 0 for a size that stays in its place, and -1 for one other size.

    None if more sizes are unknown.
    """
    short: list[int] = []
    for axis, size in enumerate(new):
        if not isinstance(size, Dim):
            short.append(size)
        elif axis < len(old) and old[axis] is size:
            short.append(0)
        elif -1 not in short:
            short.append(-1)
        else:
            return None
    return short
