"""Derivatives of a function beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg


def check_derivatives(f: Callable[..., Any], arrays: tuple[Any, ...], engine: str = "numpy") -> None:
    """First and second derivatives along a direction, against differences of values and of gradients."""

    def total(*xs: Any) -> Any:
        ys = f(*xs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        return sum(
            sg.reduce_sum(sg.multiply(y, np.cos(np.arange(np.prod(y.shape))).reshape(y.shape))) for y in ys
        )

    def slope(*xs: Any) -> Any:
        found = sg.grad(total, argnums=tuple(range(len(xs))))(*xs)
        return sum(sg.reduce_sum(sg.multiply(g, d)) for g, d in zip(found, ways, strict=True))

    ways = [np.sin(1 + np.arange(x.size)).reshape(x.shape) for x in arrays]
    h = 1e-5
    ahead = [x + h * d for x, d in zip(arrays, ways, strict=True)]
    behind = [x - h * d for x, d in zip(arrays, ways, strict=True)]
    value, first = (sg.function(g, engine=engine) for g in (total, slope))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    close(first(*arrays), (value(*ahead) - value(*behind)) / (2 * h))
    second = sg.function(
        lambda *xs: sum(
            sg.reduce_sum(sg.multiply(g, d))
            for g, d in zip(sg.grad(slope, argnums=tuple(range(len(xs))))(*xs), ways, strict=True)
        ),
        engine=engine,
    )
    close(second(*arrays), (first(*ahead) - first(*behind)) / (2 * h))
