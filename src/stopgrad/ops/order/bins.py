"""Where numbers belong among sorted ones, and how many there are of each kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    DType,
    DTypeLike,
    Op,
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
    """Where values belong in sorted sequences, so that these stay sorted.

    Args:
        sequence: the sequences, sorted along the last axis; NaN counts as larger than all others.
        x: what to look for; for each sequence as many as the last axis says.
        right: whether a value stands behind the elements that equal it, instead of before them.
        dtype: of the result.

    Returns:
        The positions, of the values' shape: how many elements stand before each value.

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
    gradient = d.not_differentiable("a position has no derivative")
    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Any, sequence: Any, x: Any, right: bool, dtype: DType) -> Any:
        side = "right" if right else "left"
        if sequence.ndim == 1:
            return xp.searchsorted(sequence, x, side=side).astype(dtype.numpy)
        found = xp.empty(x.shape, dtype.numpy)
        for row in np.ndindex(*x.shape[:-1]):
            found[row] = xp.searchsorted(sequence[row], x[row], side=side)
        return found

    @staticmethod
    def xla(xp: Any, sequence: Any, x: Any, right: bool, dtype: DType) -> Any:
        side = "right" if right else "left"
        search: Any = lambda one, of: xp.searchsorted(one, of, side=side).astype(dtype.numpy)
        for _ in sequence.shape[:-1]:
            search = xp.jax.vmap(search)
        return search(sequence, x)

    samples = [
        d.sample(np.array([-1.0, 0.0, 0.0, 2.0]), np.array([0.0, 3.0, -2.0]), right=False, dtype=d.int32),
        d.sample(np.array([[-1, 0, 2], [0, 0, 1]]), np.array([[0, 3], [0, -1]]), right=True, dtype=d.int64),
        d.sample(np.zeros(0), d.floats("n"), right=False, dtype=d.int32),
        d.sample(np.arange(4, dtype=np.int32), d.ints(0), right=False, dtype=d.int32),
    ]


@d.builds(SearchSorted)
def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Where values belong in sorted sequences, so that these stay sorted.

    Args:
        sorted_sequence: one sequence, or several, sorted along the last axis; NaN counts as larger than all
            others.
        values: what to look for; of any shape for one sequence, and for several as many rows as sequences.
        side: "left" for before the elements that equal a value, "right" for behind them.
        out_type: the dtype of the positions, int32 or int64.

    Returns:
        The positions, of the values' shape: how many elements stand before each value.

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
    found = d.apply(SearchSorted, (sorted_sequence, reshape(values, (d.product(shape),))), settings)
    return reshape(found, shape, name)


@d.guarded("digitize")
def digitize(x: Any, bins: Any, right: bool = False, name: str | None = None) -> Tensor:
    """The bins that numbers fall into.

    Args:
        x: real numbers.
        bins: a vector of the bins' edges, increasing or decreasing.
        right: whether a bin holds its right edge instead of its left one.

    Returns:
        The number of each one's bin as int32: i where it lies between the edges i - 1 and i, 0 before the
        first edge.

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
    up: Any = lambda: searchsorted(bins, x, side)
    size = kind.shape[0]
    if isinstance(size, int) and size < 2:
        return named(up(), name)
    down: Any = lambda: subtract(size_as(size, d.int32, bins), searchsorted(reverse(bins, [0]), x, side))
    if not is_traced(bins):
        edges = d.as_array(bins)
        return named(up() if edges[0] <= edges[-1] else down(), name)
    first, last = part_of(bins, 0, 0, 1), part_of(bins, 0, kind.shape[0] - 1, 1)
    rises = reshape(less_equal(first, last), ())
    return where(rises, up(), down(), name)


# -------------------------------------------------------------------------------------------------- counts


def _count(arr: Any, given: Any, least: Any, most: Any) -> Size:
    """How many bins there are."""
    if given is not None:
        return d.shape_of(given)[0]
    if is_traced(arr):
        if least is not None and most is not None and d.whole(least) == d.whole(most):
            return d.whole(least)
        raise needs_size("(C2) the number of bins", "size=, the greatest number plus 1")
    found = int(arr.max()) + 1 if arr.size else 0
    found = max(found, 0 if least is None else d.whole(least))
    return found if most is None else min(found, d.whole(most))


@d.guarded("bincount")
def bincount(
    arr: Any,
    weights: Any = None,
    minlength: int | None = None,
    maxlength: int | None = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
    *,
    size: Any = None,
) -> Tensor:
    """How often each number from 0 on occurs.

    Args:
        arr: integers, none negative.
        weights: what each of them counts, of their shape; 1 by default.
        minlength: how many numbers are counted at least.
        maxlength: how many at most; larger ones are left out.
        dtype: of the counts, where there are no weights, whose dtype they otherwise have.
        axis: None or 0 for all numbers together; -1 for those of each row.
        binary_output: whether to say, as 1 or 0, if a number occurs, instead of how often.
        size: exactly how many numbers are counted. The integers may then be known only when the graph runs;
            larger ones are left out.

    Returns:
        The counts, a vector; for axis=-1, a vector for each row. Weights have a gradient.

    Constraints:
        (C1) arr holds integers.
        (C2) How many numbers are counted is known when the graph is built.
        (C3) The weights have arr's shape, and there are none for a binary output; axis is None, 0 or -1.

    Examples:
        >>> sg.bincount(np.array([1, 1, 3]))
        array([0, 2, 0, 1], dtype=int32)
    """
    arr = as_indices(arr)
    kind = d.type_of(arr)
    d.check_dtype(kind, d.is_integer, "integers")
    count = _count(arr, size, minlength, maxlength)
    binary = d.flag(binary_output, "binary_output")
    axis = axis if axis is None else d.whole(axis)
    if axis not in (None, 0, -1) or (binary and weights is not None):
        raise ArgumentError(
            f"(C3) axis={axis!r}, binary_output={binary!r}: axis is None, 0 or -1, and weights are for "
            "counts only"
        )
    each = fill(kind.shape, np.ones((), d.dtype_of(dtype).numpy)) if weights is None else tensor(weights)
    if not d.same_shape(d.type_of(each).shape, kind.shape):
        raise ShapeError(f"(C3) the weights {d.type_of(each)!r} must have the shape of {kind!r}")
    rows = axis == -1 and kind.ndim > 1
    leading = kind.shape[:-1] if rows else ()
    flat = (d.product(leading), kind.shape[-1]) if rows else (d.product(kind.shape),)
    empty = zeros((*flat[:-1], count), d.type_of(each).dtype)
    batch = len(flat) - 1
    found = d.apply(TensorScatterAdd, (empty, reshape(arr, flat), reshape(each, flat)), (batch, batch))
    if binary:
        found = cast(greater(found, 0), d.dtype_of(dtype))
    return reshape(found, (*leading, count), name)


@d.guarded("confusion_matrix")
def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """How often each class was taken for each.

    Args:
        labels: a vector of class numbers.
        predictions: a vector of the class numbers that were predicted.
        num_classes: how many classes there are; by default one more than the greatest number, which then is
            known when the graph is built.
        weights: what each counts; 1 by default.
        dtype: of the result.

    Returns:
        A matrix of shape [num_classes, num_classes], with the labels' classes down and the predicted ones
        across.

    Constraints:
        (C1) labels and predictions hold integers.
        (C2) How many classes there are is known when the graph is built.
        (C3) labels, predictions and weights are vectors of one length.

    Examples:
        >>> sg.confusion_matrix([1, 2, 2], [1, 2, 0])
        array([[0, 0, 0],
               [0, 1, 0],
               [1, 0, 1]], dtype=int32)
    """
    labels, predictions = as_indices(labels), as_indices(predictions)
    kinds = [d.type_of(labels), d.type_of(predictions)]
    for kind in kinds:
        d.check_dtype(kind, d.is_integer, "integers as classes")
    each = (
        fill(kinds[0].shape, np.ones((), d.dtype_of(dtype).numpy))
        if weights is None
        else cast(tensor(weights), dtype)
    )
    kinds.append(d.type_of(each))
    if any(kind.ndim != 1 or not d.same_shape(kind.shape, kinds[0].shape) for kind in kinds):
        raise ShapeError(f"(C3) labels, predictions and weights must be vectors of one length, not {kinds}")
    if num_classes is not None:
        count = d.shape_of(num_classes)[0]
    elif is_traced(labels) or is_traced(predictions):
        raise needs_size("(C2) the number of classes", "num_classes=")
    else:
        count = max([int(one.max()) + 1 for one in (labels, predictions) if one.size], default=0)
    at = raveled([_not_from_end(labels), _not_from_end(predictions)], (count, count))
    empty = zeros((count * count,), d.type_of(each).dtype)
    return reshape(d.apply(TensorScatterAdd, (empty, at, each), (0, 0)), (count, count), name)


def _not_from_end(at: Any) -> Any:
    """Indices of which negative ones lie outside of the axis, instead of counting from its end."""
    if d.type_of(at).dtype.name.startswith("u"):
        return at
    return where(less(at, 0), np.int32(2**31 - 1), cast(at, d.int32))


@d.guarded("histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: int = 100, dtype: DTypeLike = "int32", name: str | None = None
) -> Tensor:
    """The bins of equal width that numbers fall into.

    Args:
        values: real numbers.
        value_range: the lower and the upper limit. Numbers below fall into the first bin, those above into
            the last.
        nbins: how many bins.
        dtype: of the result.

    Returns:
        The numbers of the bins, of the values' shape.

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
    values: Any, value_range: Any, nbins: int = 100, dtype: DTypeLike = "int32", name: str | None = None
) -> Tensor:
    """How many numbers fall into each of several bins of equal width.

    Args:
        values: real numbers.
        value_range: the lower and the upper limit. Numbers below count in the first bin, those above in the
            last.
        nbins: how many bins.
        dtype: of the counts.

    Returns:
        The counts, a vector of nbins.

    Constraints:
        (C1) The values hold real numbers, and value_range is a vector of two.
        (C2) nbins is positive.

    Examples:
        >>> sg.histogram_fixed_width(np.array([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]), [0.0, 5.0], nbins=5)
        array([2, 1, 1, 0, 2], dtype=int32)
    """
    at = histogram_fixed_width_bins(values, value_range, nbins)
    return bincount(at, dtype=dtype, size=d.whole(nbins), name=name)
