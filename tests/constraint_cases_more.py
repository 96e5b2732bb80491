"""The same for the other operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CASES: dict[tuple[str, str], Callable[[], Any]] = {}
