"""Operations as ONNX has them, where numbers are large or of a kind that is rarely met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

LARGE = np.array([[2**53, 1], [2**40, -3]])
ENDS = np.array([3], np.uint64), np.array([2**64 - 1], np.uint64)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "a sum of integers beyond 2⁵³": (lambda x: sg.reduce_sum(x, axis=1), [LARGE]),
    "a sum of integers beyond 2⁶³": (lambda x: sg.reduce_sum(x * 2**9), [LARGE]),
    "a block that begins at an unsigned number": (
        lambda x, at: sg.dynamic_slice(x, at, [2]),
        [np.arange(5.0), ENDS[0]],
    ),
    "a block that would begin beyond the end": (
        lambda x, at: sg.dynamic_slice(x, at, [2]),
        [np.arange(5.0), ENDS[1]],
    ),
}


@pytest.mark.parametrize(("function", "operands"), CASES.values(), ids=CASES)
def test_values_are_numpys(function: Callable[..., Any], operands: list[Any]) -> None:
    found, expected = (sg.function(function, engine=engine)(*operands) for engine in ("onnxruntime", "numpy"))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
