"""Reductions over axes. The sum itself is in shapes/reshape.py, because every broadcast needs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Axes,
    Axis,
    DType,
    DTypeError,
    DTypeLike,
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
from stopgrad.ops.elementwise.arithmetic import square
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import cast, conj, real, where, wide
from stopgrad.ops.elementwise.powers import sqrt
from stopgrad.ops.reductions.cumulative import cumprod
from stopgrad.ops.shapes.reshape import Sum, reduce_sum, reduced, reshape, spread, transpose, unreduced
from stopgrad.ops.structural.sources import size_as

__all__ = [
    "argmax",
    "argmin",
    "reduce_all",
    "reduce_any",
    "reduce_euclidean_norm",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_std",
    "reduce_variance",
]


_DOCUMENT = """\
Args:
    x (``input_tensor``): {dtypes}.

Constraints:
    (C1) x {holds}.
"""


def reduction(allowed: Callable[[DType], bool]) -> Any:
    """The type rule of a reduction of such dtypes."""

    def infer(x: TensorType, *, axis: Axes, keepdims: bool) -> TensorType:
        d.check_dtype(x, allowed, d.DESCRIPTIONS[allowed])
        return reduced(x, axis, keepdims)

    return staticmethod(d.documented(infer, _DOCUMENT, allowed))


def _public(definition: type[Op], function_name: str) -> Callable[..., Tensor]:
    def function(
        input_tensor: ArrayLike,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Tensor:
        values = (d.axes_in(definition, axis, input_tensor), d.flag(keepdims))
        return d.apply(definition, (input_tensor,), values, name)

    function.__name__ = function.__qualname__ = function_name
    return d.builds(definition, by_type=True)(function)


class Reduction(Op, abstract=True):
    """One operand, reduced over axes.

    Args:
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1.

    Constraints:
        (C2) Each axis exists, and none is named twice.
    """

    batch = d.ALONG
    rounds_once = True
    samples: d.Samples = [
        d.sample(d.floats(2, 3, distinct=True), axis=(1,), keepdims=False),
        d.sample(d.floats("n", 2, 3, distinct=True), axis=(0, 2), keepdims=True),
        d.sample(d.floats(2, 2, distinct=True), axis=(0, 1), keepdims=False),
        d.sample(d.floats(4, distinct=True), axis=(), keepdims=False),
        d.sample(d.floats(2, 0), axis=(0,), keepdims=False),
    ]
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = (
        ([[1.0, math.inf]],),
        ([[math.nan, 1.0]],),
        ([[-math.inf, -math.inf]],),
        ([[0.0, -0.0]],),
    )


def _count(op: Operation) -> Size:
    return d.product(op.x.shape[a] for a in op.axis)


def _shared(g: Output, op: Operation) -> Tensor:
    """A cotangent divided by the number of reduced elements, which may be more than its dtype can count."""
    numbers = wide(g)
    return cast(numbers / size_as(_count(op), numbers.dtype, g), g.dtype)


class Mean(Reduction):
    """Arithmetic mean over axes.

    Returns:
        The mean; NaN over no elements.

    Examples:
        >>> sg.reduce_mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([2., 3.])
    """

    infer = reduction(d.is_inexact)
    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {"x": lambda g, op: spread(_shared(g, op), op)}
    keeps_sign = True

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        count = math.prod(x.shape[a] for a in axis)
        return xp.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype) / xp.asarray(count, x.dtype)


reduce_mean: Callable[..., Tensor] = _public(Mean, "reduce_mean")


class Extremum(Reduction, abstract=True):
    """Real numbers (C1), reduced to their largest or smallest over axes (C2)."""

    infer = reduction(d.is_real)
    gradient: d.Gradient = {"x": lambda g, op: _to_extreme(g, op)}


def _to_extreme(g: Output, op: Operation) -> Tensor:
    """The cotangent of the operand of a maximum or minimum: equal shares for the elements that attain it.

    No element attains a NaN, so that the share is 0 / 0, and all of them get a NaN.
    """
    hit = equal(op.x, unreduced(op.result, op))
    g = wide(unreduced(g, op))
    count = d.apply(Sum, (cast(hit, g.dtype),), (op.axis, True))
    return where(hit, g, 0) / count


class Max(Extremum):
    """Largest element over axes; NaN if any element is.

    Returns:
        The maximum; the dtype's lowest value (-∞ for floats) over no elements. Elements that tie share the
        gradient evenly. With a NaN, the gradient of all elements is NaN, as in TensorFlow.

    Examples:
        >>> sg.reduce_max(np.array([1.0, 3.0, 3.0]))
        array(3.)
    """

    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.max(
        x, axis=axis, keepdims=keepdims, initial=lowest(x.dtype)
    )


reduce_max: Callable[..., Tensor] = _public(Max, "reduce_max")


class Min(Extremum):
    """Smallest element over axes; NaN if any element is.

    Returns:
        The minimum; the dtype's highest value (∞ for floats) over no elements. Elements that tie share the
        gradient evenly. With a NaN, the gradient of all elements is NaN, as in TensorFlow.

    Examples:
        >>> sg.reduce_min(np.array([1.0, 3.0, 1.0]))
        array(1.)
    """

    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.min(
        x, axis=axis, keepdims=keepdims, initial=highest(x.dtype)
    )


reduce_min: Callable[..., Tensor] = _public(Min, "reduce_min")


def lowest(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The least value of a NumPy dtype: -∞ for floating-point ones."""
    return np.array(-np.inf if d.dtype_of(dtype).is_floating else np.iinfo(dtype).min, dtype)


def highest(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The greatest value of a NumPy dtype: ∞ for floating-point ones."""
    return np.array(np.inf if d.dtype_of(dtype).is_floating else np.iinfo(dtype).max, dtype)


class Prod(Reduction):
    """Product over axes.

    Returns:
        The product; 1 over no elements. The gradient is right even where elements are 0, since it multiplies
        the other elements instead of dividing by one.

    Examples:
        >>> sg.reduce_prod(np.array([2.0, 3.0]))
        array(6.)
    """

    infer = reduction(d.is_number)
    gradient: d.Gradient = {"x": lambda g, op: spread(wide(g), op) * conj(_product_of_others(op))}
    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    samples: d.Samples = [
        *Reduction.samples,
        d.sample(np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 1.0]]), axis=(1,), keepdims=False),
        d.sample(d.complexes(3), axis=(0,), keepdims=True),
    ]


reduce_prod: Callable[..., Tensor] = _public(Prod, "reduce_prod")


def _product_of_others(op: Operation) -> Tensor:
    """For each element, the product of all others that are reduced together with it."""
    x, remaining = wide(op.x), tuple(i for i in range(op.x.ndim) if i not in op.axis)
    order = (*remaining, *op.axis)
    rows = reshape(transpose(x, order), (d.product(x.shape[i] for i in remaining), _count(op)))
    before, after = cumprod(rows, 1, exclusive=True), cumprod(rows, 1, exclusive=True, reverse=True)
    others = reshape(before * after, tuple(x.shape[i] for i in order))
    return transpose(others, tuple(np.argsort(order).tolist()))


class BooleanReduction(Reduction, abstract=True):
    """Booleans (C1), reduced over axes (C2)."""

    infer = reduction(d.is_boolean)
    gradient: d.Gradient = d.not_differentiable("booleans have no derivative")
    samples: d.Samples = [
        d.sample(d.bools(2, 3), axis=(1,), keepdims=False),
        d.sample(d.bools("n", 2), axis=(0, 1), keepdims=True),
        d.sample(d.bools(0), axis=(0,), keepdims=False),
    ]
    extremes = ()


class AnyOf(BooleanReduction):
    """Whether any element is True, over axes.

    Returns:
        Whether any element is True; False over no elements.

    Examples:
        >>> sg.reduce_any(np.array([False, True]))
        array(True)
    """

    type = "Any"
    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.any(x, axis=axis, keepdims=keepdims)


reduce_any: Callable[..., Tensor] = _public(AnyOf, "reduce_any")


class AllOf(BooleanReduction):
    """Whether all elements are True, over axes.

    Returns:
        Whether all elements are True; True over no elements.

    Examples:
        >>> sg.reduce_all(np.array([False, True]))
        array(False)
    """

    type = "All"
    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.all(x, axis=axis, keepdims=keepdims)


reduce_all: Callable[..., Tensor] = _public(AllOf, "reduce_all")


class Variance(Reduction):
    """Mean squared distance from the mean, over axes; divided by the number of elements, not by one less.

    Returns:
        The variance; NaN over no elements.

    Examples:
        >>> sg.reduce_variance(np.array([1.0, 3.0]))
        array(1.)
    """

    infer = reduction(d.is_floating)
    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {"x": lambda g, op: _to_distances(wide(g), wide(op.x), op)}

    @staticmethod
    def lower(xp: Namespace, x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        centred = x - Mean.lower(xp, x, axis, True)
        return Mean.lower(xp, xp.square(centred), axis, keepdims)


reduce_variance: Callable[..., Tensor] = _public(Variance, "reduce_variance")


def _to_distances(g: Output, x: Output, op: Operation) -> Tensor:
    # The mean is rounded; what that leaves of it in the distances is their own mean, and goes with it.
    distances = x - reduce_mean(x, op.axis, True)
    distances = distances - reduce_mean(distances, op.axis, True)
    return spread(g * (2 / size_as(_count(op), x.dtype, g)), op) * distances


@d.guarded("reduce_std")
def reduce_std(
    input_tensor: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """Standard deviation over axes: the square root of :func:`reduce_variance`.

    Args:
        input_tensor: floating-point.
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1.
        name: of the square root; by default none.

    Returns:
        The standard deviation; NaN over no elements.

    Examples:
        >>> sg.reduce_std(np.array([1.0, 3.0]))
        array(1.)
    """
    numbers = wide(input_tensor)
    if numbers is input_tensor:
        return sqrt(reduce_variance(numbers, axis, keepdims), name)
    # The squares overflow in float16 long before the root does.
    return cast(sqrt(reduce_variance(numbers, axis, keepdims)), d.type_of(input_tensor).dtype, name)


@d.guarded("reduce_euclidean_norm")
def reduce_euclidean_norm(
    input_tensor: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """Euclidean norm over axes: the square root of the sum of squared magnitudes.

    Args:
        input_tensor: floating-point or complex.
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1.
        name: of the last operation; by default none.

    Returns:
        The norm, real; 0 over no elements. Where it is 0, its gradient is 0.

    Examples:
        >>> sg.reduce_euclidean_norm(np.array([3.0, 4.0]))
        array(5.)
    """
    (x,) = d.together(input_tensor, promotes=Promotion(d.is_inexact))
    numbers = wide(x)
    squares = real(numbers * conj(numbers)) if d.type_of(numbers).dtype.is_complex else square(numbers)
    total = reduce_sum(squares, axis, keepdims)
    nothing = equal(total, 0)
    return cast(where(nothing, 0, sqrt(where(nothing, 1, total))), d.type_of(x).dtype.real, name)


# ---------------------------------------------------------------------------------------- arg-reductions


class ArgReduction(Op, abstract=True):
    """The position of the largest or smallest real number along one axis.

    Args:
        x (``input``): real numbers.
        axis: the axis along which to look; the first by default, as in TensorFlow.
        dtype (``output_type``): the dtype of the positions.

    Returns:
        The positions, in x's shape without that axis.

    Constraints:
        (C1) x holds real numbers.
        (C2) The axis exists.
        (C3) The axis has at least one element.
        (C4) dtype is int32 or int64.
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axis, dtype: DType) -> TensorType:
        d.check_dtype(x, d.is_real, "real numbers")
        d.normal_axis(axis, x.ndim)
        if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
            raise ShapeError(f"(C3) axis {axis} of {x!r} has no elements")
        if dtype not in (d.int32, d.int64):
            raise DTypeError(f"(C4) positions are int32 or int64, not {dtype}")
        return d.tensor_type(dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))

    gradient: d.Gradient = d.not_differentiable("a position has no derivative")
    batch = d.ALONG
    rounds_once = True
    samples: d.Samples = [
        d.sample(d.floats(2, 3), axis=1, dtype=d.int64),
        d.sample(d.floats("n", 2), axis=0, dtype=d.int32),
        d.sample(d.ints(4), axis=0, dtype=d.int32),
    ]


def _position(
    definition: type[Op], x: ArrayLike, axis: int | None, dtype: DTypeLike, name: str | None
) -> Tensor:
    along = d.axis_in(definition, 0 if axis is None else axis, x)
    numbers = cast(x, d.uint8) if d.type_of(x).dtype is d.bool_ else x
    return d.apply(definition, (numbers,), (along, d.dtype_of(dtype)), name)


class ArgMax(ArgReduction):
    """The position of the largest element along an axis: the first of equal ones, or the first NaN.

    Examples:
        >>> sg.argmax(np.array([1.0, 3.0, 3.0]))
        array(1)
    """

    lower: d.Lowering = lambda xp, x, axis, dtype: xp.argmax(x, axis).astype(dtype.numpy)


@d.builds(ArgMax, by_type=True)
def argmax(
    input: ArrayLike, axis: int | None = None, output_type: DTypeLike = d.int64, name: str | None = None
) -> Tensor:
    return _position(ArgMax, input, axis, output_type, name)


class ArgMin(ArgReduction):
    """The position of the smallest element along an axis: the first of equal ones, or the first NaN.

    Examples:
        >>> sg.argmin(np.array([1.0, 3.0, 1.0]))
        array(0)
    """

    lower: d.Lowering = lambda xp, x, axis, dtype: xp.argmin(x, axis).astype(dtype.numpy)


@d.builds(ArgMin, by_type=True)
def argmin(
    input: ArrayLike, axis: int | None = None, output_type: DTypeLike = d.int64, name: str | None = None
) -> Tensor:
    return _position(ArgMin, input, axis, output_type, name)
