"""Which of many cases plain tests run, and which only slow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], every: int = 4) -> list[Any]:
    """The cases, of which one in *every* is plain and the others are slow."""
    return [
        case if i % every == 0 else pytest.param(case, marks=pytest.mark.slow) for i, case in enumerate(cases)
    ]
