"""Sums of floating-point numbers that NumPy would add one by one: their rounding errors would grow with them.

NumPy adds in pairs along the last axis only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FEW = 32
"""So many numbers are added one by one."""
_add_up: Any = np.add.reduce


def sum(
    x: npt.ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    dtype: npt.DTypeLike | None = None,
    keepdims: bool = False,
) -> np.ndarray[Any, Any] | np.generic:
    """``numpy.sum`` with errors that grow with the logarithm of the number of summands, along all axes.

    Examples:
        >>> x = np.full((10_000, 2), 0.1, np.float32)
        >>> print(sum(x, axis=0)[0], np.sum(x, axis=0)[0])
        1000.0002 999.9029
    """
    numbers = np.asarray(x)
    if numbers.size <= _FEW:  # As np.sum, in half the time.
        return _add_up(numbers, axis=axis, dtype=dtype, keepdims=keepdims)
    axes = range(numbers.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    along = sorted((a % numbers.ndim for a in axes), reverse=True)
    last = numbers.ndim
    while along and along[0] == last - 1:
        last = along.pop(0)
    if numbers.dtype.kind in "fc":
        for a in along:
            numbers = _fewer(numbers, a)
    return np.sum(numbers, axis=axis, dtype=dtype, keepdims=keepdims)


def _fewer(x: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """At most so many numbers along an axis, with the same sum: in each step, one for every eight or four."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    lead = (slice(None),) * axis
    while (size := x.shape[axis]) > _FEW:
        parts = 8 if size >= 64 else 4
        length = size // parts
        whole, rest = x[(*lead, slice(length * parts))], x[(*lead, slice(length * parts, None))]
        x = np.add.reduce(whole.reshape(*before, parts, length, *after), axis=axis)
        x[(*lead, slice(rest.shape[axis]))] += rest
    return x


def cumsum(
    x: npt.ArrayLike, axis: int | None = None, dtype: npt.DTypeLike | None = None
) -> np.ndarray[Any, Any]:
    """``numpy.cumsum``; numbers of 16 and 32 bits are added up in float64, and each sum is rounded.

    Examples:
        >>> x = np.full(100_000, 0.1, np.float32)
        >>> print(cumsum(x)[-1], np.cumsum(x)[-1])
        10000.0 9998.557
    """
    numbers = np.asarray(x)
    result = np.dtype(numbers.dtype if dtype is None else dtype)
    wide = {np.float16: np.float64, np.float32: np.float64, np.complex64: np.complex128}.get(result.type)
    return np.cumsum(numbers, axis, wide).astype(result) if wide else np.cumsum(numbers, axis, dtype)
