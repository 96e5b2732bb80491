"""Random numbers: those of JAX from the same keys, and their distributions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import stopgrad as sg
from stopgrad.ops.keys import threefry
from values import ENGINES, by, close, normal, values_of

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


@ENGINES
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


@ENGINES
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
    close(sg.ops.random.quantile(np, v), np.sqrt(2) * scipy.special.erfinv(v), 1e-13)


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


@ENGINES
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
    for engine in ("numpy", "xla"):
        with sg.Session(graph, engine=engine) as session:
            found, mixed = session.run([drawn, batch], {x: np.arange(12.0).reshape(4, 3)})
        np.testing.assert_array_equal(found, sg.random_uniform((4, 3), sg.random_key(1)))
        assert sorted(mixed[:, 0].tolist()) == [0, 3, 6, 9]
