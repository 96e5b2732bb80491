"""Plain numbers, flags and words of Python, from whatever counts as one.

NumPy's count wherever Python's do. Nothing of another kind does: a flag is no whole number, nor is ``1.0``.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError


def whole(value: Any) -> int:
    """A plain ``int`` from a whole number.

    Raises:
        ArgumentError: it is none.
    """
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool):
            return int(operator.index(value))
    except TypeError:
        pass
    raise ArgumentError(f"an integer is needed, not {value!r:.60}")


def is_whole(value: Any) -> bool:
    """Whether :func:`whole` takes it: it is one number, not several, nor one not known yet."""
    if type(value) is int:
        return True
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return False
    try:
        whole(value)
    except StopgradError:
        return False
    return True


def flag(value: Any, what: str = "a flag") -> bool:
    """A plain ``bool`` from a flag, or from 0 or 1; errors name *what* it is.

    Raises:
        ArgumentError: it is none.
    """
    if value is True or value is False or isinstance(value, np.bool_):
        return bool(value)
    if not is_whole(value) or whole(value) not in (0, 1):
        raise ArgumentError(f"{what} is True or False, not {value!r}")
    return bool(value)


def real(value: Any) -> float:
    """A plain ``float`` from a number.

    Raises:
        ArgumentError: it is none.
    """
    if type(value) is float:
        return value
    try:
        if not isinstance(value, (str, bytes, bool, np.bool_)):
            return float(value)
    except TypeError:
        pass
    raise ArgumentError(f"a number is needed, not {value!r:.60}")
