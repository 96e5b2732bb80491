"""Conversion of arguments to plain Python numbers and flags.

NumPy's numbers count as Python's. Other kinds are refused: neither a flag nor ``1.0`` is a whole number.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError


def whole(value: Any) -> int:
    """A plain ``int`` from a whole number.

    Raises:
        ArgumentError: it is not one.
    """
    if type(value) is int:
        return value
    try:
        if not isinstance(value, (bool, np.bool_)):  # NumPy 2.0 takes its flags for indices.
            return int(operator.index(value))
    except TypeError:
        pass
    raise ArgumentError(f"an integer is needed, not {value!r:.60}")


def is_whole(value: object) -> bool:
    """Whether :func:`whole` accepts it: one whole number with a known value."""
    if type(value) is int:
        return True
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        return False
    try:
        whole(value)
    except StopgradError:
        return False
    return True


def flag(value: object, what: str = "a flag") -> bool:
    """A plain ``bool`` from a flag, 0 or 1; *what* names the argument in errors.

    Raises:
        ArgumentError: it is not one.
    """
    if value is True or value is False or isinstance(value, np.bool_):
        return bool(value)
    if not is_whole(value) or whole(value) not in (0, 1):
        raise ArgumentError(f"{what} is True or False, not {value!r}")
    return bool(value)


def real(value: Any) -> float:
    """A plain ``float`` from a number.

    Raises:
        ArgumentError: it is not one.
    """
    if type(value) is float:
        return value
    try:
        if not isinstance(value, (str, bytes, bool, np.bool_)) and not getattr(value, "ndim", 0):
            return float(value)
    except TypeError:
        pass
    raise ArgumentError(f"a number is needed, not {value!r:.60}")
