"""What the functions of the array API share: how they are declared, devices, copies and dtypes of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, DType, DTypeLike, Tensor
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.shapes.reshape import reshape

F = TypeVar("F", bound=Callable[..., Any])

CPU = "cpu"
"""The one device that this namespace knows: that of NumPy's arrays. Engines compute where they do."""


def standard(function: F) -> F:
    """Decorator of the functions of this namespace: errors name them, and failures leave nothing behind."""
    return d.guarded(f"xp.{function.__name__}")(function)


def check_device(device: Any) -> None:
    """Refuse a device other than the one there is."""
    if device is not None and device != CPU:
        raise ArgumentError(
            f"device is None or {CPU!r}, not {device!r:.60}; where a graph computes, "
            "sg.Session(engine=...) and sg.function(engine=...) say"
        )


def check_copy(copy: Any, needed: bool = False, why: str = "") -> None:
    """Refuse what is no copy flag, and ``copy=False`` where a copy is *needed*."""
    if copy is not None and not isinstance(copy, (bool, np.bool_)):
        raise ArgumentError(f"copy is True, False or None, not {copy!r:.60}")
    if needed and copy is not None and not copy:
        raise ArgumentError(f"copy=False cannot be kept: {why}; leave it out")


def of_dtype(x: Any, dtype: DTypeLike | None) -> Tensor:
    """*x* as it is, or cast to a dtype; Python's numbers at once, so that no digit gets lost on the way."""
    if dtype is not None and d.is_python(x):
        return d.as_array(x, d.dtype_of(dtype))
    return x if dtype is None or d.type_of(x).dtype is d.dtype_of(dtype) else cast(x, dtype)


def accumulating(dtype: DType) -> DType:
    """The dtype in which integers are summed: the default one, where it holds them all."""
    if dtype in (d.bool_, d.int8, d.int16):
        return d.int32
    return d.uint32 if dtype in (d.uint8, d.uint16) else dtype


def accumulated(x: Any, dtype: DTypeLike | None) -> Tensor:
    """*x* in the dtype in which it is summed: *dtype*, or that of :func:`accumulating`."""
    return of_dtype(x, accumulating(d.type_of(x).dtype) if dtype is None else dtype)


def flat(x: Any) -> Tensor:
    """*x* with one axis."""
    return x if d.type_of(x).ndim == 1 else reshape(x, (-1,))


def as_tuple(axis: Any) -> tuple[int, ...]:
    """One axis or several, in a tuple."""
    if isinstance(axis, Sequence):
        return tuple([d.whole(a) for a in axis])
    return (d.whole(axis),)
