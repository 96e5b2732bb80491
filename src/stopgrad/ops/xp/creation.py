"""New arrays. Outside of a graph they are NumPy arrays; if there is a default graph, they are built there."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Dim, DType, DTypeLike, Output, ShapeLike, Tensor
from stopgrad.ops.linalg.diagonals import eye as _eye
from stopgrad.ops.linalg.matrices import tril as _tril, triu as _triu
from stopgrad.ops.shapes.grids import full_like as _full_like, linspace as _linspace, meshgrid as _meshgrid
from stopgrad.ops.shapes.join import stack
from stopgrad.ops.shapes.ranges import range as _range
from stopgrad.ops.structural.sources import (
    constant,
    full as _full,
    identity,
    ones as _ones,
    ones_like as _ones_like,
    zeros as _zeros,
    zeros_like as _zeros_like,
)
from stopgrad.ops.xp.data_types import result_type
from stopgrad.ops.xp.support import check_copy, check_device, of_dtype, standard

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


@standard
def asarray(
    obj: Any, /, dtype: DTypeLike | None = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """An array from a number, nested lists, which may hold outputs, or another array.

    Args:
        obj: the values of the array. Python's numbers become int32, float32 or complex64.
        dtype: the dtype of the result; by default that of *obj*.
        device: None or "cpu".
        copy: True for a copy, False to refuse one.

    Returns:
        The array.

    Examples:
        >>> sg.xp.asarray([[1, 2], [3, 4]])
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    check_device(device)
    check_copy(copy)
    if isinstance(obj, (list, tuple)):
        check_copy(copy, True, "a list has to be copied into an array")
        return of_dtype(_stacked(obj), dtype) if _holds_outputs(obj) else _new_array(obj, dtype)
    if isinstance(obj, Output) or hasattr(obj, "as_output"):
        check_copy(
            copy, dtype is not None and d.dtype_of(dtype) is not d.type_of(obj).dtype, "the dtype changes"
        )
        return of_dtype(identity(obj) if copy else obj.as_output(), dtype)
    if d.default_graph() is not None:
        return _new_array(obj, dtype)
    array = d.as_array(obj, None if dtype is None or hasattr(obj, "dtype") else d.dtype_of(dtype))
    fits = isinstance(obj, np.ndarray) or hasattr(obj, "__array_interface__") or hasattr(obj, "__buffer__")
    same = dtype is None or array.dtype == d.dtype_of(dtype).numpy
    check_copy(copy, not fits or not same, "a copy is needed")
    converted = of_dtype(array, dtype)
    return np.array(converted) if copy and same else converted


def _new_array(obj: ArrayLike, dtype: DTypeLike | None) -> Tensor:
    if d.default_graph() is not None:
        return constant(obj, dtype)
    return of_dtype(d.as_array(obj), dtype) if dtype is None else d.as_array(obj, d.dtype_of(dtype))


def _holds_outputs(obj: object) -> bool:
    """Whether nested lists hold an output."""
    if isinstance(obj, (list, tuple)):
        return any([_holds_outputs(part) for part in obj])  # noqa: C419 - in a list, it shows as our own code
    return isinstance(obj, Output)


def _stacked(obj: ArrayLike) -> Tensor:
    return stack([_stacked(part) for part in obj]) if isinstance(obj, (list, tuple)) else obj


@standard
def arange(
    start: ArrayLike | Dim,
    /,
    stop: ArrayLike | Dim | None = None,
    step: ArrayLike | Dim = 1,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Numbers at equal distances, without the end: :func:`stopgrad.range`.

    Examples:
        >>> sg.xp.arange(1, 4)
        array([1, 2, 3], dtype=int32)
    """
    check_device(device)
    return _range(start, stop, step, dtype)


@standard
def empty(shape: ShapeLike, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """An array with arbitrary elements, which are zeros.

    Examples:
        >>> sg.xp.empty(2)
        array([0., 0.], dtype=float32)
    """
    return zeros(shape, dtype, device)


@standard
def empty_like(x: ArrayLike, /, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """An array of *x*'s shape with arbitrary elements, which are zeros.

    Examples:
        >>> sg.xp.empty_like(np.ones(2))
        array([0., 0.])
    """
    return zeros_like(x, dtype, device)


@standard
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere.

    Args:
        n_rows: the number of rows.
        n_cols: the number of columns; by default that of the rows.
        k: the diagonal: 0 for the main one, positive for those above it.
        dtype: the dtype of the result; float32 by default.
        device: None or "cpu".

    Returns:
        A matrix.

    Examples:
        >>> sg.xp.eye(2, k=1)
        array([[0., 1.],
               [0., 0.]], dtype=float32)
    """
    check_device(device)
    columns, offset = n_rows if n_cols is None else n_cols, k
    if d.is_whole(k) and d.is_whole(n_rows) and d.is_whole(columns):  # Any k is allowed.
        offset = max(-d.whole(n_rows), min(d.whole(k), d.whole(columns)))
    return _eye(n_rows, columns, dtype=d.float32 if dtype is None else dtype, k=offset)


@standard
def from_dlpack(x: object, /, device: str | None = None, copy: bool | None = None) -> Tensor:
    """An array of another library, through DLPack, without a copy if possible.

    Examples:
        >>> sg.xp.from_dlpack(np.arange(3.0))
        array([0., 1., 2.])
    """
    check_device(device)
    check_copy(copy)
    if isinstance(x, Output):
        return identity(x)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"{x!r:.60} has no __dlpack__; sg.xp.asarray takes numbers, lists and buffers")
    array = np.from_dlpack(x) if copy is None else np.from_dlpack(x, copy=bool(copy))
    return array if d.default_graph() is None else constant(array)


@standard
def full(
    shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """An array filled with one number: :func:`stopgrad.full`.

    Examples:
        >>> sg.xp.full(2, 7)
        array([7, 7], dtype=int32)
    """
    check_device(device)
    return _full(shape, fill_value, dtype)


@standard
def full_like(
    x: ArrayLike, /, fill_value: ArrayLike, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """An array filled with one number, in *x*'s shape and by default its dtype.

    Examples:
        >>> sg.xp.full_like(np.zeros(2), 7)
        array([7., 7.])
    """
    check_device(device)
    return _full_like(x, fill_value, dtype)


@standard
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """*num* numbers at equal distances from *start* to *stop*.

    Examples:
        >>> sg.xp.linspace(0.0, 1.0, 3)
        array([0. , 0.5, 1. ], dtype=float32)
    """
    check_device(device)
    count, to_the_end = d.whole(num), d.flag(endpoint, "endpoint")
    target = _floating(start, stop) if dtype is None else d.dtype_of(dtype)
    exact = target if target.is_differentiable else d.float64
    ends = of_dtype(start, exact), of_dtype(stop, exact)
    numbers = _linspace(*ends, count) if to_the_end or not count else _linspace(*ends, count + 1)[:-1]
    return of_dtype(numbers, target)


def _floating(*numbers: ArrayLike) -> DType:
    """The common dtype of numbers; float32 for integers."""
    common = result_type(*numbers)
    return common if common.is_differentiable else d.float32


@standard
def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid, one array for each axis: :func:`stopgrad.meshgrid`.

    Examples:
        >>> sg.xp.meshgrid(np.array([1.0, 2.0]), np.array([3.0]))
        (array([[1., 2.]]), array([[3., 3.]]))
    """
    return tuple(_meshgrid(*arrays, indexing=indexing))


@standard
def ones(shape: ShapeLike, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones: :func:`stopgrad.ones`.

    Examples:
        >>> sg.xp.ones(2)
        array([1., 1.], dtype=float32)
    """
    check_device(device)
    return _ones(shape, d.float32 if dtype is None else dtype)


@standard
def ones_like(x: ArrayLike, /, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones in *x*'s shape: :func:`stopgrad.ones_like`.

    Examples:
        >>> sg.xp.ones_like(np.zeros(2))
        array([1., 1.])
    """
    check_device(device)
    return of_dtype(_ones_like(x), dtype)


@standard
def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The lower triangle of matrices, up to a diagonal; 0 above it.

    Examples:
        >>> sg.xp.tril(np.ones((2, 2)))
        array([[1., 0.],
               [1., 1.]])
    """
    return _tril(x, k)


@standard
def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The upper triangle of matrices, from a diagonal on; 0 below it.

    Examples:
        >>> sg.xp.triu(np.ones((2, 2)))
        array([[1., 1.],
               [0., 1.]])
    """
    return _triu(x, k)


@standard
def zeros(shape: ShapeLike, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros: :func:`stopgrad.zeros`.

    Examples:
        >>> sg.xp.zeros(2)
        array([0., 0.], dtype=float32)
    """
    check_device(device)
    return _zeros(shape, d.float32 if dtype is None else dtype)


@standard
def zeros_like(x: ArrayLike, /, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros in *x*'s shape: :func:`stopgrad.zeros_like`.

    Examples:
        >>> sg.xp.zeros_like(np.ones(2))
        array([0., 0.])
    """
    check_device(device)
    return of_dtype(_zeros_like(x), dtype)
