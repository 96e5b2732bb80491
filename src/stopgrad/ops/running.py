"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.batch_rules import ALONG
from stopgrad.build import apply
from stopgrad.op import Axis, Op
from stopgrad.operands import Tensor
from stopgrad.ops.convert import conj
from stopgrad.ops.families import axis_in
from stopgrad.ops.inference import check_dtype, is_number, normal_axis
from stopgrad.ops.recurrence import linear_recurrence, shifted
from stopgrad.plain import flag
from stopgrad.public import builds
from stopgrad.samples import complexes, floats, sample
from stopgrad.types import TensorType

__all__ = [
    "cumprod",
    "cumsum",
]


class Running(Op, abstract=True):
    """Numbers (C1), accumulated along an axis (C2)."""

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, exclusive: bool, reverse: bool) -> TensorType:
        check_dtype(x, is_number, "numbers")
        normal_axis(axis, x.ndim)
        return x

    batch = ALONG
    rounds_once = True
    samples = [
        sample(floats(2, 3, low=0.5), axis=1, exclusive=False, reverse=False),
        sample(floats("n", 2, low=0.5), axis=0, exclusive=True, reverse=True),
        sample(floats(0, 2), axis=0, exclusive=True, reverse=False),
        sample(complexes(3), axis=0, exclusive=False, reverse=True),
        sample(np.array([[2.0, 0.0, -1.0, 0.0, 3.0]]), axis=1, exclusive=False, reverse=False),
        sample(np.array([0.0, 2.0, 0.0, -1.0]), axis=0, exclusive=True, reverse=True),
    ]


def _accumulate(
    xp: Any, x: Any, axis: int, exclusive: bool, reverse: bool, function: Any, neutral: int
) -> Any:
    if reverse:
        x = xp.flip(x, axis)
    if exclusive:
        start = xp.full((*x.shape[:axis], min(1, x.shape[axis]), *x.shape[axis + 1 :]), neutral, x.dtype)
        x = xp.concatenate([start, x[(slice(None),) * axis + (slice(None, -1),)]], axis)
    x = function(x, axis=axis, dtype=x.dtype)
    return xp.flip(x, axis) if reverse else x


class Cumsum(Running):
    """Running sum along an axis.

    Args:
        x: numbers.
        axis: the axis along which to accumulate.
        exclusive: whether each element counts only those before it.
        reverse: whether it runs from the end.

    Returns:
        The sums, of x's shape.

    Constraints:
        (C1) x holds numbers.
        (C2) The axis exists.

    Examples:
        >>> sg.cumsum(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """

    gradient = {"x": lambda g, op: cumsum(g, op.axis, op.exclusive, not op.reverse)}
    lower = lambda xp, x, axis, exclusive, reverse: _accumulate(xp, x, axis, exclusive, reverse, xp.cumsum, 0)


@builds(Cumsum)
def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    return apply(Cumsum, (x,), (axis_in(Cumsum, axis, x), flag(exclusive), flag(reverse)), name)


class Cumprod(Running):
    """Running product along an axis.

    Args:
        x: numbers.
        axis: the axis along which to accumulate.
        exclusive: whether each element counts only those before it.
        reverse: whether it runs from the end.

    Returns:
        The products, of x's shape. The gradient is right where elements are 0, since it never divides.

    Constraints:
        (C1) x holds numbers.
        (C2) The axis exists.

    Examples:
        >>> sg.cumprod(np.array([1.0, 2.0, 3.0]))
        array([1., 2., 6.])
    """

    gradient = {"x": lambda g, op: _cumprod_gradient(g, op)}
    lower = lambda xp, x, axis, exclusive, reverse: _accumulate(
        xp, x, axis, exclusive, reverse, xp.cumprod, 1
    )


@builds(Cumprod)
def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    return apply(Cumprod, (x,), (axis_in(Cumprod, axis, x), flag(exclusive), flag(reverse)), name)


def _cumprod_gradient(g: Any, op: Any) -> Tensor:
    """For each element, the product of those before it times a sum over those from it on.

    The terms of that sum are their cotangents, each times the elements in between.
    """
    x, back = conj(op.x), not op.reverse
    if op.exclusive:
        behind = shifted(linear_recurrence(x, g, op.axis, back), op.axis, back)
    else:
        behind = linear_recurrence(shifted(x, op.axis, back), g, op.axis, back)
    return cumprod(x, op.axis, exclusive=True, reverse=op.reverse) * behind
