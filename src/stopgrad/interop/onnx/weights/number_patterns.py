"""What the numbers of a tensor say: masks, tables of sines, frequencies. No trained weight looks so."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

HUGE = 1e30
"""A size that no weight has; masks hold the lowest number of a dtype, or infinities."""

MASKED = 1e4
"""The least size of the negative numbers of a mask that has zeros besides."""

FEWEST = 8
"""The fewest numbers by which a sequence is recognised."""

WIDEST, LONGEST = 1 << 12, 1 << 9
"""The most columns and rows that are looked at to recognise a table."""


def telling(array: Array) -> str | None:
    """What makes a tensor a constant wherever it is used; None if nothing does."""
    if not array.size:
        return "it holds no numbers"
    if array.dtype.kind == "c":
        return None
    array = array.astype(np.float64) if array.dtype.itemsize < 4 else array
    with np.errstate(all="ignore"):
        low, high = array.min(), array.max()
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) >= HUGE:
        worst = next(x for x in (low, high) if not np.isfinite(x) or abs(x) >= HUGE)
        return f"it holds {worst:.3g}, as masks do and weights do not"
    if low <= -MASKED and high == 0:
        return f"it holds nothing but numbers from {low:.3g} to 0, and zeros: a mask"
    return None


def recognised(array: Array) -> str | None:
    """What sort of table of constants a tensor is; None if it is none that is known."""
    if array.size < FEWEST or array.dtype.kind == "c":
        return None
    array = array.reshape(-1, array.shape[-1])[:LONGEST, :WIDEST].astype(np.float64)
    if array.max() == array.min():
        return None
    values = np.unique(array)
    if len(values) == 2 and array.size >= 2 * FEWEST:
        return f"it holds two numbers only, {values[0]:.3g} and {values[1]:.3g}"
    if min(array.shape) == 1:
        return _sequence(array.reshape(-1))
    if array.shape[0] >= FEWEST and _is_waves(array):
        return "its columns are sines and cosines: a table of positions"
    return None


def _sequence(values: Array) -> str | None:
    if len(values) < FEWEST:
        return None
    steps = np.diff(values)
    if np.allclose(steps, steps[0], rtol=1e-4, atol=1e-6 * np.abs(values).max()):
        return "its numbers have equal steps, as positions do"
    if (values > 0).all() and np.allclose(values[1:] / values[:-1], values[1] / values[0], rtol=1e-3):
        return "its numbers have equal ratios, as the frequencies of positions do"
    return None


def _is_waves(array: Array) -> bool:
    """Whether every column is a sine of the row's number: x[i-1] + x[i+1] is then a multiple of x[i]."""
    if np.abs(array).max() > 1 + 1e-6 or (array == array[0]).all():
        return False
    middle, sums = array[1:-1], array[:-2] + array[2:]
    weight = (middle**2).sum(axis=0)
    factor = np.divide((middle * sums).sum(axis=0), weight, out=np.zeros_like(weight), where=weight > 0)
    return bool(np.abs(sums - factor * middle).max() < 1e-4 and (np.abs(factor) <= 2 + 1e-6).all())
