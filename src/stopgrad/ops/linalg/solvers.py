"""Systems of linear equations, and the inverse of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    ShapeError,
    Tensor,
    TensorType,
)
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.matrices import adjoint, check_square, tril, triu
from stopgrad.ops.shapes.reshape import expand_dims, squeeze

__all__ = [
    "cholesky_solve",
    "inv",
    "solve",
    "triangular_solve",
]

INEXACT = "floating-point or complex numbers"
BOTH = Promotion(d.is_inexact)
BLOCK = 32
"""The unknowns of a block are eliminated one by one; those before the block by one matrix product."""


def where_possible(function: Callable[..., Any], *arrays: Any) -> Any:
    """The results of a NumPy function of matrices, with NaN for matrices for which it fails."""
    try:
        return function(*arrays)
    except np.linalg.LinAlgError:
        pass
    batch = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    spread = [np.broadcast_to(a, (*batch, *a.shape[-2:])) for a in arrays]
    several, by_matrix = False, []
    for i in np.ndindex(*batch):
        try:
            computed = function(*(a[i] for a in spread))
        except np.linalg.LinAlgError:
            regular = function(*(np.eye(*a.shape[-2:], dtype=a.dtype) for a in arrays))
            parts = regular if isinstance(regular, tuple) else (regular,)
            computed = tuple(np.full_like(part, np.nan) for part in parts)
        several = isinstance(computed, tuple) and len(computed) > 1
        by_matrix.append(computed if isinstance(computed, tuple) else (computed,))
    results = tuple(np.reshape(np.stack(v), (*batch, *v[0].shape)) for v in zip(*by_matrix, strict=True))
    return results if several else results[0]


def nan_with(xp: Namespace, matrix: Array, result: Array) -> Array:
    """*result*, with NaN everywhere for matrices that hold one: engines spread it differently."""
    unknown = xp.any(xp.isnan(matrix), axis=(-2, -1), keepdims=True)
    return xp.where(unknown, xp.asarray(np.nan, result.dtype), result)


def solved_type(matrix: TensorType, rhs: TensorType) -> TensorType:
    """The type of the solutions of systems of equations."""
    dtype = d.check_same_dtype(matrix, rhs)
    d.check_dtype(matrix, d.is_inexact, INEXACT)
    check_square(matrix, "C2", "matrix")
    if rhs.ndim < 2 or not d.same_size(rhs.shape[-2], matrix.shape[-1]):
        raise ShapeError(f"(C3) rhs must have {matrix.shape[-1]} rows, as matrix has columns, not {rhs!r}")
    try:
        batch = d.broadcast_c2(matrix.shape[:-2], rhs.shape[:-2])
    except ShapeError as error:
        raise ShapeError(f"(C4) {error.message.removeprefix('(C2) ')}") from None
    return d.tensor_type(dtype, (*batch, *rhs.shape[-2:]))


def _spread(xp: Namespace, matrix: Array, rhs: Array) -> tuple[Any, Any]:
    """Both, broadcast to the same leading axes."""
    batch = np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    return (
        xp.broadcast_to(matrix, (*batch, *matrix.shape[-2:])),
        xp.broadcast_to(rhs, (*batch, *rhs.shape[-2:])),
    )


# ---------------------------------------------------------------------------------------- triangular


class TriangularSolve(Op):
    """The solution of linear equations with a triangular matrix.

    Args:
        matrix: [..., m, m]; its other triangle is not read.
        rhs: the right-hand sides, [..., m, k]; the function also takes one, [m].
        lower: whether the lower triangle is used.
        adjoint: whether to solve with the adjoint of the matrix.

    Returns:
        The solutions, [..., m, k]. If the diagonal holds a 0, they and their gradients are infinite or NaN.

    Constraints:
        (C1) Both hold floating-point or complex numbers of one dtype.
        (C2) matrix holds square matrices.
        (C3) rhs has as many rows as matrix has columns.
        (C4) The leading axes broadcast.

    Examples:
        >>> sg.triangular_solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([[2.0], [3.0]]))
        array([[1.],
               [2.]])
    """

    @staticmethod
    def infer(matrix: TensorType, rhs: TensorType, *, lower: bool, adjoint: bool) -> TensorType:
        return solved_type(matrix, rhs)

    promotes = BOTH
    gradient: d.Gradient = {
        "matrix": lambda g, op: _triangle(_to_system(_triangular_back(g, op), op), op.lower),
        "rhs": lambda g, op: _triangular_back(g, op),
    }
    batch = d.SOLVE
    rounds_once = True
    not_holomorphic = "with adjoint=True it takes the conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, matrix: Array, rhs: Array, lower: bool, adjoint: bool) -> np.ndarray[Any, Any]:
        if adjoint:
            matrix, lower = xp.conj(xp.swapaxes(matrix, -1, -2)), not lower
        matrix, rhs = _spread(xp, matrix, rhs)
        if not lower:
            return _substituted(xp, matrix[..., ::-1, ::-1], rhs[..., ::-1, :])[..., ::-1, :]
        return _substituted(xp, matrix, rhs)

    @staticmethod
    def xla(xp: Namespace, matrix: Array, rhs: Array, lower: bool, adjoint: bool) -> Array:
        matrix, rhs = _spread(xp, matrix, rhs)
        return xp.lax.linalg.triangular_solve(
            matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
        )

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=5.0), d.floats(3, 2), lower=True, adjoint=False),
        d.sample(d.floats(3, 3, diagonal=5.0), d.floats("n", 3, 1), lower=False, adjoint=True),
        d.sample(d.floats(2, 1, 3, 3, diagonal=5.0), d.floats(2, 3, 2), lower=False, adjoint=False),
        d.sample(d.complexes(3, 3, diagonal=5.0), d.complexes(3, 1), lower=True, adjoint=True),
        d.sample(d.floats(0, 0), d.floats(0, 2), lower=True, adjoint=False),
    ]


def _substituted(xp: Namespace, matrix: Array, rhs: Array) -> np.ndarray[Any, Any]:
    """The solution with a lower triangular matrix, by forward substitution."""
    x, size = np.array(rhs), matrix.shape[-1]
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        x[..., start:stop, :] -= xp.matmul(matrix[..., start:stop, :start], x[..., :start, :])
        for i in range(start, stop):
            x[..., i : i + 1, :] -= xp.matmul(matrix[..., i : i + 1, start:i], x[..., start:i, :])
            x[..., i, :] /= matrix[..., i, i, None]
    return x


def _triangle(x: Output, lower: bool) -> Tensor:
    return tril(x) if lower else triu(x)


def _triangular_back(g: Output, op: Operation) -> Tensor:
    return d.apply(TriangularSolve, (op.matrix, g), (op.lower, not op.adjoint))


def _to_system(back: Output, op: Operation) -> Tensor:
    """The cotangent of the matrix, given *back*, the cotangent of the right-hand sides."""
    x = op.result
    return -(matmul(x, adjoint(back)) if op.adjoint else matmul(back, adjoint(x)))


@d.builds(TriangularSolve)
def triangular_solve(
    matrix: ArrayLike, rhs: ArrayLike, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    return _solved(TriangularSolve, matrix, rhs, (d.flag(lower), d.flag(adjoint)), name)


def _solved(
    definition: type[Op], matrix: ArrayLike, rhs: ArrayLike, values: tuple[Any, ...], name: str | None
) -> Tensor:
    """The solutions; a single right-hand side, a vector, gets an axis for the operation."""
    if d.type_of(rhs).ndim != 1:
        return d.apply(definition, (matrix, rhs), values, name)
    return squeeze(d.apply(definition, (matrix, expand_dims(rhs, -1)), values), -1, name)


@d.guarded("cholesky_solve")
def cholesky_solve(chol: ArrayLike, rhs: ArrayLike, name: str | None = None) -> Tensor:
    """The solution of linear equations with a matrix given by its Cholesky factor.

    Args:
        chol: the factor L, [..., m, m], as :func:`cholesky` returns it; its upper triangle is not read.
        rhs: the right-hand sides, [..., m, k], or one, [m].
        name: of the operation; by default none.

    Returns:
        The solutions x of L Lᴴ x = rhs.

    Constraints:
        (C1) Both hold floating-point or complex numbers.
        (C2) chol holds square matrices.
        (C3) rhs has as many rows as chol has columns.
        (C4) The leading axes broadcast.

    Examples:
        >>> sg.cholesky_solve(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([4.0, 3.0]))
        array([1., 3.])
    """
    chol, rhs = d.together(chol, rhs, promotes=BOTH)
    if d.type_of(rhs).ndim == 1:
        return squeeze(cholesky_solve(chol, expand_dims(rhs, -1)), -1, name)
    return triangular_solve(chol, triangular_solve(chol, rhs), adjoint=True, name=name)


# ------------------------------------------------------------------------------------------- general


class MatrixSolve(Op):
    """The solution of linear equations, by elimination with partial pivoting.

    Args:
        matrix: [..., m, m].
        rhs: the right-hand sides, [..., m, k]; the function also takes one, [m].
        adjoint: whether to solve with the adjoint of the matrix.

    Returns:
        The solutions, [..., m, k]. They and their gradients are NaN for a matrix that holds a NaN, or in
        whose elimination a pivot is exactly 0; close to a singular matrix they are large.

    Constraints:
        (C1) Both hold floating-point or complex numbers of one dtype.
        (C2) matrix holds square matrices.
        (C3) rhs has as many rows as matrix has columns.
        (C4) The leading axes broadcast.

    Examples:
        >>> sg.solve(np.array([[2.0, 1.0], [1.0, 1.0]]), np.array([[3.0], [2.0]]))
        array([[1.],
               [1.]])
    """

    @staticmethod
    def infer(matrix: TensorType, rhs: TensorType, *, adjoint: bool) -> TensorType:
        return solved_type(matrix, rhs)

    promotes = BOTH
    gradient: d.Gradient = {
        "matrix": lambda g, op: _to_system(_back(g, op), op),
        "rhs": lambda g, op: _back(g, op),
    }
    batch = d.SOLVE
    rounds_once = True
    not_holomorphic = "with adjoint=True it takes the conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, matrix: Array, rhs: Array, adjoint: bool) -> Array:
        if adjoint:
            matrix = xp.conj(xp.swapaxes(matrix, -1, -2))
        return nan_with(xp, matrix, where_possible(xp.linalg.solve, matrix, rhs))

    @staticmethod
    def xla(xp: Namespace, matrix: Array, rhs: Array, adjoint: bool) -> Array:
        # Factors of the matrix itself, never of its adjoint, so that XLA shares them with the gradient.
        factors, _, order = xp.lax.linalg.lu(matrix)
        singular = xp.any(xp.diagonal(factors, 0, -2, -1) == 0, axis=-1)[..., None, None]
        factors, rhs = _spread(xp, factors, rhs)
        order = xp.broadcast_to(order, factors.shape[:-1])[..., None]
        step = xp.lax.linalg.triangular_solve
        if adjoint:
            y = step(factors, rhs, left_side=True, transpose_a=True, conjugate_a=True)
            y = step(
                factors, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=True
            )
            y = xp.take_along_axis(y, xp.argsort(order, axis=-2), axis=-2)
        else:
            y = xp.take_along_axis(rhs, order, axis=-2)
            y = step(factors, y, left_side=True, lower=True, unit_diagonal=True)
            y = step(factors, y, left_side=True)
        return nan_with(xp, matrix, xp.where(singular, xp.asarray(np.nan, y.dtype), y))

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=3.0), d.floats(3, 2), adjoint=False),
        d.sample(d.floats(3, 3, diagonal=3.0), d.floats("n", 3, 1), adjoint=True),
        d.sample(d.floats(2, 1, 3, 3, diagonal=3.0), d.floats(2, 3, 2), adjoint=False),
        d.sample(d.complexes(3, 3, diagonal=3.0), d.complexes(3, 1), adjoint=True),
        d.sample(d.floats(0, 0), d.floats(0, 2), adjoint=False),
    ]
    extremes = (
        ([[1.0, 1.0], [1.0, 1.0]], [[1.0], [2.0]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[0.0], [2.0]]),
        ([[np.nan, 1.0], [1.0, 2.0]], [[1.0], [2.0]]),
    )


def _back(g: Output, op: Operation) -> Tensor:
    return d.apply(MatrixSolve, (op.matrix, g), (not op.adjoint,))


@d.builds(MatrixSolve)
def solve(matrix: ArrayLike, rhs: ArrayLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    return _solved(MatrixSolve, matrix, rhs, (d.flag(adjoint),), name)


class MatrixInverse(Op):
    """The inverse of square matrices.

    Args:
        x: [..., m, m].

    Returns:
        The inverses, [..., m, m]. They and their gradients are NaN for a matrix in whose elimination a pivot
        is exactly 0. To solve equations, :func:`solve` is faster and more accurate.

    Constraints:
        (C1) x holds floating-point or complex numbers.
        (C2) x holds square matrices.
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2", "x")
        return x

    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _to_inverted(g, adjoint(op.result))}
    batch = d.ALONG
    rounds_once = True
    lower = lambda xp, x: nan_with(xp, x, where_possible(xp.linalg.inv, x))

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        unit = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape)
        return MatrixSolve.xla(xp, x, unit, False)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=3.0)),
        d.sample(d.floats("n", 2, 2, diagonal=3.0)),
        d.sample(d.complexes(3, 3, diagonal=3.0)),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[1.0, 2.0], [2.0, 4.0]],), ([[0.0, 0.0], [0.0, 1.0]],), ([[np.nan, 0.0], [0.0, 1.0]],))


def _to_inverted(g: Output, inverse: Output) -> Tensor:
    return -matmul(inverse, matmul(g, inverse))


@d.builds(MatrixInverse)
def inv(input: ArrayLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverse of square matrices.

    Args:
        input: [..., m, m].
        adjoint: whether to invert the adjoint instead.
        name: of the operation; by default none.

    Returns:
        The inverses, [..., m, m]. They and their gradients are NaN for a matrix in whose elimination a pivot
        is exactly 0. To solve equations, :func:`solve` is faster and more accurate.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input holds square matrices.

    Examples:
        >>> sg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array([[0.5 , 0.  ],
               [0.  , 0.25]])
    """
    if not d.flag(adjoint):
        return d.apply(MatrixInverse, (input,), (), name)
    return _adjoint(d.apply(MatrixInverse, (input,)), name)


_adjoint = adjoint
"""Another name of :func:`adjoint`, for functions with an argument of that name."""
