"""Linear algebra: triangles, diagonals, and eliminations by Scan, one row or column per step.

Other factorizations (QR, eigenvalues, singular values) have no form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, Size, product
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import number
from stopgrad.engines.onnxruntime.nodes.forms.cumulative import scanned
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.graph.interpreter import Types
from stopgrad.graph.op import Op
from stopgrad.graph.type_rules import broadcast_shapes
from stopgrad.ops.linalg.determinants import Adjugate, LogMatrixDeterminant, MatrixDeterminant
from stopgrad.ops.linalg.diagonals import MatrixDiag, MatrixDiagPart
from stopgrad.ops.linalg.exponential import MatrixExponential, MatrixExponentialGrad
from stopgrad.ops.linalg.factorizations import Cholesky
from stopgrad.ops.linalg.matrices import ANY, MatrixBandPart
from stopgrad.ops.linalg.solvers import MatrixInverse, MatrixSolve, TriangularSolve

_TRIANGLES = frozenset(map(np.dtype, ("bool", "float32", "float64", "int32", "int64")))
"""The dtypes for which the runtime has Trilu."""

_MINORS = 16
"""The adjugate is written for matrices up to this size: it takes a determinant for each element."""


def _band_part(xp: Writing, x: Array, *, low: int, high: int) -> Any:
    if x.dtype not in _TRIANGLES:
        return MatrixBandPart.lower(xp, x, low=low, high=high)
    for bound, end, upper in ((low, -ANY, 1), (high, ANY, 0)):
        if bound != end:
            x = xp.node("Trilu", [x, number(bound, np.int64)], x.dtype, x.shape, upper=upper)
    return x


def _diag_part(xp: Writing, x: Array, *, offset: int, types: Types) -> Any:
    """A strided slice of the flattened matrix."""
    *batch, rows, columns = x.shape
    length = types.outputs[0].shape[-1]
    if length == 0:
        return xp.zeros((*batch, 0), x.dtype)
    flat = xp.reshape(x, (*batch, rows * columns))
    start = offset if offset >= 0 else -offset * columns
    stop, axes = xp.ints([start + length * (columns + 1)]), xp.ints([len(batch)])
    parts = [xp.ints([start]), stop, axes, xp.ints([columns + 1])]
    return xp.node("Slice", [flat, *parts], x.dtype, (*batch, length))


def _diag(xp: Writing, diagonal: Array, *, offset: int, rows: Size, columns: Size) -> Any:
    """Broadcasts each element along its row, and keeps it on the diagonal."""
    count = diagonal.shape[-1]
    before = max(-offset, 0) if isinstance(rows, Dim) else min(max(-offset, 0), rows)
    around = [(0, 0)] * (diagonal.ndim - 1) + [(before, rows - before - count)]
    rowwise = xp.expand_dims(xp.padded(diagonal, around), diagonal.ndim)
    above = xp.subtract(xp.reshape(xp.arange(columns), (1, columns)), xp.reshape(xp.arange(rows), (rows, 1)))
    return xp.where(xp.equal(above, offset), rowwise, number(0, diagonal.dtype))


# ---------------------------------------------------------------------------------------- eliminations


def _mask(xp: Writing, place: Array, size: Size, compare: str = "equal") -> Any:
    """Which rows are at *place*, or compare with it otherwise: [size, 1]."""
    return getattr(xp, compare)(xp.reshape(xp.arange(size), (size, 1)), place)


def _matrix(xp: Writing, x: Array, batch: Sequence[Size]) -> Any:
    return xp.broadcast_to(xp.value(x), (*batch, *x.shape[-2:]))


def _triangular_solve(xp: Writing, matrix: Array, rhs: Array, *, lower: bool, adjoint: bool) -> Any:
    """Substitution, row by row: subtracts the product with the rows found so far, and divides."""
    batch, size = broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2]), matrix.shape[-1]
    matrix, rhs = _matrix(xp, matrix, batch), _matrix(xp, rhs, batch)
    if size == 0:
        return rhs
    if adjoint:
        matrix, lower = xp.swapaxes(matrix, -1, -2), not lower
    axis = len(batch)
    diagonal = _diag_part_of(xp, matrix)

    def step(x: Array, place: Array, row: Array, side: Array, pivot: Array) -> list[Any]:
        # Rows of x that are not known yet are 0.
        contribution = xp.matmul(xp.expand_dims(row, axis), x)
        solution = xp.divide(
            xp.subtract(xp.expand_dims(side, axis), contribution), xp.reshape(pivot, (*batch, 1, 1))
        )
        return [xp.where(_mask(xp, place, size), solution, x)]

    strict = xp.node(
        "Trilu",
        [matrix, number(-1 if lower else 1, np.int64)],
        matrix.dtype,
        matrix.shape,
        upper=int(not lower),
    )
    parts = [xp.arange(size), *(_rows_first(xp, x, axis) for x in (strict, rhs)), _last_first(xp, diagonal)]
    return scanned(xp, step, [xp.zeros(rhs.shape, rhs.dtype)], parts, [], 0, not lower)[0]


def _rows_first(xp: Writing, x: Array, axis: int) -> Any:
    """Transposes [..., rows, columns] to [rows, ..., columns]."""
    return x if not axis else xp.transpose(x, (axis, *range(axis), axis + 1))


def _last_first(xp: Writing, x: Array) -> Any:
    return x if x.ndim == 1 else xp.transpose(x, (x.ndim - 1, *range(x.ndim - 1)))


def _diag_part_of(xp: Writing, x: Array) -> Any:
    """The main diagonal of square matrices."""
    *batch, rows, columns = x.shape
    flat = xp.reshape(x, (*batch, rows * columns))
    parts = [xp.ints([0]), xp.ints([rows * columns]), xp.ints([len(batch)]), xp.ints([columns + 1])]
    return xp.node("Slice", [flat, *parts], x.dtype, (*batch, rows))


def _cholesky(xp: Writing, x: Array) -> Any:
    """Column by column. A pivot that is not positive makes the whole triangle NaN."""
    size, axis = x.shape[-1], x.ndim - 2
    if size == 0:
        return x
    symmetric = xp.divide(xp.add(x, xp.swapaxes(x, -1, -2)), number(2, x.dtype))

    def step(factor: Array, good: Array, place: Array, column: Array) -> list[Any]:
        is_pivot = _mask(xp, place, size)
        row = xp.expand_dims(xp.take(factor, place, axis), axis)
        rest = xp.subtract(xp.expand_dims(column, axis + 1), xp.matmul(factor, xp.swapaxes(row, -1, -2)))
        pivot = xp.expand_dims(xp.take(rest, place, axis), axis)
        root = xp.sqrt(pivot)
        below = xp.where(_mask(xp, place, size, "greater"), xp.divide(rest, root), number(0, x.dtype))
        new_column = xp.where(is_pivot, root, below)
        columns = xp.reshape(xp.arange(size), (1, size))
        return [
            xp.where(xp.equal(columns, place), new_column, factor),
            xp.logical_and(good, xp.greater(pivot, number(0, x.dtype))),
        ]

    first = [xp.zeros(x.shape, x.dtype), xp.ones((*x.shape[:-2], 1, 1), bool)]
    factor, good = scanned(xp, step, first, [xp.arange(size), _last_first(xp, symmetric)], [], 0)
    lower = np.tril(np.ones((size, size), bool)) if is_known([size]) else _lower(xp, size)
    return xp.where(xp.logical_or(good, xp.logical_not(lower)), factor, number(np.nan, x.dtype))


def _lower(xp: Writing, size: Size) -> Any:
    places = xp.arange(size)
    return xp.greater_equal(xp.reshape(places, (size, 1)), xp.reshape(places, (1, size)))


def _eliminated(xp: Writing, matrix: Array, whole: bool) -> tuple[Any, Any, Any]:
    """Rows of [matrix | more] after elimination by rows with partial pivoting.

    Args:
        matrix: [..., m, n], n not less than m.
        whole: whether the columns are eliminated above the pivots, too, and pivots made 1.

    Returns:
        The rows, the pivots [m, ..., 1, 1], and for each pivot whether two rows were swapped.
    """
    size, axis = matrix.shape[-2], matrix.ndim - 2
    batch = matrix.shape[:-2]
    places = xp.reshape(xp.arange(size), (size, 1))

    def step(rows: Array, place: Array) -> list[Any]:
        column = xp.expand_dims(xp.take(rows, place, axis + 1), axis + 1)
        remaining = xp.greater_equal(places, place)
        largest = xp.argmax(
            xp.where(remaining, xp.abs(column), number(-1, matrix.dtype)), axis, keepdims=True
        )
        order = xp.where(xp.equal(places, place), largest, xp.where(xp.equal(places, largest), place, places))
        rows = xp.node(
            "GatherElements",
            [rows, xp.broadcast_to(order, rows.shape)],
            rows.dtype,
            rows.shape,
            axis=axis,
        )
        top = xp.expand_dims(xp.take(rows, place, axis), axis)
        pivot = xp.expand_dims(xp.take(top, place, axis + 1), axis + 1)
        factor = xp.divide(xp.expand_dims(xp.take(rows, place, axis + 1), axis + 1), pivot)
        if whole:
            rest = xp.subtract(rows, xp.multiply(factor, top))
            reduced = xp.where(xp.equal(places, place), xp.divide(top, pivot), rest)
        else:
            below = xp.where(xp.greater(places, place), factor, number(0, matrix.dtype))
            reduced = xp.subtract(rows, xp.multiply(below, top))
        return [reduced, pivot, xp.not_equal(largest, place)]

    shape = (size, *batch, 1, 1)
    kinds = [(np.dtype(matrix.dtype), shape), (np.dtype(bool), shape)]
    rows, pivots, swapped = scanned(xp, step, [matrix], [xp.arange(size)], kinds)
    return rows, pivots, swapped


def solved(xp: Writing, matrix: Array, rhs: Array, *, adjoint: bool) -> Any:
    batch, size = broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2]), matrix.shape[-1]
    matrix, rhs = _matrix(xp, matrix, batch), _matrix(xp, rhs, batch)
    if size == 0:
        return rhs
    matrix = xp.swapaxes(matrix, -1, -2) if adjoint else matrix
    rows, pivots, _ = _eliminated(xp, xp.concatenate([matrix, rhs], matrix.ndim - 1), True)
    # Where a pivot is 0 or NaN, the solution is NaN.
    good = xp.all(xp.greater(xp.abs(pivots), number(0, rhs.dtype)), axis=0)
    has_nan = xp.any(xp.isnan(matrix), axis=(len(batch), len(batch) + 1), keepdims=True)
    good = xp.logical_and(good, xp.logical_not(has_nan))
    return xp.where(good, xp.part(rows, rows.ndim - 1, size, rhs.shape[-1]), number(np.nan, rhs.dtype))


def _inverse(xp: Writing, x: Array) -> Any:
    size = x.shape[-1]
    if is_known([size]):
        unit = np.eye(size, dtype=x.dtype)
    else:
        places = xp.arange(size)
        same = xp.equal(xp.reshape(places, (size, 1)), xp.reshape(places, (1, size)))
        unit = xp.astype(same, x.dtype)
    return solved(xp, x, unit, adjoint=False)


def _swap_signs(xp: Writing, swapped: Array, dtype: np.dtype[Any]) -> Any:
    """-1 for each pivot for which rows were swapped, else 1."""
    return xp.where(swapped, number(-1, dtype), number(1, dtype))


def _determinant(xp: Writing, x: Array) -> Any:
    batch, size = x.shape[:-2], x.shape[-1]
    if size == 0:
        return xp.ones(batch, x.dtype)
    if x.dtype == np.float32:
        return xp.node("Det", [x], x.dtype, batch)
    # After a pivot of 0 the determinant is 0; what was divided by it is not used.
    _, pivots, swapped = _eliminated(xp, xp.value(x), False)
    zero = number(0, x.dtype)
    determinant = xp.prod(xp.multiply(pivots, _swap_signs(xp, swapped, x.dtype)), axis=0)
    determinant = xp.where(xp.any(xp.equal(pivots, zero), axis=0), _unless_nan(xp, x, zero), determinant)
    return xp.reshape(determinant, batch)


def _unless_nan(xp: Writing, x: Array, value: Array) -> Any:
    axes = (x.ndim - 2, x.ndim - 1)
    has_nan = xp.any(xp.isnan(x), axis=axes, keepdims=True)
    return xp.where(has_nan, number(np.nan, x.dtype), value)


def _log_determinant(xp: Writing, x: Array) -> Any:
    batch, size, dtype = x.shape[:-2], x.shape[-1], x.dtype
    if size == 0:
        return xp.ones(batch, dtype), xp.zeros(batch, dtype)
    _, pivots, swapped = _eliminated(xp, xp.value(x), False)
    zero = number(0, dtype)
    singular = xp.any(xp.equal(pivots, zero), axis=0)
    sign = xp.prod(xp.multiply(xp.sign(pivots), _swap_signs(xp, swapped, dtype)), axis=0)
    logarithm = xp.sum(xp.log(xp.abs(pivots)), axis=0)
    sign = xp.where(singular, _unless_nan(xp, x, zero), sign)
    logarithm = xp.where(singular, _unless_nan(xp, x, number(-np.inf, dtype)), logarithm)
    return xp.reshape(sign, batch), xp.reshape(logarithm, batch)


def _adjugate(xp: Writing, x: Array) -> Any:
    """The determinants of the minors, with their signs."""
    batch, (size,) = x.shape[:-2], xp.known(x.shape[-1:], "the size of the matrices")
    if size > _MINORS:
        raise xp.missing(f"the adjugate of matrices with more than {_MINORS} rows")
    if size < 2:
        return xp.ones(x.shape, x.dtype)
    others = np.array([[k for k in range(size) if k != i] for i in range(size)])
    axis = len(batch)
    minors = xp.take(xp.take(x, others, axis), others, axis + 2)  # [..., i, m - 1, k, m - 1]
    minors = xp.transpose(minors, (*range(axis), axis + 2, axis, axis + 1, axis + 3))
    count = product(batch) * size * size
    flat = xp.reshape(minors, (count, size - 1, size - 1))
    determinants = xp.reshape(_determinant(xp, flat), (*batch, size, size))
    signs = np.asarray((-1.0) ** np.add.outer(np.arange(size), np.arange(size)), x.dtype)
    return _unless_nan(xp, x, xp.multiply(determinants, signs))


MATRICES: Mapping[type[Op], Callable[..., Any]] = {
    MatrixBandPart: _band_part,
    MatrixDiagPart: _diag_part,
    MatrixDiag: _diag,
    TriangularSolve: _triangular_solve,
    Cholesky: _cholesky,
    MatrixSolve: solved,
    MatrixInverse: _inverse,
    MatrixDeterminant: _determinant,
    LogMatrixDeterminant: _log_determinant,
    Adjugate: _adjugate,
    MatrixExponential: MatrixExponential.xla,
    MatrixExponentialGrad: MatrixExponentialGrad.xla,
}
