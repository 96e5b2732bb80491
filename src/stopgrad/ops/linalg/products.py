"""Products of vectors, and of matrices with vectors."""

from __future__ import annotations

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Promotion, ShapeError, Tensor
from stopgrad.ops.elementwise.arithmetic import multiply, subtract
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.indexing.gather import gather
from stopgrad.ops.linalg.contractions import Einsum, matmul
from stopgrad.ops.shapes.reshape import expand_dims, reshape, squeeze

__all__ = [
    "cross",
    "kron",
    "matvec",
    "outer",
    "vecdot",
]

_NUMBERS = Promotion(d.is_number)


@d.guarded("matvec")
def matvec(
    a: ArrayLike,
    b: ArrayLike,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Products of matrices with vectors, over broadcast batches.

    Args:
        a: numbers, [..., m, n], or [..., n, m] if transposed.
        b: numbers, [..., n].
        transpose_a: whether to transpose a's matrices.
        adjoint_a: whether to transpose a's matrices and conjugate their elements.
        a_is_sparse: False; there is no special form for matrices with many zeros.
        b_is_sparse: False.
        name: of the operation; by default none.

    Returns:
        The products, [..., m].

    Constraints:
        (C1) b has at least one axis, and a at least two.
        (C2) The sizes n agree, and the leading axes broadcast.

    Examples:
        >>> sg.matvec(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
        array([21., 43.])
    """
    if d.type_of(a).ndim < 2 or not d.type_of(b).ndim:
        raise ShapeError(f"(C1) takes matrices and vectors, not {d.type_of(a)!r} and {d.type_of(b)!r}")
    column = matmul(
        a,
        expand_dims(b, -1),
        transpose_a=transpose_a,
        adjoint_a=adjoint_a,
        a_is_sparse=a_is_sparse,
        b_is_sparse=b_is_sparse,
    )
    return squeeze(column, -1, name)


@d.guarded("vecdot")
def vecdot(x1: ArrayLike, x2: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """Inner products of vectors: Σ conj(x1) · x2 along an axis.

    Args:
        x1: numbers; the product takes their conjugates.
        x2: numbers, of a shape that broadcasts with x1's.
        axis: the axis along which the vectors lie, counted in the broadcast shape.
        name: of the operation; by default none.

    Returns:
        The products, without that axis.

    Constraints:
        (C1) The axis exists in both, with one size.
        (C2) The other axes broadcast.

    Examples:
        >>> sg.vecdot(np.array([1j, 2.0]), np.array([1.0, 3.0]))
        array(6.-1.j)
    """
    x1, x2 = d.together(x1, x2, promotes=_NUMBERS)
    p, q = d.type_of(x1).ndim, d.type_of(x2).ndim
    ndim = max(p, q)
    position = d.normal_axis(axis, ndim, "C1")
    from_end = position - ndim
    if -from_end > min(p, q):
        raise ShapeError(f"(C1) axis {axis} does not exist in both {d.type_of(x1)!r} and {d.type_of(x2)!r}")
    if not d.same_size(d.type_of(x1).shape[from_end], d.type_of(x2).shape[from_end]):
        raise ShapeError(f"(C1) axis {axis} of {d.type_of(x1)!r} and {d.type_of(x2)!r} differ in size")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:ndim]
    rest = letters[:position] + letters[position + 1 :]
    return d.apply(Einsum, (conj(x1), x2), (f"{letters[ndim - p :]},{letters[ndim - q :]}->{rest}",), name)


@d.guarded("outer")
def outer(x1: ArrayLike, x2: ArrayLike, name: str | None = None) -> Tensor:
    """The outer product: each element of one vector times each element of another.

    Args:
        x1: numbers, [m]; other shapes are flattened, as in NumPy.
        x2: numbers, [n]; likewise.
        name: of the operation; by default none.

    Returns:
        The products, [m, n].

    Examples:
        >>> sg.outer(np.array([1.0, 2.0]), np.array([1.0, 10.0]))
        array([[ 1., 10.],
               [ 2., 20.]])
    """
    x1, x2 = d.together(x1, x2, promotes=_NUMBERS)
    return multiply(reshape(x1, (d.type_of(x1).size, 1)), reshape(x2, (1, d.type_of(x2).size)), name)


@d.guarded("cross")
def cross(a: ArrayLike, b: ArrayLike, name: str | None = None, *, axis: int = -1) -> Tensor:
    """Cross products of vectors in three dimensions.

    Args:
        a: numbers, [..., 3].
        b: numbers, [..., 3]; the other axes broadcast with a's.
        name: of the operation; by default none.
        axis: the axis along which the vectors lie. A negative one counts from the end of each operand;
            otherwise both must have the same number of axes.

    Returns:
        The products, of the broadcast shape.

    Constraints:
        (C1) The axis exists in both, with size 3.
        (C2) The shapes broadcast.

    Examples:
        >>> sg.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
        array([0., 0., 1.])
    """
    a, b = d.together(a, b, promotes=_NUMBERS)
    turned = []
    for x in (a, b):
        kind = d.type_of(x)
        position = d.normal_axis(axis, kind.ndim, "C1")
        if not d.same_size(kind.shape[position], 3):
            raise ShapeError(f"(C1) vectors have three components, and axis {axis} of {kind!r} has not")
        turned.append([gather(x, np.asarray(order), axis=position) for order in ([1, 2, 0], [2, 0, 1])])
    (a1, a2), (b1, b2) = turned
    return subtract(multiply(a1, b2), multiply(a2, b1), name)


@d.guarded("kron")
def kron(a: ArrayLike, b: ArrayLike, name: str | None = None) -> Tensor:
    """The Kronecker product: a with each element replaced by that element times b.

    Args:
        a: numbers.
        b: numbers; the operand with fewer axes gets axes of size 1 in front.
        name: of the operation; by default none.

    Returns:
        The product; each size is the product of a's and b's.

    Examples:
        >>> sg.kron(np.array([1.0, 10.0]), np.array([1.0, 2.0]))
        array([ 1.,  2., 10., 20.])
    """
    a, b = d.together(a, b, promotes=_NUMBERS)
    p, q = d.type_of(a).shape, d.type_of(b).shape
    ndim = max(len(p), len(q))
    p, q = (1,) * (ndim - len(p)) + p, (1,) * (ndim - len(q)) + q
    rows = reshape(a, tuple(size for m in p for size in (m, 1)))
    columns = reshape(b, tuple(size for n in q for size in (1, n)))
    sizes = tuple(m * n for m, n in zip(p, q, strict=True))
    return reshape(multiply(rows, columns), sizes, name)
