"""Grids, masks from lengths, shapes as tensors, and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    DType,
    DTypeError,
    DTypeLike,
    Promotion,
    ShapeError,
    Size,
    Tensor,
)
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.elementwise.arithmetic import add, multiply
from stopgrad.ops.elementwise.compare import less
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.indexing.positions import as_indices
from stopgrad.ops.shapes.join import stack
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reshape
from stopgrad.ops.structural.sources import constant, fill, size_as

__all__ = [
    "convert_to_tensor",
    "full_like",
    "linspace",
    "map_structure",
    "meshgrid",
    "rank",
    "sequence_mask",
    "shape",
]


@d.guarded("linspace")
def linspace(start: ArrayLike, stop: ArrayLike, num: int, name: str | None = None, axis: int = 0) -> Tensor:
    """Numbers at equal distances from one to another, both included.

    Args:
        start: the first number, floating-point or complex; integers are converted.
        stop: the last number.
        num: the number of numbers.
        axis: the position of the new axis, if start and stop are not scalars.

    Returns:
        The numbers; only start if num is 1. Both ends have gradients.

    Constraints:
        (C1) start and stop have shapes that broadcast.
        (C2) num is not negative, and the axis exists in the result.

    Examples:
        >>> sg.linspace(np.float64(10.0), 12.0, 5)
        array([10. , 10.5, 11. , 11.5, 12. ])
    """
    first, last = d.together(start, stop, promotes=Promotion(d.is_inexact))
    count = d.whole(num)
    if count < 0:
        raise ArgumentError(f"(C2) num must not be negative, not {count}")
    ndim = max(d.type_of(first).ndim, d.type_of(last).ndim)
    position = d.normal_axis(axis, ndim + 1)
    dtype = d.type_of(first).dtype
    parts = np.arange(count, dtype=np.float64) / max(count - 1, 1)
    # A weighted sum of both ends, so that the last number is exactly *stop*.
    spread = (count, *(1,) * (ndim - position))
    first, last = (expand_dims(_of_rank(x, ndim), position) for x in (first, last))
    weights = np.reshape(parts, spread).astype(dtype.numpy)
    complements = np.reshape(1 - parts, spread).astype(dtype.numpy)
    return add(multiply(first, complements), multiply(last, weights), name)


def _of_rank(x: ArrayLike, ndim: int) -> Tensor:
    """*x* with axes of size 1 in front."""
    sizes = d.type_of(x).shape
    return x if len(sizes) == ndim else reshape(x, (*(1,) * (ndim - len(sizes)), *sizes))


@d.guarded("meshgrid")
def meshgrid(*args: ArrayLike, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """The coordinates of the points of a grid.

    Args:
        args: a vector of coordinates for each axis of the grid.
        indexing: "xy" for a grid whose first two axes are exchanged, as in pictures; "ij" for one whose axes
            come in order.

    Returns:
        A tensor for each vector, with its coordinate at each point.

    Constraints:
        (C1) The arguments are vectors or scalars.
        (C2) indexing is "xy" or "ij".

    Examples:
        >>> sg.meshgrid(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]))[0]
        array([[1., 2.],
               [1., 2.],
               [1., 2.]])
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"(C2) indexing={indexing!r}; take 'xy' or 'ij'")
    vectors = [tensor(x) for x in args]
    if any(d.type_of(x).ndim > 1 for x in vectors):
        raise ShapeError(f"(C1) takes vectors, not {[d.type_of(x) for x in vectors]}")
    vectors = [reshape(x, (1,)) if d.type_of(x).ndim == 0 else x for x in vectors]
    sizes = [d.type_of(x).shape[0] for x in vectors]
    order = np.arange(len(vectors)).tolist()
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    whole_grid = tuple(sizes[i] for i in order)
    coordinates = []
    for i, x in enumerate(vectors):
        place = order.index(i)
        column = reshape(x, (sizes[i], *(1,) * (len(vectors) - 1 - place)))
        coordinates.append(broadcast_to(column, whole_grid, name))
    return coordinates


@d.guarded("sequence_mask")
def sequence_mask(
    lengths: ArrayLike,
    maxlen: Size | str | None = None,
    dtype: DTypeLike = "bool",
    name: str | None = None,
) -> Tensor:
    """A mask of the positions that sequences of different lengths fill.

    Args:
        lengths: integers, of any shape.
        maxlen: the size of the new axis; by default the greatest length, which must then be known when the
            graph is built.
        dtype: the dtype of the result.

    Returns:
        A tensor of shape [*lengths.shape, maxlen], True, or 1, at the first positions of each
        row, as many as its length.

    Constraints:
        (C1) The lengths are integers.
        (C2) The size of the new axis is known when the graph is built.

    Examples:
        >>> sg.sequence_mask(np.array([1, 3]), 3)
        array([[ True, False, False],
               [ True,  True,  True]])
    """
    counts = as_indices(lengths)
    kind = d.type_of(counts)
    d.check_dtype(kind, d.is_integer, "integers as lengths")
    if maxlen is not None:
        size = d.shape_of(maxlen)[0]
    elif is_traced(counts):
        raise needs_size("(C2) the greatest length", "maxlen=")
    else:
        size = max(int(counts.max()), 0) if counts.size else 0
    hit = less(numbers(size), reshape(counts, (*kind.shape, 1)))
    return cast(hit, dtype, name)


@d.guarded("full_like")
def full_like(
    input: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """One value in the shape of another tensor.

    Args:
        input: any tensor.
        fill_value: the value: a number or a scalar tensor, which is converted to the dtype.
        dtype: the dtype of the result; by default the input's.

    Returns:
        A tensor of the input's shape.

    Constraints:
        (C1) The value is a scalar.

    Examples:
        >>> sg.full_like(np.zeros(2), 7.0)
        array([7., 7.])
    """
    kind = d.type_of(input)
    target = kind.dtype if dtype is None else d.dtype_of(dtype)
    value = d.as_array(fill_value, target) if d.is_python(fill_value) else cast(tensor(fill_value), target)
    if d.type_of(value).ndim:
        raise ShapeError(f"(C1) the value must be a scalar, not {d.type_of(value)!r}")
    return fill(kind.shape, value, name)


@d.guarded("rank")
def rank(input: ArrayLike, name: str | None = None) -> Tensor:
    """The number of axes of a tensor.

    Args:
        input: any tensor.

    Returns:
        The number, an int32 scalar. ``x.ndim`` is the same number as a Python int.

    Examples:
        >>> sg.rank(np.zeros((2, 3)))
        array(2, dtype=int32)
    """
    return constant(np.int32(d.type_of(input).ndim), name=name)


@d.guarded("shape")
def shape(input: ArrayLike, out_type: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """The sizes of a tensor, as a tensor.

    Args:
        input: any tensor.
        out_type: int32 or int64; int32 by default.

    Returns:
        A vector with the size of each axis; sizes that are not known yet are read when the graph runs.
        ``x.shape`` is a tuple of the sizes.

    Constraints:
        (C1) out_type is a dtype of integers.

    Examples:
        >>> sg.shape(np.zeros((2, 3)))
        array([2, 3], dtype=int32)
    """
    kind, target = d.type_of(input), d.int32 if out_type is None else d.dtype_of(out_type)
    d.check_dtype(d.tensor_type(target, ()), d.is_integer, "a dtype of integers")
    if not kind.symbolic:
        return constant(np.asarray(kind.shape, target.numpy), name=name)
    return stack([size_as(size, target, input) for size in kind.shape], name=name)


# ------------------------------------------------------------------------------------- values and structures


@d.guarded("convert_to_tensor")
def convert_to_tensor(
    value: ArrayLike,
    dtype: DTypeLike | None = None,
    dtype_hint: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A value as a tensor.

    Args:
        value: a number, an array, a tensor, or nested lists of them. Python numbers are int32, float32 or
            complex64.
        dtype: the dtype that the result must have; tensors and arrays of another dtype are refused, and
            Python numbers are converted.
        dtype_hint: a dtype to which Python numbers are converted, if that loses nothing.

    Returns:
        The tensor: an output of a graph unchanged, and an array outside of a graph.

    Constraints:
        (C1) A value that has a dtype has the one that is asked for.

    Examples:
        >>> sg.convert_to_tensor([1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    target = None if dtype is None else d.dtype_of(dtype)
    hint = None if dtype_hint is None else d.dtype_of(dtype_hint)
    if (
        isinstance(value, (list, tuple))
        and not d.is_python(value)
        and any(map(_is_tensor, d.flatten(value)[0]))
    ):
        value = _stacked(value, target)
    if _is_tensor(value):
        value = tensor(value)
        actual = d.type_of(value).dtype
        if target is not None and actual is not target:
            raise DTypeError(f"(C1) {d.type_of(value)!r} is not of {target}; convert with sg.cast")
        return named(value, name) if is_traced(value) else constant(value, name=name)
    if target is None and hint is not None:
        array = d.as_array(value)
        if np.array_equal(array.astype(hint.numpy).astype(array.dtype), array):
            target = hint
    return constant(value, target, name=name)


def _is_tensor(x: object) -> bool:
    return is_traced(x) or hasattr(x, "dtype")


def _stacked(value: Sequence[Any], dtype: DType | None) -> Tensor:
    """Nested lists with tensors among them as one tensor, the innermost lists first."""
    stack_of: list[tuple[Any, list[Any]]] = [(value, [])]
    while True:
        entries, done = stack_of[-1]
        if len(done) == len(entries):
            stacked = stack(_together(done, dtype))
            stack_of.pop()
            if not stack_of:
                return stacked
            stack_of[-1][1].append(stacked)
        elif isinstance(entries[len(done)], (list, tuple)):
            stack_of.append((entries[len(done)], []))
        else:
            done.append(entries[len(done)])


def _together(parts: list[Any], dtype: DType | None) -> list[Any]:
    return [d.as_array(p, dtype) if dtype is not None and d.is_python(p) else p for p in parts]


@d.guarded("map_structure")
def map_structure(func: Callable[..., object], *structure: object) -> Any:
    """A structure of the results of a function of the leaves, of one structure or of several.

    Args:
        func: a function with one argument for each structure.
        structure: one or more nested structures of lists, tuples, dicts, named tuples and dataclasses, all
            with the same nesting. None is an empty structure.

    Returns:
        A structure like the first, with the function's results.

    Constraints:
        (C1) There is a function, and at least one structure.
        (C2) The structures have the same nesting.

    Examples:
        >>> sg.map_structure(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
        {'a': 11, 'b': (22, 33)}
    """
    if not callable(func) or not structure:
        raise ArgumentError(
            f"(C1) takes a function and at least one structure, not {d.shorten(func)} and {len(structure)}"
        )
    leaves, spec = d.flatten(structure[0])
    columns = [leaves]
    for other in structure[1:]:
        more, also = d.flatten(other)
        if also != spec:
            raise ArgumentError(f"(C2) the structures differ: {d.shown(spec)} and {d.shown(also)}")
        columns.append(more)
    return d.unflatten(spec, [d.call(func, *row) for row in zip(*columns, strict=True)])
