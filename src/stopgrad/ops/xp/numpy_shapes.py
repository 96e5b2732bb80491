"""NumPy's functions that shape, join and multiply, on outputs."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    Dim,
    DTypeLike,
    NumpyArray,
    ShapeError,
    ShapeLike,
    Tensor,
)
from stopgrad.ops.elementwise.arithmetic import multiply
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.contractions import einsum as _einsum, tensordot
from stopgrad.ops.linalg.diagonals import diag as _diag
from stopgrad.ops.linalg.norms import matrix_norm as _matrix_norm
from stopgrad.ops.shapes.join import concat as _concat, pad as _pad, split as _split, stack as _stack
from stopgrad.ops.shapes.reshape import transpose as _transpose
from stopgrad.ops.structural.sources import identity
from stopgrad.ops.xp import creation, elementwise, linalg, manipulation, statistical
from stopgrad.ops.xp.numpy_form import FORMS, form, without
from stopgrad.ops.xp.support import as_tuple, flat, of_dtype

# ------------------------------------------------------------------------------------------------ shapes


@form
def reshape(a: ArrayLike, /, shape: ShapeLike, order: str = "C", *, copy: bool | None = None) -> Tensor:
    without("reshape", {"order": order})
    return manipulation.reshape(a, shape, copy)


@form
def ravel(a: ArrayLike, order: str = "C") -> Tensor:
    without("ravel", {"order": order})
    return flat(a)


@form
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Tensor:
    return _transpose(a, axes)


@form
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Tensor:
    ndim = d.type_of(a).ndim
    axis, place = d.normal_axis(axis, ndim), d.whole(start) % (ndim + 1) if start < 0 else d.whole(start)
    return manipulation.moveaxis(a, axis, place - 1 if axis < place else place)


@form
def concatenate(
    arrays: Sequence[ArrayLike], /, axis: int | None = 0, out: None = None, *, dtype: DTypeLike | None = None
) -> Tensor:
    return of_dtype(manipulation.concat(arrays, axis), dtype)


@form
def stack(
    arrays: Sequence[ArrayLike], axis: int = 0, out: None = None, *, dtype: DTypeLike | None = None
) -> Tensor:
    return of_dtype(_stack(d.as_list(arrays), axis), dtype)


def _raised(x: ArrayLike, ndim: int) -> Tensor:
    """*x* with axes of size 1 in front, so that it has at least *ndim* axes."""
    shape = d.type_of(x).shape
    return x if len(shape) >= ndim else manipulation.reshape(x, (1,) * (ndim - len(shape)) + shape)


@form
def atleast_1d(*arys: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    raised = tuple([_raised(x, 1) for x in arys])
    return raised[0] if len(raised) == 1 else raised


@form
def atleast_2d(*arys: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    raised = tuple([_raised(x, 2) for x in arys])
    return raised[0] if len(raised) == 1 else raised


@form
def atleast_3d(*arys: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    raised = tuple([_three(x) for x in arys])
    return raised[0] if len(raised) == 1 else raised


def _three(x: ArrayLike) -> Tensor:
    shape = d.type_of(x).shape
    if len(shape) > 2:
        return x
    return manipulation.reshape(x, (1, *shape, 1) if len(shape) == 1 else (*(shape or (1, 1)), 1))


@form
def vstack(tup: Sequence[ArrayLike], *, dtype: DTypeLike | None = None) -> Tensor:
    return of_dtype(_concat([_raised(x, 2) for x in d.as_list(tup)], 0), dtype)


@form
def hstack(tup: Sequence[ArrayLike], *, dtype: DTypeLike | None = None) -> Tensor:
    parts = [_raised(x, 1) for x in d.as_list(tup)]
    return of_dtype(_concat(parts, 0 if d.type_of(parts[0]).ndim == 1 else 1), dtype)


@form
def dstack(tup: Sequence[ArrayLike]) -> Tensor:
    return _concat([_three(x) for x in d.as_list(tup)], 2)


@form
def column_stack(tup: Sequence[ArrayLike]) -> Tensor:
    parts = [_raised(x, 1) for x in d.as_list(tup)]
    return _concat([manipulation.expand_dims(x, 1) if d.type_of(x).ndim == 1 else x for x in parts], 1)


@form
def array_split(
    ary: ArrayLike, indices_or_sections: int | Sequence[int] | NumpyArray, axis: int = 0
) -> list[Tensor]:
    axis = d.normal_axis(axis, d.type_of(ary).ndim)
    size = d.type_of(ary).shape[axis]
    if not isinstance(size, int):
        raise ShapeError(f"the size {size} of axis {axis} is not known yet; sg.split takes symbolic sizes")
    if isinstance(indices_or_sections, (Sequence, np.ndarray)):
        ends = [slice(0, d.whole(i)).indices(size)[1] for i in indices_or_sections]
        return [
            part_of(ary, axis, start, builtins.max(stop - start, 0))
            for start, stop in zip([0, *ends], [*ends, size], strict=True)
        ]
    parts = d.whole(indices_or_sections)
    if parts < 1:
        raise ArgumentError(f"the number of parts must be positive, not {parts}")
    return list(_split(ary, [size // parts + (i < size % parts) for i in range(parts)], axis))


@form
def split(
    ary: ArrayLike, indices_or_sections: int | Sequence[int] | NumpyArray, axis: int = 0
) -> list[Tensor]:
    if isinstance(indices_or_sections, (Sequence, np.ndarray)):
        return array_split(ary, indices_or_sections, axis)
    return list(_split(ary, d.whole(indices_or_sections), axis))


@form
def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | NumpyArray) -> list[Tensor]:
    return split(ary, indices_or_sections, 0 if d.type_of(ary).ndim == 1 else 1)


@form
def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | NumpyArray) -> list[Tensor]:
    return split(ary, indices_or_sections, 0)


@form
def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | NumpyArray) -> list[Tensor]:
    return split(ary, indices_or_sections, 2)


@form
def fliplr(m: ArrayLike) -> Tensor:
    return manipulation.flip(m, 1)


@form
def flipud(m: ArrayLike) -> Tensor:
    return manipulation.flip(m, 0)


@form
def tile(A: ArrayLike, reps: int | Sequence[int]) -> Tensor:
    return manipulation.tile(A, reps)


@form
def pad(
    array: ArrayLike, pad_width: npt.ArrayLike, mode: str = "constant", *, constant_values: ArrayLike = 0
) -> Tensor:
    ndim = d.type_of(array).ndim
    widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2)).tolist()
    modes = {"constant": "CONSTANT", "reflect": "REFLECT", "symmetric": "SYMMETRIC"}
    if mode not in modes:
        raise ArgumentError(f"mode is one of {', '.join(map(repr, modes))} on outputs, not {mode!r:.60}")
    return _pad(array, widths, mode=modes[mode], constant_values=constant_values)


@form
def broadcast_to(array: ArrayLike, shape: ShapeLike, subok: bool = False) -> Tensor:
    return manipulation.broadcast_to(array, shape)


@form
def ndim(a: ArrayLike) -> int:
    return d.type_of(a).ndim


@form
def shape(a: ArrayLike) -> tuple[Any, ...]:
    return d.type_of(a).shape


@form
def size(a: ArrayLike, axis: int | Sequence[int] | None = None) -> int | Dim:
    shape = d.type_of(a).shape
    return d.product(tuple([shape[i] for i in d.normal_axes(axis, len(shape))]))


@form
def copy(a: ArrayLike, order: str = "K", subok: bool = False) -> Tensor:
    return identity(a)


# ---------------------------------------------------------------------------------------------- new arrays


@form
def zeros_like(a: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    return creation.zeros_like(a, dtype)


@form
def ones_like(a: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    return creation.ones_like(a, dtype)


@form
def empty_like(a: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    return creation.zeros_like(a, dtype)


@form
def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    return creation.full_like(a, fill_value, dtype)


# ------------------------------------------------------------------------------------------ linear algebra


@form
def dot(a: ArrayLike, b: ArrayLike, out: None = None) -> Tensor:
    left, right = d.type_of(a).ndim, d.type_of(b).ndim
    if not left or not right:
        return multiply(a, b)
    return tensordot(a, b, ((left - 1,), (builtins.max(right - 2, 0),)))


@form
def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    left, right = d.type_of(a).ndim, d.type_of(b).ndim
    if not left or not right:
        return multiply(a, b)
    return tensordot(a, b, ((left - 1,), (right - 1,)))


@form
def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    return statistical.sum(multiply(elementwise.conj(flat(a)), flat(b)))


@form
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Tensor:
    return multiply(manipulation.expand_dims(flat(a), 1), flat(b))


@form
def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    if axis is None and ord is None:
        return linalg.vector_norm(x, None, keepdims)
    axes = as_tuple(tuple(range(d.type_of(x).ndim)) if axis is None else axis)
    if len(axes) == 1:
        return linalg.vector_norm(x, axes, keepdims, 2 if ord is None else ord)
    return _matrix_norm(x, keepdims, "fro" if ord is None else ord, axes)


FORMS["linalg.norm"] = FORMS.pop("norm")  # There is no np.norm.


@form
def einsum(*operands: Any) -> Tensor:
    return _einsum(*operands)


@form
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Tensor:
    return statistical.sum(diagonal(a, offset, axis1, axis2), -1, dtype)


@form
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return linalg.diagonal(manipulation.moveaxis(a, (axis1, axis2), (-2, -1)), offset)


@form
def diag(v: ArrayLike, k: int = 0) -> Tensor:
    return _diag(v, k=k) if d.type_of(v).ndim == 1 else linalg.diagonal(v, k)
