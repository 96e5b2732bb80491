"""The frequencies of the elements of discrete Fourier transforms, and their order.

Like the functions of :mod:`stopgrad.ops.fourier.discrete_fourier`, these are not in ``sg`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    DTypeLike,
    Size,
    Tensor,
    dtype_of,
    guarded,
    normal_axes,
    real,
    shape_of,
    type_of,
)
from stopgrad.ops.elementwise.arithmetic import divide, multiply
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.structural.sources import identity, size_as

__all__: list[str] = []


@guarded("fftfreq")
def fftfreq(n: Size | str, d: float = 1.0, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """The frequencies of the elements of :func:`stopgrad.ops.fourier.discrete_fourier.fft`.

    Args:
        n: the length of the transform.
        d: the distance between samples.
        dtype: the dtype of the result.
        name: of the operation; by default none.

    Returns:
        [0, 1, …, (n - 1) // 2, -(n // 2), …, -1] / (n · d).

    Examples:
        >>> from stopgrad.ops.fourier import frequencies
        >>> frequencies.fftfreq(4, 0.5)
        array([ 0. ,  0.5, -1. , -0.5], dtype=float32)
    """
    (size,) = shape_of([n])
    whole_numbers = ifftshift(numbers(-(size // 2), size - size // 2, dtype=dtype_of(dtype)))
    return _frequencies(whole_numbers, size, d, name)


@guarded("rfftfreq")
def rfftfreq(n: Size | str, d: float = 1.0, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """The frequencies of the elements of :func:`stopgrad.ops.fourier.discrete_fourier.rfft`.

    Args:
        n: the length of the transform.
        d: the distance between samples.
        dtype: the dtype of the result.
        name: of the operation; by default none.

    Returns:
        [0, 1, …, n // 2] / (n · d).

    Examples:
        >>> from stopgrad.ops.fourier import frequencies
        >>> frequencies.rfftfreq(4, 0.5)
        array([0. , 0.5, 1. ], dtype=float32)
    """
    (size,) = shape_of([n])
    return _frequencies(numbers(size // 2 + 1, dtype=dtype_of(dtype)), size, d, name)


def _frequencies(whole_numbers: ArrayLike, n: Size, d: float, name: str | None) -> Tensor:
    if isinstance(n, int) and n < 1:
        raise ArgumentError(f"a transform has at least one element, not {n}")
    dtype = type_of(whole_numbers).dtype
    return divide(whole_numbers, multiply(size_as(n, dtype, whole_numbers), real(d)), name)


@guarded("fftshift")
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """A transform shifted so that the element of frequency 0 comes to the middle.

    Args:
        x: any tensor.
        axes: the axis or axes along which to shift; by default all.
        name: of the operation; by default none.

    Returns:
        A tensor of x's type.

    Examples:
        >>> from stopgrad.ops.fourier import frequencies
        >>> frequencies.fftshift(np.array([0.0, 1.0, 2.0, -2.0, -1.0]))
        array([-2., -1.,  0.,  1.,  2.])
    """
    return _shifted(x, axes, lambda size: size - size // 2, name)


@guarded("ifftshift")
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The inverse of :func:`fftshift`.

    Args:
        x: any tensor.
        axes: the axis or axes along which to shift; by default all.
        name: of the operation; by default none.

    Returns:
        A tensor of x's type.

    Examples:
        >>> from stopgrad.ops.fourier import frequencies
        >>> frequencies.ifftshift(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
        array([ 0.,  1.,  2., -2., -1.])
    """
    return _shifted(x, axes, lambda size: size // 2, name)


def _shifted(
    x: ArrayLike, axes: int | Sequence[int] | None, first: Callable[[Any], Any], name: str | None
) -> Tensor:
    """*x* shifted cyclically along each axis, to begin with the element *first* gives for the axis's size."""
    along = normal_axes(axes, type_of(x).ndim)
    for axis in along:
        size = type_of(x).shape[axis]
        start = first(size)
        parts = [part_of(x, axis, start, size - start), part_of(x, axis, 0, start)]
        x = concat(parts, axis, name if axis == along[-1] else None)
    return x if along else identity(x, name)
