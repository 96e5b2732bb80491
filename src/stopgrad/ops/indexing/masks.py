"""Where conditions hold.

The shape of such a result depends on data. For arrays it is known at once. For tensors of a graph, ``size``
says how many places the result has: further places are left out, and ``fill_value`` stands for missing ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Dim, ShapeError, ShapeLike, Size, Tensor
from stopgrad.ops.composing import is_traced, named, needs_size, tensor as tensor_of
from stopgrad.ops.elementwise import convert
from stopgrad.ops.elementwise.arithmetic import floor_div, floormod, subtract
from stopgrad.ops.elementwise.compare import less
from stopgrad.ops.elementwise.convert import SelectV2, cast
from stopgrad.ops.indexing.gather import GatherV2
from stopgrad.ops.indexing.indexed_updates import like
from stopgrad.ops.indexing.scatters import put
from stopgrad.ops.reductions.cumulative import cumsum
from stopgrad.ops.shapes.join import stack
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import constant, fill, size_as

__all__ = [
    "argwhere",
    "boolean_mask",
    "nonzero",
    "where",
]


def places_of(hit: ArrayLike, size: ShapeLike) -> Tensor:
    """The places where a vector of conditions holds, in order; -1 where there are no more."""
    target = convert.where(hit, subtract(cumsum(cast(hit, d.int32)), 1), np.int32(-1))
    return put(fill(d.shape_of(size)[:1], np.int32(-1)), target, numbers(d.type_of(hit).shape[0]))


def _coordinates(x: ArrayLike, size: Size | None, fill_value: int, what: str) -> list[Tensor]:
    """For each axis, the indices of the elements that are not 0."""
    tensor = tensor_of(x)
    if size is None:
        if is_traced(tensor):
            raise needs_size(what, "size=, as many as there may be")
        size = int(np.count_nonzero(tensor))
    sizes, filler = d.type_of(tensor).shape, np.int32(d.whole(fill_value))
    places = places_of(reshape(cast(tensor, "bool"), (d.product(sizes),)), size)
    missing, coordinates = less(places, 0), []
    for n in sizes[::-1]:
        number = size_as(n if isinstance(n, Dim) else max(n, 1), d.int32, places)
        coordinates.append(cast(convert.where(missing, filler, floormod(places, number)), d.int64))
        places = floor_div(places, number)
    return coordinates[::-1]


@d.guarded("nonzero")
def nonzero(
    x: ArrayLike, name: str | None = None, *, size: Size | None = None, fill_value: int = 0
) -> tuple[Tensor, ...]:
    """Where the elements are that are not 0.

    Args:
        x: any tensor; of booleans, those that hold are found.
        size: how many places the result has. It is needed where x is known only when the graph runs.
        fill_value: the index where there are no more elements.

    Returns:
        For each axis of x a vector of int64, the elements' indices along it, in row-major order.

    Constraints:
        (C1) x has an axis.
        (C2) The size of the result is known when the graph is built.

    Examples:
        >>> sg.nonzero(np.array([0.0, 3.0, 0.0, 4.0]))
        (array([1, 3]),)
        >>> sg.nonzero(np.array([0.0, 3.0, 0.0, 4.0]), size=3, fill_value=-1)
        (array([ 1,  3, -1]),)
    """
    if not d.type_of(x).ndim:
        raise ShapeError("(C1) a scalar has no axis along which to look; reshape it to [1]")
    coordinates = _coordinates(x, size, fill_value, "(C2) the number of elements that are not 0")
    return tuple(named(indices, name) for indices in coordinates)


@d.guarded("argwhere")
def argwhere(
    x: ArrayLike, name: str | None = None, *, size: Size | None = None, fill_value: int = 0
) -> Tensor:
    """Where the elements are that are not 0, a row of indices for each.

    Args:
        x: any tensor; of booleans, those that hold are found.
        size: how many rows the result has. It is needed where x is known only when the graph runs.
        fill_value: the index where there are no more elements.

    Returns:
        A tensor of int64 of shape [size, x.ndim].

    Constraints:
        (C1) The size of the result is known when the graph is built.

    Examples:
        >>> sg.argwhere(np.array([[0.0, 3.0], [4.0, 0.0]]))
        array([[0, 1],
               [1, 0]])
    """
    coordinates = _coordinates(x, size, fill_value, "(C1) the number of elements that are not 0")
    if not coordinates:
        rows = size if size is not None else int(np.count_nonzero(d.as_array(x)))
        return constant(np.zeros((d.shape_of(rows)[0], 0), np.int64), name=name)
    return stack(coordinates, 1, name)


@d.builds(SelectV2, alike=True)
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    name: str | None = None,
    *,
    size: Size | None = None,
    fill_value: int = 0,
) -> Tensor:
    """Elementwise choice, with broadcasting; of a condition alone, where it holds.

    Args:
        condition: booleans.
        x: what is taken where the condition holds.
        y: what is taken elsewhere.
        size: without x and y, how many places the result has.
        fill_value: without x and y, the index where there are no more places.

    Returns:
        The values of x where the condition holds, elsewhere those of y, brought to one dtype. The operand
        that is not chosen gets a gradient of exactly zero; where its own derivative is infinite that zero
        becomes NaN, so guard its argument as well. Without x and y, the indices of where the condition holds:
        :func:`argwhere`.

    Constraints:
        (C1) The condition holds booleans, and both or none of x and y are given.
        (C2) The three shapes broadcast.

    Examples:
        >>> sg.where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
        array([1., 0.])
        >>> sg.where(np.array([True, False, True]))
        array([[0],
               [2]])
    """
    if x is None and y is None:
        return argwhere(condition, name, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentError(
            "SelectV2: (C1) takes x and y, or neither of them for the places where the condition holds"
        )
    if size is not None:
        raise ArgumentError(
            "SelectV2: size= is for a condition alone; the result has the shape of condition, x and y"
        )
    return d.apply(SelectV2, (condition, x, y), (), name)


@d.guarded("boolean_mask")
def boolean_mask(
    tensor: ArrayLike,
    mask: ArrayLike,
    axis: int | None = None,
    name: str | None = None,
    *,
    size: Size | None = None,
    fill_value: ArrayLike = 0,
) -> Tensor:
    """The slices of a tensor for which a mask holds.

    Args:
        tensor: any tensor.
        mask: booleans, of the shape of some neighbouring axes of the tensor.
        axis: the first of these axes; 0 by default.
        size: how many slices the result has. It is needed where the mask is known only when the graph runs;
            further slices are left out.
        fill_value: the value of the elements of missing slices.

    Returns:
        The slices, with one axis in place of those of the mask. The gradient goes back to where they were.

    Constraints:
        (C1) The mask holds booleans, and has an axis.
        (C2) It has the shape of the tensor's axes from that axis on.
        (C3) The size of the result is known when the graph is built.

    Examples:
        >>> sg.boolean_mask(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
        array([1., 3.])
        >>> sg.boolean_mask(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), size=3)
        array([1., 3., 0.])
    """
    kind, mask_type = d.type_of(tensor), d.type_of(mask)
    d.check_dtype(mask_type, d.is_boolean, "a mask of booleans")
    if not mask_type.ndim:
        raise ShapeError("(C1) a scalar is no mask; take sg.where(mask, tensor, 0)")
    first = 0 if axis is None else d.normal_axis(axis, kind.ndim)
    sizes = kind.shape[first : first + mask_type.ndim]
    if not d.same_shape(mask_type.shape, sizes):
        raise ShapeError(
            f"(C2) a mask of shape {d.show_shape(mask_type.shape)} for axes of shape {d.show_shape(sizes)}"
        )
    if size is None:
        if is_traced(mask):
            raise needs_size("(C3) how many slices there are", "size=, or take sg.where(mask, tensor, 0)")
        places: Any = np.flatnonzero(d.as_array(mask)).astype(np.int32)
    else:
        places = places_of(reshape(mask, (d.product(mask_type.shape),)), size)
    flat = reshape(tensor, (*kind.shape[:first], d.product(sizes), *kind.shape[first + mask_type.ndim :]))
    chosen = d.apply(GatherV2, (flat, places), (first, 0))
    if size is None or _is_zero(fill_value):
        return named(chosen, name)
    missing = reshape(less(places, 0), (-1, *(1,) * (kind.ndim - first - mask_type.ndim)))
    return convert.where(missing, like(fill_value, chosen, "C4"), chosen, name)


def _is_zero(x: ArrayLike) -> bool:
    return d.is_python(x) and not isinstance(x, (list, tuple)) and bool(x == 0)
