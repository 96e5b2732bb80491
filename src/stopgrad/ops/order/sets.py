"""Sets: the distinct values of tensors, and which of them occur in other tensors.

The shape of such a result depends on data. For arrays it is known at once. For tensors of a graph, ``size``
is the number of values in the result: more values are left out, and ``fill_value`` fills a rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, DTypeLike, Promotion, Size, Tensor
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.elementwise import convert
from stopgrad.ops.elementwise.arithmetic import minimum, subtract
from stopgrad.ops.elementwise.compare import equal, greater, logical_and, logical_not
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.indexing.gather import GatherV2, TensorScatterAdd, gather
from stopgrad.ops.indexing.indexed_updates import like
from stopgrad.ops.indexing.masks import places_of
from stopgrad.ops.indexing.scatters import begins, put
from stopgrad.ops.order.bins import searchsorted
from stopgrad.ops.order.sorting import argsort, sort
from stopgrad.ops.reductions.cumulative import cumsum
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import fill, size_as

__all__ = [
    "intersect1d",
    "isin",
    "setdiff1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unique_with_counts",
]


class Unique(NamedTuple):
    """The distinct values, and the index of each element among them."""

    y: Tensor
    idx: Tensor


class UniqueWithCounts(NamedTuple):
    """The distinct values, the index of each element among them, and their counts."""

    y: Tensor
    idx: Tensor
    count: Tensor


class UniqueAll(NamedTuple):
    """The distinct values, their first positions, the index of each element among them, and their counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The distinct values, and their counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The distinct values, and the index of each element among them."""

    values: Tensor
    inverse_indices: Tensor


class _Groups(NamedTuple):
    """The distinct values of a vector in order, padded to its length, and each element's index among them.

    ``first`` is the position where a value occurs first; ``counts`` is 0 for the padding.
    """

    values: Tensor
    first: Tensor
    inverse: Tensor
    counts: Tensor


def _grouped(flat: ArrayLike) -> _Groups:
    n = d.type_of(flat).shape[0]
    if isinstance(n, int) and n == 0:
        none = fill((0,), np.int32(0))
        return _Groups(flat, none, none, none)
    order = _order(flat)
    ordered = gather(flat, order)
    new = begins(ordered, 0, False)
    group = subtract(cumsum(cast(new, d.int32)), 1)
    starts = places_of(new, n)
    zeros = fill((n,), np.int32(0))
    values = d.apply(GatherV2, (ordered, starts), (0, 0))
    first = d.apply(GatherV2, (order, starts), (0, 0))
    counts = d.apply(TensorScatterAdd, (zeros, group, fill((n,), np.int32(1))), (0, 0))
    return _Groups(values, first, put(zeros, order, group), counts)


def _order(flat: ArrayLike) -> Tensor:
    """The order that sorts a vector; complex numbers by their real parts, then by their imaginary ones."""
    if not d.type_of(flat).dtype.is_complex:
        return argsort(_sortable(flat))
    by_imaginary = argsort(convert.imag(flat))
    return gather(by_imaginary, argsort(gather(convert.real(flat), by_imaginary), stable=True))


def _sortable(x: ArrayLike) -> Tensor:
    """*x*, with booleans converted to numbers."""
    return cast(x, "uint8") if d.type_of(x).dtype.is_bool else x


def _by_appearance(groups: _Groups) -> _Groups:
    """The groups in order of first occurrence."""
    n = d.type_of(groups.values).shape[0]
    order = argsort(convert.where(equal(groups.counts, 0), size_as(n, d.int32, groups.first), groups.first))
    place = put(fill((n,), np.int32(0)), order, numbers(n))
    values, first, counts = (gather(part, order) for part in (groups.values, groups.first, groups.counts))
    return _Groups(values, first, gather(place, groups.inverse), counts)


def _unique(
    x: ArrayLike, size: Size | str | None, fill_value: ArrayLike | None, by_appearance: bool
) -> _Groups:
    """The groups of a tensor's elements, *size* of them, or by default all."""
    x = tensor(x)
    kind = d.type_of(x)
    exact = size is None
    if exact:
        if is_traced(x):
            raise needs_size("(C2) the number of values", "size=, as many as there may be")
        size = np.unique(x, equal_nan=False).size
    count = d.shape_of(size)[0]
    groups = _grouped(reshape(x, (d.product(kind.shape),)))
    groups = _by_appearance(groups) if by_appearance else groups
    place = numbers(count)
    values, first, counts = (
        d.apply(GatherV2, (part, place), (0, 0)) for part in (groups.values, groups.first, groups.counts)
    )
    if exact and fill_value is None:
        return _Groups(values, first, reshape(groups.inverse, kind.shape), counts)
    filler = (
        gather(groups.values, np.zeros((), np.int32))
        if fill_value is None
        else like(fill_value, values, "C3")
    )
    values = convert.where(equal(counts, 0), filler, values)
    return _Groups(values, first, reshape(groups.inverse, kind.shape), counts)


@d.guarded("unique")
def unique(
    x: ArrayLike,
    out_idx: DTypeLike = "int32",
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Unique:
    """The distinct values of a tensor, in order of first occurrence.

    Args:
        x: booleans or numbers. NaN equals nothing, so that each NaN is a value of its own.
        out_idx: the dtype of the indices.
        size: the number of values in the result. It is needed if x is known only when the graph runs; further
            values are left out.
        fill_value: the value for positions after the last value; the first value by default.

    Returns:
        A named tuple of the values, y, and the index of each element of x among them, idx: x = y[idx]. The
        gradient of a value goes to the element where it occurs first.

    Constraints:
        (C1) x holds booleans or numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to x's dtype without loss.

    Examples:
        >>> sg.unique(np.array([3.0, 1.0, 3.0]))
        Unique(y=array([3., 1.]), idx=array([0, 1, 0], dtype=int32))
    """
    uniques = _unique(x, size, fill_value, True)
    return Unique(named(uniques.values, name), cast(uniques.inverse, out_idx))


@d.guarded("unique_with_counts")
def unique_with_counts(
    x: ArrayLike,
    out_idx: DTypeLike = "int32",
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> UniqueWithCounts:
    """The distinct values of a tensor, in order of first occurrence, and their counts.

    Args:
        x: booleans or numbers. NaN equals nothing, so that each NaN is a value of its own.
        out_idx: the dtype of the indices and counts.
        size: the number of values in the result. It is needed if x is known only when the graph runs; further
            values are left out.
        fill_value: the value for positions after the last value, whose count is 0; the first value by
            default.

    Returns:
        A named tuple of the values, y; the index of each element of x among them, idx; and the count of each
        value.

    Constraints:
        (C1) x holds booleans or numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to x's dtype without loss.

    Examples:
        >>> sg.unique_with_counts(np.array([3.0, 1.0, 3.0])).count
        array([2, 1], dtype=int32)
    """
    uniques = _unique(x, size, fill_value, True)
    return UniqueWithCounts(
        named(uniques.values, name), cast(uniques.inverse, out_idx), cast(uniques.counts, out_idx)
    )


@d.guarded("unique_all")
def unique_all(
    x: ArrayLike,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> UniqueAll:
    """The distinct values of a tensor, sorted, with their first positions, inverse indices and counts.

    Args:
        x: booleans or numbers. NaN equals nothing, so that each NaN is a value of its own.
        size: the number of values in the result. It is needed if x is known only when the graph runs.
        fill_value: the value for positions after the last value, whose count is 0; the least value by
            default.

    Returns:
        A named tuple of the values; indices: the position in x, in row-major order, where each occurs first;
        inverse_indices: the index of each element of x among the values; and counts.

    Constraints:
        (C1) x holds booleans or numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to x's dtype without loss.

    Examples:
        >>> sg.unique_all(np.array([3.0, 1.0, 3.0])).indices
        array([1, 0])
    """
    uniques = _unique(x, size, fill_value, False)
    rest = (cast(part, d.int64) for part in (uniques.first, uniques.inverse, uniques.counts))
    return UniqueAll(named(uniques.values, name), *rest)


@d.guarded("unique_counts")
def unique_counts(
    x: ArrayLike,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> UniqueCounts:
    """The distinct values of a tensor, sorted, and their counts: two results of :func:`unique_all`.

    Args:
        x: booleans or real numbers.
        size: the number of values in the result. It is needed if x is known only when the graph runs.
        fill_value: the value for positions after the last value; the least value by default.

    Returns:
        A named tuple of the values and their counts.

    Examples:
        >>> sg.unique_counts(np.array([3.0, 1.0, 3.0]))
        UniqueCounts(values=array([1., 3.]), counts=array([1, 2]))
    """
    uniques = _unique(x, size, fill_value, False)
    return UniqueCounts(named(uniques.values, name), cast(uniques.counts, d.int64))


@d.guarded("unique_inverse")
def unique_inverse(
    x: ArrayLike,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> UniqueInverse:
    """The distinct values of a tensor, sorted, and its inverse indices: two results of :func:`unique_all`.

    Args:
        x: booleans or real numbers.
        size: the number of values in the result. It is needed if x is known only when the graph runs.
        fill_value: the value for positions after the last value; the least value by default.

    Returns:
        A named tuple of the values and the inverse indices.

    Examples:
        >>> sg.unique_inverse(np.array([3.0, 1.0, 3.0]))
        UniqueInverse(values=array([1., 3.]), inverse_indices=array([1, 0, 1]))
    """
    uniques = _unique(x, size, fill_value, False)
    return UniqueInverse(named(uniques.values, name), cast(uniques.inverse, d.int64))


@d.guarded("unique_values")
def unique_values(
    x: ArrayLike,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:
    """The distinct values of a tensor, sorted.

    Args:
        x: booleans or real numbers.
        size: the number of values in the result. It is needed if x is known only when the graph runs.
        fill_value: the value for positions after the last value; the least value by default.

    Returns:
        The values, a vector.

    Examples:
        >>> sg.unique_values(np.array([3.0, 1.0, 3.0]))
        array([1., 3.])
    """
    return named(_unique(x, size, fill_value, False).values, name)


# ----------------------------------------------------------------------------------- which occur elsewhere


@d.guarded("isin")
def isin(
    x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, invert: bool = False, name: str | None = None
) -> Tensor:
    """Which elements of a tensor occur in another.

    Args:
        x1: booleans or real numbers.
        x2: the values to look for them among, of any shape; both are converted to one dtype.
        assume_unique: whether x2 holds no value twice; the result is the same.
        invert: whether to return which do not occur instead.

    Returns:
        Booleans of x1's shape. NaN occurs nowhere.

    Constraints:
        (C1) Both hold booleans or real numbers.

    Examples:
        >>> sg.isin(np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0]))
        array([ True, False,  True])
    """
    d.flag(assume_unique, "assume_unique")
    x, among = d.together(x1, x2, promotes=Promotion(d.is_any))
    for operand in (x, among):
        d.check_dtype(d.type_of(operand), lambda dtype: not dtype.is_complex, "booleans or real numbers")
    hit = _among(_sortable(x), _sortable(among))
    return logical_not(hit, name) if d.flag(invert, "invert") else named(hit, name)


def _among(x: ArrayLike, among: ArrayLike) -> Tensor:
    """Which elements of *x* occur in *among*."""
    count = d.product(d.type_of(among).shape)
    if isinstance(count, int) and count == 0:
        return fill(d.type_of(x).shape, np.zeros((), np.bool_))
    ordered = sort(reshape(among, (count,)))
    places = minimum(searchsorted(ordered, x), size_as(count - 1, d.int32, ordered))
    return equal(d.apply(GatherV2, (ordered, places), (0, 0)), x)


def _set_operation(
    x: ArrayLike,
    y: ArrayLike,
    size: Size | str | None,
    fill_value: ArrayLike | None,
    inside: bool,
    name: str | None,
) -> Tensor:
    """The distinct values of *x*, sorted, that occur in *y*, or with *inside* False those that do not."""
    x, y = d.together(x, y, promotes=Promotion(d.is_any))
    for operand in (x, y):
        d.check_dtype(d.type_of(operand), lambda dtype: not dtype.is_complex, "booleans or real numbers")
    exact = size is None
    if exact:
        if is_traced(x) or is_traced(y):
            raise needs_size("(C2) the number of values", "size=, as many as there may be")
        values = np.unique(x, equal_nan=False)
        size = int(np.count_nonzero(np.isin(values, y, invert=not inside)))
    groups = _grouped(reshape(x, (d.product(d.type_of(x).shape),)))
    hit = _among(_sortable(groups.values), _sortable(y))
    keep = logical_and(greater(groups.counts, 0), hit if inside else logical_not(hit))
    place = places_of(keep, size)
    picked = d.apply(GatherV2, (groups.values, place), (0, 0))
    if exact:
        return named(picked, name)
    filler = gather(picked, np.zeros((), np.int32)) if fill_value is None else like(fill_value, picked, "C3")
    return convert.where(equal(place, -1), filler, picked, name)


@d.guarded("setdiff1d")
def setdiff1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:
    """The values that occur in one tensor and not in another, sorted.

    Args:
        x: booleans or real numbers.
        y: the values to leave out; both are converted to one dtype.
        assume_unique: whether neither holds a value twice; the result is the same.
        size: the number of values in the result. It is needed if x or y is known only when the graph runs.
        fill_value: the value for positions after the last value; the first value by default.

    Returns:
        The values, a vector.

    Constraints:
        (C1) Both hold booleans or real numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to their dtype without loss.

    Examples:
        >>> sg.setdiff1d(np.array([3.0, 1.0, 2.0, 3.0]), np.array([1.0]))
        array([2., 3.])
    """
    d.flag(assume_unique, "assume_unique")
    return _set_operation(x, y, size, fill_value, False, name)


@d.guarded("intersect1d")
def intersect1d(
    x: ArrayLike,
    y: ArrayLike,
    assume_unique: bool = False,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:
    """The values that occur in both of two tensors, sorted.

    Args:
        x: booleans or real numbers.
        y: booleans or real numbers; both are converted to one dtype.
        assume_unique: whether neither holds a value twice; the result is the same.
        size: the number of values in the result. It is needed if x or y is known only when the graph runs.
        fill_value: the value for positions after the last value; the first value by default.

    Returns:
        The values, a vector.

    Constraints:
        (C1) Both hold booleans or real numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to their dtype without loss.

    Examples:
        >>> sg.intersect1d(np.array([3.0, 1.0, 2.0, 3.0]), np.array([3.0, 2.0, 5.0]))
        array([2., 3.])
    """
    d.flag(assume_unique, "assume_unique")
    return _set_operation(x, y, size, fill_value, True, name)


@d.guarded("union1d")
def union1d(
    x: ArrayLike,
    y: ArrayLike,
    name: str | None = None,
    *,
    size: Size | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:
    """The values that occur in one of two tensors or in both, sorted.

    Args:
        x: booleans or real numbers.
        y: booleans or real numbers; both are converted to one dtype.
        size: the number of values in the result. It is needed if x or y is known only when the graph runs.
        fill_value: the value for positions after the last value; the least value by default.

    Returns:
        The values, a vector.

    Constraints:
        (C1) Both hold booleans or real numbers.
        (C2) The size of the result is known when the graph is built.
        (C3) fill_value converts to their dtype without loss.

    Examples:
        >>> sg.union1d(np.array([3.0, 1.0]), np.array([3.0, 2.0]))
        array([1., 2., 3.])
    """
    both: list[Any] = d.together(x, y, promotes=Promotion(d.is_any))
    if size is None and not any(map(is_traced, both)):
        size = np.unique(np.concatenate([np.ravel(operand) for operand in both]), equal_nan=False).size
    flat = concat([reshape(operand, (d.product(d.type_of(operand).shape),)) for operand in both], 0)
    return named(_unique(flat, size, fill_value, False).values, name)
