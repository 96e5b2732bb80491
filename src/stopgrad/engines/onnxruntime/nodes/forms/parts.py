"""What forms share: moves of axes that are left out where nothing moves, and numbers of a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def number(value: Any, dtype: Any) -> Any:
    """A scalar of a dtype."""
    return np.asarray(value, dtype)


def transposed(xp: Any, x: Any, order: Sequence[int]) -> Any:
    """The axes in another order."""
    return x if list(order) == list(range(len(order))) else xp.transpose(x, tuple(order))


def moved(xp: Any, x: Any, source: int, target: int) -> Any:
    """One axis in another place."""
    order = [i for i in range(len(x.shape)) if i != source]
    order.insert(target, source)
    return transposed(xp, x, order)


def reshaped(xp: Any, x: Any, shape: Sequence[Any]) -> Any:
    """The same elements in another shape."""
    return x if tuple(x.shape) == tuple(shape) else xp.reshape(x, tuple(shape))


def along(xp: Any, x: Any, axis: int, ndim: int, batch_dims: int = 0) -> Any:
    """An array whose axes behind the first *batch_dims* stand at *axis*, and that broadcasts with *ndim*."""
    ahead = (*x.shape[:batch_dims], *(1,) * (axis - batch_dims), *x.shape[batch_dims:])
    return reshaped(xp, x, (*ahead, *(1,) * (ndim - len(ahead))))


def lowest(dtype: Any) -> Any:
    """The least number of a dtype."""
    return -np.inf if np.dtype(dtype).kind in "fV" else np.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """The greatest number of a dtype."""
    return np.inf if np.dtype(dtype).kind in "fV" else np.iinfo(dtype).max
