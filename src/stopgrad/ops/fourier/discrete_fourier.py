"""Discrete Fourier transforms, with the signatures of the array API's extension ``fft``.

There are three operations: :class:`Fft` for complex tensors along some axes, and :class:`Rfft` and
:class:`Irfft` between real tensors and the half of their spectrum that determines the other half. Each is
linear, and its gradient is another of them.

None of the functions is in ``sg`` itself, since ``tf.signal`` has functions of these names with other
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Axes,
    Axis,
    DType,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    ShapeError,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.compare import equal, logical_or
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.matrices import larger
from stopgrad.ops.shapes.join import pad
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import identity, size_as

__all__: list[str] = []

DUAL = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""For each norm, the norm with which the opposite transform is the adjoint."""


def _is_complex(dtype: DType) -> bool:
    return dtype.is_complex


def _is_real(dtype: DType) -> bool:
    return dtype in (d.float32, d.float64)


def _check_axis(x: TensorType, axis: int) -> None:
    d.normal_axis(axis, x.ndim)
    if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
        raise ShapeError(f"(C3) axis {axis} of {x!r} has no elements to transform")


def _check_norm(norm: str) -> None:
    if norm not in DUAL:
        raise ArgumentError(f"(C4) norm is 'backward', 'ortho' or 'forward', not {norm!r}")


class Fft(Op):
    """The discrete Fourier transform, or its inverse, along some axes.

    Args:
        x: complex.
        axes: the axes along which to transform.
        inverse: whether to compute the inverse transform.
        norm: which of the two transforms is divided by the number n of elements: "backward" for the inverse,
            "forward" for the other; with "ortho" both are divided by √n.

    Returns:
        The transform, of x's type.

    Constraints:
        (C1) x is complex.
        (C2) The axes exist in x, and none is named twice.
        (C3) The axes have elements.
        (C4) norm is one of the three words.
    """

    @staticmethod
    def infer(x: TensorType, *, axes: Axes, inverse: bool, norm: str) -> TensorType:
        d.check_dtype(x, _is_complex, "complex numbers")
        d.normal_axes(axes, x.ndim)
        for axis in axes:
            _check_axis(x, axis)
        _check_norm(norm)
        return x

    gradient: d.Gradient = {"x": lambda g, op: d.apply(Fft, (g,), (op.axes, not op.inverse, DUAL[op.norm]))}
    batch = d.ALONG

    @staticmethod
    def lower(xp: Namespace, x: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
        return (xp.fft.ifftn if inverse else xp.fft.fftn)(x, axes=axes, norm=norm)

    @staticmethod
    def xla(xp: Namespace, x: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
        transform = xp.fft.ifftn if inverse else xp.fft.fftn
        for i in range(0, len(axes), 3):  # XLA takes three axes at most.
            x = transform(x, axes=axes[i : i + 3], norm=norm)
        return x

    samples: d.Samples = [
        d.sample(d.complexes(4), axes=(0,), inverse=False, norm="backward"),
        d.sample(d.complexes("n", 3, 2), axes=(0, 1), inverse=True, norm="backward"),
        d.sample(d.complexes(5, 2), axes=(0,), inverse=False, norm="ortho"),
        d.sample(d.complexes(2, 3, 2, 2), axes=(0, 1, 2, 3), inverse=True, norm="forward"),
        d.sample(d.complexes(0, 2), axes=(1,), inverse=False, norm="forward"),
    ]


class Rfft(Op):
    """The first half of the discrete Fourier transform of real numbers along an axis.

    Args:
        x: float32 or float64.
        axis: the axis along which to transform.
        norm: as in :class:`Fft`.

    Returns:
        The transform, complex, n // 2 + 1 of its n elements along the axis.

    Constraints:
        (C1) x is float32 or float64.
        (C2) The axis exists in x.
        (C3) The axis has elements.
        (C4) norm is one of the three words.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, norm: str) -> TensorType:
        d.check_dtype(x, _is_real, "float32 or float64")
        _check_axis(x, axis)
        _check_norm(norm)
        half = x.shape[axis] // 2 + 1
        return d.tensor_type(_complex(x.dtype), (*x.shape[:axis], half, *x.shape[axis + 1 :]))

    gradient: d.Gradient = {"x": lambda g, op: _from_half(g, op, op.x.shape[op.axis], DUAL[op.norm])}
    batch = d.ALONG
    lower: d.Lowering = lambda xp, x, axis, norm: xp.fft.rfft(x, axis=axis, norm=norm)
    samples: d.Samples = [
        d.sample(d.floats(4), axis=0, norm="backward"),
        d.sample(d.floats("n", 2), axis=0, norm="ortho"),
        d.sample(d.floats(2, 5), axis=1, norm="forward"),
        d.sample(d.floats(2, 1), axis=1, norm="backward"),
        d.sample(d.floats(0, 3), axis=1, norm="backward"),
    ]


class Irfft(Op):
    """The inverse of :class:`Rfft`.

    Args:
        x: complex: the first n // 2 + 1 elements of a transform of real numbers. The imaginary parts of
            the first element and, for even n, of the last are not read: there such a transform is real.
        axis: the axis along which to transform.
        n: the size of the result along the axis.
        norm: as in :class:`Fft`.

    Returns:
        The real numbers.

    Constraints:
        (C1) x is complex.
        (C2) The axis exists in x.
        (C3) n is at least 1, and x has n // 2 + 1 elements along the axis.
        (C4) norm is one of the three words.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, n: Size, norm: str) -> TensorType:
        d.check_dtype(x, _is_complex, "complex numbers")
        d.normal_axis(axis, x.ndim)
        if (isinstance(n, int) and n < 1) or not d.same_size(n // 2 + 1, x.shape[axis]):
            raise ShapeError(
                f"(C3) {n} real numbers come from {n // 2 + 1} complex ones, not from the {x.shape[axis]} of "
                f"{x!r} along axis {axis}"
            )
        _check_norm(norm)
        return d.tensor_type(x.dtype.real, (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    gradient: d.Gradient = {
        "x": lambda g, op: (
            d.apply(Rfft, (g,), (op.axis, DUAL[op.norm])) * _counts(op.n, op.axis, op.x.type, op.x)
        )
    }
    batch = d.ALONG
    lower: d.Lowering = lambda xp, x, axis, n, norm: xp.fft.irfft(x, n=n, axis=axis, norm=norm)
    samples: d.Samples = [
        d.sample(d.complexes(3), axis=0, n=4, norm="backward"),
        d.sample(d.complexes(2, 3), axis=1, n=5, norm="ortho"),
        d.sample(d.complexes("n", 2), axis=1, n=2, norm="forward"),
        d.sample(d.complexes(2, 1), axis=1, n=1, norm="backward"),
        d.sample(d.complexes(0, 2), axis=1, n=3, norm="backward"),
    ]


def _complex(dtype: DType) -> DType:
    return d.complex128 if dtype in (d.float64, d.complex128) else d.complex64


def _counts(n: Size, axis: int, kind: TensorType, like: ArrayLike) -> Tensor:
    """How many times each element of a half spectrum occurs in the whole: twice, except at the ends."""
    k = numbers(n // 2 + 1, dtype=d.int32)
    once = logical_or(equal(k, 0), equal(k * 2, size_as(n, d.int32, like)))
    counts = cast(where(once, 1, 2), kind.dtype)
    return reshape(counts, tuple(s if i == axis else 1 for i, s in enumerate(kind.shape)))


def _from_half(g: Output, op: Operation, n: Size, norm: str) -> Tensor:
    """The adjoint of :class:`Rfft`, applied to *g*."""
    return d.apply(Irfft, (g / _counts(n, op.axis, op.result.type, op.x),), (op.axis, n, norm))


# ------------------------------------------------------------------------------------------- arguments


def _as_complex(x: ArrayLike) -> Tensor:
    (x,) = d.together(x, promotes=Promotion(d.is_inexact))
    return cast(x, _complex(d.type_of(x).dtype))


def _as_real(x: ArrayLike) -> Tensor:
    (x,) = d.together(x, promotes=Promotion(d.is_inexact))
    dtype = d.type_of(x).dtype
    if dtype.is_complex:
        raise ArgumentError(f"takes real numbers, not {d.type_of(x)!r}; take fft, or sg.real of it")
    return x if _is_real(dtype) else cast(x, d.float32)


def _size(n: Size | str | None, default: Size) -> Size:
    """The length to transform."""
    if n is None or (d.is_whole(n) and d.whole(n) == -1):
        return default
    (length,) = d.shape_of([n])
    if isinstance(length, int) and length < 1:
        raise ArgumentError(f"a transform has at least one element, not {length}")
    return length


def _fitted(x: ArrayLike, axis: int, size: Size) -> Tensor:
    """*x* cut, or padded with zeros at the end, to a size along an axis."""
    before = d.type_of(x).shape[axis]
    if before is size or before == size:
        return x
    most = larger(before, size)
    if most is not before and most != before:
        around = [(0, most - before) if i == axis else (0, 0) for i, _ in enumerate(d.type_of(x).shape)]
        x = pad(x, around)
    return x if most is size or most == size else part_of(x, axis, 0, size)


def _checked_axis(definition: type[Op], x: ArrayLike, axis: int, norm: str) -> int:
    with d.about(definition, x):
        if not isinstance(norm, str):
            raise ArgumentError(f"(C4) norm is 'backward', 'ortho' or 'forward', not {norm!r}")
        _check_norm(norm)
        return d.normal_axis(axis, d.type_of(x).ndim)


@d.reads_arguments
def _several(
    definition: type[Op],
    x: ArrayLike,
    s: Sequence[Any] | None,
    axes: Sequence[int] | None,
    norm: str,
) -> tuple[list[int], list[Any]]:
    """The axes, and the lengths to transform along them, None for the default."""
    ndim = d.type_of(x).ndim
    for what, value in (("axes", axes), ("s", s)):
        if value is not None and not isinstance(value, (Sequence, np.ndarray)):
            raise ArgumentError(f"{what} is a list of whole numbers, such as (0, 1), not {value!r:.60}")
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    positions = [_checked_axis(definition, x, axis, norm) for axis in axes]
    sizes = [None] * len(positions) if s is None else list(s)
    with d.about(definition, x):
        if len(set(positions)) < len(positions):
            raise ShapeError(f"(C2) axes={tuple(axes)} name one twice")
        if len(sizes) != len(positions):
            raise ArgumentError(f"s gives {len(sizes)} lengths for {len(positions)} axes")
    return positions, sizes


# ------------------------------------------------------------------------------------- complex numbers


def _transformed(
    x: ArrayLike,
    s: Sequence[Any] | None,
    axes: Sequence[int] | None,
    norm: str,
    inverse: bool,
    name: str | None,
) -> Tensor:
    x = _as_complex(x)
    along, sizes = _several(Fft, x, s, axes, norm)
    for axis, n in zip(along, sizes, strict=True):
        x = _fitted(x, axis, _size(n, d.type_of(x).shape[axis]))
    if not along:
        return identity(x, name)
    return d.apply(Fft, (x,), (tuple(along), inverse, str(norm)), name)


@d.builds(Fft)
def fftn(
    x: ArrayLike,
    s: Sequence[Any] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The discrete Fourier transform along several axes.

    Args:
        x: numbers; real ones are converted to complex.
        s: for each axis, the length to transform: x is cut, or padded with zeros at the end; by default,
            and for -1, that of x.
        axes: the axes along which to transform; by default all, or the last len(s) ones if s is given.
        norm: "backward" for no factor, "forward" for 1 / n, "ortho" for 1 / √n, n being the number of
            elements.
        name: of the operation; by default none.

    Returns:
        The transform: complex128 for 64-bit numbers, complex64 for others.

    Constraints:
        (C1) x holds numbers.
        (C2) The axes exist in x, and none is named twice.
        (C3) The axes have elements.
        (C4) norm is one of the three words.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.fftn(np.ones((2, 2)))
        array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]])
    """
    return _transformed(x, s, axes, norm, False, name)


@d.guarded("ifftn")
def ifftn(
    x: ArrayLike,
    s: Sequence[Any] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The inverse of :func:`fftn`, with the same arguments.

    Args:
        x: numbers; real ones are converted to complex.
        s, axes: as for :func:`fftn`.
        norm: "backward" for a factor of 1 / n, "forward" for none, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The inverse transform, complex.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.ifftn(np.array([[4.0, 0.0], [0.0, 0.0]]))
        array([[1.+0.j, 1.+0.j],
               [1.+0.j, 1.+0.j]])
    """
    return _transformed(x, s, axes, norm, True, name)


@d.guarded("fft")
def fft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The discrete Fourier transform Σ x_j exp(-2πi jk/n) along an axis.

    Args:
        x: numbers; real ones are converted to complex.
        n: the length to transform: x is cut, or padded with zeros at the end; by default that of x.
        axis: the axis along which to transform.
        norm: "backward" for no factor, "forward" for 1 / n, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The transform: complex128 for 64-bit numbers, complex64 for others.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.fft(np.array([1.0, 1.0]))
        array([2.+0.j, 0.+0.j])
    """
    return _transformed(x, (n,), (axis,), norm, False, name)


@d.guarded("ifft")
def ifft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of :func:`fft`, with the same arguments.

    Args:
        x: numbers; real ones are converted to complex.
        n: the length to transform: x is cut, or padded with zeros at the end; by default that of x.
        axis: the axis along which to transform.
        norm: "backward" for a factor of 1 / n, "forward" for none, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The inverse transform, complex.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.ifft(np.array([2.0, 0.0]))
        array([1.+0.j, 1.+0.j])
    """
    return _transformed(x, (n,), (axis,), norm, True, name)


# ---------------------------------------------------------------------------------------- real numbers


@d.builds(Rfft)
def rfft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The first n // 2 + 1 elements of the discrete Fourier transform of real numbers.

    Args:
        x: real numbers.
        n: the length to transform: x is cut, or padded with zeros at the end; by default that of x.
        axis: the axis along which to transform.
        norm: "backward" for no factor, "forward" for 1 / n, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The transform: complex128 for 64-bit numbers, complex64 for others.

    Constraints:
        (C1) x holds real numbers.
        (C2) The axis exists in x.
        (C3) The axis has elements.
        (C4) norm is one of the three words.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.rfft(np.array([1.0, 0.0, 0.0]))
        array([1.+0.j, 1.+0.j])
    """
    x = _as_real(x)
    position = _checked_axis(Rfft, x, axis, norm)
    x = _fitted(x, position, _size(n, d.type_of(x).shape[position]))
    return d.apply(Rfft, (x,), (position, str(norm)), name)


@d.builds(Irfft)
def irfft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of :func:`rfft`: real numbers from the first half of their transform.

    Args:
        x: numbers; real ones are converted to complex. The imaginary parts of the first element and,
            for even n, of the last are not read: there a transform of real numbers is real.
        n: the number of real numbers; x is cut, or padded with zeros, to n // 2 + 1 elements. By default
            2 · (m - 1) for the m elements of x.
        axis: the axis along which to transform.
        norm: "backward" for a factor of 1 / n, "forward" for none, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The real numbers.

    Constraints:
        (C1) x holds numbers.
        (C2) The axis exists in x.
        (C3) n is at least 1.
        (C4) norm is one of the three words.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.irfft(np.array([1.0, 1.0]), 3)
        array([1., 0., 0.])
    """
    return _to_real(_as_complex(x), n, axis, norm, name)


def _to_real(x: ArrayLike, n: Size | str | None, axis: int, norm: str, name: str | None) -> Tensor:
    position = _checked_axis(Irfft, x, axis, norm)
    size = _size(n, 2 * (d.type_of(x).shape[position] - 1))
    with d.about(Irfft, x):
        if isinstance(size, int) and size < 1:
            raise ShapeError("(C3) n must be at least 1; for one complex number, give it")
    return d.apply(Irfft, (_fitted(x, position, size // 2 + 1),), (position, size, str(norm)), name)


@d.guarded("rfftn")
def rfftn(
    x: ArrayLike,
    s: Sequence[Any] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The discrete Fourier transform of real numbers along several axes; half of it along the last.

    Args:
        x: real numbers.
        s: for each axis, the length to transform, as in :func:`fftn`.
        axes: the axes along which to transform; by default all, or the last len(s) ones if s is given.
        norm: as in :func:`fftn`.
        name: of the operation; by default none.

    Returns:
        The transform, complex.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.rfftn(np.ones((2, 2)))
        array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]])
    """
    x = _as_real(x)
    along, sizes = _several(Rfft, x, s, axes, norm)
    if not along:
        raise ArgumentError("takes at least one axis")
    if len(along) == 1:
        return rfft(x, sizes[0], along[0], norm, name)
    return _transformed(rfft(x, sizes[-1], along[-1], norm), sizes[:-1], along[:-1], norm, False, name)


@d.guarded("irfftn")
def irfftn(
    x: ArrayLike,
    s: Sequence[Any] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The inverse of :func:`rfftn`.

    Args:
        x: numbers; real ones are converted to complex.
        s: for each axis, the length of the result; by default that of x, and 2 · (m - 1) for the last axis.
        axes: the axes along which to transform; by default all, or the last len(s) ones if s is given.
        norm: as in :func:`ifftn`.
        name: of the operation; by default none.

    Returns:
        The real numbers.

    Examples:
        >>> from stopgrad.ops.fourier import discrete_fourier as fourier
        >>> fourier.irfftn(np.array([[4.0, 0.0], [0.0, 0.0]]))
        array([[1., 1.],
               [1., 1.]])
    """
    x = _as_complex(x)
    along, sizes = _several(Irfft, x, s, axes, norm)
    if not along:
        raise ArgumentError("takes at least one axis")
    if len(along) > 1:
        x = _transformed(x, sizes[:-1], along[:-1], norm, True, None)
    return _to_real(x, sizes[-1], along[-1], norm, name)
