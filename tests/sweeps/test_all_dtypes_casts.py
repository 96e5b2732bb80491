"""Conversions from every dtype to every dtype, at all edges: one meaning, on both engines.

Integers from floating-point numbers saturate, and NaN becomes 0; integers from integers wrap; floating-point
numbers are rounded once, to nearest, halves to even.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES, each_style
from references import LONG, Array, Wide, distance, drawn, edges, flushed, widen, wrapped
from tiers import some

import stopgrad as sg
from stopgrad.base.types import DTYPES, DType

NAMES = list(DTYPES)


def converted(x: Wide, a: DType, b: DType) -> Wide:
    """The values of *x*, of dtype *a*, in dtype *b*; floating-point ones not yet rounded."""
    if b.is_bool:
        return x != 0
    if a.is_complex and not b.is_complex:
        x = x.real
    if b.is_integer:
        if a.is_integer or a.is_bool:
            return wrapped(x.astype(object), b)
        limits = np.iinfo(b.numpy)
        return np.array([_saturated(v, limits.min, limits.max) for v in x], object)
    return np.array([_long(v) for v in x]) if a.is_integer else x.astype(np.result_type(x, LONG))


def _saturated(v: Any, low: int, high: int) -> int:
    return 0 if np.isnan(v) else high if v > high else low if v < low else int(v)


def _long(v: int) -> Any:
    """An integer of 64 bits in 80, exactly."""
    return LONG(v >> 32) * LONG(2.0) ** 32 + LONG(v & 0xFFFFFFFF)


def check(name: str, count: int, seed: int) -> None:
    a = DTYPES[name]
    x = np.concatenate([edges(a), drawn(a, count, np.random.default_rng(seed))])
    for engine in ENGINES:
        kinds = [b for b in DTYPES.values() if engine != "onnxruntime" or not (a.is_complex or b.is_complex)]
        found = sg.function(lambda x, kinds=kinds: [sg.cast(x, b) for b in kinds], engine=engine)(x)
        for b, y in zip(kinds, map(np.asarray, found), strict=True):
            apart = cast_distance(x, a, b, y)
            if engine == "xla":  # Subnormal numbers may count as 0, before or after.
                apart = np.minimum(apart, cast_distance(flushed(x), a, b, y))
                if a.is_differentiable and b.is_differentiable:
                    with np.errstate(all="ignore"):
                        rounded = converted(widen(x), a, b).astype(b.numpy)
                    apart = np.where(flushed(rounded) == y, 0, apart)
            worst = int(np.argmax(apart))
            assert apart[worst] <= 0.5, f"{a} to {b} by {engine}: {x[worst]} became {y[worst]}"


def cast_distance(x: Array, a: DType, b: DType, found: Array) -> Array:
    with np.errstate(all="ignore"):
        expected = converted(widen(x), a, b)
        if b.is_complex:
            parts = (np.real, np.imag)
            return np.maximum(*(distance(np.asarray(p(found)), p(expected)) for p in parts))
        return distance(found, expected)


@pytest.mark.parametrize("name", some(NAMES, 4))
def test_casts(name: str) -> None:
    check(name, 300, 0)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "seed"), list(itertools.product(NAMES, range(5))))
def test_casts_of_many_values(name: str, seed: int) -> None:
    check(name, 20_000, seed)


@each_style
def test_integers_saturate_and_wrap(engine: str) -> None:
    def run(x: Any, dtype: Any) -> Any:
        f = lambda x: sg.cast(x, dtype)
        return np.asarray((f if engine == "immediate" else sg.function(f, engine=engine))(x)).tolist()

    x = np.array([300.0, -1.0, np.nan, np.inf, -np.inf, -129.9, 2.0**70, -0.9], np.float32)
    assert run(x, sg.int8) == [127, -1, 0, 127, -128, -128, 127, 0]
    assert run(x, sg.uint8) == [255, 0, 0, 255, 0, 0, 255, 0]
    assert run(x, sg.int64) == [300, -1, 0, 2**63 - 1, -(2**63), -129, 2**63 - 1, 0]
    assert run(x, sg.uint64) == [300, 0, 0, 2**64 - 1, 0, 0, 2**64 - 1, 0]
    assert run(np.array([300, -1, -129, 2**40 + 5]), sg.int8) == [44, -1, 127, 5]
    assert run(np.array([-1, 300]), sg.uint8) == [255, 44]
    assert run(np.array([1j, 0j, np.nan + 0j]), sg.bool_) == [True, False, True]
    assert run(np.array([0.5, np.nan, -0.0]), sg.bool_) == [True, True, False]
    assert run(np.zeros(0, np.float32), sg.int8) == []
