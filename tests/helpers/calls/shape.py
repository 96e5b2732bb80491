"""Calls of functions that change shapes and dtypes, and of those that make tensors."""

from __future__ import annotations

import numpy as np

from calls import Call, call

RNG = np.random.default_rng(82)
D = RNG.normal(size=(2, 3))
F = RNG.normal(size=(4,)).astype(np.float32)
ONES = RNG.normal(size=(1, 2, 1))
I32 = np.arange(6, dtype=np.int32)
T = np.array([True, False])
Z = RNG.normal(size=(2, 3)) + 1j
EMPTY = np.zeros((0, 3), np.float32)

CALLS: dict[str, list[Call]] = {
    "reshape": [
        call(D, [3, 2]),
        call(D, -1),
        call(tensor=I32, shape=(2, -1), name="made"),
        call([1, 2, 3, 4], [2, 2]),
        call(EMPTY, [3, 0]),
        call(2.0, []),
    ],
    "transpose": [
        call(D),
        call(D, [1, 0]),
        call(a=Z, perm=(-1, 0), conjugate=True, name="made"),
        call(Z, conjugate=True),
        call([[1, 2]]),
        call(F),
        call(3.0),
    ],
    "broadcast_to": [call(F, [3, 4]), call(input=T, shape=(2, 2)), call(1.5, [2]), call(ONES, [2, 2, 3])],
    "expand_dims": [call(D, 0), call(input=F, axis=-1), call(D, (0, -1)), call([1, 2], 1), call(2.0, 0)],
    "squeeze": [call(ONES), call(ONES, 0), call(input=ONES, axis=[0, -1], name="made"), call([[1, 2]])],
    "identity": [call(D), call(input=I32), call([1, 2]), call(2.5), call(T)],
    "zeros_like": [
        call(D),
        call(D, "float32"),
        call(input=I32, dtype=np.int8),
        call([1, 2]),
        call(T),
        call(1.5),
    ],
    "ones_like": [
        call(D),
        call(D, "float32"),
        call(input=I32, dtype=np.int8),
        call([1, 2]),
        call(T),
        call(1.5),
    ],
    "zeros": [
        call([2, 3]),
        call((), "int32"),
        call(D.shape, D.dtype),
        call(shape=3, dtype=bool, name="made"),
    ],
    "ones": [call([2, 3]), call((), "int32"), call(D.shape, D.dtype), call(shape=3, dtype=bool, name="made")],
    "fill": [call([2, 3], 1.5), call(dims=(2,), value=F[0]), call(3, True), call([0], 1)],
    "full": [call([2, 3], 1.5), call((2,), 7, "float64"), call(3, True), call([2], 1, np.int8)],
    "size": [
        call(D),
        call(D, "int64"),
        call(input=D, out_type=np.float32, name="made", axis=0),
        call([1, 2]),
        call(EMPTY),
        call(2.0),
    ],
    "range": [
        call(5),
        call(1, 7, 2),
        call(start=0.0, limit=1.0, delta=0.25),
        call(5, 0, -2),
        call(3, dtype="float64"),
        call(0, 3, dtype=np.int8, name="made"),
    ],
    "constant": [
        call([1, 2]),
        call(1.5, "float64"),
        call(0, shape=[2, 2]),
        call([1, 2, 3, 4], shape=[2, 2]),
        call(value=True, name="made"),
        call(1 + 2j),
    ],
}
