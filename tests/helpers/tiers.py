"""Which of many cases run in their tier, and which only in a later one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], every: int = 4, others: pytest.MarkDecorator = pytest.mark.slow) -> list[Any]:
    """The cases, of which one in *every* stays as it is and the *others* are slow, or nightly."""
    return [case if i % every == 0 else pytest.param(case, marks=others) for i, case in enumerate(cases)]
