"""Draws have their distributions, at fixed keys; gradients through them are those of their quantiles.

Distributions are compared with SciPy's by the tests of Kolmogorov and Smirnov and of χ².
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from all_engines import ENGINES, each_engine
from values import by, close

import stopgrad as sg
from stopgrad.ops.special.incomplete import log_gamma_slope

pytestmark = pytest.mark.slow

KEY = sg.random_key(31)
MANY = 20000
LEAST = 1e-3  # Of the probability of what was drawn, were it drawn from the distribution.
INF, NAN = np.inf, np.nan


def uniforms(found: Any, distribution: Any) -> Any:
    assert found.shape == (MANY,)
    return scipy.stats.kstest(found.astype(np.float64), distribution.cdf).pvalue


# -------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("alpha", [0.02, 0.3, 1.0, 2.5, 80.0, 1e7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma(alpha: float, dtype: str) -> None:
    found = sg.random_gamma([MANY], KEY, alpha, 2.0, dtype)
    assert found.dtype == dtype
    if dtype == "float64" or 0.3 <= alpha < 1e3:  # Otherwise float32 is too coarse to tell.
        assert uniforms(found, scipy.stats.gamma(alpha, scale=0.5)) > LEAST


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.2), (0.5, 3.0), (1.0, 1.0), (20.0, 4.0)])
def test_beta(alpha: float, beta: float) -> None:
    found = sg.random_beta([MANY], KEY, alpha, beta, "float64")
    assert uniforms(found, scipy.stats.beta(alpha, beta)) > LEAST


def test_dirichlet() -> None:
    alpha = np.array([0.3, 1.0, 4.0])
    found = sg.random_dirichlet([MANY], KEY, alpha)
    assert found.shape == (MANY, 3)
    close(found.sum(-1), np.ones(MANY), 1e-12)
    for i in range(3):
        assert uniforms(found[:, i], scipy.stats.beta(alpha[i], alpha.sum() - alpha[i])) > LEAST
    covariance = scipy.stats.dirichlet(alpha).cov()
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=4 * covariance.max() / np.sqrt(MANY))


@pytest.mark.parametrize("rate", [0.05, 1.0, 9.99, 10.0, 33.0, 1e4])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_poisson(rate: float, dtype: str) -> None:
    found = sg.random_poisson([MANY], KEY, rate, dtype)
    assert found.dtype == dtype
    expected = scipy.stats.poisson(rate)
    low, high = (int(k) for k in expected.ppf([1e-3, 1 - 1e-3]))
    counted = np.bincount(np.clip(found.astype(int), low, high) - low, minlength=high - low + 1)
    chance = expected.pmf(np.arange(low, high + 1))
    chance[0], chance[-1] = expected.cdf(low), expected.sf(high - 1)
    step = max(1, len(chance) // 40)
    starts = np.arange(0, len(chance), step)
    counted, chance = np.add.reduceat(counted, starts), np.add.reduceat(chance, starts)
    assert scipy.stats.chisquare(counted, chance / chance.sum() * MANY).pvalue > LEAST


def test_bernoulli_categorical_choice_and_integers() -> None:
    logits = np.array([0.0, 1.0, -INF, 0.5])
    weights = np.exp(logits) / np.exp(logits).sum()
    held = sg.random_bernoulli([MANY], KEY, 0.3)
    assert held.dtype == bool
    assert scipy.stats.binomtest(int(held.sum()), MANY, 0.3).pvalue > LEAST
    drawn = [
        sg.random_categorical(logits, MANY, KEY),
        sg.random_choice([MANY], KEY, 4, p=weights),
        sg.random_choice([MANY], KEY, 4, p=7 * weights.astype(np.float32)),
    ]
    for found in drawn:
        counted = np.bincount(found, minlength=4)
        assert counted[2] == 0
        some = weights > 0
        assert scipy.stats.chisquare(counted[some], weights[some] * MANY).pvalue > LEAST
    for found in (
        sg.random_choice([MANY], KEY, 7),
        sg.random_integers([MANY], KEY, -3, 4, "int8") + 3,
        sg.random_integers([MANY], KEY, np.array(-3), np.array(4, np.int8)) + 3,
        sg.random_uniform([MANY], KEY, 0, 7, "uint64"),
    ):
        assert scipy.stats.chisquare(np.bincount(found, minlength=7)).pvalue > LEAST


def test_orders_are_equally_likely() -> None:
    keys = sg.random_split(KEY, 6000)
    orders = sg.vmap(lambda k: sg.random_permutation(4, k))(keys)
    counted = np.unique(orders @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(counted) == 24
    assert scipy.stats.chisquare(counted).pvalue > LEAST
    chosen = sg.vmap(lambda k: sg.random_choice([2], k, 4, False))(keys)
    assert np.all(chosen[:, 0] != chosen[:, 1])
    assert scipy.stats.chisquare(np.unique(chosen @ [4, 1], return_counts=True)[1]).pvalue > LEAST


def test_integers_of_the_whole_dtype() -> None:
    for dtype in ("int8", "uint16", "int32", "int64", "uint64"):
        limits = np.iinfo(dtype)
        found = sg.random_integers([MANY], KEY, None, None, dtype)
        assert found.dtype == dtype
        scaled = (found.astype(np.float64) - float(limits.min)) / (float(limits.max) - float(limits.min))
        assert scipy.stats.kstest(scaled, "uniform").pvalue > LEAST
        np.testing.assert_array_equal(
            sg.random_integers([MANY], KEY, int(limits.min), int(limits.max) + 1, dtype), found
        )
    assert sg.random_integers([3], KEY, np.array([5, 6, 7]), 6).tolist() == [5, 6, 7]


def test_dropout_keeps_the_mean() -> None:
    x = np.ones((200, 300), np.float32)
    for rate in (0.1, np.array(0.1), np.float32(0.1)):
        found = sg.dropout(x, rate, key=KEY)
        assert found.dtype == np.float32
        assert scipy.stats.binomtest(int((found == 0).sum()), found.size, 0.1).pvalue > LEAST
        np.testing.assert_allclose(found[found != 0], 1 / 0.9, rtol=1e-6)
    rows = sg.dropout(x, 0.5, [None, 1], KEY)
    assert set(rows.sum(1).tolist()) == {0.0, 600.0}
    assert 60 < (rows[:, 0] == 0).sum() < 140


# ------------------------------------------------------------------------------------------ engines, keys

PARAMETERS = np.exp(np.random.default_rng(3).uniform(-3, 6, 3000))
DRAWS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda k: sg.random_uniform([7], k, -1.0, 2.0),
    "integers": lambda k: sg.random_integers([7], k, 0, 1000, "int64"),
    "normal": lambda k: sg.random_normal([2, 3], k, dtype="float64"),
    "truncated normal": lambda k: sg.random_truncated_normal([7], k, dtype="float64"),
    "gumbel": lambda k: sg.random_gumbel([7], k, 1.0, 2.0),
    "laplace": lambda k: sg.random_laplace([7], k, dtype="bfloat16"),
    "logistic": lambda k: sg.random_logistic([7], k),
    "cauchy": lambda k: sg.random_cauchy([7], k, dtype="float16"),
    "exponential": lambda k: sg.random_exponential([7], k, 3.0),
    "gamma": lambda k: sg.random_gamma([40], k, PARAMETERS[:40]),
    "beta": lambda k: sg.random_beta([40], k, PARAMETERS[:40], 0.5),
    "dirichlet": lambda k: sg.random_dirichlet([4], k, PARAMETERS[:5]),
    "poisson": lambda k: sg.random_poisson([40], k, PARAMETERS[:40]),
    "bernoulli": lambda k: sg.random_bernoulli([7], k, 0.4),
    "categorical": lambda k: sg.random_categorical(np.log(PARAMETERS[:6]).reshape(2, 3), 9, k),
    "permutation": lambda k: sg.random_permutation(PARAMETERS[:6], k),
    "choice": lambda k: sg.random_choice([3], k, PARAMETERS[:6], False, np.ones(6)),
    "dropout": lambda k: sg.dropout(PARAMETERS[:40], 0.3, key=k),
}


@pytest.mark.parametrize("name", DRAWS)
@each_engine
def test_many_keys_give_what_each_gives_alone(name: str, engine: str) -> None:
    keys = sg.random_split(KEY, 5)
    found = by(engine, sg.vmap(DRAWS[name]), keys)
    single = sg.function(DRAWS[name], engine=engine)
    alone = np.stack([single(k) for k in keys])
    assert found.dtype == alone.dtype
    assert len({row.tobytes() for row in found}) > 1
    if name in ("poisson", "bernoulli", "categorical", "integers", "permutation", "choice", "dropout"):
        np.testing.assert_array_equal(found, alone)
    else:  # XLA's loops may compute the last numbers of an array in another way than the others.
        limit = {2: 1e-2, 4: 1e-6, 8: 1e-13}[found.dtype.itemsize]
        np.testing.assert_allclose(found.astype(float), alone.astype(float), rtol=limit, atol=limit)


def test_engines_decide_alike() -> None:
    for f in (
        lambda k, a: sg.random_poisson(None, k, a),
        lambda k, a: sg.random_poisson(None, k, sg.cast(a, "float32"), "float32"),
        lambda k, a: sg.random_gamma(None, k, sg.cast(a, "float32")),
        lambda k, a: sg.random_gamma(None, k, a),
    ):
        runs = [sg.function(f, engine=engine) for engine in ENGINES]
        for key in sg.random_split(KEY, 10):
            a, *others = (run(key, PARAMETERS) for run in runs)
            for b in others:
                if a.dtype.kind == "i":
                    np.testing.assert_array_equal(a, b)
                else:  # Subnormal numbers are 0 on XLA.
                    np.testing.assert_allclose(a, b, rtol=1.3e-7 if a.itemsize == 4 else 1e-13, atol=1e-37)


def test_a_number_depends_on_its_key_and_position_alone() -> None:
    alone = [sg.random_gamma([3, 4], KEY, a, dtype="float64") for a in (0.5, 2.0)]
    both = sg.random_gamma([3, 4], KEY, np.where(np.arange(4) < 2, 0.5, 2.0))
    np.testing.assert_array_equal(both, np.where(np.arange(4) < 2, *alone))
    np.testing.assert_array_equal(alone[0].ravel()[:5], sg.random_gamma([5], KEY, 0.5, dtype="float64"))
    counts = sg.random_poisson([3, 4], KEY, np.array([1.0, 20.0, 3.0, 300.0]))
    np.testing.assert_array_equal(counts[:, 1], sg.random_poisson([3, 4], KEY, 20.0)[:, 1])


@each_engine
def test_seeds_and_data_may_be_traced_in_every_integer_dtype(engine: str) -> None:
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        numbers = [0, 5, 100]
        numbers += [] if dtype.startswith("u") else [-1, -100]
        numbers += [2**40 + 7] if "64" in dtype else []
        for number in numbers:
            given = np.array(number, dtype)
            expected = sg.random_key(number)
            np.testing.assert_array_equal(sg.random_key(given), expected)
            np.testing.assert_array_equal(by(engine, sg.random_key, given), expected)
            found = by(engine, sg.random_fold_in, KEY, given)
            np.testing.assert_array_equal(found, sg.random_fold_in(KEY, number))
    steps = sg.vmap(lambda i: sg.random_uniform([2], sg.random_fold_in(KEY, i)))(np.arange(3))
    expected = [sg.random_uniform([2], sg.random_fold_in(KEY, i)) for i in range(3)]
    np.testing.assert_array_equal(steps, expected)


@each_engine
def test_keys_are_parameters_and_feeds_and_sizes_may_be_unknown(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        key = sg.parameter(KEY, name="key")
        fed = sg.placeholder(sg.uint32, [2])
        x = sg.placeholder(sg.float64, ["n", 3])
        alpha = sg.exp(x)
        made = [
            sg.random_gamma(None, key, alpha),
            sg.random_gamma(x.shape, fed, 2.0, dtype="float64"),
            sg.random_poisson(x.shape, fed, 4.0),
            sg.random_dirichlet(None, fed, alpha),
            sg.random_categorical(x, None, key),
            sg.random_laplace(x.shape, fed, dtype="float64"),
            sg.random_choice([5], key, x),
            sg.dropout(x, 0.5, key=fed),
        ]
        (slope,) = sg.gradients(sg.reduce_sum(made[0]), [x])
        turned = sg.assign(key, sg.random_split(key)[0])
    values = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    other = sg.random_key(77)
    with sg.Session(graph, engine=engine) as session:
        found = session.run([*made, slope], {fed: other, x: values})
        session.run(turned)
        np.testing.assert_array_equal(session.value(key), sg.random_split(KEY)[0])
    expected = [
        sg.random_gamma(None, KEY, np.exp(values)),
        sg.random_gamma([4, 3], other, 2.0, dtype="float64"),
        sg.random_poisson([4, 3], other, 4.0),
        sg.random_dirichlet(None, other, np.exp(values)),
        sg.random_categorical(values, None, KEY),
        sg.random_laplace([4, 3], other, dtype="float64"),
        sg.random_choice([5], KEY, values),
        sg.dropout(values, 0.5, key=other),
        sg.grad(lambda x: sg.reduce_sum(sg.random_gamma(None, KEY, sg.exp(x))))(values),
    ]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# ------------------------------------------------------------------------------------------ dtypes, edges


def test_the_dtype_is_that_asked_for_or_that_of_the_parameters() -> None:
    wide, narrow, half = np.ones(3), np.ones(3, np.float32), np.ones(3, np.float16)
    for draw, dtype in (
        (lambda **d: sg.random_normal([3], KEY, **d), "float32"),
        (lambda **d: sg.random_normal([3], KEY, 1, 2, **d), "float32"),
        (lambda **d: sg.random_normal([3], KEY, wide, 2.0, **d), "float64"),
        (lambda **d: sg.random_normal([3], KEY, narrow, half, **d), "float32"),
        (lambda **d: sg.random_normal([3], KEY, half, 2.0, **d), "float16"),
        (lambda **d: sg.random_uniform([3], KEY, half, narrow, **d), "float32"),
        (lambda **d: sg.random_uniform([3], KEY, 0.1, 2.0, **d), "float32"),
        (lambda **d: sg.random_gamma([3], KEY, wide, narrow, **d), "float64"),
        (lambda **d: sg.random_gamma([3], KEY, 2, **d), "float32"),
        (lambda **d: sg.random_beta([3], KEY, half, 3, **d), "float16"),
        (lambda **d: sg.random_exponential([3], KEY, np.arange(1, 4), **d), "float64"),
    ):
        assert draw().dtype == dtype
        for wanted in (sg.float16, sg.bfloat16, sg.float32, sg.float64):
            assert draw(dtype=wanted).dtype == wanted
            traced = sg.function(lambda draw=draw, wanted=wanted: draw(dtype=wanted), engine="numpy")()
            np.testing.assert_array_equal(traced, draw(dtype=wanted))


@each_engine
def test_parameters_at_the_edge(engine: str) -> None:
    alpha = np.array([0.0, INF, NAN, -1.0, 1e-300, 1e300])
    found = by(engine, lambda k, a: sg.random_gamma(None, k, a), KEY, alpha)
    np.testing.assert_array_equal(found[:5], [0.0, INF, NAN, NAN, 0.0])
    assert found[5] == pytest.approx(1e300)
    found = by(engine, lambda k, a: sg.random_gamma([3], k, 2.0, a), KEY, np.array([0.0, INF, NAN]))
    np.testing.assert_array_equal(found, [INF, 0.0, NAN])
    rate = np.array([0.0, INF, NAN, -1.0, 1e-300])
    found = by(engine, lambda k, r: sg.random_poisson(None, k, r, "float64"), KEY, rate)
    np.testing.assert_array_equal(found, [0.0, INF, NAN, NAN, 0.0])
    found = by(engine, lambda k, r: sg.random_poisson(None, k, r), KEY, rate)
    np.testing.assert_array_equal(found, [0, 2**31 - 1, -1, -1, 0])
    chance = np.array([0.0, 1.0, NAN, -1.0, 2.0])
    held = by(engine, lambda k, p: sg.random_bernoulli([100, 5], k, p), KEY, chance)
    np.testing.assert_array_equal(held, np.broadcast_to([False, True, False, False, True], (100, 5)))
    found = by(engine, lambda k, p: sg.random_normal([2], k, p, 0.0), KEY, np.array([3.0, INF]))
    np.testing.assert_array_equal(found, [3.0, INF])
    for empty in (
        lambda k: sg.random_gamma([0, 3], k, 2.0),
        lambda k: sg.random_poisson([3, 0], k, 2.0),
        lambda k: sg.random_dirichlet([0], k, [1.0, 2.0]),
        lambda k: sg.random_choice([0], k, 0),
        lambda k: sg.random_permutation(0, k),
        lambda k: sg.random_categorical(np.ones((0, 3)), 4, k),
    ):
        assert by(engine, empty, KEY).size == 0


def test_truncated_normal_stays_inside_and_reaches_far() -> None:
    for dtype in ("float32", "float64", "float16"):
        found = sg.random_truncated_normal([MANY], KEY, dtype=dtype)
        assert found.dtype == dtype
        assert np.abs(found).max() <= 2
        far = sg.random_truncated_normal([1000], KEY, dtype=dtype, lower=-INF, upper=-3.0)
        assert np.all(np.isfinite(far))
        assert far.max() <= -3


@each_engine
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_dropout_of_nothing_and_of_all(engine: str, dtype: str) -> None:
    x = sg.cast(np.linspace(-2.0, 2.0, 9), dtype)
    for rate in (0, 0.0, np.array(0.0), np.array(0.0, np.float32)):
        np.testing.assert_array_equal(by(engine, lambda x, r=rate: sg.dropout(x, r, key=KEY), x), x)
    traced = lambda x, r: sg.reduce_sum(sg.dropout(x, r, key=KEY))
    assert np.all(by(engine, sg.grad(traced), x, np.array(1.0)) == 0)
    for rate in (1, 1.0, np.array(1.0)):
        assert np.all(by(engine, lambda x, r=rate: sg.dropout(x, r, key=KEY), x) == 0)
        slope = by(engine, sg.grad(lambda x, r=rate: sg.reduce_sum(sg.dropout(x, r, key=KEY))), x)
        assert np.all(slope == 0)


def test_the_rate_of_dropout_may_be_traced() -> None:
    x = np.linspace(1.0, 2.0, 50)
    for rate in (0.0, 0.25, 0.7, 1.0):
        expected = sg.dropout(x, rate, key=KEY)
        for engine in ENGINES:
            found = by(engine, lambda x, r, k: sg.dropout(x, r, key=k), x, np.array(rate), KEY)
            close(found, expected, 1e-14)
    mask = sg.dropout(x, 0.25, key=KEY) != 0
    by_x, by_rate = sg.grad(lambda x, r: sg.reduce_sum(sg.dropout(x, r, key=KEY)), (0, 1))(x, np.array(0.25))
    close(by_x, mask / 0.75)
    close(by_rate, (x * mask).sum() / 0.75**2)


# --------------------------------------------------------------------------------------------- gradients


def quantile(alpha: Any, share: Any) -> Any:
    return scipy.special.gammaincinv(alpha, share)


@each_engine
def test_the_gradient_of_a_gamma_number_is_that_of_its_quantile(engine: str) -> None:
    alpha = np.exp(np.random.default_rng(5).uniform(-1.5, 4.0, 60))
    found = by(engine, lambda k, a: sg.random_gamma(None, k, a), KEY, alpha)
    slope = by(engine, sg.grad(lambda a: sg.reduce_sum(sg.random_gamma(None, KEY, a))), alpha)
    with jax.enable_x64(True):
        close(slope, jax.lax.random_gamma_grad(alpha, found), 1e-9)
    share, step = scipy.special.gammainc(alpha, found), 1e-5 * alpha
    inside = (share > 0.02) & (share < 0.98)
    ahead, behind = quantile(alpha + step, share), quantile(alpha - step, share)
    np.testing.assert_allclose(slope[inside], ((ahead - behind) / (2 * step))[inside], rtol=1e-6)


def test_the_second_derivative_of_a_gamma_number_is_that_of_its_quantile() -> None:
    alpha = np.array([0.4, 1.0, 2.5, 9.0, 40.0])
    draw = lambda a: sg.random_gamma(None, KEY, a)
    found = draw(alpha)
    bend = sg.grad(lambda a: sg.reduce_sum(sg.grad(lambda b: sg.reduce_sum(draw(b)))(a)))(alpha)
    mpmath.mp.dps = 40
    for a, z, b in zip(alpha.tolist(), found.tolist(), bend.tolist(), strict=True):
        share = mpmath.gammainc(a, 0, z, regularized=True)
        moved = lambda s, share=share, z=z: mpmath.findroot(
            lambda y: mpmath.gammainc(s, 0, y, regularized=True) - share, z
        )
        h = mpmath.mpf(10) ** -8
        expected = (moved(a + h) - 2 * moved(mpmath.mpf(a)) + moved(a - h)) / h**2
        assert b == pytest.approx(float(expected), rel=1e-7)


def test_the_slope_of_gamma_quantiles_everywhere() -> None:
    mpmath.mp.dps = 60
    for alpha in (1e-4, 1e-3, 0.01, 0.3, 1.0, 3.0, 50.0, 2000.0):
        for z in (
            *(alpha * 1e-3, alpha * 0.5, alpha, alpha + 1e-3, alpha + 0.05),
            *(alpha + 0.9, alpha * 1.7 + 2.0),
        ):
            a, x, h = mpmath.mpf(alpha), mpmath.mpf(z), mpmath.mpf(10) ** -20 * alpha
            low = z < max(alpha, 0.1)
            share = lambda s, low=low, x=x: (
                mpmath.gammainc(s, 0, x, regularized=True)
                if low
                else -mpmath.gammainc(s, x, mpmath.inf, regularized=True)
            )
            density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))
            expected = -(share(a + h) - share(a - h)) / (2 * h) / density / x
            found = log_gamma_slope(np.float64(alpha), np.log(z))
            assert found == pytest.approx(float(expected), rel=1e-9), (alpha, z)


def test_gradients_flow_in_float32_and_16_bits() -> None:
    alpha = np.array([0.5, 2.0, 30.0])
    expected = sg.grad(lambda a: sg.reduce_sum(sg.random_gamma(None, KEY, a)))(alpha)
    for dtype, limit in ((np.float32, 1e-6), (np.float16, 1e-3)):
        given = alpha.astype(dtype)
        found = sg.grad(lambda a: sg.reduce_sum(sg.random_gamma(None, KEY, a)))(given)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=limit)


def test_small_shapes_have_gradients_although_their_numbers_vanish() -> None:
    slope = sg.grad(lambda a: sg.reduce_sum(sg.random_gamma([50], KEY, a, dtype="float64")))(np.array(1e-4))
    assert np.isfinite(slope)
    mixed = sg.grad(lambda a: sg.reduce_sum(sg.random_dirichlet([50], KEY, a)[:, 0]))(np.array([1e-3, 2e-3]))
    assert np.all(np.isfinite(mixed))


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda a: sg.random_gamma([MANY], KEY, a[0], a[1]), lambda a: a[0] / a[1]),
        (lambda a: sg.log(sg.random_gamma([MANY], KEY, a[0])), lambda a: scipy.special.digamma(a[0])),
        (lambda a: sg.random_beta([MANY], KEY, a[0], a[1]), lambda a: a[0] / (a[0] + a[1])),
        (
            lambda a: sg.log(sg.random_dirichlet([MANY], KEY, a)[:, 1]),
            lambda a: scipy.special.digamma(a[1]) - scipy.special.digamma(a[0] + a[1]),
        ),
    ],
    ids=["gamma", "log gamma", "beta", "dirichlet"],
)
def test_the_mean_of_the_gradients_is_the_gradient_of_the_mean(draw: Any, mean: Any) -> None:
    a = np.array([0.7, 2.5])
    found = sg.grad(lambda a: sg.reduce_mean(draw(a)))(a)
    value = sg.reduce_mean(draw(a))
    h = 1e-6
    for i in range(2):
        step = h * np.eye(2)[i]
        expected = (mean(a + step) - mean(a - step)) / (2 * h)
        # A generous bound of the error of a mean of so many.
        assert found[i] == pytest.approx(expected, abs=6 * (1 + abs(expected)) / np.sqrt(MANY))
    assert value == pytest.approx(mean(a), abs=10 / np.sqrt(MANY))


def test_location_and_scale_have_gradients() -> None:
    families = [
        sg.random_normal,
        sg.random_truncated_normal,
        sg.random_gumbel,
        sg.random_laplace,
        sg.random_logistic,
        sg.random_cauchy,
    ]
    for family in families:
        standard = family([5], KEY, dtype="float64")
        f = lambda m, s, family=family: sg.reduce_sum(family([5], KEY, m, s))
        by_loc, by_scale = sg.grad(f, (0, 1))(np.array(1.0), np.array(2.0))
        close([by_loc, by_scale], [5.0, standard.sum()], 1e-12)
    noise = sg.random_exponential([5], KEY, dtype="float64")
    slope = sg.grad(lambda r: sg.reduce_sum(sg.random_exponential([5], KEY, r)))(np.array(2.0))
    close(slope, -noise.sum() / 4, 1e-12)


def test_the_ends_of_a_truncated_normal_have_gradients() -> None:
    f = lambda low, high: sg.reduce_sum(
        sg.random_truncated_normal([20], KEY, dtype="float64", lower=low, upper=high)
    )
    low, high, h = np.array(-1.0), np.array(0.5), 1e-6
    by_low, by_high = sg.grad(f, (0, 1))(low, high)
    assert by_low == pytest.approx((f(low + h, high) - f(low - h, high)) / (2 * h), rel=1e-6)
    assert by_high == pytest.approx((f(low, high + h) - f(low, high - h)) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(
    ("draw", "operation"),
    [
        (lambda x: sg.cast(sg.random_bernoulli(None, KEY, x), "float64"), "Less"),
        (lambda x: sg.random_poisson(None, KEY, x, "float64"), "RandomPoisson"),
        (lambda x: sg.cast(sg.random_categorical(x, 5, KEY), "float64"), "ArgMax"),
        (lambda x: sg.random_choice([5], KEY, np.arange(3.0), p=x), "Less"),
        (
            lambda x: sg.random_choice([2], KEY, np.arange(3.0), False, x),
            "TopKV2",
        ),
    ],
    ids=["bernoulli", "poisson", "categorical", "choice", "choice without replacement"],
)
def test_where_there_is_no_gradient_it_says_where(draw: Any, operation: str) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float64, [3])
        y = draw(x)
        (slope,) = sg.gradients(y, [x])
        flow = sg.explain(y, [x])
    assert slope is None
    assert flow[x].status == "not differentiable"
    assert [cut.operation.type for cut in flow[x].cuts] == [operation]


def test_a_shuffled_tensor_has_a_gradient() -> None:
    x, weights = np.arange(5.0), np.arange(5.0) ** 2
    order = sg.random_permutation(5, KEY)
    for shuffle in (sg.random_shuffle, sg.random_permutation):
        slope = sg.grad(lambda x, shuffle=shuffle: sg.reduce_sum(shuffle(x, KEY) * weights))(x)
        np.testing.assert_array_equal(slope[order], weights)


# -------------------------------------------------------------------------- incomplete gamma and beta


@each_engine
def test_gradients_of_the_incomplete_functions(engine: str) -> None:
    generator = np.random.default_rng(6)
    a, b = np.exp(generator.uniform(-3, 4, (2, 12)))
    u = generator.uniform(0.02, 0.98, 12)
    x = scipy.special.gammaincinv(a, u)
    mpmath.mp.dps = 60

    def differences(f: Callable[..., Any], *given: float) -> list[float]:
        point = [mpmath.mpf(g) for g in given]
        found = []
        for i, p in enumerate(point):
            h = p * mpmath.mpf(10) ** -20
            ahead, behind = ([*point[:i], q, *point[i + 1 :]] for q in (p + h, p - h))
            found.append(float((f(*ahead) - f(*behind)) / (2 * h)))
        return found

    lower = lambda a, x: mpmath.gammainc(a, 0, x, regularized=True)
    expected = np.array([differences(lower, *p) for p in zip(a.tolist(), x.tolist(), strict=True)]).T
    for function, sign in ((sg.igamma, 1), (sg.igammac, -1)):
        found = by(engine, sg.grad(lambda a, x, f=function: sg.reduce_sum(f(a, x)), (0, 1)), a, x)
        np.testing.assert_allclose(found, sign * expected, rtol=1e-8)
    t = scipy.special.betaincinv(a, b, u)
    beta = lambda a, b, t: mpmath.betainc(a, b, 0, t, regularized=True)
    points = zip(a.tolist(), b.tolist(), t.tolist(), strict=True)
    expected = np.array([differences(beta, *p) for p in points]).T
    found = by(engine, sg.grad(lambda *p: sg.reduce_sum(sg.betainc(*p)), (0, 1, 2)), a, b, t)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_gradients_of_the_incomplete_functions_at_the_ends() -> None:
    slope = sg.grad(lambda a, x: sg.reduce_sum(sg.igamma(a, x)), (0, 1))
    by_a, by_x = slope(np.array([0.5, 1.0, 2.0, 2.0]), np.array([0.0, 0.0, 0.0, INF]))
    np.testing.assert_array_equal(by_a, np.zeros(4))
    np.testing.assert_array_equal(by_x, [INF, 1.0, 0.0, 0.0])
    slope = sg.grad(lambda a, b, x: sg.reduce_sum(sg.betainc(a, b, x)), (0, 1, 2))
    a, b = np.array([0.5, 1.0, 2.0, 3.0, 3.0, 3.0]), np.array([3.0, 3.0, 3.0, 0.5, 1.0, 2.0])
    by_a, by_b, by_x = slope(a, b, np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]))
    np.testing.assert_array_equal([by_a, by_b], np.zeros((2, 6)))
    np.testing.assert_array_equal(by_x, [INF, 3.0, 0.0, INF, 3.0, 0.0])
