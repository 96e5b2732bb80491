"""Nested structures."""

from __future__ import annotations

import dataclasses
from typing import Any

import optree
import pytest

from stopgrad.base import structure


def test_a_dataclass_that_another_thread_meets_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken apart, also by the thread that saw it as a leaf before the other one registered it."""

    @dataclasses.dataclass
    class Point:
        x: int
        y: list[int]

    real = optree.tree_flatten
    met: list[bool] = []

    def interrupted(tree: Any, **how: Any) -> Any:
        found = real(tree, **how)
        if not met:
            met.append(True)
            structure.flatten(Point(5, [6]))
        return found

    monkeypatch.setattr(optree, "tree_flatten", interrupted)
    assert structure.flatten([Point(1, [2, 3])])[0] == [1, 2, 3]
