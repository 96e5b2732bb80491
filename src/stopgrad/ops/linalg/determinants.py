"""Determinants, and the adjugate, which is their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Array, ArrayLike, Namespace, Op, Operation, Output, Tensor, TensorType
from stopgrad.ops.elementwise.arithmetic import multiply
from stopgrad.ops.elementwise.convert import cast, complex, conj, imag, real, where, wide
from stopgrad.ops.elementwise.powers import log
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.diagonals import diag, diag_part
from stopgrad.ops.linalg.factorizations import cholesky
from stopgrad.ops.linalg.matrices import adjoint, check_square, matrix_transpose, triu
from stopgrad.ops.linalg.solvers import BOTH, INEXACT, MatrixInverse, inv
from stopgrad.ops.linalg.spectra import Svd
from stopgrad.ops.reductions.cumulative import cumprod
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reduce_sum, squeeze

__all__ = [
    "det",
    "logdet",
    "slogdet",
]


def _square(x: TensorType) -> TensorType:
    d.check_dtype(x, d.is_inexact, INEXACT)
    check_square(x, "C2", "input")
    return x


class MatrixDeterminant(Op):
    """The determinant of square matrices.

    Args:
        input: [..., m, m].

    Returns:
        The determinants, [...]; 1 for matrices without elements. The gradient is the adjugate, which for
        singular matrices is computed from singular values, so that it is right for them too.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input holds square matrices.

    References:
        M. Giles 2008, "An extended collection of matrix derivative results for forward and reverse mode
        algorithmic differentiation".

    Examples:
        >>> sg.det(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(-2.)
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return d.tensor_type(_square(x).dtype, x.shape[:-2])

    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _spread(wide(g)) * adjoint(d.apply(Adjugate, (wide(op.x),)))}
    batch = d.ALONG
    rounds_once = True
    lower = lambda xp, x: xp.linalg.det(x)

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        factors, pivots, _ = xp.lax.linalg.lu(x)
        moved = xp.sum(pivots != xp.arange(pivots.shape[-1]), axis=-1) % 2
        product = xp.prod(xp.diagonal(factors, 0, -2, -1), axis=-1)
        return xp.where(moved == 1, -product, product)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=2.0)),
        d.sample(d.floats("n", 2, 2)),
        d.sample(d.complexes(3, 3)),
        d.sample(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 1.0]])),
        d.sample(np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[1.0, 2.0], [2.0, 4.0]],), ([[0.0, 0.0], [0.0, 0.0]],), ([[np.nan, 0.0], [0.0, 1.0]],))


@d.builds(MatrixDeterminant)
def det(input: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(MatrixDeterminant, (input,), (), name)


def _spread(g: ArrayLike) -> Tensor:
    """A number for each matrix, in a shape that broadcasts with the matrices."""
    return expand_dims(g, (-2, -1))


class Adjugate(Op):
    """The adjugate of square matrices: the determinant times the inverse; its limit for singular ones.

    It is computed from singular values for matrices whose condition number is greater than 1 / √eps.

    Args:
        x: [..., m, m].

    Returns:
        The adjugates, [..., m, m]; NaN for matrices that hold a NaN or an infinity. Gradients of the first
        order are right for all matrices, those of higher orders only if the singular values differ.

    Constraints:
        (C1) x holds floating-point or complex numbers.
        (C2) x holds square matrices.
    """

    infer = staticmethod(_square)
    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _to_adjugate(wide(g), wide(op.x))}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "it is computed from singular values"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        result, regular = _by_inverse(xp, x, MatrixInverse.lower(xp, x), MatrixDeterminant.lower(xp, x))
        if not regular.all():
            result[~regular] = _adjugate(xp, *Svd.lower(xp, x[~regular], True))
        return result

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        result, regular = _by_inverse(xp, x, MatrixInverse.xla(xp, x), MatrixDeterminant.xla(xp, x))
        return xp.lax.cond(
            xp.all(regular), lambda: result, lambda: _adjugate(xp, *Svd.xla(xp, x, True)).astype(x.dtype)
        )

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=2.0)),
        d.sample(d.floats("n", 2, 2)),
        d.sample(np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[2.0, 1.0], [1.0, 2.0]]])),
        d.sample(d.complexes(3, 3)),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[1.0, 2.0], [2.0, 4.0]],), ([[0.0, 0.0], [0.0, 0.0]],))


@d.builds(Adjugate)
def adjugate(x: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Adjugate, (x,), (), name)


def _by_inverse(xp: Namespace, x: Array, inverse: Array, determinant: Array) -> tuple[Any, Any]:
    """The determinant times the inverse, and whether that is precise enough, for each matrix."""

    def size(matrix: Array) -> Any:
        return xp.max(xp.sum(xp.abs(matrix), axis=-1), axis=-1, initial=0)

    condition = size(x) * size(inverse)
    limit = xp.asarray(np.finfo(condition.dtype).eps ** -0.5, condition.dtype)
    return determinant[..., None, None] * inverse, condition < limit


def _adjugate(xp: Namespace, s: Array, u: Array, v: Array) -> Array:
    ones = xp.ones((*s.shape[:-1], 1), s.dtype)
    before = xp.concatenate([ones, xp.cumprod(s, axis=-1)[..., :-1]], axis=-1)[..., : s.shape[-1]]
    after = xp.flip(xp.concatenate([ones, xp.cumprod(xp.flip(s, -1), axis=-1)[..., :-1]], axis=-1), -1)
    others = (before * after[..., after.shape[-1] - s.shape[-1] :]).astype(u.dtype)
    turn = (xp.linalg.det(u) * xp.conj(xp.linalg.det(v)))[..., None, None]
    return turn * xp.matmul(v * others[..., None, :], xp.conj(xp.swapaxes(u, -1, -2)))


def _to_adjugate(g: Output, x: Output) -> Tensor:
    """The cotangent of x, in the bases of singular vectors, from products of all singular values but two."""
    s, u, v = d.apply(Svd, (x,), (True,))
    turn = det(u) * conj(det(v))
    k = matmul(matmul(v, g, adjoint_a=True), u) * _spread(conj(turn))
    others = cast(_products_without_two(s), u.dtype)
    from_diagonal = squeeze(matmul(others, expand_dims(diag_part(k), -1)), -1)
    inner = diag(from_diagonal) - others * k
    return matmul(matmul(u, inner), v, adjoint_b=True)


def _products_without_two(s: Output) -> Tensor:
    """For each pair of positions, the product of all elements except these two; 0 on the diagonal."""
    before, after = cumprod(s, -1, exclusive=True), cumprod(s, -1, exclusive=True, reverse=True)
    rows = broadcast_to(expand_dims(s, -2), (*s.shape, s.shape[-1]))
    above = triu(rows * 0 + 1, 1)
    between = cumprod(where(above > 0, rows, 1), -1, exclusive=True)
    upper = above * expand_dims(before, -1) * between * expand_dims(after, -2)
    return upper + matrix_transpose(upper)


class LogMatrixDeterminant(Op):
    """The sign of the determinant of square matrices, and the logarithm of its modulus.

    Args:
        input: [..., m, m].

    Returns:
        The sign, [...]: 1, -1 or 0, or a complex number of modulus 1; and log |determinant|, real, which does
        not overflow. For a singular matrix they are 0 and -∞, with a gradient of NaN; close to a singular
        matrix the gradient is large.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input holds square matrices.

    Examples:
        >>> sg.slogdet(np.array([[1.0, 2.0], [3.0, 4.0]]))
        (array(-1.), array(0.69314718))
    """

    @staticmethod
    def infer(x: TensorType) -> tuple[TensorType, TensorType]:
        shape = _square(x).shape[:-2]
        return d.tensor_type(x.dtype, shape), d.tensor_type(x.dtype.real, shape)

    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _to_logarithm(g, op)}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "the logarithm of an absolute value is real"
    lower: d.Lowering = lambda xp, x: tuple(xp.linalg.slogdet(x))
    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=2.0)),
        d.sample(d.floats("n", 2, 2, diagonal=3.0)),
        d.sample(d.complexes(3, 3, diagonal=2.0)),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[1.0, 2.0], [2.0, 4.0]],), ([[0.0, 0.0], [0.0, 1.0]],))


def _to_logarithm(gs: Sequence[Output], op: Operation) -> Tensor:
    of_sign, of_log = gs
    factor = wide(of_log)
    if op.x.dtype.is_complex:
        # The phase changes by the imaginary part of the change of log det.
        factor = complex(factor, -imag(conj(of_sign) * op.result))
    return _spread(factor) * adjoint(inv(wide(op.x)))


@d.builds(LogMatrixDeterminant)
def slogdet(input: ArrayLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    sign, log_modulus = d.apply(LogMatrixDeterminant, (input,), (), name)
    return sign, log_modulus


@d.guarded("logdet")
def logdet(matrix: ArrayLike, name: str | None = None) -> Tensor:
    """The logarithm of the determinant of Hermitian positive definite matrices.

    Args:
        matrix: [..., m, m], as for :func:`cholesky`.
        name: of the operation; by default none.

    Returns:
        The logarithms, [...], real; NaN for a matrix that is not positive definite.

    Constraints:
        (C1) matrix holds floating-point or complex numbers.
        (C2) matrix holds square matrices.

    Examples:
        >>> sg.logdet(np.array([[2.0, 0.0], [0.0, 3.0]]))
        array(1.79175947)
    """
    return multiply(reduce_sum(log(real(diag_part(cholesky(matrix)))), -1), 2, name)
