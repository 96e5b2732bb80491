"""Random numbers: those of JAX from the same keys, and their distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from all_engines import ENGINES, each_engine
from values import Cases, by, close, normal, uniform, values_of

import stopgrad as sg
from stopgrad.ops.random.keys import threefry

pytestmark = pytest.mark.slow

SEEDS = [0, 1, 7, 2**31, 2**32 - 1]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_meets_the_published_vectors_of_random123(key: Any, counter: Any, expected: Any) -> None:
    words = [np.array([word], np.uint32) for word in (*key, *counter)]
    assert tuple(int(w[0]) for w in threefry(np, *words)) == expected
    assert tuple(int(w[0]) for w in threefry(jnp, *map(jnp.asarray, words))) == expected


@each_engine
@pytest.mark.parametrize("seed", SEEDS)
@values_of(sg.random_key, sg.random_split, sg.random_fold_in, sg.random_bits, sg.random_uniform)
def test_keys_and_bits_are_those_of_jax(engine: str, seed: int) -> None:
    ours = sg.random_key(seed)
    with jax.enable_x64(True):
        theirs = jax.random.key(np.uint32(seed), impl="threefry2x32")
        data = jax.random.key_data
        np.testing.assert_array_equal(ours, data(theirs))
        np.testing.assert_array_equal(
            by(engine, lambda k: sg.random_split(k, 5), ours), data(jax.random.split(theirs, 5))
        )
        np.testing.assert_array_equal(
            by(engine, lambda k: sg.random_fold_in(k, 9), ours), data(jax.random.fold_in(theirs, 9))
        )
        np.testing.assert_array_equal(
            by(engine, lambda k: sg.random_bits((3, 4, 5), k), ours),
            jax.random.bits(theirs, (3, 4, 5), np.uint32),
        )
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            found = by(engine, lambda k, dtype=dtype: sg.random_uniform((7, 9), k, dtype=dtype), ours)
            expected = np.asarray(jax.random.uniform(theirs, (7, 9), dtype))
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@each_engine
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@values_of(sg.random_normal, sg.random_gumbel, sg.random_categorical, sg.random_bernoulli)
def test_normal_gumbel_and_categorical_numbers_are_those_of_jax(engine: str, dtype: str) -> None:
    ours, logits, rtol = sg.random_key(3), normal(4, 6).astype(dtype), 2e-5 if dtype == "float32" else 1e-11
    with jax.enable_x64(True):
        theirs = jax.random.key(3)
        close(
            by(engine, lambda k: sg.random_normal((1000,), k, dtype=dtype), ours),
            jax.random.normal(theirs, (1000,), dtype),
            rtol,
        )
        close(
            by(engine, lambda k: sg.random_gumbel((1000,), k, dtype=dtype), ours),
            jax.random.gumbel(theirs, (1000,), dtype),
            rtol,
        )
        for axis in (0, -1):
            shape = (50, logits.shape[1 + axis])
            found = by(
                engine, lambda k, x, axis=axis: sg.random_categorical(x, 50, k, axis=axis), ours, logits
            )
            np.testing.assert_array_equal(found, jax.random.categorical(theirs, logits, axis, shape=shape).T)
        once = by(engine, lambda k, x: sg.random_categorical(x, None, k, "int32"), ours, logits)
        assert once.dtype == np.int32
        np.testing.assert_array_equal(once, jax.random.categorical(theirs, logits))
        found = by(engine, lambda k: sg.random_bernoulli((100,), k, np.asarray(0.3, dtype)), ours)
        np.testing.assert_array_equal(found, jax.random.bernoulli(theirs, np.asarray(0.3, dtype), (100,)))


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (lambda k, n: sg.random_uniform(n, k, -2.0, 3.0), scipy.stats.uniform(-2, 5).cdf),
        (lambda k, n: sg.random_normal(n, k, 1.0, 2.0), scipy.stats.norm(1, 2).cdf),
        (lambda k, n: sg.random_normal(n, k, dtype="float64"), scipy.stats.norm.cdf),
        (lambda k, n: sg.random_gumbel(n, k), scipy.stats.gumbel_r.cdf),
        (lambda k, n: sg.random_gumbel(n, k, 1.0, 3.0, "float64"), scipy.stats.gumbel_r(1, 3).cdf),
        (lambda k, n: sg.random_exponential(n, k, 4.0), scipy.stats.expon(scale=0.25).cdf),
        (lambda k, n: sg.random_laplace(n, k, 1.0, 2.0), scipy.stats.laplace(1, 2).cdf),
        (lambda k, n: sg.random_logistic(n, k, 1.0, 2.0), scipy.stats.logistic(1, 2).cdf),
        (lambda k, n: sg.random_cauchy(n, k, 1.0, 2.0), scipy.stats.cauchy(1, 2).cdf),
        (lambda k, n: sg.random_truncated_normal(n, k, 1.0, 2.0), scipy.stats.truncnorm(-2, 2, 1, 2).cdf),
        (
            lambda k, n: sg.random_truncated_normal(n, k, dtype="float64", lower=1.0, upper=np.inf),
            scipy.stats.truncnorm(1, np.inf).cdf,
        ),
    ],
)
def test_draws_have_their_distribution(draw: Any, distribution: Any) -> None:
    assert scipy.stats.kstest(draw(sg.random_key(11), [20000]), distribution).pvalue > 1e-3


def test_normal_quantiles_are_precise_in_the_tails() -> None:
    v = np.concatenate([-1 + 10.0 ** -np.arange(1, 16), [0.0, 0.3, 0.85, 0.9]])
    close(sg.ops.random.draws.quantile(np, v), np.sqrt(2) * scipy.special.erfinv(v), 1e-13)


def test_gradients_flow_through_the_parameters_of_a_draw_only() -> None:
    key = sg.random_key(0)
    z, u = sg.random_normal([5], key, dtype="float64"), sg.random_uniform([5], key, dtype="float64")
    mean, stddev = np.array(1.0), np.array(2.0)
    dm, ds = sg.grad(lambda m, s: sg.reduce_sum(sg.random_normal([5], key, m, s)), (0, 1))(mean, stddev)
    close([dm, ds], [5, z.sum()])
    dl, dh = sg.grad(lambda low, high: sg.reduce_sum(sg.random_uniform([5], key, low, high)), (0, 1))(
        mean, stddev
    )
    close([dl, dh], [(1 - u).sum(), u.sum()])


def test_integers_permutations_and_dropout() -> None:
    key = sg.random_key(5)
    drawn = sg.random_integers([6000], key, -2, 4)
    assert sorted(set(drawn.tolist())) == [-2, -1, 0, 1, 2, 3]
    assert scipy.stats.chisquare(np.bincount(drawn + 2)).pvalue > 1e-3
    rows = np.arange(12.0).reshape(6, 2)
    mixed = sg.random_permutation(rows, key)
    np.testing.assert_array_equal(np.sort(mixed, 0), rows)
    np.testing.assert_array_equal(mixed[:, 1], mixed[:, 0] + 1)
    kept = sg.dropout(np.ones(10000), 0.25, key=key)
    assert set(kept.tolist()) == {0.0, 1 / 0.75}
    assert kept.mean() == pytest.approx(1, abs=0.03)


@each_engine
@values_of(sg.random_uniform, sg.random_normal, sg.random_integers, sg.random_permutation, sg.dropout)
def test_what_is_made_from_the_bits_of_jax(engine: str) -> None:
    key, x, rate = sg.random_key(21), normal(6, 4), 0.3
    with jax.enable_x64(True):
        theirs = jax.random.key(21)
        bits = np.asarray(jax.random.bits(theirs, (6,), np.uint32))
        wide = np.asarray(jax.random.bits(theirs, (6,), np.uint64))
        u = np.asarray(jax.random.uniform(theirs, (6, 4), np.float64))
        z = np.asarray(jax.random.normal(theirs, (6, 4), np.float64))
        kept = np.asarray(jax.random.uniform(theirs, (6, 4), np.float32)) < np.float32(1 - rate)
    assert 0 < kept.sum() < kept.size
    low, high = normal(6, 1, seed=1), 3 + normal(4, seed=2)
    close(
        by(engine, lambda k, a, b: sg.random_uniform((6, 4), k, a, b), key, low, high), low + (high - low) * u
    )
    close(by(engine, lambda k, a, b: sg.random_normal((6, 4), k, a, b), key, low, high), low + high * z)
    found = by(engine, lambda k: sg.random_integers((6,), k, -5, 12), key)
    np.testing.assert_array_equal(found, [int(b) % 17 - 5 for b in wide])
    order = sorted(range(6), key=lambda i: bits[i])
    np.testing.assert_array_equal(by(engine, sg.random_permutation, x, key), [x[i] for i in order])
    np.testing.assert_array_equal(by(engine, lambda k: sg.random_permutation(6, k), key), order)
    close(by(engine, lambda x, k: sg.dropout(x, rate, key=k), x, key), np.where(kept, x / (1 - rate), 0))


def test_a_key_is_checked() -> None:
    with pytest.raises(sg.DTypeError, match=r"\(C1\)"):
        sg.random_bits([3], np.array([1, 2]))
    with pytest.raises(sg.ShapeError, match=r"\(C1\)"):
        sg.random_bits([3], sg.random_split(sg.random_key(0), 3))


def test_random_numbers_of_a_symbolic_shape() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n", 3])
        drawn = sg.random_uniform(x.shape, sg.random_key(1))
        batch = sg.random_permutation(x, sg.random_key(2))
    for engine in ENGINES:
        with sg.Session(graph, engine=engine) as session:
            found, mixed = session.run([drawn, batch], {x: np.arange(12.0).reshape(4, 3)})
        np.testing.assert_array_equal(found, sg.random_uniform((4, 3), sg.random_key(1)))
        assert sorted(mixed[:, 0].tolist()) == [0, 3, 6, 9]


# -------------------------------------------------------------------------- distributions, as JAX has them


@each_engine
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@values_of(
    sg.random_exponential,
    sg.random_laplace,
    sg.random_logistic,
    sg.random_cauchy,
    sg.random_truncated_normal,
)
def test_standard_numbers_are_those_of_jax(engine: str, dtype: str) -> None:
    ours = sg.random_key(9)
    rtol = {"float32": 3e-5, "float64": 1e-10, "float16": 3e-3, "bfloat16": 3e-2}[dtype]
    with jax.enable_x64(True):
        theirs = jax.random.key(9)
        pairs: list[tuple[Callable[..., Any], Any]] = [
            (lambda k: sg.random_exponential([500], k, dtype=dtype), jax.random.exponential),
            (lambda k: sg.random_laplace([500], k, dtype=dtype), jax.random.laplace),
            (lambda k: sg.random_logistic([500], k, dtype=dtype), jax.random.logistic),
        ]
        if dtype in ("float32", "float64"):  # Those of JAX are coarse in 16 bits.
            pairs += [
                (lambda k: sg.random_cauchy([500], k, dtype=dtype), jax.random.cauchy),
                (
                    lambda k: sg.random_truncated_normal([500], k, dtype=dtype, lower=-0.5, upper=3.0),
                    lambda key, shape, dtype: jax.random.truncated_normal(key, -0.5, 3.0, shape, dtype),
                ),
            ]
        for draw, reference in pairs:
            found, expected = by(engine, draw, ours), np.asarray(reference(theirs, (500,), dtype))
            assert found.dtype == expected.dtype
            found, expected = found.astype(np.float64), expected.astype(np.float64)
            usual = np.abs(expected) < 11  # JAX's least logistic number stands for u = 0.
            assert usual.mean() > 0.9
            close(found[usual], expected[usual], rtol)


@each_engine
@values_of(sg.random_choice, sg.random_shuffle)
def test_choices_are_those_of_jax_and_shuffles_follow_the_bits(engine: str) -> None:
    key, a, p = sg.random_key(4), normal(5, 2), np.array([0.1, 0.0, 0.4, 0.3, 0.2])
    with jax.enable_x64(True):
        theirs = jax.random.key(4)
        bits = np.asarray(jax.random.bits(theirs, (5,), np.uint32))
        weighted = jax.random.choice(theirs, a, (40, 3), p=p)
        apart = jax.random.choice(theirs, a, (4,), False, p=p)
    np.testing.assert_array_equal(
        by(engine, lambda k, a: sg.random_choice([40, 3], k, a, p=p), key, a), weighted
    )
    found = by(engine, lambda k, a: sg.random_choice([4], k, a, False, p), key, a)
    np.testing.assert_array_equal(found, apart)
    np.testing.assert_array_equal(by(engine, sg.random_shuffle, a, key), a[np.argsort(bits)])


# --------------------------------------------------------------------- gamma and Poisson, number by number


def words(key: Any, stream: int, position: int) -> tuple[int, int]:
    """Two words of the cipher, which the published vectors above hold to what it is."""
    given = [np.array([w], np.uint32) for w in (*key, stream, position)]
    high, low = threefry(np, *given)
    return int(high[0]), int(low[0])


def unit(key: Any, stream: int, position: int) -> float:
    high, low = words(key, stream, position)
    return ((high << 20 | low >> 12) + 0.5) / 2**52


def gamma_number(key: Any, position: int, alpha: float) -> float:
    """Marsaglia and Tsang 2000, figure 1 and section 6."""
    shape = alpha + 1 if alpha < 1 else alpha
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    for step in range(100):
        x = NormalDist().inv_cdf(unit(key, 2 * step + 1, position))
        v = (1 + c * x) ** 3
        if v > 0 and math.log(unit(key, 2 * step + 2, position)) < x * x / 2 + d - d * v + d * math.log(v):
            break
    return d * v * (unit(key, 0, position) ** (1 / alpha) if alpha < 1 else 1)


def poisson_number(key: Any, position: int, rate: float) -> int:
    """Below 10 by quantiles; from there on Hörmann 1993, algorithm PTRS."""
    if rate < 10:
        u, k, p = unit(key, 0, position), 0, math.exp(-rate)
        while u > p:
            u, k = u - p, k + 1
            p *= rate / k
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    for step in range(100):
        u, v = unit(key, 2 * step + 1, position) - 0.5, unit(key, 2 * step + 2, position)
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            break
        if k < 0 or (us < 0.013 and v > us):
            continue
        size = math.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / us**2 + b))
        if size <= k * math.log(rate) - rate - math.lgamma(k + 1):
            break
    return k


@each_engine
@values_of(sg.random_gamma, sg.random_beta, sg.random_dirichlet, sg.random_poisson)
def test_gamma_and_poisson_numbers_are_those_of_the_papers(engine: str) -> None:
    key = sg.random_key(13)
    alpha = np.exp(uniform(-2.0, 5.0, 20, 10))
    flat = list(enumerate(alpha.ravel()))
    expected = np.array([gamma_number(key, i, a) for i, a in flat]).reshape(20, 10)
    close(by(engine, lambda k, a: sg.random_gamma(None, k, a), key, alpha), expected, 1e-12)
    close(by(engine, lambda k, a: sg.random_gamma(None, k, a, 2.5), key, alpha), expected / 2.5, 1e-12)
    mixture = expected / expected.sum(-1, keepdims=True)
    close(by(engine, lambda k, a: sg.random_dirichlet(None, k, a), key, alpha), mixture, 1e-12)
    pair = jax.random.key_data(jax.random.split(jax.random.key(13)))
    first, second = (
        np.array([gamma_number(np.asarray(half), i, a) for i, a in flat]).reshape(20, 10) for half in pair
    )
    found = by(engine, lambda k, a: sg.random_beta(None, k, a, a), key, alpha)
    close(found, first / (first + second), 1e-12)
    rate = np.exp(uniform(-3.0, 9.0, 20, 10))
    counts = np.array([poisson_number(key, i, r) for i, r in enumerate(rate.ravel())]).reshape(20, 10)
    np.testing.assert_array_equal(by(engine, lambda k, r: sg.random_poisson(None, k, r), key, rate), counts)


# ------------------------------------------------------------------------------ incomplete gamma and beta

CASES = Cases()
add = CASES.add
POSITIVE, NUMBERS = np.exp(uniform(-3.0, 5.0, 4, 5)), np.exp(uniform(-3.0, 5.0, 4, 5, seed=1))
OTHERS, PARTS = np.exp(uniform(-3.0, 5.0, 5, seed=2)), uniform(0.001, 0.999, 4, 5, seed=3)
AT = np.array([0.0, np.inf, np.nan])
for ours, theirs in ((sg.igamma, scipy.special.gammainc), (sg.igammac, scipy.special.gammaincc)):
    add(ours, theirs, POSITIVE, NUMBERS, rtol=1e-9)
    add(ours, theirs, np.array([0.5, 1.0, 7.0])[:, None], AT)
    add(ours, theirs, 2.5, NUMBERS, rtol=1e-9)
add(sg.betainc, scipy.special.betainc, POSITIVE, OTHERS, PARTS, rtol=1e-9)
add(sg.betainc, scipy.special.betainc, 0.5, OTHERS, 0.25, rtol=1e-9)
add(sg.betainc, scipy.special.betainc, np.array([0.5, 1.0, 2.0]), 3.0, np.array([[0.0], [1.0]]))
add(sg.lbeta, lambda x: scipy.special.betaln(x[..., 0], x[..., 1]), POSITIVE[:, :2], atol=1e-12)
add(sg.lbeta, np.array([-math.log(2.0), -math.log(60.0)]), np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]))


@CASES.compared
def test_incomplete_gamma_and_beta(engine: str, name: str) -> None:
    CASES.check(engine, name)
