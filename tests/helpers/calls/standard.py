"""Names of the array API that stand in the package itself. All of it is in tests/ops/test_xp.py."""

from __future__ import annotations

import numpy as np

import stopgrad as sg
from calls import call

RNG = np.random.default_rng(80)
X = RNG.standard_normal((3, 4)).astype(np.float32)
I = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
SPECIAL = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)

CALLS = {
    "astype": [call(X, sg.int32), call(I, "float64", copy=False), call(X, sg.float32, True, "cpu")],
    "bitwise_invert": [call(I), call(I > 0)],
    "bitwise_left_shift": [call(I, 2)],
    "bitwise_right_shift": [call(I, np.int32(1))],
    "broadcast_arrays": [call(X, X[:1], I[:, :1])],
    "cumulative_prod": [call(X, 1), call(X[0]), call(I, axis=0, include_initial=True)],
    "cumulative_sum": [call(X, axis=-1, dtype=sg.float64), call(I, 1, None, True)],
    "floor_divide": [call(I, 3), call(X, X[0])],
    "isfinite": [call(SPECIAL), call(I)],
    "isinf": [call(SPECIAL)],
    "isnan": [call(SPECIAL)],
    "permute_dims": [call(X, (1, 0))],
    "positive": [call(X), call(I)],
    "remainder": [call(I, 3), call(X, 0.7)],
}
