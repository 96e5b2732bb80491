"""Bands, triangles and transposes of matrices, and the checks of their shapes."""

from __future__ import annotations

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Namespace,
    Op,
    ShapeError,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.shapes.reshape import transpose

__all__ = [
    "adjoint",
    "band_part",
    "matrix_transpose",
    "tril",
    "triu",
]

ANY = 2**31 - 1
"""The bound of a band that has none."""


def check_matrices(x: TensorType, constraint: str, what: str = "x") -> None:
    """Refuse a type without two axes for rows and columns."""
    if x.ndim < 2:
        raise ShapeError(
            f"({constraint}) {what} must have at least two axes, for rows and columns, not {x!r}"
        )


def check_square(x: TensorType, constraint: str, what: str = "x") -> None:
    """Refuse a type that does not hold square matrices."""
    check_matrices(x, constraint, what)
    if not d.same_size(x.shape[-2], x.shape[-1]):
        raise ShapeError(
            f"({constraint}) {what} must hold square matrices, and {x!r} has {x.shape[-2]} rows and "
            f"{x.shape[-1]} columns"
        )


def smaller(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    return a - d.at_least(a - b, 0)


def larger(a: Size, b: Size) -> Size:
    """The larger of two sizes."""
    return b + d.at_least(a - b, 0)


# ---------------------------------------------------------------------------------------------- bands


class MatrixBandPart(Op):
    """Matrices with 0 outside of a band of diagonals.

    Args:
        x: any dtype, [..., m, n].
        low: the lowest diagonal that is kept: 0 for the main one, positive above it, negative below it.
        high: the highest diagonal that is kept.

    Returns:
        x where low ≤ column - row ≤ high, and 0 elsewhere.

    Constraints:
        (C1) x has at least two axes.
    """

    @staticmethod
    def infer(x: TensorType, *, low: int, high: int) -> TensorType:
        check_matrices(x, "C1")
        return x

    gradient: d.Gradient = {"x": lambda g, op: band(g, op.low, op.high)}
    batch = d.ALONG
    moves = ("x",)
    pads = True

    @staticmethod
    def lower(xp: Namespace, x: Array, low: int, high: int) -> Array:
        above = xp.arange(x.shape[-1])[None, :] - xp.arange(x.shape[-2])[:, None]
        return xp.where((above >= low) & (above <= high), x, xp.zeros((), x.dtype))

    samples: d.Samples = [
        d.sample(d.floats(3, 4), low=-1, high=0),
        d.sample(d.floats("n", 3, 2), low=-ANY, high=-1),
        d.sample(d.complexes(2, 2), low=1, high=ANY),
        d.sample(d.ints(0, 2), low=0, high=0),
    ]


def band(x: ArrayLike, low: int, high: int, name: str | None = None) -> Tensor:
    return d.apply(MatrixBandPart, (x,), (low, high), name)


@d.builds(MatrixBandPart)
def band_part(input: ArrayLike, num_lower: int, num_upper: int, name: str | None = None) -> Tensor:
    """Matrices with 0 outside of a band around the main diagonal.

    Args:
        input: any dtype, [..., m, n].
        num_lower: the number of diagonals below the main one that are kept; negative for all.
        num_upper: the number of diagonals above the main one that are kept; negative for all.
        name: of the operation; by default none.

    Returns:
        A tensor of the operand's type.

    Constraints:
        (C1) input has at least two axes.

    Examples:
        >>> sg.band_part(np.ones((3, 3)), 0, 1)
        array([[1., 1., 0.],
               [0., 1., 1.],
               [0., 0., 1.]])
    """
    lower, upper = d.whole(num_lower), d.whole(num_upper)
    return band(input, -ANY if lower < 0 else -lower, ANY if upper < 0 else upper, name)


@d.guarded("tril")
def tril(x: ArrayLike, k: int = 0, name: str | None = None) -> Tensor:
    """The lower triangle of matrices, 0 above it.

    Args:
        x: any dtype, [..., m, n].
        k: the highest diagonal that is kept: 0 for the main one, positive for those above it.
        name: of the operation; by default none.

    Returns:
        A tensor of the operand's type.

    Constraints:
        (C1) x has at least two axes.

    Examples:
        >>> sg.tril(np.ones((2, 2)))
        array([[1., 0.],
               [1., 1.]])
    """
    return band(x, -ANY, d.whole(k), name)


@d.guarded("triu")
def triu(x: ArrayLike, k: int = 0, name: str | None = None) -> Tensor:
    """The upper triangle of matrices, 0 below it.

    Args:
        x: any dtype, [..., m, n].
        k: the lowest diagonal that is kept: 0 for the main one, positive for those above it.
        name: of the operation; by default none.

    Returns:
        A tensor of the operand's type.

    Constraints:
        (C1) x has at least two axes.

    Examples:
        >>> sg.triu(np.ones((2, 2)), 1)
        array([[0., 1.],
               [0., 0.]])
    """
    return band(x, d.whole(k), ANY, name)


# ----------------------------------------------------------------------------------------- transposes


@d.guarded("matrix_transpose")
def matrix_transpose(a: ArrayLike, name: str | None = None, conjugate: bool = False) -> Tensor:
    """Matrices with rows and columns exchanged.

    Args:
        a: any dtype, [..., m, n].
        name: of the operation; by default none.
        conjugate: whether to conjugate the elements as well.

    Returns:
        The matrices, [..., n, m].

    Constraints:
        (C1) a has at least two axes.

    Examples:
        >>> sg.matrix_transpose(np.ones((5, 2, 3))).shape
        (5, 3, 2)
    """
    return _transposed(a, d.flag(conjugate, "conjugate"), name)


@d.guarded("adjoint")
def adjoint(matrix: ArrayLike, name: str | None = None) -> Tensor:
    """Matrices with rows and columns exchanged and the elements conjugated.

    Args:
        matrix: any dtype, [..., m, n].
        name: of the operation; by default none.

    Returns:
        The matrices, [..., n, m].

    Constraints:
        (C1) matrix has at least two axes.

    Examples:
        >>> sg.adjoint(np.array([[1 + 2j, 3]]))
        array([[1.-2.j],
               [3.-0.j]])
    """
    return _transposed(matrix, True, name)


def _transposed(a: ArrayLike, conjugate: bool, name: str | None) -> Tensor:
    kind = d.type_of(a)
    check_matrices(kind, "C1", "a")
    order = (*range(kind.ndim - 2), kind.ndim - 1, kind.ndim - 2)
    if not (conjugate and kind.dtype.is_complex):
        return transpose(a, order, name=name)
    return conj(transpose(a, order), name)
