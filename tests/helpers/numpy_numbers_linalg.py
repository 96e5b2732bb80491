"""Calls for test_numpy_numbers.py of linear algebra and of what is put on the ends of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Parameters that take tensors, by whichever function.
TENSORS = {
    "chol",
    "clip_norm",
    "diagonal",
    "l2_regularizer",
    "matrix",
    "padding_value",
    "rcond",
    "rhs",
    "t_list",
    "tol",
    "use_norm",
}
ELSEWHERE: set[tuple[str, str]] = set()


def calls(call: Callable[..., Any], tensor: Callable[..., Any]) -> list[Any]:
    """The calls, made of the constructors of test_numpy_numbers.py."""
    x, xx, square = tensor(4), tensor(4, 6), tensor(3, 3)
    plain = dict.fromkeys(("adjoint_a", "adjoint_b", "a_is_sparse", "b_is_sparse"), False)
    return [
        call("qr", xx, full_matrices=True),
        call("svd", xx, full_matrices=True, compute_uv=True),
        call("svd", xx, full_matrices=False, compute_uv=False),
        call("einsum", "ij,kj->ik", xx, xx, optimize="greedy"),
        call("einsum", "ij,kj->ik", xx, xx, optimize=True),
        call("einsum", xx, [0, 1], xx, [2, 1], [0, 2]),
        call("matmul", xx, xx, transpose_b=True, grad_a=False, grad_b=False, **plain),
        call("matmul", square, square, adjoint_a=True, adjoint_b=True),
        call("matvec", square, tensor(3), transpose_a=True, adjoint_a=False),
        call("matvec", square, tensor(3), adjoint_a=True, a_is_sparse=False, b_is_sparse=False),
        call("band_part", xx, 1, num_upper=2),
        call("diag", x, k=1, num_rows=4, num_cols=5, align="LEFT_RIGHT"),
        call("diag", xx, k=(-2, 1), num_rows=-1, num_cols=-1),
        call("diag_part", xx, k=-1),
        call("diag_part", xx, k=[0, 2], align="LEFT_LEFT"),
        call("set_diag", xx, x, k=1, align="RIGHT_LEFT"),
        call("set_diag", xx, tensor(2, 4), k=(0, 1)),
        call("eye", 3),
        call("eye", 3, num_columns=2, batch_shape=[2, 1], k=-1),
        call("matrix_transpose", xx, conjugate=True),
        call("tril", xx, k=-1),
        call("triu", xx, k=1),
        call("lstsq", tensor(4, 2), tensor(4, 1), fast=False),
        call("matrix_power", square, 3),
        call("matrix_rank", xx, validate_args=False),
        call("pinv", xx, validate_args=False),
        call("clip_by_norm", xx, 0.5, axes=[0, 1]),
        call("l2_normalize", xx, axis=[0, -1], epsilon=0.5),
        call("l2_normalize", xx, dim=1),
        call("norm", xx, ord="fro", axis=(0, 1), keepdims=True),
        call("norm", xx, ord=3.0, axis=1, keepdims=False),
        call("norm", xx, ord=2.5, axis=[1]),
        call("normalize", xx, ord="euclidean", axis=1),
        call("normalize", xx, ord=1.0, axis=(0, 1)),
        call("matrix_norm", xx, keepdims=True, ord="nuc", axis=(0, 1)),
        call("matrix_norm", xx, ord=-2.0),
        call("vector_norm", xx, axis=1, keepdims=True, ord=1.0),
        call("vector_norm", xx, axis=(0, 1), ord=0.5),
        call("cross", square, square, axis=0),
        call("vecdot", xx, xx, axis=0),
        call("inv", square, adjoint=True),
        call("solve", square, square, adjoint=True),
        call("triangular_solve", square, square, lower=False, adjoint=True),
    ]
