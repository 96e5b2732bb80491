"""Calls of gates, which hand on what they are given."""

from __future__ import annotations

import numpy as np

from calls import Call, call

RNG = np.random.default_rng(83)
D = RNG.normal(size=(2, 3))
F = RNG.normal(size=(3,)).astype(np.float32)
I32 = np.array([1, 2, 3], np.int32)
Z = RNG.normal(size=(3,)) * 1j
TREE = {"w": D, "step": I32, "more": [F, (Z,)]}

CALLS: dict[str, list[Call]] = {
    "stop_gradient": [
        call(D),
        call(input=F, name="made"),
        call(TREE),
        call(F, when=True),
        call(F, wrt=[]),
        call(I32),
    ],
    "zero_gradient": [call(D), call(TREE), call(x=F, name="made")],
    "scale_gradient": [call(D, 0.5), call([D, F], 2), call(x=F, s=2.0, name="made")],
    "reverse_gradient": [call(D), call(TREE, 0.5), call(x=F, s=2, name="made")],
    "clip_gradient": [call(D, -1.0, 1.0), call(x=F, low=-1, high=1), call([D, F], -0.5, 0.5)],
    "clip_gradient_norm": [call(D, 1.0), call(x=F, max_norm=2, name="made"), call([D, F], 1.0)],
    "straight_through": [call(np.round(D), D), call(hard=F, soft=F, name="made"), call([D, F], [D, F])],
    "prevent_gradient": [call(D), call(TREE, "no"), call(x=F, message="no", name="made")],
    "probe": [call(D, "here"), call(x=F, name="there")],
}
