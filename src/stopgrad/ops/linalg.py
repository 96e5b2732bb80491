"""Products of matrices."""

from __future__ import annotations

from typing import Any

from stopgrad.errors import ShapeError
from stopgrad.op import Op, Tensor, apply, builds, type_of
from stopgrad.ops.convert import conj
from stopgrad.ops.inference import broadcast_c2, check_dtype, check_same_dtype, is_number
from stopgrad.ops.shape import expand_dims, squeeze
from stopgrad.samples import complexes, floats, sample
from stopgrad.types import TensorType, same_size, tensor_type

__all__ = [
    "matmul",
]


class MatMul(Op):
    """Product of matrices, over broadcast batches.

    Inputs
        a: [..., m, k], or [..., k, m] if transpose_a; b: [..., k, n], or [..., n, k] if transpose_b: numbers of
        one dtype (C1) with the same k (C2) and at least two axes (C3); the leading axes broadcast (C4). The
        function also takes vectors, as NumPy's matmul does.
    Returns
        [..., m, n].
    >>> sg.matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """

    @staticmethod
    def infer(a: TensorType, b: TensorType, *, transpose_a: bool, transpose_b: bool) -> TensorType:
        dtype = check_same_dtype(a, b)
        check_dtype(a, is_number, "numbers")
        if a.ndim < 2 or b.ndim < 2:
            raise ShapeError(f"(C3) needs at least two axes each, not {a!r} and {b!r}")
        m, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
        other, n = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
        if not same_size(k, other):
            raise ShapeError(f"(C2) the inner sizes {k} and {other} differ")
        try:
            batch = broadcast_c2(a.shape[:-2], b.shape[:-2])
        except ShapeError as error:
            raise ShapeError(f"(C4) {error}") from None
        return tensor_type(dtype, (*batch, m, n))

    gradient = {"a": lambda g, op: _gradient_a(g, op), "b": lambda g, op: _gradient_b(g, op)}

    @staticmethod
    def numpy(xp: Any, a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Any:
        a = xp.swapaxes(a, -1, -2) if transpose_a else a
        b = xp.swapaxes(b, -1, -2) if transpose_b else b
        return xp.matmul(a, b)

    xla = numpy
    samples = [
        sample(floats(2, 3), floats(3, 4), transpose_a=False, transpose_b=False),
        sample(floats(3, 2), floats("n", 3), transpose_a=True, transpose_b=True),
        sample(floats(5, 2, 3), floats(3, 4), transpose_a=False, transpose_b=False),
        sample(floats(1, 3, 2), floats(2, 3, 2), transpose_a=True, transpose_b=False),
        sample(complexes(2, 2), complexes(2, 2), transpose_a=False, transpose_b=True),
        sample(floats(2, 0), floats(0, 3), transpose_a=False, transpose_b=False),
    ]


@builds(MatMul)
def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, name: str | None = None) -> Tensor:
    p, q = type_of(a).ndim, type_of(b).ndim
    if p == 1 and q >= 1:
        row = matmul(expand_dims(a, 0), expand_dims(b, 1) if q == 1 else b, False, transpose_b, name)
        return squeeze(row, (-2, -1) if q == 1 else -2)
    if q == 1 and p >= 2:
        return squeeze(matmul(a, expand_dims(b, 1), transpose_a, False, name), -1)
    return apply(MatMul, (a, b), (bool(transpose_a), bool(transpose_b)), name)


def _gradient_a(g: Any, op: Any) -> Tensor:
    b = conj(op.b)
    return matmul(b, g, op.transpose_b, True) if op.transpose_a else matmul(g, b, False, not op.transpose_b)


def _gradient_b(g: Any, op: Any) -> Tensor:
    a = conj(op.a)
    return matmul(g, a, True, op.transpose_a) if op.transpose_b else matmul(a, g, not op.transpose_a, False)
