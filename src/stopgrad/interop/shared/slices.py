"""Slices and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import END, Value, brought


def part(x: sg.Output, axis: int, start: Size | None, end: Size | None, step: int = 1) -> sg.Output:
    """A slice along one axis, by Python's rules."""
    if isinstance(end, int) and end >= END:
        end = None
    if isinstance(start, int) and start == 0:
        start = None
    if start is None and end is None and step == 1:
        return x
    return x[(slice(None),) * axis + (slice(start, end, step),)]


def padded(
    x: sg.Output, pairs: Sequence[tuple[Any, Any]], value: Value = 0, mode: str = "CONSTANT"
) -> sg.Output:
    """A tensor with padding; a negative number takes elements away."""
    for axis, (before, after) in enumerate(pairs):
        start = -before if is_negative(before) else 0
        end = x.shape[axis] + after if is_negative(after) else None
        x = part(x, axis, start, end)
    padding = [tuple(0 if is_negative(n) else n for n in pair) for pair in pairs]
    if all(not isinstance(n, sg.Dim) and n == 0 for pair in padding for n in pair):
        return x
    if mode != "CONSTANT":
        return sg.pad(x, padding, mode)
    return sg.pad(x, padding, constant_values=brought(value, x.dtype, x))


def is_negative(number: int) -> bool:
    return not isinstance(number, sg.Dim) and number < 0
