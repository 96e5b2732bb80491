"""Operations of linear algebra, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import bounded, brought, product
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import unary, ungraded, wanted_dtype


def matrix_product(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    first, second = (bool(node.attribute(name, False)) for name in ("transpose_a", "transpose_b"))
    return sg.matmul(a, b, first, second)


def _batch_product(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    """Products of matrices, adjoint as the attributes say; ``BatchMatMulV3`` chooses the result's type."""
    dtype = wanted_dtype(node, "Tout", a.dtype)
    a, b = brought(a, dtype), brought(b, dtype)
    names = (
        ("grad_x", "grad_y") if node.attribute("grad_x") or node.attribute("grad_y") else ("adj_x", "adj_y")
    )
    first, second = (bool(node.attribute(name, False)) for name in names)
    return sg.matmul(a, b, adjoint_a=first, adjoint_b=second)


def _summed(node: Call, *xs: sg.Output) -> sg.Output:
    return sg.einsum(str(node.attribute("equation")).replace(" ", ""), *xs)


def _cross(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    return sg.cross(a, b)


# ------------------------------------------------------------------------------------------- factorizations


def _inverse(node: Call, x: sg.Output) -> sg.Output:
    return sg.inv(x, bool(node.attribute("adjoint", False)))


def _solved(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    return sg.solve(a, b, bool(node.attribute("adjoint", False)))


def _triangular(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    lower, adjoint = (
        bool(node.attribute(name, default)) for name, default in (("lower", True), ("adjoint", False))
    )
    return sg.triangular_solve(a, b, lower, adjoint)


def _logarithm_of_determinant(node: Call, x: sg.Output) -> tuple[sg.Output, ...]:
    return tuple(sg.slogdet(x))


def _eigen(node: Call, x: sg.Output) -> tuple[Tensor, ...]:
    """Of the lower triangle alone, where the gradient arrives, too."""
    below = sg.tril(x, -1)
    x = sg.add(sg.tril(x), sg.adjoint(below))
    if node.attribute("compute_v", True):
        return tuple(sg.eigh(x))
    return sg.eigvalsh(x), sg.zeros([0], x.dtype)


def _singular(node: Call, x: sg.Output) -> tuple[Tensor, ...]:
    """TensorFlow's order: the values first, and v rather than its adjoint."""
    if not node.attribute("compute_uv", True):
        nothing = sg.zeros([0], x.dtype)
        return sg.svdvals(x), nothing, nothing
    return tuple(sg.svd(x, bool(node.attribute("full_matrices", False))))


def _qr(node: Call, x: sg.Output) -> tuple[sg.Output, ...]:
    return tuple(sg.qr(x, bool(node.attribute("full_matrices", False))))


# ------------------------------------------------------------------------------------------------ diagonals


@knows(1, 2)
def _band(node: Call, x: sg.Output, low: sg.Output | Known, high: sg.Output | Known) -> sg.Output:
    return sg.band_part(x, int(node.known(low)), int(node.known(high)))


def _offsets(node: Call, k: sg.Output | Known | None) -> int | tuple[int, ...]:
    if k is None:
        return 0
    offsets = [int(n) for n in node.known(k).reshape(-1).tolist()]
    if len(offsets) == 1:
        return offsets[0]
    bounded((offsets[-1] - offsets[0] + 1) * 2**12, "so many diagonals")
    return tuple(offsets)


def _one_size(node: Call, x: Any) -> Any:
    return -1 if x is None else node.sizes(x)[0]


@knows(1, 2, 3)
def _from_diagonal(
    node: Call, x: sg.Output, k: Any = None, rows: object = None, columns: Any = None, padding: Any = None
) -> sg.Output:
    align = str(node.attribute("align", "LEFT_LEFT" if node.op_type == "MatrixDiagV2" else "RIGHT_LEFT"))
    fill = brought(0, x.dtype) if padding is None else sg.reshape(ungraded(padding), [])
    return sg.diag(
        x,
        k=_offsets(node, k),
        num_rows=_one_size(node, rows),
        num_cols=_one_size(node, columns),
        padding_value=fill,
        align=align,
    )


@knows(1)
def _diagonal(
    node: Call, x: sg.Output, k: sg.Output | Known | None = None, padding: sg.Output | None = None
) -> sg.Output:
    align = str(node.attribute("align", "LEFT_LEFT" if node.op_type == "MatrixDiagPartV2" else "RIGHT_LEFT"))
    fill = brought(0, x.dtype) if padding is None else sg.reshape(ungraded(padding), [])
    return sg.diag_part(x, k=_offsets(node, k), padding_value=fill, align=align)


@knows(2)
def _diagonal_set(
    node: Call, x: sg.Output, diagonal: sg.Output, k: sg.Output | Known | None = None
) -> sg.Output:
    align = str(node.attribute("align", "LEFT_LEFT" if node.op_type == "MatrixSetDiagV2" else "RIGHT_LEFT"))
    return sg.set_diag(x, diagonal, k=_offsets(node, k), align=align)


def _tensor_diagonal(node: Call, x: sg.Output) -> sg.Output:
    """``Diag``: x on the diagonal of a tensor of twice as many axes."""
    return sg.reshape(sg.diag(sg.reshape(x, [-1])), [*x.shape, *x.shape])


def _tensor_diagonal_part(node: Call, x: sg.Output) -> sg.Output:
    half = list(x.shape[: x.ndim // 2])
    count = product(half)
    return sg.reshape(sg.diag_part(sg.reshape(x, [count, count])), half)


# --------------------------------------------------------------------------------------- Fourier transforms


def _transformed(function: Callable[..., sg.Output], axes: int) -> Rule:
    """A transform of the last axes, complex to complex."""
    return lambda node, x: function(x, None, tuple(range(x.ndim - axes, x.ndim)))


@knows(1)
def _real_transform(node: Call, x: sg.Output, length: sg.Output | Known) -> sg.Output:
    return sg.fft.rfft(x, n=node.sizes(length)[0])


@knows(1)
def _inverse_real_transform(node: Call, x: sg.Output, length: sg.Output | Known) -> sg.Output:
    return sg.fft.irfft(x, n=node.sizes(length)[0])


PRODUCTS: Table = {
    "MatMul": matrix_product,
    "BatchMatMul": _batch_product,
    "BatchMatMulV2": _batch_product,
    "BatchMatMulV3": _batch_product,
    "Einsum": _summed,
    "Cross": _cross,
    "Cholesky": unary(sg.cholesky),
    "MatrixInverse": _inverse,
    "MatrixSolve": _solved,
    "MatrixTriangularSolve": _triangular,
    "MatrixDeterminant": unary(sg.det),
    "LogMatrixDeterminant": _logarithm_of_determinant,
    "SelfAdjointEigV2": _eigen,
    "Svd": _singular,
    "Qr": _qr,
    "MatrixBandPart": _band,
    "MatrixDiag": _from_diagonal,
    "MatrixDiagV2": _from_diagonal,
    "MatrixDiagV3": _from_diagonal,
    "MatrixDiagPart": _diagonal,
    "MatrixDiagPartV2": _diagonal,
    "MatrixDiagPartV3": _diagonal,
    "MatrixSetDiag": _diagonal_set,
    "MatrixSetDiagV2": _diagonal_set,
    "MatrixSetDiagV3": _diagonal_set,
    "Diag": _tensor_diagonal,
    "DiagPart": _tensor_diagonal_part,
    "FFT": _transformed(sg.fft.fftn, 1),
    "FFT2D": _transformed(sg.fft.fftn, 2),
    "FFT3D": _transformed(sg.fft.fftn, 3),
    "IFFT": _transformed(sg.fft.ifftn, 1),
    "IFFT2D": _transformed(sg.fft.ifftn, 2),
    "IFFT3D": _transformed(sg.fft.ifftn, 3),
    "RFFT": _real_transform,
    "IRFFT": _inverse_real_transform,
}
