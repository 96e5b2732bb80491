"""Singular values, eigenvalues and their vectors.

Vectors are determined up to a factor of modulus 1. Here that factor is chosen so that all engines agree: the
first of a vector's largest components (within 0.1 %) is real and positive; for a pair of singular vectors,
that of the left one. Gradients are those of the vectors with this choice.

If two values are equal in the arithmetic of their dtype, any basis of their vectors' span may be returned,
and the vectors have no derivative. The infinite terms of the gradient are left out there, so that it is
finite, and right for every function that depends only on the span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    GradientError,
    Joint,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import abs as modulus
from stopgrad.ops.elementwise.compare import equal, greater, greater_equal, logical_and
from stopgrad.ops.elementwise.convert import cast, complex, conj, imag, real, where, wide
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.diagonals import diag, diag_part
from stopgrad.ops.linalg.matrices import adjoint, check_matrices, smaller
from stopgrad.ops.linalg.solvers import INEXACT, where_possible
from stopgrad.ops.reductions.cumulative import cumsum
from stopgrad.ops.reductions.reduce import reduce_max
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "svd",
    "svdvals",
]

LARGEST = 1 - 1e-3
"""A component counts as one of the largest if its modulus is at least this part of the largest."""

ULPS = 16
"""Values that are closer than this many units in the last place of the largest count as equal."""


# ------------------------------------------------------------------------------------ choice of factors


def phases(xp: Namespace, vectors: Array) -> Array:
    """For each column, the factor that makes the first of its largest components real and positive."""
    if not vectors.shape[-2]:
        return xp.ones((*vectors.shape[:-2], 1, vectors.shape[-1]), vectors.dtype)
    size = xp.abs(vectors)
    first = xp.argmax(size >= LARGEST * xp.max(size, axis=-2, keepdims=True), axis=-2)[..., None, :]
    pivot = xp.take_along_axis(vectors, first, axis=-2)
    return xp.conj(pivot) / xp.take_along_axis(size, first, axis=-2)


def turned(g: Output, vectors: Output, turn: Output) -> Tensor:
    """The cotangent of complex vectors before their factor was chosen.

    The choice rotates a column so that one component is real. *turn* is the cotangent of each column's angle.
    """
    size = modulus(vectors)
    hit = greater_equal(size, LARGEST * reduce_max(size, -2, True))
    first = logical_and(hit, equal(cumsum(cast(hit, d.int32), -2), 1))
    chosen = cast(first, size.dtype)
    angle = -turn / reduce_sum(chosen * real(vectors), -2, True)
    return g + complex(angle * 0, chosen * angle)


def turn(vectors: Output, g: Output) -> Tensor:
    """The cotangent of the columns' angles, given the cotangent of the columns."""
    return reduce_sum(imag(conj(vectors) * g), -2, True)


def finite_only(xp: Namespace, function: Callable[[Any], tuple[Any, ...]], x: Array) -> tuple[Any, ...]:
    """The results of a function of matrices, with NaN for matrices that hold a NaN or an infinity."""
    bad = ~xp.all(xp.isfinite(x), axis=(-2, -1), keepdims=True)
    results = function(xp.where(bad, xp.zeros((), x.dtype), x))
    return tuple(
        xp.where(bad if y.ndim == x.ndim else bad[..., 0], xp.asarray(np.nan, y.dtype), y) for y in results
    )


def inverse(differences: Output, values: Output) -> Tensor:
    """1 / differences of values; 0 where the values count as equal."""
    limit = ULPS * float(np.finfo(values.dtype.real.numpy).eps)
    largest = expand_dims(reduce_max(modulus(values), -1, True), -1)
    apart = greater(modulus(differences), limit * largest)
    return where(apart, 1 / where(apart, differences, 1), 0)


def pairs(values: Output) -> Tensor:
    """The differences of all pairs of values: the second minus the first."""
    return expand_dims(values, -2) - expand_dims(values, -1)


def scaled(columns: Output, factors: Output) -> Tensor:
    """Each column multiplied by its real or complex factor."""
    return columns * expand_dims(cast(factors, columns.dtype), -2)


# ------------------------------------------------------------------------------------ singular values


class Svd(Op):
    """The singular value decomposition: x = u · diag(s) · vᴴ.

    Args:
        x: [..., m, n].
        full_matrices: whether u and v are square; otherwise each has k = min(m, n) columns.

    Returns:
        s, [..., k], from the largest to the smallest; u, [..., m, k] or [..., m, m]; v, [..., n, k] or
        [..., n, n].

    Constraints:
        (C1) x holds floating-point or complex numbers.
        (C2) x has at least two axes.
    """

    @staticmethod
    def infer(x: TensorType, *, full_matrices: bool) -> tuple[TensorType, TensorType, TensorType]:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_matrices(x, "C2", "tensor")
        *batch, m, n = x.shape
        k = smaller(m, n)
        rows, columns = (m, n) if full_matrices else (k, k)
        return (
            d.tensor_type(x.dtype.real, (*batch, k)),
            d.tensor_type(x.dtype, (*batch, m, rows)),
            d.tensor_type(x.dtype, (*batch, n, columns)),
        )

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = Joint(lambda gs, op, live, acting: [_to_singular(gs, op)])
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "its factors have orthonormal columns, by the conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, x: Array, full_matrices: bool) -> tuple[Array, ...]:
        def one(matrix: Array) -> tuple[Any, ...]:
            return tuple(xp.linalg.svd(matrix, full_matrices=full_matrices))

        return finite_only(xp, lambda x: _with_chosen_factors(xp, *where_possible(one, x)), x)

    @staticmethod
    def xla(xp: Namespace, x: Array, full_matrices: bool) -> tuple[Array, ...]:
        def all_of_them(x: Array) -> tuple[Any, Any, Any]:
            return _with_chosen_factors(xp, *xp.linalg.svd(x, full_matrices=full_matrices))

        return finite_only(xp, all_of_them, x)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, distinct=True), full_matrices=False),
        d.sample(d.floats("n", 4, 2, distinct=True), full_matrices=False),
        d.sample(d.floats(2, 2, 3, distinct=True), full_matrices=False),
        d.sample(d.complexes(3, 2), full_matrices=False),
        d.sample(d.complexes(3, 3), full_matrices=True),
        d.sample(d.floats(2, 0), full_matrices=False),
    ]
    extremes = (([[float("nan"), 0.0], [0.0, 1.0]],), ([[float("inf"), 0.0], [0.0, 1.0]],))


def _with_chosen_factors(xp: Namespace, u: Array, s: Array, vh: Array) -> tuple[Any, Any, Any]:
    """The singular values, and the singular vectors with their factors chosen."""
    v = xp.conj(xp.swapaxes(vh, -1, -2))
    of_u = phases(xp, u)
    k = s.shape[-1]
    of_v = of_u[..., :k]
    if v.shape[-1] > k:
        of_v = xp.concatenate([of_v, phases(xp, v[..., k:])], axis=-1)
    return s, u * of_u, v * of_v


def _to_singular(gs: Sequence[Output | None], op: Operation) -> Tensor:
    s, u, v = op.outputs
    ggs, ggu, ggv = gs
    m, n = op.x.shape[-2:]
    k, axis = s.shape[-1], op.x.ndim - 1
    if op.full_matrices:
        for g, size, which in ((ggu, m, "u"), (ggv, n, "v")):
            if g is not None and size is not k and size != k:
                raise GradientError(
                    f"Svd: the gradient of {d.describe(op)} is undefined: {which} has columns that the "
                    "operand does not determine; take full_matrices=False"
                )
        u, v = part_of(u, axis, 0, k), part_of(v, axis, 0, k)
    s, u, v = wide(s), wide(u), wide(v)
    of_s = zeros_like(s) if ggs is None else wide(ggs)
    if ggu is None and ggv is None:
        return matmul(scaled(u, of_s), v, adjoint_b=True)
    gu = zeros_like(u) if ggu is None else wide(ggu)
    gv = zeros_like(v) if ggv is None else wide(ggv)
    return _to_vectors(of_s, gu, gv, s, u, v)


def _to_vectors(gs: Output, gu: Output, gv: Output, s: Output, u: Output, v: Output) -> Tensor:
    if u.dtype.is_complex:
        gu = turned(gu, u, turn(u, gu) + turn(v, gv))
    above, below = expand_dims(s, -2), expand_dims(s, -1)
    # s² - s'² from its factors, which is more accurate, as is the test for equal values.
    apart = inverse(above - below, s) * inverse(above + below, s)
    tu, tv = matmul(u, gu, adjoint_a=True), matmul(v, gv, adjoint_a=True)
    kind = u.dtype
    apart, column, row = cast(apart, kind), cast(above, kind), cast(below, kind)
    inner = (apart * (tu - adjoint(tu))) * column + row * (apart * (tv - adjoint(tv)))
    of_s = cast(gs, kind)
    one_over = cast(_inverse_of(s), kind)
    if kind.is_complex:
        angle = imag(diag_part(tu)) - imag(diag_part(tv))
        of_s = of_s + one_over * complex(angle * 0, angle * 0.5)
    inner = inner + diag(of_s)
    result = matmul(matmul(u, inner), v, adjoint_b=True)
    outside_u = scaled(gu - matmul(u, tu), one_over)
    outside_v = scaled(gv - matmul(v, tv), one_over)
    return result + matmul(outside_u, v, adjoint_b=True) + matmul(u, outside_v, adjoint_b=True)


def _inverse_of(s: Output) -> Tensor:
    """1 / s; 0 where s counts as 0."""
    return reduce_sum(inverse(expand_dims(s, -2), s), -2)


class SingularValues(Op):
    """The singular values of matrices.

    Args:
        x: [..., m, n].

    Returns:
        The values, [..., min(m, n)], from the largest to the smallest. Their gradient is finite everywhere;
        where some are equal, or 0, it depends on the choice of vectors. The third derivatives of a value that
        is unlike all others are wrong where others are equal, or 0: they need the rotation of those vectors.

    Constraints:
        (C1) x holds floating-point or complex numbers.
        (C2) x has at least two axes.

    Examples:
        >>> sg.svdvals(np.array([[0.0, 2.0], [3.0, 0.0]]))
        array([3., 2.])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return Svd.infer(x, full_matrices=False)[0]

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {
        "x": lambda g, op: _to_singular((g, None, None), d.apply(Svd, (op.x,), (False,))[0].op)
    }
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "they are real"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        def values(x: Array) -> Any:
            return (where_possible(lambda a: xp.linalg.svd(a, compute_uv=False), x),)

        return finite_only(xp, values, x)[0]

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        return finite_only(xp, lambda x: (xp.linalg.svd(x, compute_uv=False),), x)[0]

    samples: d.Samples = [
        d.sample(d.floats(3, 3, distinct=True)),
        d.sample(d.floats("n", 2, 4, distinct=True)),
        d.sample(d.complexes(3, 2)),
        d.sample(d.floats(2, 0)),
    ]
    extremes = (([[float("nan"), 0.0], [0.0, 1.0]],), ([[0.0, 0.0], [0.0, 0.0]],))


@d.builds(SingularValues)
def svdvals(x: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(SingularValues, (x,), (), name)


@d.builds(Svd)
def svd(
    tensor: ArrayLike, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """The singular value decomposition: tensor = u · diag(s) · vᴴ.

    Args:
        tensor: [..., m, n].
        full_matrices: whether u and v are square; otherwise each has k = min(m, n) columns.
        compute_uv: whether to return u and v too.
        name: of the operation; by default none.

    Returns:
        s, u and v; or s alone. s, [..., k], is sorted from the largest to the smallest; u is [..., m, k] or
        [..., m, m]; v is [..., n, k] or [..., n, n] (NumPy returns its adjoint). The first of the largest
        components (within 0.1 %) of each column of u is real and positive. Matrices that hold a NaN or an
        infinity give NaN.

        The gradient of s is finite everywhere. That of u and v is not defined where two singular values are
        equal, or one is 0. If values are closer than 16 units in the last place of the largest, the infinite
        terms are left out, which is right for every function that depends only on the span of the vectors.
        With full_matrices, columns beyond k have no gradient, and asking for one is an error.

    Constraints:
        (C1) tensor holds floating-point or complex numbers.
        (C2) tensor has at least two axes.

    References:
        J. Townsend 2016, "Differentiating the singular value decomposition"; Z.-Q. Wan and S.-X. Zhang 2019,
        arXiv:1909.02659, for complex matrices.

    Examples:
        >>> sg.svd(np.array([[0.0, 2.0], [3.0, 0.0]]), compute_uv=False)
        array([3., 2.])
        >>> s, u, v = sg.svd(np.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> u @ np.diag(s) @ v.T
        array([[0., 2.],
               [3., 0.]])
    """
    full, vectors = d.flag(full_matrices), d.flag(compute_uv)
    return (
        tuple(d.apply(Svd, (tensor,), (full,), name))
        if vectors
        else d.apply(SingularValues, (tensor,), (), name)
    )
