"""Operations as ONNX has them, where numbers are large or of a kind that is rarely met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import stopgrad as sg
from stopgrad.engines.onnxruntime.nodes.nodes import Nodes
from stopgrad.engines.onnxruntime.nodes.program import LATEST
from stopgrad.engines.onnxruntime.nodes.writing import Writing

LARGE = np.array([[2**53, 1], [2**40, -3]])
ENDS = np.array([3], np.uint64), np.array([2**64 - 1], np.uint64)
CHOSEN: Any = lambda index, x: sg.switch(
    index, [lambda: x + 1.0, lambda: x * 2.0, lambda: sg.square(x), lambda: -x]
)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "a sum of integers beyond 2⁵³": (lambda x: sg.reduce_sum(x, axis=1), [LARGE]),
    "a sum of integers beyond 2⁶³": (lambda x: sg.reduce_sum(x * 2**9), [LARGE]),
    "the last of four branches": (CHOSEN, [np.array(9), np.arange(3.0)]),
    "the first of four branches": (CHOSEN, [np.array(-1), np.arange(3.0)]),
    "the third of four branches": (CHOSEN, [np.array(2), np.arange(3.0)]),
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


def test_python_numbers_take_the_dtype_beside_them_unless_that_is_of_a_lesser_kind() -> None:
    common = Writing(Nodes(LATEST)).common
    kinds: list[tuple[list[Any], Any]] = [
        ([np.dtype(np.int8), True, 300], np.int8),
        ([np.dtype(bfloat16), True, 1, 1.5], bfloat16),
        ([np.dtype(np.float32), 1e300], np.float32),
        ([1.5, np.dtype(np.float16)], np.float16),
        ([np.dtype(bool), False], bool),
        ([np.dtype(bool), 1], np.int64),
        ([np.dtype(np.int32), 0.5], np.float64),
        ([np.dtype(np.uint8), 0.5], np.float64),
        ([np.dtype(np.int32), np.dtype(np.float32), 2], np.float64),
        ([True, 2], np.int64),
    ]
    for operands, expected in kinds:
        assert common(*operands) == expected, operands
