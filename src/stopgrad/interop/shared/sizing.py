"""Sizes as known values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, Size
from stopgrad.interop.shared.calling import Known, dtype_from


def settled(array: Size | np.ndarray[Any, Any], dtype: DType) -> Known:
    """A result computed from sizes as a known value: plain numbers if no symbolic size is left."""
    if not isinstance(array, np.ndarray):  # For a scalar, NumPy returns the object itself.
        alone, array = array, np.empty((), object)
        array[()] = alone
    if array.dtype.kind != "O":
        return Known(array)
    elements = array.reshape(-1).tolist()
    if any(isinstance(x, sg.Dim) for x in elements):
        return Known(array, dtype)
    if elements and all(isinstance(x, (bool, np.bool_)) for x in elements):
        dtype = sg.bool_
    return Known(array.astype(dtype.numpy), dtype_from(dtype.numpy))


def sizes_known(sizes: Sequence[Any]) -> Known:
    """Sizes as a known vector."""
    array = np.empty(len(sizes), object)
    array[:] = list(sizes)
    return settled(array, sg.int64)
