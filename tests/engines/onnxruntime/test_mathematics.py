"""Formulas of the exporter beside mpmath, and the table of kernels beside the runtime that is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import onnx_series
import pytest
from onnx_kernels import TRIALS, types_of

import stopgrad as sg
from stopgrad.base.types import DTYPES
from stopgrad.engines.onnxruntime.nodes import elementary, series, special
from stopgrad.engines.onnxruntime.nodes.kernels import KERNELS

# ------------------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("name", list(TRIALS)[::9])
def test_kernels_are_those_of_the_runtime(name: str) -> None:
    assert set(types_of(name)) == set(KERNELS[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", TRIALS)
def test_all_kernels_are_those_of_the_runtime(name: str) -> None:
    assert set(types_of(name)) == set(KERNELS[name])


# ------------------------------------------------------------------------------------------------- series


def test_series_are_those_that_mpmath_gives() -> None:
    for name in ("ATAN", "ERF", "LGAMMA_MIDDLE", "I1_FAR"):
        assert getattr(series, name) == tuple(onnx_series.SERIES[name][1]()), name


# ----------------------------------------------------------------------------------------------- formulas


def spread(low: float, high: float, count: int = 150, signs: bool = True) -> Any:
    """Numbers of all sizes from exp(low) to exp(high)."""
    size = np.exp(np.random.default_rng(0).uniform(low, high, count))
    return np.concatenate([size, -size]) if signs else size


def uniform(low: float, high: float, count: int = 300) -> Any:
    return np.random.default_rng(1).uniform(low, high, count)


Case = tuple[Callable[..., Any], Callable[..., Any], Sequence[Any], float]
mp = mpmath
CASES: dict[str, Case] = {
    "expm1": (elementary.expm1, mp.expm1, [spread(-30, 6.5)], 4),
    "log1p": (
        elementary.log1p,
        mp.log1p,
        [np.concatenate([spread(-30, -0.01), spread(0, 30, 99, False)])],
        4,
    ),
    "logaddexp": (
        elementary.logaddexp,
        lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
        [uniform(1, 30), uniform(1, 30)[::-1]],
        4,
    ),
    "sin": (lambda xp, x: elementary.sin(xp, x, xp.sin), mp.sin, [spread(-30, 13)], 4),
    "cos": (lambda xp, x: elementary.cos(xp, x, xp.sin, xp.cos), mp.cos, [spread(-30, 13)], 4),
    "tan": (elementary.tan, mp.tan, [uniform(-3, 3)], 4),
    "sinh": (elementary.sinh, mp.sinh, [spread(-30, 6.5)], 4),
    "cosh": (elementary.cosh, mp.cosh, [spread(-30, 6.5)], 4),
    "arctan": (elementary.arctan, mp.atan, [spread(-30, 30)], 4),
    "arcsin": (elementary.arcsin, mp.asin, [spread(-30, 0)], 4),
    "arccos": (elementary.arccos, mp.acos, [spread(-30, 0)], 4),
    "arctan2": (elementary.arctan2, mp.atan2, [spread(-5, 5), spread(-5, 5)[::-1]], 4),
    "arcsinh": (elementary.arcsinh, mp.asinh, [spread(-30, 300)], 4),
    "arccosh": (elementary.arccosh, mp.acosh, [1 + spread(-30, 300, signs=False)], 4),
    "arctanh": (elementary.arctanh, mp.atanh, [spread(-30, -0.01)], 4),
    "cbrt": (elementary.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), [spread(-700, 700)], 4),
    "hypot": (elementary.hypot, mp.hypot, [spread(-5, 5), spread(-5, 5)[::-1]], 4),
    "erf": (special.erf, mp.erf, [spread(-30, 2)], 4),
    "erfc": (special.erfc, mp.erfc, [np.concatenate([spread(-30, 3), uniform(0, 26)])], 8),
    "erfinv": (special.erfinv, mp.erfinv, [spread(-30, -1e-6)], 8),
    "ndtri": (special.ndtri, onnx_series.ndtri, [spread(-690, -1, 99, signs=False)], 8),
    "gammaln": (special.gammaln, mp.loggamma, [spread(-30, 30, signs=False)], 8),
    "digamma": (special.digamma, mp.digamma, [spread(1, 30, signs=False)], 8),
    "zeta": (lambda xp, q: special.zeta(xp, 3.0, q), lambda q: mp.zeta(3, q), [spread(-4, 8, 60, False)], 8),
    "i0e": (special.i0e, lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), [spread(-9, 6)], 8),
    "i1e": (special.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), [spread(-9, 6)], 8),
}


@pytest.mark.parametrize("name", CASES)
def test_formulas_are_precise(name: str) -> None:
    formula, reference, operands, limit = CASES[name]
    with mpmath.workdps(40), np.errstate(all="ignore"):
        expected = [reference(*map(mpmath.mpf, numbers)) for numbers in zip(*operands, strict=True)]
        found = formula(np, *operands)
        apart = [
            float(abs(mpmath.mpf(float(a)) - b)) / np.spacing(abs(float(b)))
            for a, b in zip(found, expected, strict=True)
        ]
    assert max(apart) <= limit


def test_erfc_is_as_precise_as_float32() -> None:
    x = uniform(-4, 9).astype(np.float32)
    with mpmath.workdps(30):
        expected = np.array([float(mp.erfc(mp.mpf(float(a)))) for a in x])
    np.testing.assert_allclose(special.erfc_in_float32(np, x), expected, 3e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_next_number_is_numpys(dtype: str) -> None:
    kind = DTYPES[dtype].numpy
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2 ** (8 * kind.itemsize), 4000, np.uint64)
    special_ones = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, 2.0, float(ml_dtypes.finfo(kind).max)]
    x = np.concatenate([bits.astype(f"u{kind.itemsize}").view(kind), np.array(special_ones, kind)])
    y = generator.permutation(x)
    with np.errstate(all="ignore"):
        found, expected = elementary.nextafter(np, x, y), np.nextafter(x, y)
    assert found.dtype == kind
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    numbers = expected == expected
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_float64_is_rounded_once_to_float16() -> None:
    """Where float32 between them would round a second time: next to the middle of two neighbours."""
    middle = (np.arange(1, 1980) * 16 + 1).astype(np.uint16).view(np.float16).astype(np.float64)
    half = np.spacing(middle.astype(np.float16)).astype(np.float64) / 2
    x = np.concatenate([middle + half * (1 + s * 2.0**-30) for s in (-1, 0, 1)])
    x = np.concatenate([x, -x, [1e300, -1e300, math.inf, math.nan, 65519.99, 65520.0, 2e-8, 3e-8]])
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16)
    found = sg.function(lambda x: sg.cast(x, sg.float16), engine="onnxruntime")(x)
    np.testing.assert_array_equal(found, expected)
