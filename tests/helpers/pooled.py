"""What tests run in other processes, which find it by the name of this module."""

from __future__ import annotations

from typing import Any

import numpy as np

import stopgrad as sg


def multiply(rows: int) -> Any:
    """Fails but for three rows."""
    return sg.matmul(np.ones((2, 3)), np.ones((rows, 2)))
