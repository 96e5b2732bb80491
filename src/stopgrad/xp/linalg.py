"""The extension ``linalg`` of the array API: decompositions, solutions, norms and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stopgrad.errors import ArgumentError, ShapeError
from stopgrad.operands import Tensor, type_of
from stopgrad.ops.arithmetic import multiply, subtract
from stopgrad.ops.compare import greater
from stopgrad.ops.convert import cast
from stopgrad.ops.determinants import det as _det, slogdet as _slogdet
from stopgrad.ops.factorizations import cholesky as _cholesky, qr as _qr
from stopgrad.ops.join import stack
from stopgrad.ops.linalg import matmul as _matmul, tensordot as _tensordot
from stopgrad.ops.matrices import adjoint, diag_part, eye, matrix_transpose as matrix_transpose
from stopgrad.ops.matrix_functions import pinv as _pinv
from stopgrad.ops.norms import matrix_norm as matrix_norm, vector_norm as vector_norm
from stopgrad.ops.reduce import reduce_max
from stopgrad.ops.shape import broadcast_to, reduce_sum, squeeze
from stopgrad.ops.solvers import inv as _inv, solve as _solve
from stopgrad.ops.spectra import eig as _eig, eigh as _eigh, eigvals as eigvals, eigvalsh as eigvalsh, svd as _svd, svdvals as svdvals
from stopgrad.ops.inference import same_shape
from stopgrad.plain import flag, whole
from stopgrad.types import DTypeLike, int32
from stopgrad.ops.data import size_as
from stopgrad.xp.data_types import finfo
from stopgrad.xp.elementwise import conj
from stopgrad.xp.manipulation import expand_dims, moveaxis, take
from stopgrad.xp.statistical import sum
from stopgrad.xp.support import standard

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
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product, ``x1 @ x2``: :func:`stopgrad.matmul`, which takes vectors too.

    Examples:
        >>> sg.xp.matmul(np.array([[1.0, 2.0]]), np.array([3.0, 4.0]))
        array([11.])
    """
    left, right = type_of(x1).ndim, type_of(x2).ndim
    if not left or not right:
        raise ShapeError("a scalar is no matrix; multiply with *")
    product = _matmul(expand_dims(x1, 0) if left == 1 else x1, expand_dims(x2, -1) if right == 1 else x2)
    gone = tuple([axis for axis, there in ((-2, left == 1), (-1, right == 1)) if there])
    return squeeze(product, gone) if gone else product


@standard
def tensordot(x1: Any, x2: Any, /, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sums of products over axes of both: :func:`stopgrad.tensordot`.

    Examples:
        >>> sg.xp.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    return _tensordot(x1, x2, axes)


@standard
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Inner products along an axis, the first vector conjugated.

    Examples:
        >>> sg.xp.vecdot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        array(11.)
    """
    sizes = [type_of(moveaxis(x, axis, -1)).shape[-1:] for x in (x1, x2)]
    if not same_shape(*sizes):
        raise ShapeError(f"vectors of one length are needed, not {sizes[0][0]} and {sizes[1][0]}")
    return reduce_sum(multiply(conj(moveaxis(x1, axis, -1)), moveaxis(x2, axis, -1)), -1)


@standard
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Products of each element of a vector with each of another.

    Examples:
        >>> sg.xp.linalg.outer(np.array([1.0, 2.0]), np.array([3.0]))
        array([[3.],
               [6.]])
    """
    if type_of(x1).ndim != 1 or type_of(x2).ndim != 1:
        raise ShapeError(f"two vectors are needed, not {type_of(x1)!r} and {type_of(x2)!r}")
    return multiply(expand_dims(x1, 1), x2)


@standard
def cross(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Cross products of vectors of 3 elements along an axis.

    Examples:
        >>> sg.xp.linalg.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
        array([0., 0., 1.])
    """
    a, b = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if not same_shape(type_of(a).shape[-1:], (3,)) or not same_shape(type_of(b).shape[-1:], (3,)):
        raise ShapeError(f"vectors of 3 elements are needed, not {type_of(x1)!r} and {type_of(x2)!r}")
    (ax, ay, az), (bx, by, bz) = [[take(v, i, axis=-1) for i in range(3)] for v in (a, b)]
    pairs = (((ay, bz), (az, by)), ((az, bx), (ax, bz)), ((ax, by), (ay, bx)))
    parts = [subtract(multiply(*plus), multiply(*minus)) for plus, minus in pairs]
    return moveaxis(stack(parts, -1), -1, axis)


@standard
def matrix_power(x: Any, n: int, /) -> Tensor:
    """Square matrices multiplied by themselves; for negative *n*, their inverses.

    Examples:
        >>> sg.xp.linalg.matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 3)
        array([[1., 3.],
               [0., 1.]])
    """
    power, kind = whole(n), type_of(x)
    if kind.ndim < 2 or not same_shape(kind.shape[-1:], kind.shape[-2:-1]):
        raise ShapeError(f"square matrices are needed, not {kind!r}")
    if power == 0:
        return broadcast_to(eye(kind.shape[-1], dtype=kind.dtype), kind.shape)
    square = _inv(x) if power < 0 else x
    found, power = None, abs(power)
    while True:  # By squaring.
        if power & 1:
            found = square if found is None else _matmul(found, square)
        power >>= 1
        if not power:
            return found
        square = _matmul(square, square)


# --------------------------------------------------------------------------------------- parts of matrices


@standard
def diagonal(x: Any, /, offset: int = 0) -> Tensor:
    """The diagonals of matrices: the main one, or one above (positive *offset*) or below it.

    Examples:
        >>> sg.xp.linalg.diagonal(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 4.])
    """
    return diag_part(x, k=whole(offset))


@standard
def trace(x: Any, /, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of diagonals, with the arguments of :func:`diagonal`.

    Examples:
        >>> sg.xp.linalg.trace(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(5.)
    """
    return sum(diagonal(x, offset), -1, dtype)


# ------------------------------------------------------------------------------------------ decompositions


@standard
def cholesky(x: Any, /, upper: bool = False) -> Tensor:
    """The factor L of positive definite matrices L·Lᴴ: :func:`stopgrad.cholesky`; or Lᴴ, for ``upper=True``.

    Examples:
        >>> sg.xp.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """
    lower = _cholesky(x)
    return adjoint(lower) if flag(upper, "upper") else lower


@standard
def qr(x: Any, /, mode: str = "reduced") -> QRResult:
    """Matrices as products of an orthogonal and a triangular one: :func:`stopgrad.qr`.

    Examples:
        >>> sg.xp.linalg.qr(np.eye(2)).Q.shape
        (2, 2)
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"mode is 'reduced' or 'complete', not {mode!r:.60}")
    return QRResult(*_qr(x, mode == "complete"))


@standard
def svd(x: Any, /, full_matrices: bool = True) -> SVDResult:
    """Matrices as U·diag(S)·Vh, with orthogonal U and Vh: :func:`stopgrad.svd`.

    Examples:
        >>> sg.xp.linalg.svd(np.diag([3.0, 2.0])).S
        array([3., 2.])
    """
    values, left, right = _svd(x, full_matrices)
    return SVDResult(left, values, adjoint(right))


@standard
def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices: :func:`stopgrad.eigh`.

    Examples:
        >>> sg.xp.linalg.eigh(np.diag([3.0, 2.0])).eigenvalues
        array([2., 3.])
    """
    return EighResult(*_eigh(x))


@standard
def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex: :func:`stopgrad.eig`.

    Examples:
        >>> sg.xp.linalg.eig(np.diag([3.0, 2.0])).eigenvalues
        array([3.+0.j, 2.+0.j])
    """
    return EigResult(*_eig(x))


@standard
def matrix_rank(x: Any, /, rtol: Any = None) -> Tensor:
    """How many singular values of matrices are not almost 0, as int32.

    Args:
        x: matrices.
        rtol: what counts as 0, beside the largest; by default max(M, N)·eps.

    Returns:
        The ranks.

    Examples:
        >>> sg.xp.linalg.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))
        array(1, dtype=int32)
    """
    values = svdvals(x)
    if rtol is None:
        rows, columns = type_of(x).shape[-2:]
        largest = rows if isinstance(rows, int) and isinstance(columns, int) and rows > columns else columns
        rtol = multiply(size_as(largest, type_of(values).dtype, values), finfo(type_of(values).dtype).eps)
    elif type_of(rtol).ndim:
        rtol = expand_dims(rtol, -1)
    limit = multiply(rtol, reduce_max(values, -1, True))
    return reduce_sum(cast(greater(values, limit), int32), -1)


@standard
def pinv(x: Any, /, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverse of matrices: :func:`stopgrad.pinv`.

    Examples:
        >>> sg.xp.linalg.pinv(np.array([[2.0], [0.0]]))
        array([[0.5, 0. ]])
    """
    return _pinv(x, rtol)


# --------------------------------------------------------------------------- determinants and equations


@standard
def det(x: Any, /) -> Tensor:
    """The determinants of square matrices: :func:`stopgrad.det`.

    Examples:
        >>> sg.xp.linalg.det(np.diag([3.0, 2.0]))
        array(6.)
    """
    return _det(x)


@standard
def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of determinants and the logarithm of their absolute values: :func:`stopgrad.slogdet`.

    Examples:
        >>> sg.xp.linalg.slogdet(np.diag([-1.0, 1.0])).sign
        array(-1.)
    """
    return SlogdetResult(*_slogdet(x))


@standard
def inv(x: Any, /) -> Tensor:
    """The inverses of square matrices: :func:`stopgrad.inv`.

    Examples:
        >>> sg.xp.linalg.inv(np.diag([4.0, 2.0]))
        array([[0.25, 0.  ],
               [0.  , 0.5 ]])
    """
    return _inv(x)


@standard
def solve(x1: Any, x2: Any, /) -> Tensor:
    """What solves systems of linear equations: :func:`stopgrad.solve`; *x2* is one vector, or matrices.

    Examples:
        >>> sg.xp.linalg.solve(np.diag([4.0, 2.0]), np.array([1.0, 1.0]))
        array([0.25, 0.5 ])
    """
    if type_of(x2).ndim == 1:
        return squeeze(_solve(x1, expand_dims(x2, -1)), -1)
    return _solve(x1, x2)
