"""Edges of dtypes that a sweep of one call does not reach: sums of many numbers, gradients of 16 bits, empty
axes, the ends of integers, ties, subnormal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from all_engines import ENGINES, each_engine, each_style
from references import least_normal

import stopgrad as sg
from stopgrad.base.types import DTYPES, dtype_of

BFLOAT16 = ml_dtypes.bfloat16
NARROW = pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=["float16", "bfloat16"])
INTEGERS = [name for name, d in DTYPES.items() if d.is_integer]
REAL = [name for name, d in DTYPES.items() if d.is_integer or d.is_floating]


def by(engine: str, f: Callable[..., Any], *arrays: Any) -> Any:
    made = (f if engine == "immediate" else sg.function(f, engine=engine))(*arrays)
    return [np.asarray(v) for v in made] if isinstance(made, (list, tuple)) else np.asarray(made)


def all_of(engine: str, cases: list[tuple[Any, Any]], x: Any) -> Any:
    return by(engine, lambda x: [f(x) for f, _ in cases], x)


def eps(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def near(found: Any, expected: Any, dtype: Any, ulps: float = 1) -> None:
    """Within some ulps of the largest value, for results of 16 bits that were rounded at the end."""
    assert np.asarray(found).dtype == dtype
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    size = np.max(np.abs(expected)) or 1.0
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ulps * (eps(dtype) * size + least))


# ------------------------------------------------------------------------------------ sums of many numbers

MANY = 70_000


@each_style
@NARROW
def test_nothing_is_lost_in_sums_of_many_numbers(engine: str, dtype: Any) -> None:
    x = np.linspace(0.5, 1.5, MANY).astype(dtype)
    wide = x.astype(np.float64)
    once = np.ones((1, 1000), dtype)
    e = np.exp(wide - wide.max())
    expected: list[tuple[Callable[[Any], Any], Any]] = [
        (sg.reduce_mean, wide.mean()),
        (lambda x: sg.reduce_sum(x[:30_000]), wide[:30_000].sum()),
        (sg.reduce_variance, wide.var()),
        (sg.reduce_std, wide.std()),
        (sg.softmax, e / e.sum()),
        (sg.log_softmax, np.log(e / e.sum())),
        (sg.reduce_logsumexp, np.log(e.sum()) + wide.max()),
        (lambda x: sg.cumsum(x[:30_000]), np.cumsum(wide[:30_000])),
        (sg.layer_norm, (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)),
        (lambda x: sg.matmul(once, sg.reshape(x[:1000], (1000, 1))), [[wide[:1000].sum()]]),
        (lambda x: sg.tensordot(x[:20_000], x[:20_000], 1), wide[:20_000] @ wide[:20_000]),
        (lambda x: sg.einsum("i,i,i->", *[x[:9000]] * 3), (wide[:9000] ** 3).sum()),
        (lambda x: sg.add_n([x[:3]] * 1000), 1000 * wide[:3]),
        (lambda x: sg.scatter_add(x[:1], np.zeros(20_000, np.int32), x[:20_000]),
         [wide[:20_000].sum() + wide[0]]),
        (lambda x: sg.avg_pool(sg.reshape(x, (1, MANY, 1)), 35_000, None, "VALID")[0, :, 0],
         wide.reshape(2, -1).mean(1)),
        (lambda x: sg.conv(sg.reshape(x[:9000], (1, 9000, 1)), np.ones((9000, 1, 1), dtype))[0, 0, 0],
         wide[:9000].sum()),
        (lambda x: sg.linear_recurrence(np.ones((), dtype), x[:20_000])[-1], wide[:20_000].sum()),
        (lambda x: sg.reduce_prod(x[34_700:35_300]), wide[34_700:35_300].prod()),
        (lambda x: sg.softmax_cross_entropy_with_logits(sg.softmax(x), x),
         -((e / e.sum()) * np.log(e / e.sum())).sum()),
        (lambda x: sg.mean_squared_error(x, 0.0), (wide**2).mean()),
    ]  # fmt: skip
    found = by(engine, lambda x: [f(x) for f, _ in expected], x)
    for i, (y, (_, want)) in enumerate(zip(found, expected, strict=True)):
        try:
            near(y, want, dtype)
        except AssertionError as error:
            raise AssertionError(f"sum {i}: {error}") from None


@each_style
def test_a_mean_does_not_overflow_in_its_sum(engine: str) -> None:
    x = np.full(1000, 60_000, np.float16)
    assert by(engine, sg.reduce_mean, x) == 60_000
    assert by(engine, lambda x: sg.avg_pool(sg.reshape(x, (1, 1000, 1)), 1000, None, "VALID"), x) == 60_000
    assert by(engine, sg.reduce_std, np.array([-500, 500] * 9, np.float16)) == 500
    one = np.zeros(10_000, np.float16)
    one[7] = 300
    assert by(engine, lambda x: sg.mean_squared_error(x, 0.0), one) == 9


# ------------------------------------------------------------------------------------ gradients of 16 bits

RATES: list[tuple[str, Callable[[Any], Any]]] = [
    ("mean", lambda x: sg.reduce_mean(x)),
    ("sum", lambda x: sg.reduce_sum(x * x)),
    ("variance", lambda x: sg.reduce_variance(x)),
    ("std", lambda x: sg.reduce_std(x)),
    ("softmax", lambda x: sg.reduce_sum(sg.softmax(x) * x)),
    ("log_softmax", lambda x: sg.log_softmax(x)[3]),
    ("logsumexp", lambda x: sg.reduce_logsumexp(x * 32)),
    ("logaddexp", lambda x: sg.reduce_sum(sg.logaddexp(x * 16, sg.reverse(x, [0]) * 16))),
    ("layer_norm", lambda x: sg.layer_norm(x)[0] * 3),
    ("cross entropy", lambda x: sg.softmax_cross_entropy_with_logits(sg.ones_like(x) / x.shape[0], x)),
    ("sparse", lambda x: sg.sparse_softmax_cross_entropy_with_logits(1, x)),
    ("broadcast", lambda x: sg.reduce_sum(sg.ones_like(x) * x[0])),
    ("clipped", lambda x: sg.reduce_sum(sg.clip_gradient_norm(x, 1.0) * 400.0)),
    ("gather", lambda x: sg.reduce_sum(sg.gather(x, np.zeros(2000, np.int32)))),
    ("scan", lambda x: sg.reduce_sum(sg.scan(lambda c, v: (c, v * x[0]), x[1] * 0, sg.ones_like(x))[1])),
    ("product", lambda x: sg.reduce_prod(1 + x[:4])),
    ("pad", lambda x: sg.reduce_sum(sg.pad(x * 30, [[0, 2000]], constant_values=x[0]))),
]  # fmt: skip


@each_engine
@NARROW
def test_gradients_are_those_of_float64_but_for_the_last_bits(engine: str, dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=2000).astype(dtype)
    gradients = lambda x: [sg.grad(f)(x) for _, f in RATES]
    expected = by("numpy", gradients, x.astype(np.float64))
    for (name, _), found, want in zip(RATES, by(engine, gradients, x), expected, strict=True):
        try:
            near(found, want, dtype, 3)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@each_engine
@NARROW
def test_gradients_do_not_vanish_because_their_dtype_counts_no_further(engine: str, dtype: Any) -> None:
    x = np.zeros(MANY, dtype)
    for f in (sg.reduce_mean, sg.reduce_max, sg.reduce_logsumexp):
        near(by(engine, sg.grad(lambda x, f=f: f(x)), x), np.full(MANY, 1 / MANY), dtype)


# ---------------------------------------------------------------------------------- axes without elements


@each_style
@pytest.mark.parametrize("name", REAL)
def test_reductions_over_no_elements(engine: str, name: str) -> None:
    dtype = DTYPES[name].numpy
    x = np.zeros((2, 0), dtype)
    floating = DTYPES[name].is_floating
    low, high = (-np.inf, np.inf) if floating else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    reduced = [(sg.reduce_sum, 0), (sg.reduce_prod, 1), (sg.reduce_max, low), (sg.reduce_min, high)]
    if floating:
        reduced += [(sg.reduce_mean, np.nan), (sg.reduce_variance, np.nan), (sg.reduce_logsumexp, -np.inf)]
    same: list[Any] = [sg.sort, sg.cumsum, sg.cumprod, sg.argsort]
    same += [sg.softmax, sg.log_softmax, sg.layer_norm] if floating else []
    found = by(engine, lambda x: [*(f(x, 1) for f, _ in reduced), *(f(x, 1) for f in same)], x)
    for y, (f, want) in zip(found, reduced, strict=False):
        np.testing.assert_array_equal(y.astype(np.float64), np.full(2, want, np.float64), f.__name__)
        assert y.dtype == dtype
    for y in found[len(reduced) :]:
        assert y.shape == (2, 0)
    assert all(y.shape == (0,) for y in by(engine, lambda x: [f(x, 0) for f, _ in reduced], x))


# ------------------------------------------------------------------------------------- the ends of integers


@each_style
@pytest.mark.parametrize("name", INTEGERS)
def test_the_ends_of_integers(engine: str, name: str) -> None:
    dtype = DTYPES[name].numpy
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([low, high, 0, 1, 7], dtype)
    bits = 8 * dtype.itemsize
    far = np.array(bits, dtype)
    wrap = lambda *values: np.array([(v - low) % 2**bits + low for v in values], dtype)
    cases: list[tuple[Any, Any]] = [
        (sg.negative, wrap(-low, -high, 0, -1, -7)),
        (sg.abs, wrap(abs(low), high, 0, 1, 7)),
        (sg.square, wrap(low * low, high * high, 0, 1, 49)),
        (lambda x: sg.add(x, 1), wrap(low + 1, high + 1, 1, 2, 8)),
        (lambda x: sg.floor_div(x, 0), np.zeros(5, dtype)),
        (lambda x: sg.floormod(x, 0), np.zeros(5, dtype)),
        (lambda x: sg.left_shift(x, far), np.zeros(5, dtype)),
        (lambda x: sg.right_shift(x, far), np.array([-1 if low else 0, 0, 0, 0, 0], dtype)),
        (lambda x: sg.reduce_max(x), np.array(high, dtype)),
        (lambda x: sg.reduce_min(x), np.array(low, dtype)),
        (lambda x: sg.argmax(x), np.int64(1)),
        (lambda x: sg.sort(x), np.sort(x)),
        (lambda x: sg.top_k(x, 2)[0], np.array([high, 7], dtype)),
        (lambda x: sg.clip(x, 1, 7), np.clip(x, 1, 7)),
        (lambda x: sg.reduce_sum(x), wrap(low + high + 8)[0]),
        (lambda x: sg.cumsum(x), wrap(low, low + high, low + high, low + high + 1, low + high + 8)),
    ]
    if low:
        minus = np.array(-1, dtype)
        cases += [
            (lambda x: sg.floor_div(x, minus), wrap(-low, -high, 0, -1, -7)),
            (lambda x: sg.floormod(x, minus), np.zeros(5, dtype)),
            (lambda x: sg.left_shift(x, minus), np.zeros(5, dtype)),
            (lambda x: sg.right_shift(x, minus), np.array([-1, 0, 0, 0, 0], dtype)),
            (sg.sign, np.array([-1, 1, 0, 1, 1], dtype)),
        ]
    for i, (y, (_, want)) in enumerate(zip(all_of(engine, cases, x), cases, strict=True)):
        np.testing.assert_array_equal(y, want, err_msg=str(i))
        assert y.dtype == want.dtype


@each_style
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_powers_of_integers_are_modulo_what_the_dtype_holds(engine: str, dtype: Any) -> None:
    bits, signed = 8 * np.dtype(dtype).itemsize, np.dtype(dtype).kind == "i"
    x = np.array([2, 3, 1, 0, 7, 7, -3 if signed else 5], dtype)
    y = np.array([3, 4, 100, 0, 70, 127, 5], dtype)
    exact = [int(a) ** int(b) % 2**bits for a, b in zip(x, y, strict=True)]
    wrapped = [n - 2**bits if signed and n >= 2 ** (bits - 1) else n for n in exact]
    np.testing.assert_array_equal(by(engine, sg.pow, x, y), np.array(wrapped, dtype))
    if signed:
        x = np.array([2, 1, -1, -1, 0, -3], dtype)
        y = np.array([-1, -5, -2, -3, -1, -2], dtype)
        np.testing.assert_array_equal(by(engine, sg.pow, x, y), np.array([0, 1, 1, -1, 0, 0], dtype))


def test_a_negative_number_is_no_exponent_of_integers() -> None:
    with pytest.raises(sg.DTypeError, match="no negative powers among integers"):
        sg.pow(np.array([2, 3]), -1)


# -------------------------------------------------------------------------------- order: ties, NaN and zeros


@each_style
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_order_of_ties_zeros_and_nan(engine: str, name: str) -> None:
    nan, inf = math.nan, math.inf
    x = np.array([0.0, nan, -0.0, inf, 2.0, -inf, 2.0, 0.0, nan], DTYPES[name].numpy)
    cases: list[tuple[Any, Any]] = [
        (sg.sort, [-inf, 0, 0, 0, 2, 2, inf, nan, nan]),
        (lambda x: sg.sort(x, direction="DESCENDING"), [nan, nan, inf, 2, 2, 0, 0, 0, -inf]),
        (sg.argsort, [5, 0, 2, 7, 4, 6, 3, 1, 8]),
        (lambda x: sg.argsort(x, direction="DESCENDING"), [1, 8, 3, 4, 6, 0, 2, 7, 5]),
        (lambda x: sg.top_k(x, 6)[0], [nan, nan, inf, 2, 2, 0]),
        (lambda x: sg.top_k(x, 6)[1], [1, 8, 3, 4, 6, 0]),
        (sg.argmax, 1),
        (sg.argmin, 1),
        (sg.reduce_max, nan),
        (sg.reduce_min, nan),
        (lambda x: sg.argmax(x[2:8]), 1),
        (lambda x: sg.argmin(x[2:8]), 3),
        (lambda x: sg.argmin(sg.abs(x[2:5])), 0),
        (lambda x: sg.reduce_max(x[2:8]), inf),
        (sg.relu, [0, nan, 0, inf, 2, 0, 2, 0, nan]),
        (lambda x: sg.clip(x, -1.0, 1.0), [0, nan, 0, 1, 1, -1, 1, 0, nan]),
        (lambda x: sg.maximum(x, 1.0), [1, nan, 1, inf, 2, 1, 2, 1, nan]),
    ]
    for i, (y, (_, want)) in enumerate(zip(all_of(engine, cases, x), cases, strict=True)):
        np.testing.assert_array_equal(y.astype(np.float64), want, err_msg=str(i))


# ----------------------------------------------------------------------------------------- subnormal numbers


def test_subnormal_numbers_are_kept_by_numpy_and_flushed_by_xla_on_cpus() -> None:
    """As docs/numerics.md says. Where this fails because XLA keeps them, say so there."""
    for dtype in (np.float32, np.float64):
        small = np.array([float(least_normal(dtype_of(dtype))) / 4], dtype)
        kept = by("numpy", lambda x: [x * 1.0, x + x, sg.equal(x, 0.0)], small)
        assert [v.tolist() for v in kept] == [small.tolist(), (2 * small).tolist(), [False]]
        lost = by("xla", lambda x: [x * 2.0, x + x, sg.equal(x, 0.0)], small)
        assert [v.tolist() for v in lost] == [[0], [0], [True]]
        # What only moves numbers keeps them, also on XLA.
        for f in (lambda x: sg.reverse(x, [0]), lambda x: sg.stack([x])[0]):
            assert by("xla", f, small) == small
        # Where a flushed operand would give another sign, or NaN, it counts as 0.
        assert by("xla", lambda x: sg.atan2(x, x), small) == 0
        assert by("xla", lambda x: sg.atan2(x, -1.0), small) == np.asarray(math.pi, dtype)
    # float16 has all its numbers on all engines, since it is computed in float32.
    small = np.array([6e-8, 1e-6, 6e-5], np.float16)
    for engine in ENGINES:
        np.testing.assert_array_equal(by(engine, lambda x: x * np.float16(2), small), 2 * small)


def test_range_is_rounded_once() -> None:
    for dtype in (np.float16, BFLOAT16):
        expected = (1 + 0.1 * np.arange(300, dtype=np.float32)).astype(dtype)
        for engine in ENGINES:
            y = by(engine, lambda x, d=dtype: sg.range(1.0, 31.0, 0.1, dtype=d) + x, np.zeros((), dtype))
            assert y.dtype == dtype
            np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=eps(dtype))


# ------------------------------------------------------------------------------------------ special functions


@each_style
def test_digamma_and_polygamma_left_of_zero(engine: str) -> None:
    """At the poles and around them; values are swept in test_all_dtypes.py."""
    x = np.array([0.0, -0.0, -1.0, -7.0, -20.0, math.inf, -math.inf, math.nan, -1e9, -1e300])
    first, second, third = by(engine, lambda x: [sg.digamma(x), sg.polygamma(1, x), sg.polygamma(2, x)], x)
    inf, nan = math.inf, math.nan
    np.testing.assert_array_equal(first, [-inf, inf, nan, nan, nan, inf, nan, nan, nan, nan])
    np.testing.assert_array_equal(second, [inf, inf, inf, inf, inf, 0, nan, nan, inf, inf])
    np.testing.assert_array_equal(third, [-inf, -inf, -inf, -inf, -inf, 0, nan, nan, -inf, -inf])


@each_style
def test_complex_numbers_have_parts_that_do_not_mix(engine: str) -> None:
    real, imag = np.array([1.0, math.inf, -0.0, math.nan]), np.array([math.inf, -0.0, -0.0, 1.0])
    z = by(engine, sg.complex, real, imag)
    np.testing.assert_array_equal(z.real, real)
    np.testing.assert_array_equal(z.imag, imag)
    assert np.signbit(z.real[2])
    assert np.signbit(z.imag[2])


# ------------------------------------------------------------------------------------------- neighbours


@each_style
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64])
def test_neighbours_are_those_whose_bits_are_one_apart(engine: str, dtype: Any) -> None:
    """As IEEE 754 has it: away from 0, the bits of the next number are those of this one plus 1."""
    kind = np.dtype(f"int{8 * np.dtype(dtype).itemsize}")
    numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 30000.0, float(ml_dtypes.finfo(dtype).max)]
    numbers += [float(ml_dtypes.finfo(dtype).tiny), 3 * float(ml_dtypes.finfo(dtype).smallest_subnormal)]
    x = np.array(numbers, dtype)
    up, inf = (x.view(kind) + 1).view(dtype), np.full(x.shape, math.inf, dtype)
    for begin, end, expected in [
        (x, inf, up),
        (-x, -inf, -up),
        (up, np.zeros_like(x), x),
        (-up[:1], inf[:1], -x[:1]),
        (x, x, x),
        (x, np.full(x.shape, math.nan, dtype), np.full(x.shape, math.nan, dtype)),
    ]:
        found = by(engine, sg.nextafter, begin, end).astype(np.float64)
        np.testing.assert_array_equal(found, expected.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected.astype(np.float64)))
    below_zero = by(engine, sg.nextafter, np.zeros(1, dtype), -np.ones(1, dtype))
    assert float(below_zero[0]) == -float(ml_dtypes.finfo(dtype).smallest_subnormal)
