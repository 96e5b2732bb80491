"""The extension ``linalg`` of the array API: decompositions, solutions, norms and products."""

from __future__ import annotations

from typing import Any

from stopgrad.operands import Tensor, type_of
from stopgrad.ops.arithmetic import multiply
from stopgrad.ops.linalg import matmul as matmul, tensordot as _tensordot
from stopgrad.ops.shape import reduce_sum
from stopgrad.xp.elementwise import conj
from stopgrad.xp.manipulation import matrix_transpose as matrix_transpose, moveaxis
from stopgrad.xp.support import standard

__all__ = [
    "diagonal",
    "matmul",
    "outer",
    "tensordot",
    "vecdot",
]


@standard
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Tensor:
    """Sums of products over axes of both: :func:`stopgrad.tensordot`."""
    return _tensordot(x1, x2, axes)


@standard
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Inner products along an axis, the first vector conjugated.

    Examples:
        >>> sg.xp.vecdot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        array(11.)
    """
    return reduce_sum(multiply(conj(x1), x2), axis)


@standard
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Products of each element of a vector with each of another."""
    return multiply(x1[:, None], x2)


@standard
def diagonal(x: Any, /, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    raise NotImplementedError
