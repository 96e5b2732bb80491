"""Powers at special values are those of IEEE 754-2019 (9.2.1) and C99 (F.10.4.4), in every spelling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES

import stopgrad as sg

INF, NAN = math.inf, math.nan
BASES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, INF, -INF, NAN]
EXPONENTS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -1.5,
    4.0,
    0.25,
    1 / 3,
    7.0,
    INF,
    -INF,
    NAN,
]


def power(x: float, y: float) -> float:
    """C's pow, without Python's exceptions."""
    try:
        return math.pow(x, y)
    except ValueError:
        if x != 0.0:
            return NAN  # A negative number to a fraction.
        odd = math.isfinite(y) and y == int(y) and int(y) % 2 == 1
        return math.copysign(INF, x) if odd else INF


WAYS: dict[str, Callable[[Any, float, Any], Any]] = {
    "operator": lambda x, y, dtype: x**y,
    "function": lambda x, y, dtype: sg.pow(x, y),
    "a tensor of one number": lambda x, y, dtype: sg.pow(x, sg.constant([y], dtype)),
    "a tensor of numbers": lambda x, y, dtype: sg.pow(x, sg.constant([y] * len(BASES), dtype)),
    "a column": lambda x, y, dtype: sg.pow(sg.expand_dims(x, 0), sg.constant([[y]], dtype))[0],
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "engine",
    ["immediate", *[pytest.param(e, marks=() if e == "numpy" else pytest.mark.slow) for e in ENGINES]],
)
def test_special_values(engine: str, dtype: str) -> None:
    x = np.asarray(sg.cast(np.array(BASES), dtype))
    names = [name for name in WAYS if (engine, name) != ("immediate", "operator")]  # Which is NumPy's there.

    def f(x: Any) -> Any:
        return [WAYS[name](x, y, dtype) for y in EXPONENTS for name in names]

    with np.errstate(all="ignore"):  # At once, NumPy's warnings are given.
        found = f(x) if engine == "immediate" else sg.function(f, engine=engine)(x)
    wrong = []
    for (y, name), made in zip([(y, name) for y in EXPONENTS for name in names], found, strict=True):
        rounded = float(np.asarray(sg.cast(np.array(y), dtype)).astype(np.float64))
        for base, value in zip(BASES, np.asarray(made).astype(np.float64), strict=True):
            right = power(base, rounded)
            if right in (0.0, 1.0, -1.0) or not math.isfinite(right):
                as_said = np.isnan(value) if math.isnan(right) else repr(float(value)) == repr(right)
            else:
                as_said = np.isclose(value, right, 0.02)
            if not as_said:
                wrong.append((name, base, y, value, right))
    assert not wrong
