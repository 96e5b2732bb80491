"""Values of linear algebra: NumPy's, SciPy's, and vectors published with TensorFlow's documentation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from values import Cases, complex_normal, normal, values_of

import stopgrad as sg

CASES = Cases()
add = CASES.add

X, C = normal(2, 3, 4), complex_normal(2, 3, 4)
S, Z = normal(2, 3, 3), complex_normal(2, 3, 3)
INTS = np.random.default_rng(2).integers(-9, 9, (3, 4))
TRUTH = np.random.default_rng(3).random((3, 4)) < 0.6
SMALL = X.astype(np.float32)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


D, H = S @ adjoint(S) + np.eye(3), Z @ adjoint(Z) + np.eye(3)
"""Positive definite."""
R, T = normal(2, 3, 2, seed=5), complex_normal(2, 3, 2, seed=6)

# ------------------------------------------------------------------------------------ parts of matrices

add(sg.eye, np.eye(3, dtype=np.float32), 3)
add(sg.eye, np.broadcast_to(np.eye(2, 4), (5, 2, 4)), 2, 4, (5,), dtype=sg.float64)
add(sg.eye, np.eye(3, 4, -2, dtype=np.int32), 3, 4, dtype="int32", k=-2)
for k in (-5, -1, 0, 2, 9):
    add(sg.tril, lambda x, k: np.tril(x, k), X, k)
    add(sg.triu, lambda x, k: np.triu(x, k), INTS, k)
add(sg.tril, np.tril, TRUTH)
add(sg.triu, np.triu, C)
add(sg.band_part, lambda x, low, high: np.triu(np.tril(x, high), -low), X, 1, 0)
add(sg.band_part, lambda x, low, high: np.tril(x, high), C, -1, 1)
add(sg.band_part, lambda x, low, high: np.triu(x, -low), INTS, 0, -1)
add(sg.band_part, lambda x, low, high: x, SMALL, -1, -1)
add(sg.trace, lambda x: np.trace(x, axis1=-2, axis2=-1), X)
add(sg.trace, lambda x: np.trace(x).astype(np.int64), INTS)
add(sg.matrix_transpose, lambda x: np.swapaxes(x, -1, -2), X)
add(sg.matrix_transpose, adjoint, C, conjugate=True)
add(sg.adjoint, adjoint, C)
add(sg.adjoint, lambda x: x.T, INTS)
add(sg.diag, lambda x: np.array([np.diag(v) for v in x]), X[0])
add(sg.diag, lambda x: np.diag(x, -2), C[0, 0], k=-2)
add(sg.diag, lambda x: np.eye(4, 3, 1) * [[0.0, *x]], np.array([2.0, 3.0]), k=1, num_rows=4, num_cols=3)
add(sg.diag_part, lambda x: np.diagonal(x, 0, -2, -1), X)
add(sg.diag_part, lambda x: np.diagonal(x, 2, -2, -1), C, k=2)
add(sg.diag_part, lambda x: np.diagonal(x, -1), TRUTH, k=-1)
add(sg.set_diag, lambda x, y: np.array([[9.0, 1, 1], [1, 8, 1]]), np.ones((2, 3)), np.array([9.0, 8.0]))
add(
    sg.set_diag,
    lambda x, y: np.array([[1.0, 9, 1], [1, 1, 8]]),
    np.ones((2, 3)),
    np.array([9.0, 8.0]),
    k=1,
)

# The examples of TensorFlow 2.21's documentation of tf.linalg.diag, diag_part and set_diag.
DIAGONALS = np.array([[[0.0, 8, 9], [1, 2, 3], [4, 5, 0]], [[0, 2, 3], [6, 7, 9], [9, 1, 0]]])
BANDS = np.array([[[1.0, 8, 0], [4, 2, 9], [0, 5, 3]], [[6, 2, 0], [9, 7, 3], [0, 1, 9]]])
add(sg.diag, BANDS, DIAGONALS, k=(-1, 1))
add(
    sg.diag,
    np.array([[9.0, 9, 9], [1, 9, 9], [9, 2, 9]]),
    np.array([1.0, 2.0]),
    k=-1,
    num_rows=3,
    num_cols=3,
    padding_value=9,
)
add(sg.diag, np.array([[0.0, 0], [1, 0], [0, 2]]), np.array([1.0, 2.0]), k=-1, num_cols=2)
INPUT = np.array([[[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6]], [[5, 4, 3, 2], [1, 2, 3, 4], [5, 6, 7, 8]]])
add(sg.diag_part, np.array([[1.0, 6, 7], [5, 2, 7]]), INPUT)
add(sg.diag_part, np.array([[2.0, 7, 6], [4, 3, 8]]), INPUT, k=1)
add(
    sg.diag_part,
    np.array([[[2.0, 7, 6], [1, 6, 7], [5, 8, 0]], [[4, 3, 8], [5, 2, 7], [1, 6, 0]]]),
    INPUT,
    k=(-1, 1),
    align="LEFT_LEFT",
)
add(
    sg.diag_part,
    np.array([[[9.0, 9, 4], [9, 3, 8], [2, 7, 6]], [[9, 9, 2], [9, 3, 4], [4, 3, 8]]]),
    INPUT,
    k=(1, 3),
    padding_value=9,
)
add(
    sg.diag_part,
    np.array([[[4.0, 9, 9], [3, 8, 9], [2, 7, 6]], [[2, 9, 9], [3, 4, 9], [4, 3, 8]]]),
    INPUT,
    k=(1, 3),
    padding_value=9,
    align="LEFT_RIGHT",
)

# --------------------------------------------------------------------------------------------- products

A, B = normal(5, 2, 3), normal(3, 4, seed=1)
add(sg.matmul, lambda a, b: adjoint(a) @ b, T, Z, adjoint_a=True)
add(sg.matmul, lambda a, b: a @ adjoint(b), C, C, adjoint_b=True)
add(sg.matmul, lambda a, b: a.astype(float) @ b, SMALL, SMALL[0].T, output_type="float64")
add(sg.matmul, lambda a, b: a @ b.T, B[0], B, transpose_b=True)
add(sg.matvec, lambda a, b: np.matvec(a, b), A, B[:, 0])
add(sg.matvec, lambda a, b: np.matvec(adjoint(a), b), Z, T[:, :, 0], adjoint_a=True)
add(sg.matvec, lambda a, b: np.matvec(a.T, b), B, B[:, 1], transpose_a=True)
add(sg.vecdot, lambda a, b: np.vecdot(a, b), C, C[0, 1])
add(sg.vecdot, lambda a, b: np.vecdot(a, b, axis=-2), X, X[:1] * 2, axis=-2)
add(sg.vecdot, lambda a, b: np.vecdot(a, b), INTS, INTS)
add(sg.outer, np.outer, X[0, 0], C[0, 0])
add(sg.outer, np.outer, X[0], INTS[0])
add(sg.cross, lambda a, b: np.cross(a, b), S, S[0, ::-1])
add(sg.cross, lambda a, b: np.cross(a, b, axis=1), X, X * X, axis=1)
add(sg.cross, np.cross, INTS[0, :3], INTS[1, :3])
add(sg.kron, np.kron, X[0], B)
add(sg.kron, np.kron, X[0, 0], C)
add(sg.kron, np.kron, INTS, INTS[0])
add(sg.tensordot, lambda a, b, axes: np.tensordot(a, b, axes), X, S, ([1], [-1]))
add(sg.tensordot, lambda a, b, axes: np.tensordot(a, b, axes), INTS, X, ((0, 1), (1, 2)))

for equation, shapes in (
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("i...->...", [(2, 3, 4)]),
    ("...ij,...jk", [(2, 1, 3, 2), (5, 2, 4)]),
    (" i j , j -> i ", [(2, 3), (3,)]),
    (",ij->ji", [(), (2, 3)]),
    ("ijk,kji,j->", [(2, 3, 4), (4, 3, 2), (3,)]),
    ("iij,jkk->ik", [(2, 2, 3), (3, 4, 4)]),
    ("a...b,b...->...a", [(2, 3, 4), (4, 3)]),
    ("Ab,bA->bA", [(2, 3), (3, 2)]),
    ("cBa", [(2, 3, 4)]),
):
    add(sg.einsum, np.einsum, equation, *[normal(*shape, seed=i) for i, shape in enumerate(shapes)])
add(sg.einsum, lambda a, p, b, q, r: np.einsum(a, p, b, q, r), X[0], (0, 1), B, (0, 2), (2, 1))
add(sg.einsum, lambda a, p, b, q: np.einsum(a, p, b, q), X[0], (27, 1), B, (27, 0))
add(sg.einsum, lambda a, p, q: np.einsum(a, p, q), S, (..., 0, 0), (..., 0))
add(sg.einsum, lambda a, p: np.einsum(a, p), S[0], (3, 3))
add(sg.einsum, np.einsum, "ij,jk,kl", X[0], B.T, B, optimize="optimal")
add(sg.einsum, np.einsum, "ij,ij->i", INTS, INTS, optimize=False)

# --------------------------------------------------------------------------------------------- solutions

L, U = np.tril(S) + 3 * np.eye(3), np.triu(Z) + 3 * np.eye(3)
add(sg.inv, np.linalg.inv, S)
add(sg.inv, lambda x: adjoint(np.linalg.inv(x)), Z, adjoint=True)
add(sg.inv, lambda x: np.linalg.inv(x.astype(float)), np.array([[2, 1], [1, 1]]))
add(sg.solve, np.linalg.solve, S, R)
add(sg.solve, lambda a, b: np.linalg.solve(adjoint(a), b), Z, T, adjoint=True)
add(sg.solve, np.linalg.solve, S[0], R)
add(sg.solve, np.linalg.solve, S[0], R[0, :, 0])
add(sg.triangular_solve, np.linalg.solve, L, R)
add(sg.triangular_solve, lambda a, b: np.linalg.solve(np.tril(a), b), S + 3 * np.eye(3), R)
add(sg.triangular_solve, np.linalg.solve, U, T, lower=False)
add(sg.triangular_solve, lambda a, b: np.linalg.solve(adjoint(a), b), U, T[0], lower=False, adjoint=True)
BIG = np.tril(normal(70, 70)) + 10 * np.eye(70)
add(sg.triangular_solve, np.linalg.solve, BIG, normal(70, 2))
add(sg.triangular_solve, lambda a, b: np.linalg.solve(a.T, b), BIG, normal(70), adjoint=True)
add(sg.cholesky_solve, lambda a, b: np.linalg.solve(a @ adjoint(a), b), L, R)
add(sg.cholesky_solve, lambda a, b: np.linalg.solve(a @ adjoint(a), b), adjoint(U), T)


def least_squares(a: Any, b: Any) -> Any:
    return np.stack([np.linalg.lstsq(p, q, rcond=None)[0] for p, q in zip(a, b, strict=True)])


def ridge(a: Any, b: Any) -> Any:
    return np.linalg.solve(adjoint(a) @ a + 0.5 * np.eye(a.shape[-1]), adjoint(a) @ b)


RANK_ONE = np.outer(normal(4), normal(3))
TALL, WIDE = normal(2, 4, 3), complex_normal(2, 2, 3)
add(sg.lstsq, least_squares, TALL, normal(2, 4, 1))
add(sg.lstsq, least_squares, WIDE, complex_normal(2, 2, 2))
add(sg.lstsq, least_squares, WIDE, complex_normal(2, 2, 2), fast=False)
add(sg.lstsq, ridge, TALL, normal(2, 4, 1), l2_regularizer=0.5)
add(sg.lstsq, ridge, WIDE, complex_normal(2, 2, 2), l2_regularizer=0.5)
add(sg.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0], RANK_ONE, normal(4), fast=False)
add(sg.pinv, np.linalg.pinv, TALL)
add(sg.pinv, np.linalg.pinv, WIDE)
add(sg.pinv, np.linalg.pinv, RANK_ONE)
add(sg.pinv, lambda x: np.linalg.pinv(x, rcond=0.7), TALL[0], rcond=0.7)
add(sg.pinv, lambda x, r: np.linalg.pinv(x, rcond=r), TALL, np.array([0.1, 0.7]))
add(sg.matrix_rank, lambda x: np.array(1, np.int32), RANK_ONE)
add(sg.matrix_rank, lambda x: np.linalg.matrix_rank(x).astype(np.int32), Z)
add(sg.matrix_rank, lambda x: np.linalg.matrix_rank(x, tol=1.5).astype(np.int32), TALL, tol=1.5)
for n in (0, 1, 2, 5, -1, -3):
    add(sg.matrix_power, np.linalg.matrix_power, S, n)
add(sg.matrix_power, np.linalg.matrix_power, INTS[:, :3], 3)
add(sg.expm, scipy.linalg.expm, S)
add(sg.expm, scipy.linalg.expm, 6 * Z)
add(sg.expm, lambda x: scipy.linalg.expm(x), np.array([[[0.0, 1e-3], [0, 0]], [[-30.0, 1], [2, 9]]]))
add(sg.expm, scipy.linalg.expm, S.astype(np.float32), rtol=2e-6, atol=2e-6)

# ------------------------------------------------------------------------------------------- determinants

add(sg.det, np.linalg.det, S)
add(sg.det, np.linalg.det, Z)
add(sg.det, np.linalg.det, S.astype(np.float32), rtol=1e-5)
add(sg.slogdet, lambda x: tuple(np.linalg.slogdet(x)), S)
add(sg.slogdet, lambda x: tuple(np.linalg.slogdet(x)), Z)
HUGE = 1e3 * np.eye(200)
add(sg.slogdet, lambda x: (np.array(1.0), np.array(200 * math.log(1e3))), HUGE)
add(sg.logdet, lambda x: np.linalg.slogdet(x)[1], D)
add(sg.logdet, lambda x: np.linalg.slogdet(x)[1], H)

# ------------------------------------------------------------------------------- factors, spectra, norms

add(sg.cholesky, np.linalg.cholesky, D)
add(sg.cholesky, np.linalg.cholesky, H)
add(sg.cholesky, lambda x: np.linalg.cholesky((x + x.T) / 2), D[0] + np.triu(S[0]) / 10)
add(sg.qr, lambda x: tuple(np.linalg.qr(x)), X)
add(sg.qr, lambda x: tuple(np.linalg.qr(x)), TALL)
add(sg.qr, lambda x: tuple(np.linalg.qr(x)), complex_normal(4, 2))
add(sg.qr, lambda x: tuple(np.linalg.qr(x, "complete")), WIDE, full_matrices=True)
add(sg.svdvals, np.linalg.svdvals, X)
add(sg.svdvals, np.linalg.svdvals, Z)
add(sg.eigvalsh, np.linalg.eigvalsh, D)
add(sg.eigvalsh, np.linalg.eigvalsh, H)
add(sg.eigvals, lambda x: np.linalg.eigvals(x) + 0j, Z)


def first_real(v: Any) -> Any:
    """Columns with their first component, where it is the largest, real and positive."""
    found = v.copy()
    for index in np.ndindex(*v.shape[:-2], v.shape[-1]):
        at = (*index[:-1], slice(None), index[-1])
        large = np.abs(v[at]) >= 0.999 * np.abs(v[at]).max()
        pivot = v[at][np.argmax(large)]
        found[at] = v[at] * np.conj(pivot) / abs(pivot)
    return found


def eigh(x: Any) -> Any:
    values, vectors = np.linalg.eigh(x)
    return values, first_real(vectors)


def eig(x: Any) -> Any:
    values, vectors = scipy.linalg.eig(x)
    return values + 0j, first_real(vectors + 0j)


def svd(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    turned = first_real(u)
    factor = np.sum(np.conj(u) * turned, axis=-2)
    return s, turned, adjoint(vh) * factor[..., None, :]


add(sg.eigh, eigh, D)
add(sg.eigh, eigh, H)
add(sg.eig, eig, S[0])
add(sg.eig, eig, Z[0])
add(sg.svd, svd, X)
add(sg.svd, svd, Z)
add(sg.svd, svd, TALL)
add(sg.svd, np.linalg.svdvals, X, compute_uv=False)

for order in (0, 1, 2, 3, 0.5, -1, -2.5, np.inf, -np.inf):
    add(sg.vector_norm, lambda x, order=order: np.linalg.vector_norm(x, ord=order), X, ord=order)
    add(
        sg.vector_norm,
        lambda x, axis, keep, order=order: np.linalg.vector_norm(x, axis=axis, keepdims=keep, ord=order),
        C,
        1,
        True,
        ord=order,
    )
add(sg.vector_norm, lambda x, axis: np.linalg.vector_norm(x, axis=axis), X, (0, -1))
for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
    add(sg.matrix_norm, lambda x, order=order: np.linalg.matrix_norm(x, ord=order), X, ord=order)
    add(
        sg.norm,
        lambda x, o, axis, keep: np.linalg.norm(x, o, axis, keep),
        C,
        order,
        (0, 2),
        True,
    )
    add(sg.norm, lambda x, o, axis: np.linalg.norm(x, o, axis), X, order, (2, 0))
add(sg.norm, lambda x: np.linalg.norm(x.ravel()), X)
add(sg.norm, lambda x, o: np.linalg.norm(x.ravel(), o), X, 1)
add(sg.norm, lambda x, o, axis: np.linalg.norm(x, 3, axis), X, 3, -1)
add(sg.norm, lambda x: np.linalg.norm(x.ravel()), INTS)
add(sg.normalize, lambda x: (x / np.linalg.norm(x), np.linalg.norm(x).reshape(1, 1, 1)), X)
add(
    sg.normalize,
    lambda x, o, axis: (x / np.linalg.norm(x, o, axis, True), np.linalg.norm(x, o, axis, True)),
    C,
    1,
    1,
)
add(sg.l2_normalize, lambda x: x / np.linalg.norm(x), X)
add(sg.l2_normalize, lambda x, axis: x / np.linalg.norm(x, axis=axis, keepdims=True), C, -1)
add(sg.l2_normalize, lambda x, axis: x / np.sqrt(0.1), np.array([0.1, 0.2]), 0, epsilon=0.1)
add(sg.global_norm, lambda xs: np.linalg.norm(np.concatenate([x.ravel() for x in xs])), [X, S])
add(sg.global_norm, lambda xs: np.linalg.norm(np.concatenate([x.ravel() for x in xs])), [C])
add(sg.clip_by_norm, lambda x, limit: x * 2 / np.linalg.norm(x), X, 2.0)
add(sg.clip_by_norm, lambda x, limit: x, X, 100.0)
add(
    sg.clip_by_norm,
    lambda x, limit: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1),
    X,
    1.0,
    axes=1,
)


@CASES.compared
def test_values(engine: str, name: str) -> None:
    CASES.check(engine, name)


LIST = [normal(3), normal(2, 2)]


@pytest.mark.parametrize("limit", [0.5, 100.0])
@values_of(sg.clip_by_global_norm)
def test_clip_by_global_norm(limit: float) -> None:
    size = np.linalg.norm(np.concatenate([x.ravel() for x in LIST]))
    found, norm = sg.clip_by_global_norm(LIST, limit)
    np.testing.assert_allclose(norm, size, rtol=1e-12)
    for a, b in zip(found, LIST, strict=True):
        np.testing.assert_allclose(a, b * min(1, limit / size), rtol=1e-12)
