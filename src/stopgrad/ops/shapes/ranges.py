"""Numbers at equal distances."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Dim,
    DType,
    DTypeLike,
    Kind,
    Namespace,
    Op,
    Promotion,
    Scalar,
    ShapeError,
    Size,
    StopgradError,
    Tensor,
    TensorType,
)
from stopgrad.graph.immediate import evaluate

__all__ = ["range"]


class Range(Op):
    """Numbers at equal distances.

    Args:
        start: the first number; a number or a size.
        size: the number of numbers.
        delta: the distance from one to the next.
        dtype: the dtype of the result.

    Returns:
        The numbers start, start + delta, and so on, size of them.

    Constraints:
        (C1) delta is a number other than 0.
        (C2) The dtype is one of numbers.
        (C3) start and delta, and the function's limit, are Python numbers or sizes, known when the graph is
            built.
        (C4) If one of them is symbolic, all are whole numbers.
    """

    kinds = {"size": Kind.SIZE}

    @staticmethod
    def infer(*, start: Scalar, size: Size, delta: Scalar, dtype: DType) -> TensorType:
        d.check_dtype(d.tensor_type(dtype, ()), d.is_number, "numbers", "C2")
        return d.tensor_type(dtype, (size,))

    gradient: d.Gradient = {}
    remade = True

    @staticmethod
    def lower(xp: Namespace, start: float, size: int, delta: float, dtype: DType) -> Array:
        # In float32 for 16-bit dtypes, so that each number is rounded once.
        wide = np.dtype(np.float32) if dtype.is_floating and dtype.itemsize == 2 else dtype.numpy
        return xp.arange(size).astype(wide) * xp.asarray(delta, wide) + xp.asarray(start, wide)

    samples: d.Samples = [
        d.sample(start=2, size=3, delta=-3, dtype=d.int32),
        d.sample(start=0.5, size=3, delta=0.25, dtype=d.float64),
        d.sample(start=0, size=0, delta=1, dtype=d.int32),
    ]


def _plain(number: object) -> int | float | Dim:
    if isinstance(number, Dim):
        return number
    try:
        return d.whole(number) if d.is_whole(number) else d.real(number)
    except (TypeError, StopgradError):
        raise ShapeError(
            f"(C3) takes numbers and sizes, not {number!r}: the result's size must be known when the "
            "graph is built"
        ) from None


def _common(*numbers: object) -> DType:
    """The common dtype of Python's and NumPy's numbers."""
    strong = [d.dtype_of(n.dtype) for n in numbers if isinstance(n, (np.generic, np.ndarray))]
    weak = [d.float32 if isinstance(n, float) else d.int32 for n in numbers if not hasattr(n, "dtype")]
    return Promotion(d.is_number).common(strong, weak)


@d.builds(Range)
def range(
    start: ArrayLike | Dim,
    limit: ArrayLike | Dim | None = None,
    delta: ArrayLike | Dim = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers at equal distances.

    Args:
        start: the first number; or, if it is the only argument, the limit, and the first number is 0.
        limit: the end of the numbers, which is not among them.
        delta: the distance from one to the next.
        dtype: the dtype of the result; by default that of NumPy numbers among the arguments; for Python's
            numbers int32, or float32 if one of them is a float.

    Returns:
        The numbers start, start + delta, and so on, up to the limit.

    Constraints:
        (C1) delta is a number other than 0.
        (C2) The dtype is one of numbers.
        (C3) start, limit and delta are Python numbers or sizes, known when the graph is built.
        (C4) If one of them is symbolic, all are whole numbers.

    Examples:
        >>> sg.range(2, 8, 3)
        array([2, 5], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    if dtype is None:
        dtype = _common(start, limit, delta)
    numbers: list[Any] = [_plain(n) for n in (start, limit, delta)]
    first, last, step = numbers
    if isinstance(step, Dim) or step == 0:
        raise ShapeError(f"(C1) delta must be a number other than 0, not {step!r}")
    symbolic = isinstance(first, Dim) or isinstance(last, Dim)
    if any(isinstance(n, float) for n in numbers):
        if symbolic:
            raise ShapeError("(C4) with a symbolic size, start, limit and delta must be whole numbers")
        size = max(math.ceil((last - first) / step), 0)
    elif symbolic:
        reach = (last - first) if step > 0 else (first - last)
        size = last if first == 0 and step == 1 else d.at_least((reach + (abs(step) - 1)) // abs(step), 0)
    else:
        size = len(builtins.range(first, last, step))
    values = (first, size, step, d.dtype_of(dtype))
    graph = d.default_graph()
    d.check_name(name)
    return evaluate(Range, (), values) if graph is None else d.emit(Range, (), values, name, graph).outputs[0]
