"""Values of operations against other libraries, closed forms and published test vectors, on every engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import stopgrad as sg
from stopgrad.ops.random import threefry

X = np.array([-30.0, -3.5, -1.0, -1e-3, -0.0, 0.0, 1e-9, 0.5, 1.0, 4.0, 6.5, 50.0])
ENGINES = pytest.mark.parametrize("engine", ["numpy", "xla"])


def close(found: Any, expected: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=rtol, atol=rtol)


def by(engine: str, f: Callable[..., Any], *arrays: Any) -> Any:
    return sg.function(f, engine=engine)(*arrays)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


# ------------------------------------------------------------------------------------------- activations

ACTIVATIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (sg.relu, lambda x: np.clip(x, 0, None)),
    (sg.relu6, lambda x: np.clip(x, 0, 6)),
    (sg.leaky_relu, lambda x: np.maximum(x, 0.2 * x)),
    (sg.elu, jax.nn.elu),
    (sg.sigmoid, scipy.special.expit),
    (sg.log_sigmoid, scipy.special.log_expit),
    (sg.softplus, lambda x: np.logaddexp(0, x)),
    (sg.silu, lambda x: x * scipy.special.expit(x)),
    (sg.gelu, lambda x: x * scipy.special.ndtr(x)),
    (lambda x: sg.gelu(x, approximate=True), lambda x: jax.nn.gelu(x, approximate=True)),
    (lambda x: sg.clip(x, -1.0, 2.0), lambda x: np.clip(x, -1.0, 2.0)),
    (lambda x: sg.clip(x, high=2.0), lambda x: np.minimum(x, 2.0)),
]


@ENGINES
@pytest.mark.parametrize(("ours", "theirs"), ACTIVATIONS)
def test_activations(engine: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    with jax.enable_x64(True):
        expected = np.asarray(theirs(X))
    np.testing.assert_allclose(by(engine, ours, X), expected, rtol=1e-9, atol=1e-300)


@ENGINES
def test_softmax_and_its_logarithm(engine: str) -> None:
    x = 100 * normal(4, 3, 5)
    for axis in (-1, 1, (0, 2)):
        close(by(engine, lambda x, axis=axis: sg.softmax(x, axis), x), scipy.special.softmax(x, axis))
        close(by(engine, lambda x, axis=axis: sg.log_softmax(x, axis), x), scipy.special.log_softmax(x, axis))


@ENGINES
def test_layer_norm(engine: str) -> None:
    x, scale, offset = normal(4, 6), normal(6, seed=1), normal(6, seed=2)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + offset
    close(by(engine, sg.layer_norm, x, scale, offset), expected)


@ENGINES
def test_guarded_logarithms(engine: str) -> None:
    x, y = np.array([0.0, 0.0, 2.0, -1.0]), np.array([0.0, 5.0, 3.0, 2.0])
    close(by(engine, sg.xlogy, x, y), scipy.special.xlogy(x, y))
    close(by(engine, sg.xdivy, x, y), [0, 0, 2 / 3, -0.5])
    close(by(engine, sg.logaddexp, x * 500, y * 500), np.logaddexp(x * 500, y * 500))


# ------------------------------------------------------------------------------------------------ losses


@ENGINES
def test_cross_entropies(engine: str) -> None:
    logits, labels = 10 * normal(5, 4), scipy.special.softmax(normal(5, 4, seed=1), -1)
    log_p = scipy.special.log_softmax(logits, -1)
    close(by(engine, sg.softmax_cross_entropy_with_logits, labels, logits), -(labels * log_p).sum(-1))
    classes = np.array([0, 3, 1, 2, 3])
    close(
        by(engine, sg.sparse_softmax_cross_entropy_with_logits, classes, logits),
        -log_p[np.arange(5), classes],
    )
    p = scipy.special.expit(logits / 10)
    close(
        by(engine, sg.sigmoid_cross_entropy_with_logits, labels, logits / 10),
        -labels * np.log(p) - (1 - labels) * np.log1p(-p),
    )
    close(by(engine, sg.mean_squared_error, labels, logits), ((labels - logits) ** 2).mean(-1))


def test_a_label_of_zero_counts_nothing_where_the_logit_is_minus_infinity() -> None:
    assert sg.softmax_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([-np.inf, 0.0])) == 0


def test_relu_and_clip_at_their_kinks_as_tensorflow() -> None:
    at = np.array([0.0])
    assert sg.grad(lambda x: sg.reduce_sum(sg.relu(x)))(at) == 0
    assert sg.grad(lambda x: sg.reduce_sum(sg.leaky_relu(x)))(at) == 0.2
    assert sg.grad(lambda x: sg.reduce_sum(sg.clip_by_value(x, 0.0, 1.0)))(at) == 1
    assert sg.grad(lambda x: sg.reduce_sum(sg.clip_by_value(x, -1.0, 0.0)))(at) == 1


# ------------------------------------------------------------------------------------------------- index


@ENGINES
def test_gather(engine: str) -> None:
    x, at = normal(4, 5, 6), np.array([[1, 0], [3, 2]])
    for axis in (0, 1, 2, -1):
        np.testing.assert_array_equal(
            by(engine, lambda x, i, axis=axis: sg.gather(x, i, axis), x, at), np.take(x, at, axis)
        )
    batched = np.array([[1, 0, 4], [3, 2, 2], [0, 0, 0], [4, 4, 1]])
    expected = np.stack([x[i][batched[i]] for i in range(4)])
    np.testing.assert_array_equal(
        by(engine, lambda x, i: sg.gather(x, i, batch_dims=1), x, batched), expected
    )


@ENGINES
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_indices_outside_choose_nothing(engine: str, dtype: str) -> None:
    x = np.array([10.0, 20.0, 30.0])
    at = np.array([0, 3, 2, 100, -1 if dtype.startswith("i") else 255]).astype(dtype)
    np.testing.assert_array_equal(by(engine, sg.gather, x, at), [10, 0, 30, 0, 0])
    np.testing.assert_array_equal(by(engine, sg.scatter_add, x, at, np.ones(5)), [11, 20, 31])
    np.testing.assert_array_equal(by(engine, sg.take_along_axis, x, at), [10, 0, 30, 0, 0])
    np.testing.assert_array_equal(
        by(engine, lambda i: sg.one_hot(i, 3), at), np.eye(3)[[0, 0, 2, 0, 0]] * [[1], [0], [1], [0], [0]]
    )


@ENGINES
def test_scatter_add_is_the_product_with_a_transposed_one_hot_matrix(engine: str) -> None:
    x, at, updates = normal(4, 3), np.array([1, 1, 3, 0, 1]), normal(5, 3, seed=1)
    close(by(engine, sg.scatter_add, x, at, updates), x + np.eye(4)[at].T @ updates)
    along = np.array([[0, 2], [2, 2], [1, 0], [0, 0]])
    expected = x.copy()
    for i, k in itertools.product(range(4), range(2)):
        expected[i, along[i, k]] += updates[i, k]
    close(
        by(
            engine,
            lambda x, u: sg.ops.ScatterAddAlongAxis.function(x, along, u, 1),
            x,
            updates[:4, :2].copy(),
        ),
        expected,
    )


@ENGINES
def test_one_hot_values_and_axis(engine: str) -> None:
    at = np.array([[2, 0], [1, 1]])
    expected = np.moveaxis(np.where(np.eye(3, dtype=bool)[at], 5.0, -1.0), -1, 1)
    np.testing.assert_array_equal(
        by(engine, lambda i: sg.one_hot(i, 3, 5.0, -1.0, axis=1, dtype="float64"), at), expected
    )


@ENGINES
def test_sorting(engine: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 30)).astype(float)
    x[0, 3], x[1, 2] = np.nan, -np.inf
    for axis in (0, 1):
        np.testing.assert_array_equal(by(engine, lambda x, axis=axis: sg.sort(x, axis), x), np.sort(x, axis))
        np.testing.assert_array_equal(
            by(engine, lambda x, axis=axis: sg.argsort(x, axis), x), np.argsort(x, axis, stable=True)
        )
    clean = np.nan_to_num(x, nan=9, neginf=-9)
    np.testing.assert_array_equal(
        by(engine, lambda x: sg.argsort(x, direction="DESCENDING"), clean), np.argsort(-clean, stable=True)
    )
    values, at = by(engine, lambda x: sg.top_k(x, 7), clean)
    expected, positions = jax.lax.top_k(clean.astype(np.float32), 7)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(at, positions)


def test_the_gradient_of_sort_goes_back_to_where_elements_came_from() -> None:
    x, weights = np.array([3.0, 1.0, 3.0, 2.0]), np.array([1.0, 10.0, 100.0, 1000.0])
    np.testing.assert_array_equal(
        sg.grad(lambda x: sg.reduce_sum(sg.sort(x) * weights))(x), [100, 1, 1000, 10]
    )
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(sg.top_k(x, 1)[0]))(x), [1, 0, 0, 0])


@pytest.mark.parametrize("arguments", [(5,), (2, 9), (2, 9, 3), (9, 2, -3), (5, 5), (0.5, 2.0, 0.25), (3, 0)])
def test_range(arguments: tuple[Any, ...]) -> None:
    np.testing.assert_allclose(sg.range(*arguments), np.arange(*arguments))


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_range_of_a_symbolic_size(n: int) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n"])
        size = x.shape[0]
        made = [sg.range(size), sg.range(1, size + 1, 2), sg.range(size, 0, -3)]
    with sg.Session(graph) as session:
        for found, expected in zip(
            session.run(made, {x: np.zeros(n)}), (range(n), range(1, n + 1, 2), range(n, 0, -3)), strict=True
        ):
            np.testing.assert_array_equal(found, np.array(expected, np.int32))


# ------------------------------------------------------------------------------------------------ einsum


@ENGINES
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (4, 1, 3, 2)]),
        ("i...,i", [(3, 2, 4), (3,)]),
        ("...i->...", [(2, 3)]),
        ("ij, kj , lj -> ikl", [(2, 3), (4, 3), (5, 3)]),
        ("a,b,c->", [(2,), (3,), (4,)]),
        (",ij->ji", [(), (2, 3)]),
    ],
)
def test_einsum(engine: str, equation: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    close(by(engine, lambda *xs: sg.einsum(equation, *xs), *xs), np.einsum(equation, *xs))


@pytest.mark.parametrize("equation", ["ij,jk->iik", "ij,jk->il", "ij", "ijk,jk", "i1,jk", "ij,kj"])
def test_einsum_refuses_what_does_not_fit(equation: str) -> None:
    with pytest.raises(sg.ShapeError, match=r"\(C[234]\)"):
        sg.einsum(equation, np.ones((2, 3)), np.ones((3, 4)))


@pytest.mark.parametrize("axes", [0, 1, 2, ([1, 2], [0, 1]), ([-1], [1]), (0, 2)])
def test_tensordot(axes: Any) -> None:
    a, b = normal(4, 3, 4), normal(3, 4, 4, seed=1)
    a = {1: normal(4, 4, 3), 2: normal(3, 3, 4)}.get(axes, a) if isinstance(axes, int) else a
    close(sg.tensordot(a, b, axes), np.tensordot(a, b, axes))


# ------------------------------------------------------------------------------------------- convolution

WINDOWS = [
    (1, 1, "SAME", 1),
    (1, 1, "VALID", 2),
    (1, 2, "SAME", 1),
    (2, 3, "SAME", 1),
    (2, 1, "VALID", 2),
    (1, 2, ((1, 2),), 1),
    (2, (2, 3), ((0, 1), (1, 2)), (2, 1)),
]


def _slow_convolution(x: Any, f: Any, strides: Any, around: Any, dilations: Any, groups: int) -> Any:
    """Convolution by its definition, element by element."""
    x = np.pad(x, [(0, 0), *around, (0, 0)])
    spatial = [
        (n - ((k - 1) * d + 1)) // s + 1
        for n, k, s, d in zip(x.shape[1:-1], f.shape[:-2], strides, dilations, strict=True)
    ]
    y = np.zeros((x.shape[0], *spatial, f.shape[-1]))
    each_in, each_out = f.shape[-2], f.shape[-1] // groups
    for o in np.ndindex(*y.shape):
        for k in np.ndindex(*f.shape[:-1]):
            at = tuple(i * s + j * d for i, s, j, d in zip(o[1:-1], strides, k, dilations, strict=False))
            y[o] += x[(o[0], *at, o[-1] // each_out * each_in + k[-1])] * f[(*k, o[-1])]
    return y


@ENGINES
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("rank", "strides", "padding", "dilations"), WINDOWS)
def test_convolution(engine: str, rank: int, strides: Any, padding: Any, dilations: Any, groups: int) -> None:
    x, f = normal(2, *(7, 6)[:rank], 4), normal(*(3, 2)[:rank], 4 // groups, 6, seed=1)
    found = by(engine, lambda x, f: sg.conv(x, f, strides, padding, dilations), x, f)
    s, d = (np.broadcast_to(v, rank).tolist() for v in (strides, dilations))
    if isinstance(padding, str):
        around = jax.lax.padtype_to_pads(
            x.shape[1:-1], [(k - 1) * e + 1 for k, e in zip(f.shape, d, strict=False)], s, padding
        )
    else:
        around = padding
    close(found, _slow_convolution(x, f, s, around, d, groups))


def test_depthwise_convolution_finds_its_groups() -> None:
    x, f = normal(1, 5, 5, 3), normal(2, 2, 1, 6, seed=1)
    close(sg.conv2d(x, f), _slow_convolution(x, f, (1, 1), [(0, 0)] * 2, (1, 1), 3))


def test_conv2d_transpose_is_the_transpose() -> None:
    x, f, y = normal(2, 5, 5, 3), normal(3, 3, 3, 4, seed=1), normal(2, 3, 3, 4, seed=2)
    forward = sg.conv2d(x, f, 2, "SAME")
    back = sg.conv2d_transpose(y, f, x.shape, 2, "SAME")
    assert np.sum(forward * y) == pytest.approx(np.sum(x * back))


def test_convolution_refuses_what_does_not_fit() -> None:
    x, f = np.ones((1, 4, 4, 3)), np.ones((2, 2, 3, 5))
    for call, number in (
        (lambda: sg.conv2d(x, f.astype(np.float32)), 1),
        (lambda: sg.conv2d(x[0], f), 2),
        (lambda: sg.conv2d(x[..., :2], f), 5),
        (lambda: sg.conv2d(x, f, strides=0), 3),
        (lambda: sg.conv2d(x, f, padding="FULL"), 3),
        (lambda: sg.conv2d(x, np.ones((6, 2, 3, 5))), 4),
    ):
        with pytest.raises((sg.ShapeError, sg.DTypeError), match=rf"\(C{number}\)"):
            call()


@ENGINES
@pytest.mark.parametrize(("rank", "strides", "padding", "dilations"), WINDOWS)
def test_pooling(engine: str, rank: int, strides: Any, padding: Any, dilations: Any) -> None:
    x, ksize = normal(2, *(7, 6)[:rank], 3), (3, 2)[:rank]
    s, d = (np.broadcast_to(v, rank).tolist() for v in (strides, dilations))
    spans = [(k - 1) * e + 1 for k, e in zip(ksize, d, strict=True)]
    around = (
        jax.lax.padtype_to_pads(x.shape[1:-1], spans, s, padding) if isinstance(padding, str) else padding
    )
    hidden = np.pad(x, [(0, 0), *around, (0, 0)], constant_values=np.nan)
    spatial = [(n - r) // t + 1 for n, r, t in zip(hidden.shape[1:-1], spans, s, strict=True)]
    shape = (2, *spatial, 3)
    largest, mean = np.zeros(shape), np.zeros(shape)
    for o in np.ndindex(*shape):
        window = hidden[
            (
                o[0],
                *(slice(i * t, i * t + r, e) for i, t, r, e in zip(o[1:-1], s, spans, d, strict=True)),
                o[-1],
            )
        ]
        largest[o], mean[o] = np.nanmax(window), np.nanmean(window)
    close(by(engine, lambda x: sg.max_pool(x, ksize, strides, padding, dilations), x), largest)
    close(by(engine, lambda x: sg.avg_pool(x, ksize, strides, padding, dilations), x), mean)


@ENGINES
def test_the_first_of_equal_elements_takes_the_gradient_of_max_pool(engine: str) -> None:
    x = np.zeros((1, 4, 4, 1))
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.max_pool2d(x, 2))), x)
    np.testing.assert_array_equal(found[0, :, :, 0], np.kron(np.ones((2, 2)), [[1, 0], [0, 0]]))


# ------------------------------------------------------------------------------------------------ random

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
            by(engine, lambda k: sg.random_bits(k, (3, 4, 5)), ours),
            jax.random.bits(theirs, (3, 4, 5), np.uint32),
        )
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            found = by(engine, lambda k, dtype=dtype: sg.random_uniform(k, (7, 9), dtype=dtype), ours)
            expected = np.asarray(jax.random.uniform(theirs, (7, 9), dtype))
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@ENGINES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_gumbel_and_categorical_numbers_are_those_of_jax(engine: str, dtype: str) -> None:
    ours, logits, rtol = sg.random_key(3), normal(4, 6).astype(dtype), 2e-5 if dtype == "float32" else 1e-11
    with jax.enable_x64(True):
        theirs = jax.random.key(3)
        close(
            by(engine, lambda k: sg.random_normal(k, (1000,), dtype=dtype), ours),
            jax.random.normal(theirs, (1000,), dtype),
            rtol,
        )
        close(
            by(engine, lambda k: sg.random_gumbel(k, (1000,), dtype), ours),
            jax.random.gumbel(theirs, (1000,), dtype),
            rtol,
        )
        for axis in (0, -1):
            shape = (50, logits.shape[1 + axis])
            found = by(engine, lambda k, x, axis=axis: sg.random_categorical(k, x, axis, (50,)), ours, logits)
            np.testing.assert_array_equal(found, jax.random.categorical(theirs, logits, axis, shape=shape))
        found = by(engine, lambda k: sg.random_bernoulli(k, np.asarray(0.3, dtype), (100,)), ours)
        np.testing.assert_array_equal(found, jax.random.bernoulli(theirs, np.asarray(0.3, dtype), (100,)))


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (lambda k, n: sg.random_uniform(k, n, -2.0, 3.0), scipy.stats.uniform(-2, 5).cdf),
        (lambda k, n: sg.random_normal(k, n, 1.0, 2.0), scipy.stats.norm(1, 2).cdf),
        (lambda k, n: sg.random_normal(k, n, dtype="float64"), scipy.stats.norm.cdf),
        (lambda k, n: sg.random_gumbel(k, n), scipy.stats.gumbel_r.cdf),
    ],
)
def test_draws_have_their_distribution(draw: Any, distribution: Any) -> None:
    assert scipy.stats.kstest(draw(sg.random_key(11), [20000]), distribution).pvalue > 1e-3


def test_normal_quantiles_are_precise_in_the_tails() -> None:
    v = np.concatenate([-1 + 10.0 ** -np.arange(1, 16), [0.0, 0.3, 0.85, 0.9]])
    close(sg.ops.random._quantile(np, v), np.sqrt(2) * scipy.special.erfinv(v), 1e-13)


def test_gradients_flow_through_the_parameters_of_a_draw_only() -> None:
    key = sg.random_key(0)
    z, u = sg.random_normal(key, [5], dtype="float64"), sg.random_uniform(key, [5], dtype="float64")
    mean, stddev = np.array(1.0), np.array(2.0)
    dm, ds = sg.grad(lambda m, s: sg.reduce_sum(sg.random_normal(key, [5], m, s)), (0, 1))(mean, stddev)
    close([dm, ds], [5, z.sum()])
    dl, dh = sg.grad(lambda low, high: sg.reduce_sum(sg.random_uniform(key, [5], low, high)), (0, 1))(
        mean, stddev
    )
    close([dl, dh], [(1 - u).sum(), u.sum()])


def test_integers_permutations_and_dropout() -> None:
    key = sg.random_key(5)
    drawn = sg.random_integers(key, [6000], -2, 4)
    assert sorted(set(drawn.tolist())) == [-2, -1, 0, 1, 2, 3]
    assert scipy.stats.chisquare(np.bincount(drawn + 2)).pvalue > 1e-3
    rows = np.arange(12.0).reshape(6, 2)
    mixed = sg.random_permutation(key, rows)
    np.testing.assert_array_equal(np.sort(mixed, 0), rows)
    np.testing.assert_array_equal(mixed[:, 1], mixed[:, 0] + 1)
    kept = sg.dropout(np.ones(10000), 0.25, key)
    assert set(kept.tolist()) == {0.0, 1 / 0.75}
    assert kept.mean() == pytest.approx(1, abs=0.03)


def test_a_key_is_checked() -> None:
    with pytest.raises(sg.DTypeError, match=r"\(C1\)"):
        sg.random_bits(np.array([1, 2]), [3])
    with pytest.raises(sg.ShapeError, match=r"\(C1\)"):
        sg.random_bits(sg.random_split(sg.random_key(0), 3), [3])


def test_random_numbers_of_a_symbolic_shape() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n", 3])
        drawn = sg.random_uniform(sg.random_key(1), x.shape)
        batch = sg.random_permutation(sg.random_key(2), x)
    for engine in ("numpy", "xla"):
        with sg.Session(graph, engine=engine) as session:
            found, mixed = session.run([drawn, batch], {x: np.arange(12.0).reshape(4, 3)})
        np.testing.assert_array_equal(found, sg.random_uniform(sg.random_key(1), (4, 3)))
        assert sorted(mixed[:, 0].tolist()) == [0, 3, 6, 9]
