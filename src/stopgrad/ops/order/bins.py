"""Positions of numbers among sorted ones, and counts of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    DType,
    DTypeLike,
    Namespace,
    NumpyArray,
    Op,
    Output,
    Promotion,
    ShapeError,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.composing import is_traced, named, needs_size, tensor
from stopgrad.ops.elementwise.arithmetic import divide, maximum, minimum, multiply, subtract
from stopgrad.ops.elementwise.compare import greater, less, less_equal
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.rounding import floor
from stopgrad.ops.indexing.gather import TensorScatterAdd
from stopgrad.ops.indexing.positions import as_indices, raveled
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.shapes.join import reverse
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import fill, size_as, zeros

__all__ = [
    "bincount",
    "confusion_matrix",
    "digitize",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "searchsorted",
]


class SearchSorted(Op):
    """The positions at which values can be inserted into sorted sequences that stay sorted.

    Args:
        sequence: the sequences, sorted along the last axis; NaN counts as larger than all others.
        x: the values to look for, a row for each sequence.
        right: whether a value goes after the elements equal to it, instead of before them.
        dtype: the dtype of the result.

    Returns:
        The positions, in the values' shape: the number of elements before each value.

    Constraints:
        (C1) The sequence and the values hold real numbers of one dtype.
        (C2) Both have an axis, and agree in the sizes of all but the last.
        (C3) dtype is int32 or int64.
    """

    @staticmethod
    def infer(sequence: TensorType, x: TensorType, *, right: bool, dtype: DType) -> TensorType:
        d.check_same_dtype(sequence, x)
        d.check_dtype(sequence, d.is_real, "real numbers")
        if not sequence.ndim or not x.ndim or not d.same_shape(sequence.shape[:-1], x.shape[:-1]):
            raise ShapeError(f"(C2) {sequence!r} and {x!r} must agree in the sizes of all axes but the last")
        if dtype not in (d.int32, d.int64):
            raise ShapeError(f"(C3) positions are int32 or int64, not {dtype}")
        return d.tensor_type(dtype, x.shape)

    promotes = Promotion(d.is_real)
    gradient: d.Gradient = d.not_differentiable("a position has no derivative")
    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, sequence: Array, x: Array, right: bool, dtype: DType) -> Array:
        side = "right" if right else "left"
        if sequence.ndim == 1:
            return xp.searchsorted(sequence, x, side=side).astype(dtype.numpy)
        places = xp.empty(x.shape, dtype.numpy)
        for row in np.ndindex(*x.shape[:-1]):
            places[row] = xp.searchsorted(sequence[row], x[row], side=side)
        return places

    @staticmethod
    def xla(xp: Namespace, sequence: Array, x: Array, right: bool, dtype: DType) -> Array:
        side = "right" if right else "left"
        search: Any = lambda one, of: xp.searchsorted(one, of, side=side).astype(dtype.numpy)
        for _ in sequence.shape[:-1]:
            search = xp.jax.vmap(search)
        return search(sequence, x)

    samples: d.Samples = [
        d.sample(np.array([-1.0, 0.0, 0.0, 2.0]), np.array([0.0, 3.0, -2.0]), right=False, dtype=d.int32),
        d.sample(np.array([[-1, 0, 2], [0, 0, 1]]), np.array([[0, 3], [0, -1]]), right=True, dtype=d.int64),
        d.sample(np.zeros(0), d.floats("n"), right=False, dtype=d.int32),
        d.sample(np.arange(4, dtype=np.int32), d.ints(0), right=False, dtype=d.int32),
    ]


@d.builds(SearchSorted)
def searchsorted(
    sorted_sequence: ArrayLike,
    values: ArrayLike,
    side: str = "left",
    out_type: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """The positions at which values can be inserted into sorted sequences that stay sorted.

    Args:
        sorted_sequence: one sequence, or several, sorted along the last axis; NaN counts as larger than all
            others.
        values: the values to look for; of any shape for one sequence, and a row for each of several.
        side: "left" to go before the elements equal to a value, "right" to go after them.
        out_type: the dtype of the positions, int32 or int64.

    Returns:
        The positions, in the values' shape: the number of elements before each value.

    Constraints:
        (C1) The sequence and the values hold real numbers.
        (C2) Both agree in the sizes of all axes but the last, or there is one sequence.
        (C3) out_type is int32 or int64.

    Examples:
        >>> sg.searchsorted(np.array([1.0, 2.0, 2.0, 3.0]), np.array([2.0, 5.0]))
        array([1, 4], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"SearchSorted: side={side!r}; take 'left' or 'right'")
    sorted_sequence, values = d.together(sorted_sequence, values, promotes=Promotion(d.is_real))
    settings = side == "right", d.dtype_of(out_type)
    shape = d.type_of(values).shape
    if d.type_of(sorted_sequence).ndim != 1 or len(shape) == 1:
        return d.apply(SearchSorted, (sorted_sequence, values), settings, name)
    places = d.apply(SearchSorted, (sorted_sequence, reshape(values, (d.product(shape),))), settings)
    return reshape(places, shape, name)


@d.guarded("digitize")
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, name: str | None = None) -> Tensor:
    """The bins that numbers fall into.

    Args:
        x: real numbers.
        bins: a vector of the bins' edges, increasing or decreasing.
        right: whether a bin contains its right edge instead of its left edge.

    Returns:
        The index of each number's bin, as int32: i if it lies between the edges i - 1 and i, 0 if it lies
        before the first edge.

    Constraints:
        (C1) The bins are a vector.

    Examples:
        >>> sg.digitize(np.array([0.2, 6.4, 3.0]), np.array([0.0, 1.0, 2.5, 4.0]))
        array([1, 4, 3], dtype=int32)
    """
    kind = d.type_of(bins)
    if kind.ndim != 1:
        raise ShapeError(f"(C1) the bins must be a vector, not {kind!r}")
    side = "left" if d.flag(right, "right") else "right"
    up: Callable[[], Tensor] = lambda: searchsorted(bins, x, side)
    size = kind.shape[0]
    if isinstance(size, int) and size < 2:
        return named(up(), name)
    down: Callable[[], Tensor] = lambda: subtract(
        size_as(size, d.int32, bins), searchsorted(reverse(bins, [0]), x, side)
    )
    if not is_traced(bins):
        edges = d.as_array(bins)
        return named(up() if edges[0] <= edges[-1] else down(), name)
    first, last = part_of(bins, 0, 0, 1), part_of(bins, 0, kind.shape[0] - 1, 1)
    rises = reshape(less_equal(first, last), ())
    return where(rises, up(), down(), name)


# -------------------------------------------------------------------------------------------------- counts


def _count(arr: Output | NumpyArray, size: Size | str | None, least: int | None, most: int | None) -> Size:
    """The number of bins."""
    if size is not None:
        return d.shape_of(size)[0]
    if is_traced(arr):
        if least is not None and most is not None and d.whole(least) == d.whole(most):
            return d.whole(least)
        raise needs_size("(C2) the number of bins", "size=, the greatest number plus 1")
    count = int(arr.max()) + 1 if arr.size else 0
    count = max(count, 0 if least is None else d.whole(least))
    return count if most is None else min(count, d.whole(most))


@d.guarded("bincount")
def bincount(
    arr: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int | None = None,
    maxlength: int | None = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
    *,
    size: Size | str | None = None,
) -> Tensor:
    """The counts of the numbers 0, 1, 2, … among integers.

    Args:
        arr: integers, none negative.
        weights: what each integer adds to its count, in the shape of arr; 1 by default.
        minlength: the least length of the counts.
        maxlength: the greatest length of the counts; larger integers are left out.
        dtype: the dtype of the counts; with weights they have that of the weights.
        axis: None or 0 to count all integers together; -1 to count each row.
        binary_output: whether the result is 1 for a number that occurs and 0 for others, instead of counts.
        size: the exact length of the counts. The integers may then be known only when the graph runs; larger
            ones are left out.

    Returns:
        The counts, a vector; for axis=-1, a vector for each row. Weights have a gradient.

    Constraints:
        (C1) arr holds integers.
        (C2) The length of the counts is known when the graph is built.
        (C3) The weights have arr's shape, and there are none for a binary output; axis is None, 0 or -1.

    Examples:
        >>> sg.bincount(np.array([1, 1, 3]))
        array([0, 2, 0, 1], dtype=int32)
    """
    indices = as_indices(arr)
    kind = d.type_of(indices)
    d.check_dtype(kind, d.is_integer, "integers")
    count = _count(indices, size, minlength, maxlength)
    binary = d.flag(binary_output, "binary_output")
    axis = axis if axis is None else d.whole(axis)
    if axis not in (None, 0, -1) or (binary and weights is not None):
        raise ArgumentError(
            f"(C3) axis={axis!r}, binary_output={binary!r}: axis is None, 0 or -1, and weights are for "
            "counts only"
        )
    weight = fill(kind.shape, np.ones((), d.dtype_of(dtype).numpy)) if weights is None else tensor(weights)
    if not d.same_shape(d.type_of(weight).shape, kind.shape):
        raise ShapeError(f"(C3) the weights {d.type_of(weight)!r} must have the shape of {kind!r}")
    rows = axis == -1 and kind.ndim > 1
    leading = kind.shape[:-1] if rows else ()
    flat = (d.product(leading), kind.shape[-1]) if rows else (d.product(kind.shape),)
    empty = zeros((*flat[:-1], count), d.type_of(weight).dtype)
    batch = len(flat) - 1
    counts = d.apply(TensorScatterAdd, (empty, reshape(indices, flat), reshape(weight, flat)), (batch, batch))
    if binary:
        counts = cast(greater(counts, 0), d.dtype_of(dtype))
    return reshape(counts, (*leading, count), name)


@d.guarded("confusion_matrix")
def confusion_matrix(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: Size | str | None = None,
    weights: ArrayLike | None = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """The counts of pairs of actual and predicted classes.

    Args:
        labels: a vector of class numbers.
        predictions: a vector of the class numbers that were predicted.
        num_classes: the number of classes; by default one more than the greatest class number, which must
            then be known when the graph is built.
        weights: what each pair adds to its count; 1 by default.
        dtype: the dtype of the result.

    Returns:
        A matrix of shape [num_classes, num_classes]: a row for each label, a column for each prediction.

    Constraints:
        (C1) labels and predictions hold integers.
        (C2) The number of classes is known when the graph is built.
        (C3) labels, predictions and weights are vectors of one length.

    Examples:
        >>> sg.confusion_matrix([1, 2, 2], [1, 2, 0])
        array([[0, 0, 0],
               [0, 1, 0],
               [1, 0, 1]], dtype=int32)
    """
    actual, predicted = as_indices(labels), as_indices(predictions)
    kinds = [d.type_of(actual), d.type_of(predicted)]
    for kind in kinds:
        d.check_dtype(kind, d.is_integer, "integers as classes")
    weight = (
        fill(kinds[0].shape, np.ones((), d.dtype_of(dtype).numpy))
        if weights is None
        else cast(tensor(weights), dtype)
    )
    kinds.append(d.type_of(weight))
    if any(kind.ndim != 1 or not d.same_shape(kind.shape, kinds[0].shape) for kind in kinds):
        raise ShapeError(f"(C3) labels, predictions and weights must be vectors of one length, not {kinds}")
    if num_classes is not None:
        count = d.shape_of(num_classes)[0]
    elif is_traced(actual) or is_traced(predicted):
        raise needs_size("(C2) the number of classes", "num_classes=")
    else:
        count = max([int(classes.max()) + 1 for classes in (actual, predicted) if classes.size], default=0)
    cells = raveled([_not_from_end(actual), _not_from_end(predicted)], (count, count))
    empty = zeros((count * count,), d.type_of(weight).dtype)
    return reshape(d.apply(TensorScatterAdd, (empty, cells, weight), (0, 0)), (count, count), name)


def _not_from_end(labels: ArrayLike) -> Tensor:
    """Indices in which negative ones become out of range, instead of counting from the end."""
    if d.type_of(labels).dtype.name.startswith("u"):
        return labels
    return where(less(labels, 0), np.int32(2**31 - 1), cast(labels, d.int32))


@d.guarded("histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: ArrayLike,
    value_range: ArrayLike,
    nbins: int = 100,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """The bins of equal width that numbers fall into.

    Args:
        values: real numbers.
        value_range: the lower and the upper limit. Numbers below fall into the first bin, those above into
            the last.
        nbins: the number of bins.
        dtype: the dtype of the result.

    Returns:
        The indices of the bins, in the values' shape.

    Constraints:
        (C1) The values hold real numbers, and value_range is a vector of two.
        (C2) nbins is positive.

    Examples:
        >>> sg.histogram_fixed_width_bins(np.array([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]), [0.0, 5.0], nbins=5)
        array([0, 0, 1, 2, 4, 4], dtype=int32)
    """
    values, limits = d.together(values, value_range, promotes=Promotion(d.is_floating))
    d.check_dtype(d.type_of(values), d.is_floating, "real numbers")
    count = d.whole(nbins)
    if not d.same_shape(d.type_of(limits).shape, (2,)):
        raise ShapeError(f"(C1) value_range holds the lower and the upper limit, not {d.type_of(limits)!r}")
    if count < 1:
        raise ArgumentError(f"(C2) nbins must be positive, not {count}")
    low, high = (reshape(part_of(limits, 0, i, 1), ()) for i in (0, 1))
    place = floor(multiply(divide(subtract(values, low), subtract(high, low)), count))
    return cast(maximum(minimum(place, count - 1), 0), dtype, name)


@d.guarded("histogram_fixed_width")
def histogram_fixed_width(
    values: ArrayLike,
    value_range: ArrayLike,
    nbins: int = 100,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """The counts of numbers in bins of equal width.

    Args:
        values: real numbers.
        value_range: the lower and the upper limit. Numbers below count in the first bin, those above in the
            last.
        nbins: the number of bins.
        dtype: the dtype of the counts.

    Returns:
        The counts, a vector of nbins.

    Constraints:
        (C1) The values hold real numbers, and value_range is a vector of two.
        (C2) nbins is positive.

    Examples:
        >>> sg.histogram_fixed_width(np.array([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]), [0.0, 5.0], nbins=5)
        array([2, 1, 1, 0, 2], dtype=int32)
    """
    bins = histogram_fixed_width_bins(values, value_range, nbins)
    return bincount(bins, dtype=dtype, size=d.whole(nbins), name=name)
