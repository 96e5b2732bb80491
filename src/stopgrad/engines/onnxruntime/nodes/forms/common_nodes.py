"""What forms share: transposes and reshapes that are left out where they change nothing, and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.values import Operand


def number(value: Operand, dtype: npt.DTypeLike) -> Any:
    """A scalar of a dtype."""
    return np.asarray(value, dtype)


def transposed(xp: Writing, x: Array, order: Sequence[int]) -> Any:
    """Transposes *x*."""
    return x if list(order) == list(range(len(order))) else xp.transpose(x, tuple(order))


def moved(xp: Writing, x: Array, source: int, target: int) -> Any:
    """Moves one axis."""
    order = [i for i in range(len(x.shape)) if i != source]
    order.insert(target, source)
    return transposed(xp, x, order)


def reshaped(xp: Writing, x: Array, shape: Sequence[Any]) -> Any:
    """Reshapes *x*."""
    return x if tuple(x.shape) == tuple(shape) else xp.reshape(x, tuple(shape))


def along(xp: Writing, x: Array, axis: int, ndim: int, batch_dims: int = 0) -> Any:
    """Puts axes of size 1 around those behind *batch_dims*: they begin at *axis*, of *ndim* axes."""
    ahead = (*x.shape[:batch_dims], *(1,) * (axis - batch_dims), *x.shape[batch_dims:])
    return reshaped(xp, x, (*ahead, *(1,) * (ndim - len(ahead))))


def lowest(dtype: np.dtype[Any]) -> Any:
    """The least number of a dtype."""
    return -np.inf if np.dtype(dtype).kind in "fV" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """The greatest number of a dtype."""
    return np.inf if np.dtype(dtype).kind in "fV" else np.iinfo(dtype).max
