"""What a thousand stops cost in a compiled graph: time, and the text that XLA is given."""

from __future__ import annotations

from typing import Any


def compared(bench: Any) -> list[dict[str, Any]]:
    return []


def table(found: list[dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
    return "", [], []
