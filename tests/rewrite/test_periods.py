"""Stretches that repeat, of which a part may be taken already."""

from __future__ import annotations

import numpy as np
import pytest

from stopgrad.rewrite.periods import Stretch, _free_part


@pytest.mark.parametrize(
    ("free", "start", "length"),
    [
        ("....xxxxxx....", 4, 6),
        ("....xx.xxx....", 7, 3),
        ("....xxx.xx....", 4, 3),
        ("xxxx......xxxx", 4, 0),
        ("xxxx.xx.xx....", 5, 2),
    ],
)
def test_the_longest_free_part_of_a_stretch(free: str, start: int, length: int) -> None:
    taken = np.array([mark == "x" for mark in free])
    assert _free_part(Stretch(4, 2, 6), taken) == Stretch(start, 2, length)
