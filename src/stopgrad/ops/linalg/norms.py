"""Norms of vectors and matrices, and scaling by norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Axes,
    Namespace,
    Op,
    Operation,
    Output,
    ShapeError,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import abs as modulus, divide, maximum, multiply, sign
from stopgrad.ops.elementwise.compare import equal, is_finite, not_equal
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.elementwise.powers import pow, rsqrt
from stopgrad.ops.linalg.solvers import BOTH, INEXACT
from stopgrad.ops.linalg.spectra import svdvals
from stopgrad.ops.reductions.reduce import reduce_max, reduce_min
from stopgrad.ops.shapes.join import stack
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum, transpose, unreduced

__all__ = [
    "clip_by_global_norm",
    "clip_by_norm",
    "global_norm",
    "l2_normalize",
    "matrix_norm",
    "norm",
    "normalize",
    "vector_norm",
]


class VectorNorm(Op):
    """(Σ |x|ᵖ)^(1/p) over axes.

    Args:
        x: floating-point or complex.
        order: p, neither 0 nor infinite.
        axis: the axes to sum over.
        keepdims: whether the axes stay, with size 1.

    Returns:
        The norms, real. The gradient is 0 for a vector of zeros, and, where p ≤ 1, for elements that are 0.

    Constraints:
        (C1) x is floating-point or complex.
        (C2) The order is neither 0 nor infinite.
        (C3) The axes exist in x, and none is named twice.
    """

    @staticmethod
    def infer(x: TensorType, *, order: float, axis: Axes, keepdims: bool) -> TensorType:
        d.check_dtype(x, d.is_inexact, INEXACT)
        if order == 0 or not math.isfinite(order):
            raise ArgumentError(f"(C2) the order must be a finite number other than 0, not {order}")
        d.normal_axes(axis, x.ndim, "C3")
        shape = tuple(1 if i in axis else s for i, s in enumerate(x.shape) if keepdims or i not in axis)
        return d.tensor_type(x.dtype.real, shape)

    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _to_vector(wide(g), wide(op.x), op)}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "it takes absolute values"

    @staticmethod
    def lower(xp: Namespace, x: Array, order: float, axis: tuple[int, ...], keepdims: bool) -> Array:
        size = xp.abs(x)
        if order == 1:
            return xp.sum(size, axis=axis, keepdims=keepdims, dtype=size.dtype)
        if order == 2:
            squares = xp.square(x) if x.dtype.kind != "c" else xp.square(x.real) + xp.square(x.imag)
            return xp.sqrt(xp.sum(squares, axis=axis, keepdims=keepdims, dtype=size.dtype))
        powers = xp.sum(size ** xp.asarray(order, size.dtype), axis=axis, keepdims=keepdims, dtype=size.dtype)
        return powers ** xp.asarray(1 / order, size.dtype)

    samples: d.Samples = [
        d.sample(d.floats(2, 3), order=2.0, axis=(1,), keepdims=False),
        d.sample(d.floats("n", 2, 3), order=3.5, axis=(0, 2), keepdims=True),
        d.sample(d.floats(2, 3), order=1.0, axis=(0, 1), keepdims=False),
        d.sample(d.floats(2, 3), order=-1.5, axis=(1,), keepdims=False),
        d.sample(d.complexes(2, 3), order=2.0, axis=(0,), keepdims=False),
        d.sample(d.complexes(2, 3), order=1.0, axis=(1,), keepdims=False),
        d.sample(d.complexes(2, 3), order=3.0, axis=(1,), keepdims=True),
        d.sample(d.floats(2, 0), order=2.0, axis=(1,), keepdims=False),
    ]
    extremes = (([[0.0, 0.0]],), ([[0.0, -3.0]],), ([[math.inf, 1.0]],), ([[math.nan, 1.0]],))


def _to_vector(g: Output, x: Output, op: Operation) -> Tensor:
    g = unreduced(g, op)
    if op.order == 1:
        return cast(g, x.dtype) * sign(x)
    size = unreduced(wide(op.result), op)
    zero = equal(size, 0)
    size = where(zero, 1, size)
    if op.order == 2:
        return x * cast(where(zero, 0, g / size), x.dtype)
    part = modulus(x)
    nothing = equal(part, 0)
    part = where(nothing, size, part) / size
    return sign(x) * cast(where(nothing, 0, g * pow(part, op.order - 1)), x.dtype)


# -------------------------------------------------------------------------------- vectors and matrices


@d.builds(VectorNorm)
def vector_norm(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float | str = 2,
    name: str | None = None,
) -> Tensor:
    """Norms of vectors along one axis or several.

    Args:
        x: floating-point or complex.
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1.
        ord: the order p of (Σ |x|ᵖ)^(1/p); for 0 the number of elements that are not 0, for ∞ the largest
            |x|, for -∞ the smallest.
        name: of the operation; by default none.

    Returns:
        The norms, real. The gradient is 0 for a vector of zeros and, if the order is at most 1, for elements
        that are 0. For infinite orders, elements that tie share it evenly. Order 0 has no gradient.

    Constraints:
        (C1) The axes exist in x, and none is named twice.

    Examples:
        >>> sg.vector_norm(np.array([3.0, -4.0]))
        array(5.)
        >>> sg.vector_norm(np.array([3.0, -4.0]), ord=np.inf)
        array(4.)
    """
    (x,) = d.together(x, promotes=BOTH)
    axes = d.normal_axes(axis, d.type_of(x).ndim, "C1")
    keep, order = d.flag(keepdims), _number(ord)
    if order == 0:
        kind = d.type_of(x).dtype.real
        return reduce_sum(cast(not_equal(x, cast(d.as_array(0), d.type_of(x).dtype)), kind), axes, keep, name)
    if math.isinf(order):
        return (reduce_max if order > 0 else reduce_min)(modulus(x), axes, keep, name)
    return d.apply(VectorNorm, (x,), (order, axes, keep), name)


@d.reads_arguments
def _number(ord: float | str) -> float:
    if ord in ("euclidean", "fro"):
        return 2.0
    if isinstance(ord, str) or math.isnan(order := d.real(ord)):
        raise ArgumentError(f"{ord!r} is no norm of vectors; take a number, np.inf, -np.inf or 'euclidean'")
    return order


@d.guarded("matrix_norm")
def matrix_norm(
    x: ArrayLike,
    keepdims: bool = False,
    ord: float | str = "fro",
    axis: Sequence[int] = (-2, -1),
    name: str | None = None,
) -> Tensor:
    """Norms of matrices along two axes.

    Args:
        x: floating-point or complex, of at least two axes.
        keepdims: whether the axes stay, with size 1.
        ord: "fro" or "euclidean" for the root of the sum of |x|²; "nuc" for the sum of the singular values; 2
            or -2 for the largest or smallest singular value; 1 or -1 for the largest or smallest sum of |x|
            over a column; ∞ or -∞ for that over a row.
        axis: the axis of the rows and that of the columns.
        name: of the operation; by default none.

    Returns:
        The norms, real. The gradient is finite everywhere: it is 0 for the Frobenius norm of zeros, and one
        of the subgradients where singular values or sums tie.

    Constraints:
        (C1) axis names two different axes of x.

    Examples:
        >>> x = np.array([[3.0, 0.0], [4.0, 5.0]])
        >>> sg.matrix_norm(x, ord=1), sg.matrix_norm(x, ord="fro")
        (array(7.), array(7.07106781))
        >>> np.round(sg.matrix_norm(x, ord="nuc"), 6)
        np.float64(8.944272)
    """
    (x,) = d.together(x, promotes=BOTH)
    ndim = d.type_of(x).ndim
    with d.about(VectorNorm, x):
        rows, columns = _two_axes(axis, ndim)
    keep = d.flag(keepdims)
    if isinstance(ord, str) and ord in ("fro", "euclidean"):
        return d.apply(VectorNorm, (x,), (2.0, tuple(sorted((rows, columns))), keep), name)
    order = ord if isinstance(ord, str) else d.real(ord)
    last = name if not keep else None
    if order in ("nuc", 2.0, -2.0):
        others = tuple(i for i in range(ndim) if i not in (rows, columns))
        perm = (*others, rows, columns)
        values = svdvals(x if perm == tuple(range(ndim)) else transpose(x, perm))
        norms = {"nuc": reduce_sum, 2.0: reduce_max, -2.0: reduce_min}[order](values, -1, False, last)
    elif order in (1.0, -1.0, math.inf, -math.inf):
        summed, compared = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = reduce_sum(modulus(x), summed, True)
        norms = (reduce_max if order > 0 else reduce_min)(sums, (summed, compared), False, last)
    else:
        raise ArgumentError(
            f"{ord!r} is no norm of matrices; take 'fro', 'nuc', 1, -1, 2, -2, np.inf or -np.inf"
        )
    return expand_dims(norms, tuple(sorted((rows, columns))), name) if keep else norms


@d.reads_arguments
def _two_axes(axis: object, ndim: int) -> tuple[int, int]:
    if not isinstance(axis, Sequence) or len(axis) != 2:
        raise ShapeError(f"(C1) matrices have two axes; axis is a pair, not {axis!r}")
    rows, columns = (d.normal_axis(a, ndim, "C1") for a in axis)
    if rows == columns:
        raise ShapeError(f"(C1) axis={axis!r} names one axis twice")
    return rows, columns


@d.guarded("norm")
def norm(
    tensor: ArrayLike,
    ord: float | str = "euclidean",
    axis: int | Sequence[int] | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Norms of vectors, or of matrices.

    Args:
        tensor: floating-point or complex.
        ord: for vectors "euclidean", or the order p of (Σ |x|ᵖ)^(1/p), 0, ∞ and -∞ included; for matrices
            "euclidean" or "fro", "nuc", 1, -1, 2, -2, ∞ or -∞.
        axis: one axis for norms of vectors; a pair of axes for norms of matrices; None for all elements as
            one vector, as in TensorFlow. axis=(-2, -1) gives NumPy's norm of a matrix.
        keepdims: whether the axes stay, with size 1.
        name: of the operation; by default none.

    Returns:
        The norms, real. Gradients are finite everywhere: 0 for a vector of zeros; see :func:`vector_norm` and
        :func:`matrix_norm`.

    Constraints:
        (C1) The axes exist in tensor, and none is named twice.

    Examples:
        >>> sg.norm(np.array([3.0, 4.0]))
        array(5.)
        >>> sg.norm(np.array([[3.0, 0.0], [4.0, 5.0]]), np.inf, axis=(0, 1))
        array(9.)
    """
    keep = keepdims is not None and d.flag(keepdims)
    if isinstance(axis, Sequence) and len(axis) == 2:
        return matrix_norm(tensor, keep, ord, axis, name)
    if ord == "nuc":
        raise ArgumentError(
            "'nuc' is a norm of matrices: say along which two axes they lie, as axis=(-2, -1)"
        )
    return vector_norm(tensor, axis, keep, ord, name)


# --------------------------------------------------------------------------------------------- scaled


@d.guarded("normalize")
def normalize(
    tensor: ArrayLike,
    ord: float | str = "euclidean",
    axis: int | Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """A tensor divided by its norms.

    Args:
        tensor: floating-point or complex.
        ord: as for :func:`norm`.
        axis: as for :func:`norm`.
        name: of the quotient; by default none.

    Returns:
        The quotient, NaN where the norm is 0; and the norms, with the axes kept as size 1.

    Examples:
        >>> sg.normalize(np.array([3.0, 4.0]))
        (array([0.6, 0.8]), array([5.]))
    """
    (tensor,) = d.together(tensor, promotes=BOTH)
    size = norm(tensor, ord, axis, True)
    return divide(tensor, cast(size, d.type_of(tensor).dtype), name), size


@d.guarded("l2_normalize")
def l2_normalize(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    epsilon: ArrayLike = 1e-12,
    name: str | None = None,
    dim: int | Sequence[int] | None = None,
) -> Tensor:
    """Vectors divided by their Euclidean norms: x / √max(Σ |x|², ε).

    Args:
        x: floating-point or complex.
        axis: the axis or axes along which the vectors lie; None for all.
        epsilon: ε, the least value of the sum.
        name: of the operation; by default none.
        dim: another name for axis.

    Returns:
        Vectors of length 1, or shorter where Σ |x|² < ε. Gradients are finite everywhere.

    Constraints:
        (C1) The axes exist in x, and none is named twice.

    Examples:
        >>> sg.l2_normalize(np.array([3.0, 4.0]))
        array([0.6, 0.8])
    """
    if dim is not None:
        if axis is not None:
            raise ArgumentError("axis and dim are one argument; give axis only")
        axis = dim
    (x,) = d.together(x, promotes=BOTH)
    numbers = wide(x)
    kind = d.type_of(x)
    squares = multiply(numbers, numbers) if not kind.dtype.is_complex else pow(modulus(numbers), 2)
    total = reduce_sum(squares, d.normal_axes(axis, kind.ndim, "C1"), True)
    scaled = multiply(numbers, cast(rsqrt(maximum(total, epsilon)), d.type_of(numbers).dtype))
    return cast(scaled, kind.dtype, name)


@d.guarded("clip_by_norm")
def clip_by_norm(
    t: ArrayLike, clip_norm: ArrayLike, axes: int | Sequence[int] | None = None, name: str | None = None
) -> Tensor:
    """A tensor scaled down if its Euclidean norm is greater than a limit.

    Args:
        t: floating-point or complex.
        clip_norm: the largest norm; positive, a scalar or of a shape that broadcasts with t's.
        axes: the axis or axes along which norms are taken; None for all.
        name: of the operation; by default none.

    Returns:
        t · clip_norm / max(norm, clip_norm). Gradients are finite everywhere.

    Constraints:
        (C1) The axes exist in t, and none is named twice.

    Examples:
        >>> sg.clip_by_norm(np.array([3.0, 4.0]), 1.0)
        array([0.6, 0.8])
    """
    _check_largest(clip_norm)
    (t,) = d.together(t, promotes=BOTH)
    numbers, dtype = wide(t), d.type_of(t).dtype
    size = vector_norm(numbers, axes, True)
    scale = divide(clip_norm, maximum(size, clip_norm))
    return cast(multiply(numbers, cast(scale, d.type_of(numbers).dtype)), dtype, name)


def _check_largest(norm: ArrayLike) -> None:
    """Refuse a largest norm that is known to be negative."""
    if not isinstance(norm, (Output, Operation)) and (d.as_array(norm) < 0).any():
        raise ArgumentError(f"clip_norm is the largest norm, and cannot be negative as {d.shorten(norm)} is")


@d.guarded("global_norm")
def global_norm(t_list: object, name: str | None = None) -> Tensor:
    """The Euclidean norm of several tensors together.

    Args:
        t_list: tensors, in a list or another structure; None among them is ignored.
        name: of the operation; by default none.

    Returns:
        The root of the sum of |t|² over all elements; 0 if there are no tensors. The gradient is 0 if
        all are 0.

    Examples:
        >>> sg.global_norm([np.array([3.0]), np.array([[4.0]])])
        array(5.)
    """
    leaves = d.together(*d.flatten(t_list)[0], promotes=BOTH) if d.flatten(t_list)[0] else []
    if not leaves:
        return vector_norm(d.as_array([0.0], d.float32), name=name)
    dtype = d.type_of(leaves[0]).dtype.real
    sizes = [vector_norm(wide(t)) for t in leaves]
    return cast(vector_norm(stack(sizes)), dtype, name)


@d.guarded("clip_by_global_norm")
def clip_by_global_norm(
    t_list: object, clip_norm: ArrayLike, use_norm: ArrayLike | None = None, name: str | None = None
) -> tuple[Any, Tensor]:
    """Several tensors scaled down together if their common Euclidean norm is greater than a limit.

    Args:
        t_list: tensors, in a list or another structure; None among them stays.
        clip_norm: the largest norm, positive.
        use_norm: their norm, if it is known already; by default :func:`global_norm`.
        name: of the last tensor; by default none.

    Returns:
        The tensors, each times clip_norm / max(norm, clip_norm), in t_list's structure; and the norm. If
        that is infinite or NaN, all elements are NaN, as in TensorFlow.

    References:
        R. Pascanu, T. Mikolov and Y. Bengio 2012, arXiv:1211.5063.

    Examples:
        >>> sg.clip_by_global_norm([np.array([3.0]), np.array([4.0])], 1.0)
        ([array([0.6]), array([0.8])], array(5.))
    """
    _check_largest(clip_norm)
    leaves, spec = d.flatten(t_list)
    (size,) = d.together(global_norm(t_list) if use_norm is None else use_norm, promotes=BOTH)
    scale = divide(clip_norm, maximum(size, clip_norm))
    scale = where(is_finite(size), scale, math.nan)
    scaled = []
    for i, t in enumerate(leaves):
        (t,) = d.together(t, promotes=BOTH)
        dtype = d.type_of(t).dtype
        last = name if i + 1 == len(leaves) else None
        scaled.append(cast(multiply(wide(t), cast(scale, d.type_of(wide(t)).dtype)), dtype, last))
    return d.unflatten(spec, scaled), size
