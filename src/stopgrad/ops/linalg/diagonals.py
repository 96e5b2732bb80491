"""Diagonals of matrices: taking, setting, making them; the identity and the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    DTypeLike,
    Namespace,
    NumpyArray,
    Op,
    Output,
    Promotion,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import add_n
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.indexing.brackets import take_index
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.matrices import band, check_matrices, larger, smaller
from stopgrad.ops.shapes.join import pad, stack
from stopgrad.ops.shapes.reshape import broadcast_to, reduce_sum
from stopgrad.ops.structural.sources import full

__all__ = [
    "diag",
    "diag_part",
    "eye",
    "set_diag",
    "trace",
]

_ALIGNMENTS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


def _length(rows: Size, columns: Size, offset: int) -> Size:
    """The number of elements of the diagonal that lies *offset* above the main one."""
    return d.at_least(smaller(rows + min(offset, 0), columns - max(offset, 0)), 0)


class MatrixDiagPart(Op):
    """One diagonal of each matrix.

    Args:
        x: any dtype, [..., m, n].
        offset: the diagonal: 0 for the main one, positive above it, negative below it.

    Returns:
        The elements of that diagonal, [..., length]; empty if the matrices have no such diagonal.

    Constraints:
        (C1) x has at least two axes.
    """

    @staticmethod
    def infer(x: TensorType, *, offset: int) -> TensorType:
        check_matrices(x, "C1")
        return d.tensor_type(x.dtype, (*x.shape[:-2], _length(x.shape[-2], x.shape[-1], offset)))

    gradient: d.Gradient = {"x": lambda g, op: _to_matrix(g, op.offset, *op.x.shape[-2:])}
    batch = d.ALONG
    moves = ("x",)
    lower: d.Lowering = lambda xp, x, offset: xp.diagonal(x, offset, -2, -1)
    samples: d.Samples = [
        d.sample(d.floats(3, 4), offset=0),
        d.sample(d.floats("n", 3, 3), offset=-1),
        d.sample(d.floats("n", 3), offset=1),
        d.sample(d.ints(2, 2), offset=5),
    ]


class MatrixDiag(Op):
    """Matrices that are 0 except on one diagonal.

    Args:
        diagonal: any dtype, [..., length].
        offset: the diagonal: 0 for the main one, positive above it, negative below it.
        rows: the number of rows of the matrices.
        columns: the number of columns of the matrices.

    Returns:
        The matrices, [..., rows, columns].

    Constraints:
        (C1) diagonal has at least one axis.
        (C2) The last axis of diagonal is as long as that diagonal of the matrices.
    """

    @staticmethod
    def infer(diagonal: TensorType, *, offset: int, rows: Size, columns: Size) -> TensorType:
        if not diagonal.ndim:
            raise ShapeError(f"(C1) a diagonal must have at least one axis, not {diagonal!r}")
        length = _length(rows, columns, offset)
        if not d.same_size(diagonal.shape[-1], length):
            raise ShapeError(
                f"(C2) diagonal {offset} of {rows} rows and {columns} columns has {length} elements, not "
                f"{diagonal.shape[-1]}"
            )
        return d.tensor_type(diagonal.dtype, (*diagonal.shape[:-1], rows, columns))

    gradient: d.Gradient = {"diagonal": lambda g, op: d.apply(MatrixDiagPart, (g,), (op.offset,))}
    batch = d.ALONG
    moves = ("diagonal",)
    pads = True

    @staticmethod
    def lower(xp: Namespace, diagonal: Array, offset: int, rows: int, columns: int) -> Array:
        result = xp.zeros((*diagonal.shape[:-1], rows, columns), diagonal.dtype)
        along = xp.arange(diagonal.shape[-1])
        result[..., along + max(-offset, 0), along + max(offset, 0)] = diagonal
        return result

    @staticmethod
    def xla(xp: Namespace, diagonal: Array, offset: int, rows: int, columns: int) -> Array:
        # A choice for each element, which XLA fuses with later operations; a scatter would be a loop.
        above = xp.arange(columns)[None, :] - xp.arange(rows)[:, None]
        before = min(max(-offset, 0), rows)
        around = [(0, 0)] * (diagonal.ndim - 1) + [(before, rows - before - diagonal.shape[-1])]
        rowwise = xp.pad(diagonal, around)[..., None]
        return xp.where(above == offset, rowwise, xp.zeros((), diagonal.dtype))

    samples: d.Samples = [
        d.sample(d.floats(3), offset=0, rows=3, columns=3),
        d.sample(d.floats("n", 2), offset=-1, rows=3, columns=4),
        d.sample(d.floats(2), offset=2, rows=3, columns=4),
        d.sample(d.floats(2, 0), offset=0, rows=0, columns=2),
    ]


def _to_matrix(x: ArrayLike, offset: int, rows: Size, columns: Size, name: str | None = None) -> Tensor:
    return d.apply(MatrixDiag, (x,), (offset, rows, columns), name)


@d.reads_arguments
def _diagonals(k: Any, align: str) -> tuple[int, int]:
    """The lowest and the highest of the diagonals *k*."""
    if align not in _ALIGNMENTS:
        raise ArgumentError(f"align is one of {', '.join(_ALIGNMENTS)}, not {align!r}")
    if d.is_whole(k):
        return d.whole(k), d.whole(k)
    low, *others = map(d.whole, k)
    high = others[0] if others else low
    if len(others) > 1 or low > high:
        raise ArgumentError(f"k is one diagonal, or the lowest and the highest of several, not {k!r}")
    return low, high


def _is_left(offset: int, align: str) -> bool:
    """Whether a shorter diagonal of a band is aligned to the left, with its padding after it."""
    above, below = align.split("_")
    return (offset >= 0 and above == "LEFT") or (offset <= 0 and below == "LEFT")


def _inside(x: Output | NumpyArray, low: int, high: int, value: ArrayLike, name: str | None) -> Tensor:
    """Matrices with *value* outside of a band."""
    return where(band(full(x.shape[-2:], True), low, high), x, value, name)


def _sizes(
    length: Size, low: int, high: int, num_rows: Size | str, num_cols: Size | str
) -> tuple[Size, Size]:
    """The numbers of rows and columns of matrices with these diagonals; -1 stands for the fewest."""
    rows, columns = length - min(high, 0), length + max(low, 0)
    sizes = [None if d.is_whole(n) and d.whole(n) == -1 else d.shape_of([n])[0] for n in (num_rows, num_cols)]
    if sizes[0] is sizes[1] is None:
        rows = columns = larger(rows, columns)
    return rows if sizes[0] is None else sizes[0], columns if sizes[1] is None else sizes[1]


def _fitting_sizes(
    kind: TensorType, low: int, high: int, num_rows: Size | str, num_cols: Size | str
) -> tuple[Size, Size]:
    """The numbers of rows and columns of matrices with diagonals of this type, which must fit them."""
    if kind.ndim < 1 + (low < high):
        raise ShapeError(f"(C1) {kind!r} has no axes for {high - low + 1} diagonals and their elements")
    rows, columns = _sizes(kind.shape[-1], low, high, num_rows, num_cols)
    if low < high and not d.same_size(kind.shape[-2], high - low + 1):
        raise ShapeError(
            f"(C1) {kind!r} does not hold {high - low + 1} diagonals along its last axis but one"
        )
    longest = smaller(rows + min(high, 0), columns - max(low, 0))
    if not d.same_size(kind.shape[-1], longest):
        raise ShapeError(f"(C2) the longest diagonal has {longest} elements, not {kind.shape[-1]}")
    return rows, columns


@d.builds(MatrixDiag)
def diag(
    diagonal: ArrayLike,
    name: str | None = None,
    k: int | Sequence[int] = 0,
    num_rows: Size | str = -1,
    num_cols: Size | str = -1,
    padding_value: ArrayLike = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Matrices with given diagonals, 0 elsewhere.

    Args:
        diagonal: any dtype, [..., length]; for several diagonals [..., diagonals, longest length], from the
            highest to the lowest; the padding of the shorter ones is not read.
        name: of the operation; by default none.
        k: the diagonal: 0 for the main one, positive for those above; or a pair, the lowest and highest.
        num_rows: the number of rows; -1 for the fewest that hold the diagonals.
        num_cols: the number of columns; likewise. With neither given, the matrices are square.
        padding_value: the value of the other elements.
        align: the side to which the shorter diagonals are aligned in their rows, first for those above the
            main diagonal, then for those below: "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT".

    Returns:
        The matrices, [..., rows, columns].

    Constraints:
        (C1) diagonal has an axis for the elements, and one for the diagonals if there are several.
        (C2) The last axis of diagonal is as long as the longest of the diagonals in the matrices.

    Examples:
        >>> sg.diag(np.array([1.0, 2.0]))
        array([[1., 0.],
               [0., 2.]])
        >>> sg.diag(np.array([1.0, 2.0]), k=1, num_rows=2)
        array([[0., 1., 0.],
               [0., 0., 2.]])
    """
    low, high = _diagonals(k, align)
    with d.about(MatrixDiag, diagonal):
        rows, columns = _fitting_sizes(d.type_of(diagonal), low, high, num_rows, num_cols)
    padded = not (d.is_whole(padding_value) and padding_value == 0)
    last = None if padded else name
    if low == high:
        matrices = _to_matrix(diagonal, low, rows, columns, last)
    else:
        parts = [
            _to_matrix(_row(diagonal, i, low, high, rows, columns, align), i, rows, columns)
            for i in range(high, low - 1, -1)
        ]
        matrices = add_n(parts, last)
    return _inside(matrices, low, high, padding_value, name) if padded else matrices


def _row(x: ArrayLike, offset: int, low: int, high: int, rows: Size, columns: Size, align: str) -> Tensor:
    """One of several diagonals, without its padding."""
    shape = d.type_of(x).shape
    length = _length(rows, columns, offset)
    start = 0 if _is_left(offset, align) else shape[-1] - length
    return part_of(take_index(x, (..., high - offset, slice(None))), len(shape) - 2, start, length)


@d.builds(MatrixDiagPart)
def diag_part(
    input: ArrayLike,
    name: str | None = None,
    k: int | Sequence[int] = 0,
    padding_value: ArrayLike = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Diagonals of matrices.

    Args:
        input: any dtype, [..., m, n].
        name: of the operation; by default none.
        k: the diagonal: 0 for the main one, positive for those above; or a pair, the lowest and highest.
        padding_value: the value that pads the shorter ones of several diagonals.
        align: as in :func:`diag`.

    Returns:
        The elements, [..., length]; for several diagonals [..., diagonals, longest length], from the highest
        to the lowest. A diagonal that the matrices do not have is empty.

    Constraints:
        (C1) input has at least two axes.

    Examples:
        >>> sg.diag_part(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 4.])
        >>> sg.diag_part(np.array([[1.0, 2.0], [3.0, 4.0]]), k=(-1, 0))
        array([[1., 4.],
               [3., 0.]])
    """
    low, high = _diagonals(k, align)
    if low == high:
        return d.apply(MatrixDiagPart, (input,), (low,), name)
    kind = d.type_of(input)
    with d.about(MatrixDiagPart, input):
        check_matrices(kind, "C1", "input")
    rows, columns = kind.shape[-2:]
    longest = d.at_least(smaller(rows + min(high, 0), columns - max(low, 0)), 0)
    diagonals = []
    for offset in range(high, low - 1, -1):
        missing = longest - _length(rows, columns, offset)
        around = (0, missing) if _is_left(offset, align) else (missing, 0)
        part = d.apply(MatrixDiagPart, (input,), (offset,))
        diagonals.append(pad(part, [(0, 0)] * (kind.ndim - 2) + [around], constant_values=padding_value))
    return stack(diagonals, -2, name)


@d.guarded("set_diag")
def set_diag(
    input: ArrayLike,
    diagonal: ArrayLike,
    name: str | None = None,
    k: int | Sequence[int] = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Matrices with some diagonals replaced.

    Args:
        input: any dtype, [..., m, n].
        diagonal: the new elements, in the form that :func:`diag` takes.
        name: of the operation; by default none.
        k: the diagonal: 0 for the main one, positive for those above; or a pair, the lowest and highest.
        align: as in :func:`diag`.

    Returns:
        A tensor of input's shape: the elements of diagonal on the diagonals, and those of input elsewhere.

    Constraints:
        (C1) input has at least two axes, and diagonal as many as :func:`diag` needs.
        (C2) The last axis of diagonal is as long as the longest of the diagonals in the matrices.

    Examples:
        >>> sg.set_diag(np.ones((2, 2)), np.array([5.0, 6.0]))
        array([[5., 1.],
               [1., 6.]])
    """
    low, high = _diagonals(k, align)
    input, diagonal = d.together(input, diagonal, promotes=Promotion(d.is_any))
    kind = d.type_of(input)
    check_matrices(kind, "C1", "input")
    rows, columns = kind.shape[-2:]
    replacement = diag(diagonal, k=k, num_rows=rows, num_cols=columns, align=align)
    return where(band(full((rows, columns), True), low, high), replacement, input, name)


# ------------------------------------------------------------------------------- identity and trace


@d.guarded("eye")
def eye(
    num_rows: Size | str,
    num_columns: Size | str | None = None,
    batch_shape: ShapeLike = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
    *,
    k: int = 0,
) -> Tensor:
    """The identity matrix: 1 on a diagonal, 0 elsewhere.

    Args:
        num_rows: the number of rows.
        num_columns: the number of columns; by default that of the rows.
        batch_shape: the shape of a batch of such matrices; by default there is one matrix.
        dtype: the element type.
        name: of the operation; by default none.
        k: the diagonal of ones: 0 for the main one, positive for those above it.

    Returns:
        The matrix, [*batch_shape, rows, columns].

    Examples:
        >>> sg.eye(2)
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    (rows,) = d.shape_of([num_rows])
    (columns,) = d.shape_of([num_rows if num_columns is None else num_columns])
    offset = d.whole(k)
    ones = full((_length(rows, columns, offset),), 1, d.dtype_of(dtype))
    if batch_shape is None:
        return _to_matrix(ones, offset, rows, columns, name)
    shape = (*d.shape_of(batch_shape), rows, columns)
    return broadcast_to(_to_matrix(ones, offset, rows, columns), shape, name)


@d.guarded("trace")
def trace(x: ArrayLike, name: str | None = None) -> Tensor:
    """The sum of the main diagonal of each matrix.

    Args:
        x: numbers, [..., m, n].
        name: of the operation; by default none.

    Returns:
        The sums, [...].

    Constraints:
        (C1) x has at least two axes.

    Examples:
        >>> sg.trace(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(5.)
    """
    return reduce_sum(d.apply(MatrixDiagPart, (x,), (0,)), -1, name=name)
