"""Helpers for the functions of the array API: their decorator, devices, copies and dtypes of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DType, DTypeLike, Tensor
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.shapes.reshape import reshape

F = TypeVar("F", bound=Callable[..., Any])

CPU = "cpu"
"""The only device of this namespace: that of NumPy's arrays. Engines choose theirs themselves."""


def standard(function: F) -> F:
    """Decorator for this namespace's functions: errors name them, and a failed call adds no operations."""
    return d.guarded(f"xp.{function.__name__}")(function)


def check_device(device: object) -> None:
    """Refuse a device other than the only one."""
    if device is not None and device != CPU:
        raise ArgumentError(
            f"device is None or {CPU!r}, not {device!r:.60}; where a graph computes, "
            "sg.Session(engine=...) and sg.function(engine=...) say"
        )


def check_copy(copy: bool | np.bool_ | None, needed: bool = False, why: str = "") -> None:
    """Refuse a *copy* that is no flag or None, and ``copy=False`` if a copy is *needed*."""
    if copy is not None and not isinstance(copy, (bool, np.bool_)):
        raise ArgumentError(f"copy is True, False or None, not {copy!r:.60}")
    if needed and copy is not None and not copy:
        raise ArgumentError(f"copy=False cannot be kept: {why}; leave it out")


def of_dtype(x: ArrayLike, dtype: DTypeLike | None) -> Tensor:
    """*x*, cast to a dtype if there is one; Python's numbers are converted directly, with all digits."""
    if dtype is not None and d.is_python(x):
        return d.as_array(x, d.dtype_of(dtype))
    return x if dtype is None or d.type_of(x).dtype is d.dtype_of(dtype) else cast(x, dtype)


def accumulating(dtype: DType) -> DType:
    """The dtype in which integers are summed: at least 32 bits."""
    if dtype in (d.bool_, d.int8, d.int16):
        return d.int32
    return d.uint32 if dtype in (d.uint8, d.uint16) else dtype


def accumulated(x: ArrayLike, dtype: DTypeLike | None) -> Tensor:
    """*x* in the dtype in which it is summed: *dtype*, or that of :func:`accumulating`."""
    return of_dtype(x, accumulating(d.type_of(x).dtype) if dtype is None else dtype)


def flat(x: ArrayLike) -> Tensor:
    """*x* flattened to one axis."""
    return x if d.type_of(x).ndim == 1 else reshape(x, (-1,))


def as_tuple(axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """One axis or several, in a tuple."""
    if isinstance(axis, Sequence):
        return tuple([d.whole(a) for a in axis])
    return (d.whole(axis),)
