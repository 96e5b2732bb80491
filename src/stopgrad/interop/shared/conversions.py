"""Conversions that translations share: of tensors, numbers, sizes and axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, Size
from stopgrad.graph.operands import NumpyArray, Tensor
from stopgrad.ops.structural.sources import size_as

Number: TypeAlias = sg.Dim | complex
"""A number of Python's, or a symbolic size."""

Value: TypeAlias = sg.Output | Number
"""An operand of another framework's operator: a tensor, a number or a symbolic size."""

END = 2**62
"""Slice bounds from this number on mean "to the end"."""

PREPARED = 2**24
"""The largest number of elements of an array that is computed while a graph is built."""


class Refused(Exception):  # noqa: N818 - no error of its own; the loader makes one of all
    """A call cannot be translated; the text says why, and what to do."""


def brought(
    x: Value | np.ndarray[Any, Any] | np.generic, dtype: DType, like: Value | None = None
) -> sg.Output:
    """A tensor, number or size as a tensor of this dtype."""
    if isinstance(x, sg.Output):
        return x if x.dtype is dtype else sg.cast(x, dtype)
    if isinstance(x, sg.Dim):
        size: sg.Output = size_as(x, sg.int64, like)
        return sg.cast(size, dtype)
    return sg.constant(np.asarray(x).astype(dtype.numpy), dtype)


def axis_of(dim: int, ndim: int) -> int:
    """An axis counted from the front."""
    return dim + ndim if dim < 0 else dim


def axes_of(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front; all of them if none are named."""
    if not ndim:
        return ()
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(ndim))
    return tuple(axis_of(d, ndim) for d in ([dims] if isinstance(dims, int) else dims))


def spread(value: int | Sequence[int], count: int) -> tuple[Any, ...]:
    """A number for each of *count* axes; a single one is repeated."""
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return numbers * count if len(numbers) == 1 else numbers


def static(sizes: Sequence[Any], what: str) -> tuple[int, ...]:
    """Sizes as numbers; refuses symbolic ones."""
    if any(isinstance(size, sg.Dim) for size in sizes):
        raise Refused(f"{what} needs sizes that are numbers; export it without dynamic sizes there")
    return tuple(int(size) for size in sizes)


def bounded(count: float, what: str) -> None:
    """Refuse to compute too large an array while a graph is built, as a broken file may ask for."""
    if count > PREPARED:
        raise Refused(f"{what}: {count} numbers would be prepared for it, and at most {PREPARED} are")


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes, which may be symbolic."""
    return math.prod(sizes)


def along(values: sg.Output | NumpyArray, axis: int, ndim: int) -> Tensor:
    """A vector, NumPy's or a tensor, reshaped to lie along one of *ndim* axes."""
    shape = [1] * ndim
    shape[axis] = -1
    return values.reshape(shape) if isinstance(values, np.ndarray) else sg.reshape(values, shape)


def pulled(
    forward: Callable[..., Tensor],
    operands: Sequence[Tensor],
    cotangents: Sequence[Tensor],
) -> list[sg.Output]:
    """The gradient of a function of outputs, for operators that are gradients of other operators.

    It is generated from the operations that *forward* builds.
    """
    ys = forward(*operands)
    ys = ys if isinstance(ys, tuple) else (ys,)
    return sg.gradients(list(ys), list(operands), list(cotangents), unconnected_gradients="zero")
