"""Calls of linear algebra: products, factors, solutions, spectra and norms."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from calls import Call, call

GENERATOR = np.random.default_rng(8)


def drawn(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape)


M, V = drawn(2, 3, 4), drawn(4)
S = drawn(2, 3, 3) + 3 * np.eye(3)
Z = drawn(3, 3) + 1j * drawn(3, 3) + 3 * np.eye(3)
D = S @ S.swapaxes(-1, -2)
B = drawn(2, 3, 2)
SINGLE = S.astype(np.float32)
HALF = np.eye(3, dtype=np.float16) * 2
BRAIN = np.eye(3).astype(ml_dtypes.bfloat16)
INTS = GENERATOR.integers(-5, 6, (3, 3)) + 9 * np.eye(3, dtype=np.int64)
SHORT = INTS.astype(np.int16)
TRUTH = GENERATOR.random((3, 4)) < 0.5
NOTHING, NO_MATRIX = np.zeros((2, 0)), np.zeros((0, 3, 3))

CALLS: dict[str, list[Call]] = {
    "matmul": [
        call(M, V),
        call(V, V),
        call(S, M),
        call(S, M, True),
        call(Z, Z, adjoint_a=True, adjoint_b=True),
        call(SINGLE, INTS),
        call(INTS, INTS),
        call(S, [1.0, 2.0, 3.0]),
        call(HALF, HALF, output_type="float32"),
        call(SHORT, SHORT),
        call(NOTHING, NOTHING, transpose_b=True),
    ],
    "matvec": [call(M, V), call(M, drawn(3), True), call(Z, Z[0], adjoint_a=True), call(INTS, [1, 2, 3])],
    "einsum": [
        call("ij,jk", S[0], M[0]),
        call("...ij,...j->...i", M, V),
        call("ii", INTS),
        call(" ij -> ji", TRUTH.astype(np.int8)),
        call(M, [0, 1, 2], [2, 0]),
        call(S, [..., 0, 0], S, [..., 1, 1], optimize=True),
        call("ij,j", SINGLE[0], V[:3]),
        call("ij,jk,kl->il", S[0], S[1], S[0], optimize="greedy"),
    ],
    "tensordot": [call(M, V, 1), call(S, M, [[1], [1]]), call(V, V, 0), call(INTS, S, ((0, 1), (1, 2)))],
    "cross": [
        call(S, S[0]),
        call(INTS, Z),
        call(drawn(3, 2), drawn(3, 2), axis=0),
        call([1, 0, 0], [0, 1, 0]),
    ],
    "outer": [call(V, INTS[0]), call(S, Z[0]), call([1.0, 2.0], SINGLE[0, 0])],
    "vecdot": [call(Z, Z[0]), call(M, V), call(M, M, axis=1), call(INTS, SHORT), call(NOTHING, NOTHING)],
    "kron": [call(S[0], M[0]), call(V, INTS), call([1, 2], SINGLE[0])],
    "eye": [
        call(3),
        call(2, 4, [2], "float64"),
        call(3, num_columns=2, dtype=np.int32, k=1),
        call(0),
        call(2, dtype=bool),
    ],
    "diag": [
        call(V),
        call(M[0], k=-1),
        call(INTS, None, (-1, 1)),
        call(V, k=1, num_rows=4, num_cols=5, padding_value=7.0),
        call(TRUTH),
        call(drawn(2, 2), k=(0, 1), num_rows=3, align="LEFT_RIGHT"),
        call(HALF[0]),
    ],
    "diag_part": [
        call(M),
        call(M, k=2),
        call(M, None, (-2, 1), 5.0),
        call(INTS, k=(0, 1), align="LEFT_LEFT"),
        call(TRUTH, k=-1),
        call(NOTHING),
    ],
    "set_diag": [
        call(M, drawn(2, 3)),
        call(M, drawn(2, 3), k=1),
        call(INTS, [1.5, 2.0, 3.0]),
        call(SINGLE, np.ones((2, 2, 3), np.float32), k=(-1, 0)),
    ],
    "band_part": [call(M, 1, 0), call(INTS, -1, 0), call(TRUTH, 0, -1), call(Z, np.int64(1), 1)],
    "tril": [call(M), call(INTS, -1), call(TRUTH, k=1), call(NOTHING), call(BRAIN)],
    "triu": [call(M), call(Z, 1), call(SHORT, k=-1)],
    "trace": [call(M), call(INTS), call(Z), call(SHORT), call(HALF)],
    "matrix_transpose": [call(M), call(Z, conjugate=True), call(TRUTH)],
    "adjoint": [call(Z), call(M), call(INTS)],
    "cholesky": [call(D), call(D.astype(np.float32)), call(INTS @ INTS.T), call(HALF), call(NO_MATRIX)],
    "cholesky_solve": [call(np.linalg.cholesky(D), B), call(np.linalg.cholesky(D), V[:3]), call(HALF, INTS)],
    "qr": [call(M), call(S), call(Z, True), call(SINGLE), call(INTS), call(drawn(4, 2), full_matrices=True)],
    "svd": [call(M), call(Z), call(S, True), call(S, compute_uv=False), call(SINGLE), call(NOTHING)],
    "svdvals": [call(M), call(INTS), call(HALF)],
    "eigh": [call(D), call(Z + np.conj(Z.T)), call(D.astype(np.float32)), call(NO_MATRIX)],
    "eigvalsh": [call(D), call(INTS), call(HALF)],
    "eig": [call(S[0]), call(Z), call(INTS), call(NO_MATRIX)],
    "eigvals": [call(S[0]), call(Z), call(BRAIN)],
    "solve": [
        call(S, B),
        call(S, V[:3]),
        call(Z, Z, True),
        call(INTS, [[1], [2], [3]]),
        call(SINGLE, INTS),
        call(S[0], B),
        call(BRAIN, BRAIN),
    ],
    "triangular_solve": [
        call(S, B),
        call(S, B, False),
        call(Z, Z, adjoint=True),
        call(SINGLE, INTS[:, 0]),
        call(HALF, HALF),
    ],
    "inv": [call(S), call(Z, True), call(INTS), call(SHORT), call(HALF), call(NO_MATRIX)],
    "pinv": [call(M), call(Z), call(M, 0.5), call(M, rcond=np.array([0.1, 0.5])), call(INTS), call(BRAIN)],
    "lstsq": [
        call(drawn(4, 2), drawn(4, 1)),
        call(drawn(2, 4), drawn(2)),
        call(M, drawn(2, 3, 1), 0.5),
        call(M, drawn(2, 3, 1), fast=False),
        call(SHORT, [1, 2, 3]),
    ],
    "det": [call(S), call(Z), call(INTS), call(SHORT), call(HALF), call(np.zeros((2, 0, 0)))],
    "slogdet": [call(S), call(Z), call(SINGLE)],
    "logdet": [call(D), call(D.astype(np.float32))],
    "matrix_power": [call(S, 3), call(Z, -2), call(INTS, 2), call(S, 0), call(SHORT, 1), call(INTS, -1)],
    "matrix_rank": [call(M), call(INTS, 0.5), call(np.ones((2, 2))), call(HALF)],
    "expm": [call(S), call(Z), call(SINGLE), call(HALF), call(INTS * 0.1)],
    "norm": [
        call(M),
        call(M, 1, 1),
        call(M, "fro", (0, 2), True),
        call(M, "nuc", axis=[-2, -1]),
        call(Z, 2, (0, 1)),
        call(INTS),
        call(SHORT, np.inf, -1, keepdims=True),
        call(M, 0, 0),
        call([3.0, 4.0]),
        call(HALF, 3),
        call(NOTHING, axis=1),
    ],
    "vector_norm": [call(M), call(M, (0, 2), True, ord=1), call(INTS, 1), call(Z, ord=-np.inf), call(TRUTH)],
    "matrix_norm": [call(M), call(Z, True, ord="nuc"), call(INTS, ord=-1), call(M, ord=2, axis=(0, 1))],
    "normalize": [call(M), call(M, 1, 1), call(Z, "fro", (0, 1)), call(INTS), call(HALF)],
    "l2_normalize": [call(M), call(M, -1), call(Z, 0), call(SINGLE, [0, 1], 1e-3), call(INTS), call(BRAIN)],
    "global_norm": [call([M, V]), call([SINGLE, V]), call({"a": Z, "b": [None, V]}), call([]), call((HALF,))],
    "clip_by_norm": [call(M, 1.0), call(M, 0.5, [1]), call(Z, 1), call(INTS, 2.0), call(HALF, 1.0)],
    "clip_by_global_norm": [
        call([M, V], 1.0),
        call([SINGLE, SINGLE], 100.0),
        call({"a": M, "b": None}, 2.0, np.asarray(8.0)),
        call([Z], np.float64(1.0)),
    ],
}
