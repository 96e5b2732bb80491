"""Products and quotients that are 0 where an operand is 0, even if the other is not finite."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Arithmetic, ArrayLike, DTypeLike, Promotion, Tensor
from stopgrad.ops.elementwise.arithmetic import divide
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import cast, conj, where
from stopgrad.ops.shapes.reshape import reduce_sum

__all__ = [
    "count_nonzero",
    "divide_no_nan",
    "multiply_no_nan",
]


class MulNoNan(Arithmetic):
    """Elementwise product that is 0 where y is 0, whatever x is there.

    Args:
        x: a number, which may be infinite or NaN where y is 0.
        y: the number by which x is multiplied.

    Returns:
        x · y, and 0 where y is 0. The gradient follows the same rule: that with respect to y is x · g, and 0
        where g is 0.

    Examples:
        >>> sg.multiply_no_nan(np.array([2.0, np.nan, np.inf]), np.array([3.0, 0.0, 0.0]))
        array([6., 0., 0.])
    """

    gradient: d.Gradient = {
        "x": lambda g, op: multiply_no_nan(g, conj(op.y)),
        "y": lambda g, op: multiply_no_nan(conj(op.x), g),
    }
    lower: d.Lowering = lambda xp, x, y: xp.where(y == 0, xp.zeros((), x.dtype), x * y)
    samples: d.Samples = d.pairs()


multiply_no_nan: d.Binary = d.binary(MulNoNan, "multiply_no_nan")


@d.guarded("divide_no_nan")
def divide_no_nan(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise quotient that is 0 where y is 0.

    Args:
        x: the dividend.
        y: the divisor.

    Returns:
        x / y, and 0 where y is 0; floating-point or complex. Where y is 0, no gradient passes.

    Constraints:
        (C1) x and y hold numbers or booleans.
        (C2) The shapes broadcast.

    Examples:
        >>> sg.divide_no_nan(np.array([3.0, 1.0]), np.array([2.0, 0.0]))
        array([1.5, 0. ])
    """
    x, y = d.together(x, y, promotes=Promotion(d.is_inexact))
    nothing = equal(y, 0)
    quotient = divide(x, where(nothing, 1, y))
    return where(nothing, 0, quotient, name)


@d.guarded("count_nonzero")
def count_nonzero(
    input: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool | None = None,
    dtype: DTypeLike = "int64",
    name: str | None = None,
) -> Tensor:
    """The number of elements that are not 0, over axes.

    Args:
        input: any tensor; True and NaN count as not 0.
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1; None means False.
        dtype: of the counts.

    Returns:
        The counts.

    Constraints:
        (C1) The axes exist, and none is named twice.

    Examples:
        >>> sg.count_nonzero(np.array([[0.0, 1.0], [2.0, 3.0]]), axis=1)
        array([1, 2])
    """
    axes = d.normal_axes(axis, d.type_of(input).ndim, "C1")
    target = d.dtype_of(dtype)
    hit = cast(input, "bool")
    return reduce_sum(
        cast(hit, target), axes, False if keepdims is None else d.flag(keepdims, "keepdims"), name
    )
