"""Powers, pseudoinverses and ranks of matrices, and least squares."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Namespace,
    Op,
    Output,
    Promotion,
    ShapeError,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import add, multiply
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast, wide
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.diagonals import eye
from stopgrad.ops.linalg.factorizations import cholesky
from stopgrad.ops.linalg.matrices import adjoint, check_matrices, check_square, larger
from stopgrad.ops.linalg.solvers import BOTH, INEXACT, MatrixInverse, cholesky_solve, where_possible
from stopgrad.ops.linalg.spectra import svdvals
from stopgrad.ops.reductions.reduce import reduce_max
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reduce_sum, squeeze
from stopgrad.ops.structural.sources import identity, size_as

__all__ = [
    "lstsq",
    "matrix_power",
    "matrix_rank",
    "pinv",
]


# --------------------------------------------------------------------------------------------- powers


@d.guarded("matrix_power")
def matrix_power(x: ArrayLike, n: int, name: str | None = None) -> Tensor:
    """Whole powers of square matrices, by repeated squaring.

    Args:
        x: numbers, [..., m, m]; floating-point or complex if n is negative.
        n: the exponent; a negative one takes powers of the inverse.
        name: of the operation; by default none.

    Returns:
        The powers, [..., m, m].

    Constraints:
        (C1) x holds square matrices.

    Examples:
        >>> sg.matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 3)
        array([[1., 3.],
               [0., 1.]])
    """
    exponent = d.whole(n)
    (x,) = d.together(x, promotes=Promotion(d.is_number) if exponent >= 0 else BOTH)
    kind = d.type_of(x)
    check_square(kind, "C1")
    if exponent == 0:
        unit = eye(kind.shape[-1], dtype=kind.dtype)
        return broadcast_to(unit, kind.shape, name)
    square = x if exponent > 0 else d.apply(MatrixInverse, (x,))
    result: Tensor = None
    remaining = abs(exponent)
    while remaining:
        if remaining % 2:
            result = square if result is None else matmul(result, square)
        remaining //= 2
        square = matmul(square, square) if remaining else square
    return identity(result, name)


# -------------------------------------------------------------------------------- singular matrices


class PseudoInverse(Op):
    """The Moore-Penrose pseudoinverse of matrices.

    Args:
        a: [..., m, n].
        rcond: singular values count as 0 if they are at most this times the largest; real, of a shape that
            broadcasts with [...].

    Returns:
        The pseudoinverses, [..., n, m]; NaN for a matrix that holds a NaN or an infinity. The gradient is
        right for changes that keep the rank; it does not exist where small changes can change the rank, and
        is large close to such a matrix.

    Constraints:
        (C1) a holds floating-point or complex numbers.
        (C2) a has at least two axes.
        (C3) rcond is real, of a's precision, and broadcasts with a's leading axes.

    References:
        G. Golub and V. Pereyra 1973, "The differentiation of pseudo-inverses and nonlinear least squares
        problems whose variables separate".
    """

    @staticmethod
    def infer(a: TensorType, rcond: TensorType) -> TensorType:
        d.check_dtype(a, d.is_inexact, INEXACT)
        check_matrices(a, "C2", "a")
        *batch, m, n = a.shape
        if rcond.dtype is not a.dtype.real or rcond.ndim > len(batch):
            raise ShapeError(f"(C3) rcond must be {a.dtype.real} of at most {len(batch)} axes, not {rcond!r}")
        sizes = zip(rcond.shape[::-1], batch[::-1], strict=False)
        if not all((isinstance(r, int) and r == 1) or d.same_size(r, size) for r, size in sizes):
            raise ShapeError(f"(C3) rcond {rcond!r} does not broadcast with the leading axes of {a!r}")
        return d.tensor_type(a.dtype, (*batch, n, m))

    gradient: d.Gradient = {
        "a": lambda g, op: _to_pseudoinverse(wide(g), wide(op.a), wide(op.result)),
        "rcond": d.not_differentiable(
            "a threshold decides what counts as 0; the result is constant between such"
        ),
    }
    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, a: Array, rcond: Array) -> Array:
        def factors(matrix: Array) -> tuple[Any, ...]:
            return tuple(xp.linalg.svd(matrix, full_matrices=False))

        bad = ~xp.all(xp.isfinite(a), axis=(-2, -1), keepdims=True)
        u, s, vh = where_possible(factors, xp.where(bad, xp.zeros((), a.dtype), a))
        return PseudoInverse.joined(xp, u, s, vh, rcond, bad)

    @staticmethod
    def xla(xp: Namespace, a: Array, rcond: Array) -> Array:
        bad = ~xp.all(xp.isfinite(a), axis=(-2, -1), keepdims=True)
        u, s, vh = xp.linalg.svd(xp.where(bad, xp.zeros((), a.dtype), a), full_matrices=False)
        return PseudoInverse.joined(xp, u, s, vh, rcond, bad)

    @staticmethod
    def joined(xp: Namespace, u: Array, s: Array, vh: Array, rcond: Array, bad: Array) -> Array:
        """The pseudoinverse from the singular values and vectors."""
        large = s > rcond[..., None] * xp.max(s, axis=-1, keepdims=True, initial=0)
        inverse = xp.where(large, 1 / xp.where(large, s, xp.ones((), s.dtype)), xp.zeros((), s.dtype))
        columns = xp.conj(xp.swapaxes(vh, -1, -2)) * inverse[..., None, :].astype(u.dtype)
        result = xp.matmul(columns, xp.conj(xp.swapaxes(u, -1, -2)))
        return xp.where(bad, xp.asarray(np.nan, result.dtype), result)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=3.0), d.floats(low=1e-9, high=1e-8)),
        d.sample(d.floats("n", 4, 2, diagonal=3.0), d.floats("n", low=1e-9, high=1e-8)),
        d.sample(d.floats(2, 2, 3, diagonal=3.0), d.floats(1, low=1e-9, high=1e-8)),
        d.sample(d.complexes(3, 2, diagonal=3.0), d.floats(low=1e-9, high=1e-8)),
        d.sample(d.floats(2, 0), d.floats(low=1e-9, high=1e-8)),
    ]


def _to_pseudoinverse(g: Output, a: Output, p: Output) -> Tensor:
    """The formula of Golub and Pereyra, which needs no singular values."""
    gh, ph = adjoint(g), adjoint(p)
    inside = -matmul(matmul(ph, g), ph)
    left = matmul(matmul(gh, p), ph)
    right = matmul(matmul(ph, p), gh)
    return inside + left - matmul(a, matmul(p, left)) + right - matmul(matmul(right, p), a)


_limits: Any = ml_dtypes.finfo
"""NumPy's does not know bfloat16."""


def _threshold(a: ArrayLike, factor: float) -> Tensor:
    """*factor* · max(m, n) · eps."""
    kind = d.type_of(a)
    dtype = kind.dtype.real
    return multiply(
        size_as(larger(*kind.shape[-2:]), dtype, a),
        d.as_array(factor * float(_limits(dtype.numpy).eps), dtype),
    )


@d.builds(PseudoInverse)
def pinv(
    a: ArrayLike, rcond: ArrayLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """The Moore-Penrose pseudoinverse of matrices.

    Args:
        a: [..., m, n].
        rcond: singular values count as 0 if they are at most this times the largest; real, of a shape that
            broadcasts with [...]. By default 10 · max(m, n) · eps, as in TensorFlow.
        validate_args: accepted; arguments are always checked.
        name: of the operation; by default none.

    Returns:
        The pseudoinverses, [..., n, m]; NaN for a matrix that holds a NaN or an infinity. The gradient is
        right for changes that keep the rank; it does not exist where small changes can change the rank, and
        is large close to such a matrix.

    Constraints:
        (C1) a holds floating-point or complex numbers.
        (C2) a has at least two axes.
        (C3) rcond broadcasts with a's leading axes.

    Examples:
        >>> np.round(sg.pinv(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])), 12)
        array([[1. , 0. , 0. ],
               [0. , 0.5, 0. ]])
    """
    d.flag(validate_args)
    (a,) = d.together(a, promotes=BOTH)
    with d.about(PseudoInverse, a):
        check_matrices(d.type_of(a), "C2", "a")
    limit = _threshold(a, 10.0) if rcond is None else cast(rcond, d.type_of(a).dtype.real)
    return d.apply(PseudoInverse, (a, limit), (), name)


@d.guarded("matrix_rank")
def matrix_rank(
    a: ArrayLike, tol: ArrayLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """The ranks of matrices: the numbers of their singular values that are larger than a tolerance.

    Args:
        a: [..., m, n].
        tol: the tolerance, a scalar or one for each matrix; by default the largest singular value times
            max(m, n) · eps.
        validate_args: accepted; arguments are always checked.
        name: of the operation; by default none.

    Returns:
        The ranks as int32, [...].

    Constraints:
        (C1) a has at least two axes.

    Examples:
        >>> sg.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))
        array(1, dtype=int32)
    """
    d.flag(validate_args)
    (a,) = d.together(a, promotes=BOTH)
    check_matrices(d.type_of(a), "C1", "a")
    s = svdvals(wide(a))
    if tol is None:
        limit = multiply(reduce_max(s, -1, True), _threshold(a if wide(a) is a else wide(a), 1.0))
    else:
        limit = expand_dims(cast(tol, d.type_of(s).dtype), -1)
    return reduce_sum(cast(greater(s, limit), d.int32), -1, name=name)


@d.guarded("lstsq")
def lstsq(
    matrix: ArrayLike,
    rhs: ArrayLike,
    l2_regularizer: ArrayLike = 0.0,
    fast: bool = True,
    name: str | None = None,
) -> Tensor:
    """The solution of linear equations with the least sum of squared errors.

    Args:
        matrix: [..., m, n].
        rhs: the right-hand sides, [..., m, k], or one, [m].
        l2_regularizer: λ, the weight of the sum of the solution's squares beside that of the errors.
        fast: whether to solve the normal equations with a Cholesky factorization, which needs matrices of
            full rank and squares their condition number. Otherwise the pseudoinverse is used, which takes
            matrices of any rank, but only λ = 0.
        name: of the operation; by default none.

    Returns:
        The solutions, [..., n, k]: those that minimise |matrix · x - rhs|² + λ |x|², and for m < n the
        shortest of them. With fast, they and their gradients are NaN or useless for matrices without full
        rank, unless λ > 0; without it, gradients are right for changes that keep the rank.

    Constraints:
        (C1) Both hold floating-point or complex numbers.
        (C2) matrix has at least two axes.
        (C3) rhs has as many rows as matrix.
        (C4) The leading axes broadcast.

    Examples:
        >>> x = sg.lstsq(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [3.0], [5.0]]))
        >>> np.round(x, 6)
        array([[1.],
               [2.]])
    """
    matrix, rhs = d.together(matrix, rhs, promotes=BOTH)
    if d.type_of(rhs).ndim == 1:
        return squeeze(lstsq(matrix, expand_dims(rhs, -1), l2_regularizer, fast), -1, name)
    kind, right = d.type_of(matrix), d.type_of(rhs)
    check_matrices(kind, "C2", "matrix")
    m, n = kind.shape[-2:]
    if right.ndim < 2 or not d.same_size(right.shape[-2], m):
        raise ShapeError(f"(C3) rhs must have {m} rows, as matrix, not {right!r}")
    plain = isinstance(l2_regularizer, (int, float)) and l2_regularizer == 0
    if not d.flag(fast):
        if not plain:
            raise ArgumentError("a regularizer goes with fast=True only")
        return matmul(pinv(matrix), rhs, name=name)
    tall = not (isinstance(m, int) and isinstance(n, int) and m < n)
    gram = matmul(matrix, matrix, adjoint_a=True) if tall else matmul(matrix, matrix, adjoint_b=True)
    if not plain:
        unit = eye(n if tall else m, dtype=kind.dtype)
        gram = add(gram, multiply(unit, cast(l2_regularizer, kind.dtype)))
    factor = cholesky(gram)
    if tall:
        return cholesky_solve(factor, matmul(matrix, rhs, adjoint_a=True), name)
    return matmul(matrix, cholesky_solve(factor, rhs), adjoint_a=True, name=name)
