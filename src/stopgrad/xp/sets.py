"""Set functions, and others whose results have shapes that depend on data: of arrays at once, in a graph up to a size."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.operands import Tensor
from stopgrad.xp.support import standard

__all__ = [
    "nonzero",
    "searchsorted",
]


@standard
def nonzero(x: Any, /, *, size: Any = None) -> tuple[Tensor, ...]:
    return tuple([a.astype(np.int32) for a in np.nonzero(x)])


@standard
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Tensor:
    return np.searchsorted(x1, x2, side, sorter)
