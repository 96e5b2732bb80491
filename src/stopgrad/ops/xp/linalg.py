"""The extension ``linalg`` of the array API: decompositions, solutions, norms and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DTypeLike, Tensor
from stopgrad.ops.elementwise.arithmetic import multiply
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.linalg.contractions import matmul as matmul, tensordot as _tensordot
from stopgrad.ops.linalg.determinants import det as _det, slogdet as _slogdet
from stopgrad.ops.linalg.diagonals import diag_part
from stopgrad.ops.linalg.eigenvalues import (
    eig as _eig,
    eigh as _eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
)
from stopgrad.ops.linalg.factorizations import cholesky as _cholesky, qr as _qr
from stopgrad.ops.linalg.matrices import adjoint, matrix_transpose as matrix_transpose
from stopgrad.ops.linalg.matrix_functions import matrix_power as matrix_power, pinv as _pinv
from stopgrad.ops.linalg.norms import matrix_norm as matrix_norm, vector_norm as vector_norm
from stopgrad.ops.linalg.products import cross as cross, outer as outer, vecdot as vecdot
from stopgrad.ops.linalg.solvers import inv as _inv, solve as _solve
from stopgrad.ops.linalg.spectra import svd as _svd, svdvals as svdvals
from stopgrad.ops.reductions.reduce import reduce_max
from stopgrad.ops.shapes.reshape import reduce_sum, squeeze
from stopgrad.ops.structural.sources import size_as
from stopgrad.ops.xp.data_types import finfo
from stopgrad.ops.xp.manipulation import expand_dims
from stopgrad.ops.xp.statistical import sum
from stopgrad.ops.xp.support import standard

__all__ = [
    "EigResult",
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class QRResult(NamedTuple):
    """An orthogonal matrix and an upper triangular one."""

    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    """Eigenvalues, in ascending order, and eigenvectors in the columns of a matrix."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors in the columns of a matrix, complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SlogdetResult(NamedTuple):
    """The sign of determinants and the logarithm of their absolute values."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors in columns, singular values, and right ones in rows, conjugated."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# --------------------------------------------------------------------------------------------- products


@standard
def tensordot(x1: ArrayLike, x2: ArrayLike, /, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sums of products over axes of both: :func:`stopgrad.tensordot`.

    Examples:
        >>> sg.xp.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    return _tensordot(x1, x2, axes)


# --------------------------------------------------------------------------------------- parts of matrices


@standard
def diagonal(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """The diagonals of matrices: the main one, or one above (positive *offset*) or below it.

    Examples:
        >>> sg.xp.linalg.diagonal(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 4.])
    """
    return diag_part(x, k=d.whole(offset))


@standard
def trace(x: ArrayLike, /, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of diagonals, with the arguments of :func:`diagonal`.

    Examples:
        >>> sg.xp.linalg.trace(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(5.)
    """
    return sum(diagonal(x, offset), -1, dtype)


# ------------------------------------------------------------------------------------------ decompositions


@standard
def cholesky(x: ArrayLike, /, upper: bool = False) -> Tensor:
    """The Cholesky factor L of matrices L·Lᴴ: :func:`stopgrad.cholesky`; with ``upper=True``, Lᴴ.

    Examples:
        >>> sg.xp.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """
    lower = _cholesky(x)
    return adjoint(lower) if d.flag(upper, "upper") else lower


@standard
def qr(x: ArrayLike, /, mode: str = "reduced") -> QRResult:
    """Matrices as products of an orthogonal and a triangular one: :func:`stopgrad.qr`.

    Examples:
        >>> sg.xp.linalg.qr(np.eye(2)).Q.shape
        (2, 2)
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"mode is 'reduced' or 'complete', not {mode!r:.60}")
    return QRResult(*_qr(x, mode == "complete"))


@standard
def svd(x: ArrayLike, /, full_matrices: bool = True) -> SVDResult:
    """Matrices as U·diag(S)·Vh, with orthogonal U and Vh: :func:`stopgrad.svd`.

    Examples:
        >>> sg.xp.linalg.svd(np.diag([3.0, 2.0])).S
        array([3., 2.])
    """
    values, left, right = _svd(x, full_matrices)
    return SVDResult(left, values, adjoint(right))


@standard
def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices: :func:`stopgrad.eigh`.

    Examples:
        >>> sg.xp.linalg.eigh(np.diag([3.0, 2.0])).eigenvalues
        array([2., 3.])
    """
    return EighResult(*_eigh(x))


@standard
def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex: :func:`stopgrad.eig`.

    Examples:
        >>> sg.xp.linalg.eig(np.diag([3.0, 2.0])).eigenvalues
        array([3.+0.j, 2.+0.j])
    """
    return EigResult(*_eig(x))


@standard
def matrix_rank(x: ArrayLike, /, rtol: ArrayLike | None = None) -> Tensor:
    """The ranks of matrices: the numbers of singular values above a tolerance, as int64.

    Args:
        x: matrices.
        rtol: the tolerance, relative to the largest singular value; by default max(M, N)·eps.

    Returns:
        The ranks.

    Examples:
        >>> sg.xp.linalg.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))
        array(1)
    """
    values = svdvals(x)
    if rtol is None:
        rows, columns = d.type_of(x).shape[-2:]
        largest = rows if isinstance(rows, int) and isinstance(columns, int) and rows > columns else columns
        rtol = multiply(size_as(largest, d.type_of(values).dtype, values), finfo(d.type_of(values).dtype).eps)
    elif d.type_of(rtol).ndim:
        rtol = expand_dims(rtol, -1)
    limit = multiply(rtol, reduce_max(values, -1, True))
    return reduce_sum(cast(greater(values, limit), d.int64), -1)


@standard
def pinv(x: ArrayLike, /, rtol: ArrayLike | None = None) -> Tensor:
    """The Moore-Penrose inverse of matrices: :func:`stopgrad.pinv`.

    Examples:
        >>> sg.xp.linalg.pinv(np.array([[2.0], [0.0]]))
        array([[0.5, 0. ]])
    """
    return _pinv(x, rtol)


# --------------------------------------------------------------------------- determinants and equations


@standard
def det(x: ArrayLike, /) -> Tensor:
    """The determinants of square matrices: :func:`stopgrad.det`.

    Examples:
        >>> sg.xp.linalg.det(np.diag([3.0, 2.0]))
        array(6.)
    """
    return _det(x)


@standard
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign of determinants and the logarithm of their absolute values: :func:`stopgrad.slogdet`.

    Examples:
        >>> sg.xp.linalg.slogdet(np.diag([-1.0, 1.0])).sign
        array(-1.)
    """
    return SlogdetResult(*_slogdet(x))


@standard
def inv(x: ArrayLike, /) -> Tensor:
    """The inverses of square matrices: :func:`stopgrad.inv`.

    Examples:
        >>> sg.xp.linalg.inv(np.diag([4.0, 2.0]))
        array([[0.25, 0.  ],
               [0.  , 0.5 ]])
    """
    return _inv(x)


@standard
def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The solutions of linear equations: :func:`stopgrad.solve`; *x2* is one vector, or matrices.

    Examples:
        >>> sg.xp.linalg.solve(np.diag([4.0, 2.0]), np.array([1.0, 1.0]))
        array([0.25, 0.5 ])
    """
    if d.type_of(x2).ndim == 1:
        return squeeze(_solve(x1, expand_dims(x2, -1)), -1)
    return _solve(x1, x2)
