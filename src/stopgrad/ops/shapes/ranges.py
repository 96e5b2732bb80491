"""Numbers at equal distances."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from stopgrad.base.coercion import is_whole, real, whole
from stopgrad.base.errors import ShapeError, StopgradError
from stopgrad.base.promotion import Promotion
from stopgrad.base.samples import sample
from stopgrad.base.types import (
    Dim,
    DType,
    DTypeLike,
    TensorType,
    at_least,
    dtype_of,
    float32,
    float64,
    int32,
    tensor_type,
)
from stopgrad.graph.build import check_name, emit
from stopgrad.graph.builder import default_graph
from stopgrad.graph.immediate import evaluate
from stopgrad.graph.op import Kind, Op, Scalar
from stopgrad.graph.operands import Tensor
from stopgrad.graph.public import builds
from stopgrad.graph.type_rules import check_dtype, is_number

__all__ = ["range"]


class Range(Op):
    """Numbers at equal distances.

    Args:
        start: the first number; a number or a size.
        size: how many numbers.
        delta: the distance.
        dtype: of the result.

    Returns:
        The numbers start, start + delta, and so on: as many as size says.

    Constraints:
        (C1) delta is a number other than 0.
        (C2) The dtype is one of numbers.
        (C3) start and delta, and the function's limit, are Python numbers or sizes, known when the graph is
            built.
        (C4) Where one of them is symbolic, all are whole numbers.
    """

    kinds = {"size": Kind.SIZE}

    @staticmethod
    def infer(*, start: Scalar, size: Any, delta: Scalar, dtype: DType) -> TensorType:
        check_dtype(tensor_type(dtype, ()), is_number, "numbers", "C2")
        return tensor_type(dtype, (size,))

    gradient = {}

    @staticmethod
    def lower(xp: Any, start: Any, size: int, delta: Any, dtype: DType) -> Any:
        # In float32 for dtypes of 16 bits, so that each number is rounded once.
        wide = np.dtype(np.float32) if dtype.is_floating and dtype.itemsize == 2 else dtype.numpy
        return xp.arange(size).astype(wide) * xp.asarray(delta, wide) + xp.asarray(start, wide)

    samples = [
        sample(start=2, size=3, delta=-3, dtype=int32),
        sample(start=0.5, size=3, delta=0.25, dtype=float64),
        sample(start=0, size=0, delta=1, dtype=int32),
    ]


def _plain(number: Any) -> int | float | Dim:
    if isinstance(number, Dim):
        return number
    try:
        return whole(number) if is_whole(number) else real(number)
    except (TypeError, StopgradError):
        raise ShapeError(
            f"(C3) takes numbers and sizes, not {number!r}: the result's size must be known when the "
            "graph is built"
        ) from None


def _common(*numbers: Any) -> DType:
    """The dtype of numbers, of which NumPy's have their own."""
    strong = [dtype_of(n.dtype) for n in numbers if isinstance(n, (np.generic, np.ndarray))]
    weak = [float32 if isinstance(n, float) else int32 for n in numbers if not hasattr(n, "dtype")]
    return Promotion(is_number).common(strong, weak)


@builds(Range)
def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Numbers at equal distances.

    Args:
        start: the first number; or, if it is the only argument, the limit, and the first number is 0.
        limit: where the numbers end; the limit itself is not among them.
        delta: the distance from one to the next.
        dtype: of the result; by default that of NumPy's numbers among the arguments; of Python's int32, or
            float32 if one of them is a float.

    Returns:
        The numbers start, start + delta, and so on, as far as they lie before the limit.

    Constraints:
        (C1) delta is a number other than 0.
        (C2) The dtype is one of numbers.
        (C3) start, limit and delta are Python numbers or sizes, known when the graph is built.
        (C4) Where one of them is symbolic, all are whole numbers.

    Examples:
        >>> sg.range(2, 8, 3)
        array([2, 5], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    if dtype is None:
        dtype = _common(start, limit, delta)
    numbers = start, limit, delta = [_plain(n) for n in (start, limit, delta)]
    if isinstance(delta, Dim) or delta == 0:
        raise ShapeError(f"(C1) delta must be a number other than 0, not {delta!r}")
    symbolic = isinstance(start, Dim) or isinstance(limit, Dim)
    if any(isinstance(n, float) for n in numbers):
        if symbolic:
            raise ShapeError("(C4) with a symbolic size, start, limit and delta must be whole numbers")
        size = max(math.ceil((limit - start) / delta), 0)
    elif symbolic:
        reach = (limit - start) if delta > 0 else (start - limit)
        size = limit if start == 0 and delta == 1 else at_least((reach + (abs(delta) - 1)) // abs(delta), 0)
    else:
        size = len(builtins.range(start, limit, delta))
    values = (start, size, delta, dtype_of(dtype))
    graph = default_graph()
    check_name(name)
    return evaluate(Range, (), values) if graph is None else emit(Range, (), values, name, graph).outputs[0]
