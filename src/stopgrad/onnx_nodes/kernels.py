"""In which dtypes runtimes compute what: nodes in others are computed in wider ones, and cast back."""

from __future__ import annotations

from typing import Any

import numpy as np


def computed_in(op_type: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which an operator is to be computed whose operands have this one."""
    return dtype
