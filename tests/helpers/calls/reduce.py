"""Calls of reductions."""

from __future__ import annotations

import numpy as np

from calls import Call, call

RNG = np.random.default_rng(81)
D = RNG.normal(size=(2, 3, 4))
F = RNG.normal(size=(3, 2)).astype(np.float32)
H = RNG.normal(size=(3, 2)).astype(np.float16)
I32 = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
I8 = np.array([100, 100, 100], np.int8)
T = RNG.random((2, 3)) < 0.5
Z = RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))
EMPTY = np.zeros((0, 3), np.float32)

FORMS = [
    call(D),
    call(D, 0),
    call(D, -1),
    call(D, (0, 2), True),
    call(D, [1]),
    call(input_tensor=D, axis=1, keepdims=True, name="made"),
    call(D, ()),
    call(F),
    call(H, 1),
    call([1.0, 2.0, 4.0]),
    call([[1, 2], [3, 4]], 0),
    call(2.5),
]

CALLS: dict[str, list[Call]] = {
    "reduce_sum": [*FORMS, call(I32, 1), call(I8), call(Z, 0), call(EMPTY), call(EMPTY, 0)],
    "reduce_prod": [*FORMS, call(I32, 1), call(Z, 0), call(EMPTY)],
    "reduce_mean": [*FORMS, call(I32, 1), call(I8), call(T, 0), call(Z, 0)],
    "reduce_max": [*FORMS, call(I32, 1), call(I8), call(EMPTY, 0)],
    "reduce_min": [*FORMS, call(I32, 1), call(I8), call(EMPTY, 0)],
    "reduce_variance": [*FORMS, call(I32, 1)],
    "reduce_std": [*FORMS, call(I32, 1)],
    "reduce_euclidean_norm": [*FORMS, call(I32, 1), call(Z, 0), call(EMPTY), call(np.zeros((2, 2)), 0)],
    "reduce_logsumexp": [*FORMS, call(I32, 1), call(EMPTY, 0)],
    "reduce_any": [call(T), call(T, 0), call(input_tensor=T, axis=-1, keepdims=True), call([True, False])],
    "reduce_all": [call(T), call(T, 0), call(input_tensor=T, axis=-1, keepdims=True), call([True, False])],
}
for name in ("argmax", "argmin"):
    CALLS[name] = [
        call(D),
        call(D, -1),
        call(I32, 1, "int32"),
        call(input=F, axis=0, output_type=np.int32, name="made"),
        call([1, 3, 3, 1]),
        call(H, 1),
    ]
