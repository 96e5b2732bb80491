"""Factorizations of matrices into triangular and orthogonal ones: Cholesky and QR."""

from __future__ import annotations

from collections.abc import Sequence

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
from stopgrad.ops.elementwise.convert import wide
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.matrices import adjoint, check_matrices, check_square, smaller, tril
from stopgrad.ops.linalg.solvers import INEXACT, TriangularSolve, where_possible
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "cholesky",
    "qr",
]


def _half_lower(x: ArrayLike) -> Tensor:
    """The lower triangle, with the diagonal halved."""
    return (tril(x) + tril(x, -1)) * 0.5


def _divided(x: Output, factor: Output, lower: bool) -> Tensor:
    """x times the inverse of the adjoint of a triangular factor."""
    return adjoint(d.apply(TriangularSolve, (factor, adjoint(x)), (lower, False)))


# ------------------------------------------------------------------------------------------ Cholesky


class Cholesky(Op):
    """The Cholesky factor of Hermitian positive definite matrices.

    Args:
        input: [..., m, m]. Its Hermitian part, (input + inputᴴ) / 2, is factored.

    Returns:
        The lower triangular L with a positive diagonal and L Lᴴ = input, [..., m, m]. The lower triangle and
        the gradient are NaN for a matrix that is not positive definite in the arithmetic of its dtype; close
        to such a matrix the gradient is large. The gradient is Hermitian, as in TensorFlow and JAX.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input holds square matrices.

    References:
        I. Murray 2016, "Differentiation of the Cholesky decomposition", arXiv:1602.07527.

    Examples:
        >>> sg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2", "input")
        return x

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {"x": lambda g, op: _to_definite(wide(g), wide(op.result))}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "its factor is multiplied by its conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        return xp.tril(where_possible(xp.linalg.cholesky, hermitian_part(xp, x)))

    xla: d.Lowering = lambda xp, x: xp.lax.linalg.cholesky(hermitian_part(xp, x), symmetrize_input=False)
    samples: d.Samples = [
        d.sample(d.floats(3, 3, low=-1.0, high=1.0, diagonal=4.0)),
        d.sample(d.floats("n", 2, 2, low=-1.0, high=1.0, diagonal=4.0)),
        d.sample(d.complexes(3, 3, diagonal=8.0)),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (
        ([[1.0, 2.0], [2.0, 1.0]],),
        ([[0.0, 0.0], [0.0, 1.0]],),
        ([[float("nan"), 0.0], [0.0, 1.0]],),
    )


def hermitian_part(xp: Namespace, x: Array) -> Array:
    """(x + xᴴ) / 2."""
    return (x + xp.conj(xp.swapaxes(x, -1, -2))) / xp.asarray(2, x.dtype)


def _to_definite(g: Output, factor: Output) -> Tensor:
    inner = _half_lower(matmul(factor, g, adjoint_a=True))
    left = d.apply(TriangularSolve, (factor, inner), (True, True))
    both = adjoint(d.apply(TriangularSolve, (factor, adjoint(left)), (True, True)))
    return (both + adjoint(both)) * 0.5


@d.builds(Cholesky)
def cholesky(input: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Cholesky, (input,), (), name)


# ------------------------------------------------------------------------------------------------ QR


class Qr(Op):
    """The QR factorization: input = q r, with orthonormal columns in q and an upper triangular r.

    Args:
        input: [..., m, n].
        full_matrices: whether q is square; otherwise q has min(m, n) columns, and r as many rows.

    Returns:
        q and r. The diagonal of r is real and may be negative, as in LAPACK and NumPy. Gradients are infinite
        or NaN where the first min(m, n) columns are linearly dependent. With full matrices and m > n, the
        columns of q beyond n are not determined: then asking for the gradient of q is an error; r has one.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input has at least two axes.

    References:
        S. Walter, L. Lehmann and R. Lamour 2012, "On evaluating higher-order derivatives of the QR
        decomposition of tall matrices with full column rank in forward and reverse mode algorithmic
        differentiation".

    Examples:
        >>> q, r = sg.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
        >>> np.allclose(q @ r, [[3.0, 1.0], [4.0, 2.0]])
        True
    """

    @staticmethod
    def infer(x: TensorType, *, full_matrices: bool) -> tuple[TensorType, TensorType]:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_matrices(x, "C2", "input")
        *batch, m, n = x.shape
        k = m if full_matrices else smaller(m, n)
        return d.tensor_type(x.dtype, (*batch, m, k)), d.tensor_type(x.dtype, (*batch, k, n))

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = Joint(lambda gs, op, live, acting: [_to_factored(gs, op)])
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "its factor has orthonormal columns, by the conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, x: Array, full_matrices: bool) -> tuple[Array, ...]:
        return tuple(xp.linalg.qr(x, mode="complete" if full_matrices else "reduced"))

    samples: d.Samples = [
        d.sample(d.floats(3, 3, diagonal=3.0), full_matrices=False),
        d.sample(d.floats("n", 4, 2, diagonal=3.0), full_matrices=False),
        d.sample(d.floats(2, 2, 4, diagonal=3.0), full_matrices=False),
        d.sample(d.complexes(3, 2, diagonal=3.0), full_matrices=False),
        d.sample(d.complexes(2, 3, diagonal=3.0), full_matrices=True),
        d.sample(d.floats("n", 3, diagonal=3.0), full_matrices=False),
        d.sample(d.floats(3, 0), full_matrices=False),
    ]


def _to_factored(gs: Sequence[Output | None], op: Operation) -> Tensor:
    """The cotangent of the operand; a wide one is treated as a square part and the remaining columns."""
    m, n = op.x.shape[-2:]
    k, axis = smaller(m, n), op.x.ndim
    q, r = op.outputs
    if op.full_matrices and k is not m and k != m:
        if gs[0] is not None:
            raise GradientError(
                f"Qr: the gradient of {d.describe(op)} is undefined: q has columns that the operand does not "
                "determine; take full_matrices=False"
            )
        q, r = part_of(q, axis - 1, 0, k), part_of(r, axis - 2, 0, k)
        gs = None, None if gs[1] is None else part_of(gs[1], axis - 2, 0, k)
    q, r, x = wide(q), wide(r), wide(op.x)
    gq, gr = (zeros_like(y) if g is None else wide(g) for g, y in zip(gs, (q, r), strict=True))
    if k is n or k == n:
        return _to_tall(gq, gr, q, r)
    first, rest = part_of(gr, axis - 1, 0, k), part_of(gr, axis - 1, k, n - k)
    gq = gq + matmul(part_of(x, axis - 1, k, n - k), rest, adjoint_b=True)
    tall = _to_tall(gq, first, q, part_of(r, axis - 1, 0, k))
    return concat([tall, matmul(q, rest)], axis - 1)


def _to_tall(gq: Output, gr: Output, q: Output, r: Output) -> Tensor:
    m = matmul(q, gq, adjoint_a=True) - matmul(gr, r, adjoint_b=True)
    inner = gq + matmul(q, _half_lower(m - adjoint(m)) - m)
    return _divided(inner, r, False)


@d.builds(Qr)
def qr(input: ArrayLike, full_matrices: bool = False, name: str | None = None) -> tuple[Tensor, Tensor]:
    q, r = d.apply(Qr, (input,), (d.flag(full_matrices),), name)
    return q, r
