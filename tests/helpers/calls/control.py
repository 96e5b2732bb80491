"""Calls of control flow."""

from __future__ import annotations

import numpy as np

import stopgrad as sg
from calls import Call, call

D = np.random.default_rng(84).normal(size=(4, 3))
F = D[0].astype(np.float32)
I32 = np.array(2, np.int32)

CALLS: dict[str, list[Call]] = {
    "cond": [
        call(np.array(True), lambda x: x + 1.0, lambda x: x * 2.0, D),
        call(pred=np.array(False), true_fn=lambda: 1.0, false_fn=lambda: 2.0, name="made"),
        call(np.array(False), lambda x, y: x, lambda x, y: y * 1.0, F, F),
    ],
    "switch": [
        call(I32, [lambda x: x, lambda x: -x, lambda x: x * x], D),
        call(np.array(9), [lambda x: x, lambda x: -x], F),
    ],
    "while_loop": [
        call(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), (0, D)),
        call(cond=lambda x: sg.reduce_sum(x) < 9.0, body=lambda x: x + 1.0, loop_vars=[F]),
        call(lambda x: x < 9.0, lambda x: x + 1.0, [0.0], None, 1, True, False, 4, "made"),
    ],
    "fori_loop": [
        call(0, 3, lambda i, x: x * 2.0, D),
        call(lower=1, upper=4, body=lambda i, x: x + 1.0, init=F),
    ],
    "scan": [
        call(lambda c, x: (c + x, c * 2.0), np.zeros(3), D),
        call(f=lambda c, x: (c * 0.5, c), init=F, length=3, reverse=True, name="made"),
    ],
    "map_fn": [
        call(lambda x: x * x, D),
        call(fn=lambda x: sg.reduce_sum(x), elems=D, fn_output_signature="float64", name="made"),
        call(lambda xy: xy[0] * xy[1], (D, D), "float64", 4),
    ],
}
