"""Reductions over axes, running sums and products, positions of extremes, and sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, DTypeLike, ShapeError, Tensor
from stopgrad.ops.elementwise.arithmetic import divide, maximum, multiply, subtract
from stopgrad.ops.elementwise.compare import not_equal
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.powers import sqrt
from stopgrad.ops.elementwise.zeros import count_nonzero as count_nonzero
from stopgrad.ops.order.sorting import argsort as _argsort, sort as _sort
from stopgrad.ops.reductions.cumulative import cumprod, cumsum
from stopgrad.ops.reductions.reduce import (
    argmax as _argmax,
    argmin as _argmin,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_variance,
)
from stopgrad.ops.shapes.join import pad
from stopgrad.ops.shapes.moving import diff as diff
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum
from stopgrad.ops.structural.sources import size_as
from stopgrad.ops.xp.support import accumulated, flat, standard

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "sort",
    "std",
    "sum",
    "var",
]


@standard
def sum(
    x: ArrayLike,
    /,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Sums over axes.

    Args:
        x: numbers, or booleans, which count as 0 and 1.
        axis: one axis or several; None for all.
        dtype: the dtype in which to add; by default x's, and for integers under 32 bits int32 or uint32.
        keepdims: whether the axes stay, with size 1.

    Returns:
        The sums.

    Examples:
        >>> sg.xp.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([4., 6.])
    """
    return reduce_sum(accumulated(x, dtype), axis, keepdims)


@standard
def prod(
    x: ArrayLike,
    /,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Products over axes, with the arguments of :func:`sum`.

    Examples:
        >>> sg.xp.prod(np.array([2.0, 3.0]))
        array(6.)
    """
    return reduce_prod(accumulated(x, dtype), axis, keepdims)


@standard
def mean(x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Means over axes, with the arguments of :func:`stopgrad.reduce_mean`.

    Examples:
        >>> sg.xp.mean(np.array([1.0, 2.0]))
        array(1.5)
    """
    return reduce_mean(x, axis, keepdims)


@standard
def var(
    x: ArrayLike, /, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Variances over axes.

    Args:
        x: numbers.
        axis: one axis or several; None for all.
        correction: subtracted from the number of elements N in the divisor; 1 for Bessel's correction.
        keepdims: whether the axes stay, with size 1.

    Returns:
        Σ (x - mean)² / (N - correction); infinity or NaN if the divisor is not positive, as in NumPy.

    Examples:
        >>> sg.xp.var(np.array([1.0, 3.0]), correction=1)
        array(2.)
    """
    variance, less = reduce_variance(x, axis, keepdims), d.real(correction)
    if not less:
        return variance
    kind = d.type_of(x)
    axes = d.normal_axes(axis, kind.ndim)
    count = size_as(d.product(tuple([kind.shape[i] for i in axes])), d.type_of(variance).dtype, variance)
    return divide(multiply(variance, count), maximum(subtract(count, less), 0.0))


@standard
def std(
    x: ArrayLike, /, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Standard deviations over axes: the square roots of :func:`var`.

    Examples:
        >>> sg.xp.std(np.array([1.0, 3.0]))
        array(1.)
    """
    return sqrt(var(x, axis, correction, keepdims))


@standard
def max(x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The largest elements over axes: :func:`stopgrad.reduce_max`.

    Examples:
        >>> sg.xp.max(np.array([1.0, 3.0]))
        array(3.)
    """
    return reduce_max(x, axis, keepdims)


@standard
def min(x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The smallest elements over axes: :func:`stopgrad.reduce_min`.

    Examples:
        >>> sg.xp.min(np.array([1.0, 3.0]))
        array(1.)
    """
    return reduce_min(x, axis, keepdims)


@standard
def all(x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over axes are not 0.

    Examples:
        >>> sg.xp.all(np.array([1.0, 0.0]))
        array(False)
    """
    return reduce_all(_truth(x), axis, keepdims)


@standard
def any(x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether any element over axes is not 0.

    Examples:
        >>> sg.xp.any(np.array([1.0, 0.0]))
        array(True)
    """
    return reduce_any(_truth(x), axis, keepdims)


def _truth(x: ArrayLike) -> Tensor:
    """Booleans unchanged; for numbers, whether they are not 0."""
    return x if d.type_of(x).dtype.is_bool else not_equal(x, 0)


# ----------------------------------------------------------------------------------- running and differing


def _running(
    function: Callable[..., Tensor],
    empty: int,
    x: ArrayLike,
    axis: int | None,
    dtype: DTypeLike | None,
    include_initial: bool,
) -> Tensor:
    """Running sums or products; with *include_initial*, after the one of no elements, *empty*."""
    ndim = d.type_of(x).ndim
    if axis is None:
        if ndim != 1:
            raise ShapeError(f"an axis is needed for {ndim} dimensions; write axis=-1, or flatten x first")
        axis = 0
    axis = d.normal_axis(axis, ndim)
    x = accumulated(x, dtype)
    running = function(x, axis)
    if not include_initial:
        return running
    before = [(1, 0) if i == axis else (0, 0) for i in range(ndim)]
    return pad(running, before, constant_values=empty)


@standard
def cumulative_sum(
    x: ArrayLike, /, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Running sums along an axis.

    Args:
        x: numbers.
        axis: the axis along which to add; it may be left out if there is only one.
        dtype: the dtype in which to add; as for :func:`sum`.
        include_initial: whether to put the sum of no elements, 0, first.

    Returns:
        The sums.

    Examples:
        >>> sg.xp.cumulative_sum(np.array([1.0, 2.0, 3.0]), include_initial=True)
        array([0., 1., 3., 6.])
    """
    return _running(cumsum, 0, x, axis, dtype, include_initial)


@standard
def cumulative_prod(
    x: ArrayLike, /, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis, with the arguments of :func:`cumulative_sum`.

    Examples:
        >>> sg.xp.cumulative_prod(np.array([1.0, 2.0, 3.0]))
        array([1., 2., 6.])
    """
    return _running(cumprod, 1, x, axis, dtype, include_initial)


# --------------------------------------------------------------------------------- searching and sorting


@standard
def argmax(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the largest element along an axis, as int64; the first of equal ones.

    Args:
        x: real numbers.
        axis: the axis along which to look; None for the position in the flattened array.
        keepdims: whether the axis stays, with size 1.

    Returns:
        The positions.

    Examples:
        >>> sg.xp.argmax(np.array([1.0, 3.0, 3.0]))
        array(1)
    """
    return _position(_argmax, x, axis, keepdims)


@standard
def argmin(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the smallest element along an axis, with the arguments of :func:`argmax`.

    Examples:
        >>> sg.xp.argmin(np.array([1.0, 3.0, 1.0]))
        array(0)
    """
    return _position(_argmin, x, axis, keepdims)


def _position(function: Callable[..., Tensor], x: ArrayLike, axis: int | None, keepdims: bool) -> Tensor:
    ndim = d.type_of(x).ndim
    position = function(flat(x) if axis is None else x, 0 if axis is None else axis, d.int64)
    if not d.flag(keepdims, "keepdims"):
        return position
    return expand_dims(position, tuple(range(ndim)) if axis is None else d.normal_axis(axis, ndim))


@standard
def sort(x: ArrayLike, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in sorted order along an axis: :func:`stopgrad.sort`.

    Args:
        x: real numbers.
        axis: the axis along which to sort.
        descending: whether the largest comes first.
        stable: equal elements keep their order in any case.

    Returns:
        A sorted copy.

    Examples:
        >>> sg.xp.sort(np.array([3.0, 1.0, 2.0]), descending=True)
        array([3., 2., 1.])
    """
    d.flag(stable, "stable")
    return _sort(x, axis, _DIRECTIONS[d.flag(descending, "descending")])


@standard
def argsort(x: ArrayLike, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions of the elements in sorted order, as int64, with the arguments of :func:`sort`.

    Examples:
        >>> sg.xp.argsort(np.array([3.0, 1.0, 2.0]))
        array([1, 2, 0])
    """
    d.flag(stable, "stable")
    return cast(_argsort(x, axis, _DIRECTIONS[d.flag(descending, "descending")]), d.int64)


_DIRECTIONS = ("ASCENDING", "DESCENDING")
