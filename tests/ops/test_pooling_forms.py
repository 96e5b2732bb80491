"""Gradients of pooling as XLA computes them agree with NumPy's: overlaps, ties, NaN and infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytestmark = pytest.mark.slow

pytest.importorskip("jax")


@pytest.mark.parametrize("pool", [sg.max_pool, sg.avg_pool])
@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((2, 9, 5), (3,)),
        ((2, 9, 5), (3, 1, "SAME")),
        ((2, 9, 5), (3, 2, [(2, 1)], 3)),
        ((2, 9, 7, 3), (2,)),
        ((2, 9, 7, 3), (3, 2, "SAME")),
        ((2, 9, 7, 3), (3, 1)),
        ((2, 9, 12, 3), ((2, 3), (3, 1), ((1, 0), (2, 1)))),
        ((2, 12, 13, 3), ((3, 2), (2, 3), "SAME", (2, 3))),
        ((2, 9, 7, 3), (2, 4)),
        ((1, 1, 1, 3), (3, 1, "SAME")),
        ((2, 6, 5, 7, 2), (3, 2, "SAME")),
        ((2, 6, 5, 7, 2), ((2, 1, 3), (1, 2, 2))),
    ],
)
def test_all_geometries(shape: Any, args: Any, pool: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-2, 2, shape).astype(np.float64)  # with many ties
    if pool is sg.max_pool:
        x.reshape(-1)[[0, -1]] = np.nan, np.inf
        x[0, 1:3] = -np.inf
    ksize, strides, padding, dilations = (*args, *(None, "VALID", 1)[len(args) - 1 :])

    def windows(x: Any) -> Any:
        return pool(x, ksize, strides, padding, dilations=dilations)

    g = random.standard_normal(windows(x).shape)

    def function(x: Any, g: Any) -> Any:
        return sg.gradients([windows(x)], [x], [g])

    (found,) = sg.function(function, engine="xla", strict=True)(x, g)
    (expected,) = sg.function(function, engine="numpy")(x, g)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_pooled_results_on_xla() -> None:
    """XLA computes what is pooled again in each place that needs it, and may round it otherwise there."""
    generator = np.random.default_rng(0)
    x, w = generator.standard_normal((5, 4, 12, 12)), generator.standard_normal((5, 4, 6, 6))

    def loss(x: Any) -> Any:
        centred = x - sg.reduce_mean(x, axis=(0, 2, 3), keepdims=True)
        return sg.reduce_sum(
            w * sg.max_pool(centred, 3, strides=2, padding=[(1, 1), (1, 1)], data_format="NCHW")
        )

    ours, theirs = (sg.function(sg.grad(loss), engine=engine)(x) for engine in ("xla", "numpy"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
