"""Values of activations, normalisation and losses: JAX's, SciPy's, or written out in NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
from all_engines import each_engine
from derivatives import check_derivatives
from values import Cases, each, normal, uniform

import stopgrad as sg

CASES = Cases()
add = CASES.add

X, Y = 3 * normal(3, 4), normal(3, 4, seed=1)
FAR = np.array([-1e4, -40.0, -3.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 3.0, 40.0, 1e4])
P, Q = (p / p.sum(-1, keepdims=True) for p in (uniform(0.1, 1, 3, 4), uniform(0.1, 1, 3, 4, seed=1)))
YES = normal(3, 4, seed=2) > 0
BOTH = (X, FAR)

# ----------------------------------------------------------------------------------------- activations

for x in BOTH:
    add(sg.selu, lambda x: np.array(jax.nn.selu(x)), x)
    add(sg.celu, lambda x, *_: np.array(jax.nn.celu(x, 0.7)), x, 0.7)
    add(sg.mish, lambda x: x * np.tanh(np.logaddexp(0, x)), x)
    add(sg.softsign, lambda x: x / (1 + np.abs(x)), x)
    add(sg.hard_sigmoid, lambda x: np.clip((x + 3) / 6, 0, 1), x)
    add(sg.hard_swish, lambda x: x * np.clip((x + 3) / 6, 0, 1), x)
    add(sg.hard_tanh, lambda x: np.clip(x, -1, 1), x)
add(sg.celu, lambda x: np.array(jax.nn.celu(x)), X)
add(sg.glu, lambda x: np.array(jax.nn.glu(x)), X)
add(sg.glu, lambda x, *_: np.array(jax.nn.glu(x, 0)), normal(4, 3), 0)
add(sg.crelu, lambda x: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], -1), X)
add(sg.crelu, lambda x, *_: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)]), X, 0)

# --------------------------------------------------------------------------------------- normalisation

IMAGE, SCALE, OFFSET = normal(2, 3, 4, 6), uniform(0.5, 2, 6), normal(6, seed=3)
WEIGHTS = uniform(0.1, 2, 3, 1)


def normalised(x: Any, axes: Any, epsilon: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def by_group(x: Any, groups: int, epsilon: float = 1e-5) -> Any:
    """Normalised over groups of channels, the last axis, example by example and group by group."""
    y = np.empty_like(x)
    each = x.shape[-1] // groups
    for n, g in itertools.product(range(x.shape[0]), range(groups)):
        part = x[n, ..., g * each : (g + 1) * each]
        y[n, ..., g * each : (g + 1) * each] = normalised(part, None, epsilon)
    return y


add(sg.moments, lambda x, *_: (x.mean(0), x.var(0)), X, 0)
add(sg.moments, lambda x, *_: (x.mean((0, 2)), x.var((0, 2))), IMAGE, [0, 2], 17.0)
add(sg.moments, lambda x, *_: (x.mean((1,), keepdims=True), x.var((1,), keepdims=True)), X, 1, keepdims=True)
add(
    sg.weighted_moments,
    lambda x, _, w: (
        m := np.average(x, 0, w[:, 0]),
        np.average((x - m) ** 2, 0, w[:, 0]),
    ),
    X,
    0,
    WEIGHTS,
)
add(
    sg.sufficient_statistics,
    lambda x, _, s: (np.array(12.0), (x - s).sum(), ((x - s) ** 2).sum(), s),
    X,
    None,
    np.array(2.5),
)
add(
    sg.normalize_moments,
    lambda n, a, b, s: (a / n + s, b / n - (a / n) ** 2),
    np.array(4.0),
    X[0],
    X[0] ** 2 + 1,
    Y[0],
)
add(
    sg.batch_normalization,
    lambda x, m, v, b, s, e: (x - m) / np.sqrt(v + e) * s + b,
    IMAGE,
    IMAGE.mean((0, 1, 2)),
    IMAGE.var((0, 1, 2)),
    OFFSET,
    SCALE,
    1e-3,
)
add(
    sg.batch_normalization,
    lambda x, m, v, *_: (x - m) / np.sqrt(v + 0.5),
    IMAGE,
    IMAGE.mean((0, 1, 2)),
    IMAGE.var((0, 1, 2)),
    None,
    None,
    0.5,
)
add(sg.group_norm, lambda x, g: by_group(x, g), IMAGE, 3)
add(sg.group_norm, lambda x, g, s, b: by_group(x, g) * s + b, IMAGE, 2, SCALE, OFFSET)
add(
    sg.group_norm,
    lambda x, g, s, b, *_: np.moveaxis(by_group(np.moveaxis(x, 1, -1), g, 0.1) * s + b, -1, 1),
    np.moveaxis(IMAGE, -1, 1).copy(),
    3,
    SCALE,
    OFFSET,
    1,
    0.1,
)
add(sg.instance_norm, lambda x, s, b: normalised(x, (1, 2), 1e-5) * s + b, IMAGE, SCALE, OFFSET)
add(
    sg.instance_norm,
    lambda x, s, *_: normalised(x, (2, 3), 0.1) * s[:, None, None],
    np.moveaxis(IMAGE, -1, 1).copy(),
    SCALE,
    None,
    1,
    0.1,
)
add(sg.rms_norm, lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * s, IMAGE, SCALE)
add(
    sg.rms_norm,
    lambda x, *_: x / np.sqrt((x * x).mean((0, 1), keepdims=True) + 0.1),
    X,
    axis=(0, 1),
    epsilon=0.1,
)


def response(radius: int, bias: float, alpha: float, beta: float) -> Callable[..., Any]:
    def function(x: Any, *_: Any) -> Any:
        y = np.empty_like(x)
        for c in range(x.shape[-1]):
            near = x[..., max(c - radius, 0) : c + radius + 1]
            y[..., c] = x[..., c] / (bias + alpha * (near**2).sum(-1)) ** beta
        return y

    return function


for function in (sg.local_response_normalization, sg.lrn):
    add(function, response(5, 1, 1, 0.5), IMAGE)
    add(function, response(1, 2.0, 0.3, 0.75), IMAGE, 1, 2.0, 0.3, 0.75)
    add(function, response(0, 2.0, 0.3, 0.75), IMAGE, 0, 2, alpha=0.3, beta=0.75)
add(sg.bias_add, lambda x, b: x + b, IMAGE, OFFSET)
add(sg.bias_add, lambda x, b, *_: x + b[:, None, None], IMAGE, Y[0, :3], "NCHW")

# -------------------------------------------------------------------------------------------- losses

HUBER = each(lambda a, b: 0.5 * (a - b) ** 2 if abs(a - b) <= 0.7 else 0.7 * (abs(a - b) - 0.35))
add(sg.mean_absolute_error, lambda a, b: np.abs(a - b).mean(-1), X, Y)
add(sg.mean_absolute_error, lambda a, b: np.abs(a - b).mean(), X, Y, axis=None)
add(sg.huber, lambda a, b, *_: HUBER(a, b).mean(-1), X, Y, 0.7)
add(sg.huber, lambda a, b, *_: HUBER(a, b), X, Y, np.array(0.7), ())
add(sg.log_cosh, lambda a, b: np.log(np.cosh(a - b)).mean(-1), X, Y)
add(sg.log_cosh, lambda a, b: np.abs(a - b) - math.log(2), np.array([1e4]), np.array([-1e4]), axis=())
add(sg.l2_loss, lambda x: np.array((x**2).sum() / 2), X)
add(sg.log_poisson_loss, lambda z, c: np.exp(c) - z * c, P * 4, Y)
add(
    sg.log_poisson_loss,
    lambda z, c, *_: (
        np.exp(c) - z * c + np.where(z > 1, z * np.log(z) - z + 0.5 * np.log(2 * np.pi * np.maximum(z, 1)), 0)
    ),
    P * 4,
    Y,
    True,
)
add(sg.poisson_loss, lambda z, m: (m - z * np.log(m)).mean(-1), P * 4, Q)
add(sg.hinge, lambda z, y: np.maximum(1 - np.where(z, 1, -1) * y, 0).mean(-1), YES, Y)
add(sg.hinge, lambda z, y: np.maximum(1 - z * y, 0), np.sign(X), Y, axis=())
add(sg.squared_hinge, lambda z, y, _: (np.maximum(1 - np.where(z, 1, -1) * y, 0) ** 2).mean(0), YES, Y, 0)
CROSS = lambda z, x, w: -w * z * scipy.special.log_expit(x) - (1 - z) * scipy.special.log_expit(-x)
add(sg.weighted_cross_entropy_with_logits, CROSS, P, X, 2.5)
add(
    sg.weighted_cross_entropy_with_logits,
    CROSS,
    np.array([0.0, 1.0, 0.5]),
    np.array([-700.0, 3.0, 700.0]),
    2.0,
)
add(sg.smooth_labels, lambda z, a: z * (1 - a) + a / 4, P, 0.1)
add(sg.smooth_labels, lambda z, a, *_: z * (1 - a) + a / 3, P, 0.2, 0)


def sigmoid_focal(gamma: float, alpha: float | None = None) -> Callable[..., Any]:
    def one(z: float, x: float) -> float:
        p = scipy.special.expit(x)
        loss = -z * scipy.special.log_expit(x) - (1 - z) * scipy.special.log_expit(-x)
        weight = 1 if alpha is None else alpha * z + (1 - alpha) * (1 - z)
        return weight * (z * (1 - p) + (1 - z) * p) ** gamma * loss

    return each(lambda z, x: float(one(z, x)))


add(sg.sigmoid_focal_loss, lambda z, x: sigmoid_focal(2)(z.astype(float), x), YES, X)
add(sg.sigmoid_focal_loss, lambda z, x, *_: sigmoid_focal(0.5, 0.25)(z, x), P, X, 0.5, 0.25)
add(sg.sigmoid_focal_loss, lambda z, x, *_: sigmoid_focal(0)(z, x), P, X, 0)


def softmax_focal(gamma: float, axis: int) -> Callable[..., Any]:
    def function(z: Any, x: Any, *_: Any) -> Any:
        p = scipy.special.softmax(x, axis)
        return -(z * (1 - p) ** gamma * scipy.special.log_softmax(x, axis)).sum(axis)

    return function


add(sg.softmax_focal_loss, softmax_focal(2, -1), P, X)
add(sg.softmax_focal_loss, softmax_focal(0.5, 0), P, X, 0.5, 0)
add(sg.kl_divergence, lambda p, q: scipy.special.rel_entr(p, q).sum(-1), P, Q)
add(sg.kl_divergence, lambda p, q: np.array(scipy.special.rel_entr(p, q).sum()), P, Q, axis=None)
add(sg.kl_divergence, lambda p, q: np.array(math.log(2)), np.array([1.0, 0.0]), np.array([0.5, 0.5]))
add(sg.kl_divergence, lambda p, q: np.array(math.inf), np.array([0.5, 0.5]), np.array([1.0, 0.0]))
TERMS = lambda q, p: scipy.special.rel_entr(p, np.exp(q))
add(sg.kl_div, lambda q, p: TERMS(q, p).mean(), np.log(Q), P)
add(sg.kl_div, lambda q, p, _: TERMS(q, p).sum(), np.log(Q), P, "sum")
add(sg.kl_div, lambda q, p, _: TERMS(q, p).sum() / 3, np.log(Q), P, "batchmean")
add(sg.kl_div, lambda q, p, *_: TERMS(q, np.exp(p)), np.log(Q), np.log(P), "none", True)
add(sg.kl_div, lambda q, p, _: np.array([math.log(2), 0.0]), np.log([0.5, 0.5]), np.array([1.0, 0.0]), "none")
add(
    sg.kl_div,
    lambda *_: np.array([0.0, math.log(2)]),
    np.log([0.5, 0.5]),
    np.array([-math.inf, 0.0]),
    "none",
    True,
)

# ------------------------------------------------------------------------------- similarity and order

LENGTH = np.linalg.norm
add(sg.cosine_similarity, lambda x, y: (x * y).sum(-1) / (LENGTH(x, axis=-1) * LENGTH(y, axis=-1)), X, Y)
add(sg.cosine_similarity, lambda x, y, _: (x * y).sum(0) / (LENGTH(x, axis=0) * LENGTH(y, axis=0)), X, Y, 0)
add(
    sg.cosine_similarity,
    lambda x, y: np.array([0.0, 1.0]),
    np.array([[0.0, 0.0], [1e100, 0]]),
    np.array([1.0, 0]),
)
add(sg.contrastive_loss, lambda z, d, m: np.where(z, d**2, np.maximum(m - d, 0) ** 2), YES, P * 4, 1.5)
add(
    sg.triplet_margin_loss,
    lambda a, p, n: np.maximum(LENGTH(a - p + 1e-6, axis=-1) - LENGTH(a - n + 1e-6, axis=-1) + 1, 0),
    X,
    Y,
    X + 0.5 * Y,
)
add(
    sg.triplet_margin_loss,
    lambda a, p, n, *_: np.maximum(LENGTH(a - p, axis=0) - LENGTH(a - n, axis=0) + 0.3, 0),
    X,
    Y,
    normal(3, 4, seed=4),
    0.3,
    0,
    0.0,
)
add(sg.info_nce, lambda q, k: -np.diag(scipy.special.log_softmax(q @ k.T / 0.1, 1)), X, Y)
add(
    sg.info_nce,
    lambda q, k, n, t: -scipy.special.log_softmax(np.c_[(q * k).sum(1), q @ n.T] / t, 1)[:, 0],
    X,
    Y,
    normal(5, 4, seed=5),
    0.5,
)
add(sg.margin_ranking_loss, lambda x, y, z, m: np.maximum(-z * (x - y) + m, 0), X, Y, np.sign(X), 0.2)
GRADES = np.array([[0, 2, 1, 1], [3, 0, 0, 1], [1, 1, 1, 1]])


def pairwise(z: Any, s: Any, *_: Any) -> Any:
    pairs = [
        [np.logaddexp(0, -(b[i] - b[j])) for i in range(4) for j in range(4) if a[i] > a[j]]
        for a, b in zip(z, s, strict=True)
    ]
    return np.array([np.mean(p) if p else 0.0 for p in pairs])


def listmle(z: Any, s: Any, *_: Any) -> Any:
    found = []
    for a, b in zip(z, s, strict=True):
        b = b[np.argsort(-a, kind="stable")]
        found.append(sum(scipy.special.logsumexp(b[i:]) - b[i] for i in range(len(b))))
    return np.array(found)


add(sg.pairwise_logistic_loss, pairwise, GRADES, X)
add(sg.pairwise_logistic_loss, lambda z, s, _: pairwise(z.T, s.T), GRADES.T.copy(), X.T.copy(), 0)
add(sg.listmle_loss, listmle, GRADES, X)
add(sg.listmle_loss, lambda z, s, _: listmle(z.T, s.T), GRADES.T.copy(), X.T.copy(), 0)
add(
    sg.listnet_loss,
    lambda z, s: -(scipy.special.softmax(z, -1) * scipy.special.log_softmax(s, -1)).sum(-1),
    GRADES,
    X,
)

# Computed by TensorFlow 2.21, tf.nn, in float32.
add(
    sg.local_response_normalization,
    np.array(
        [
            *[0.0, 0.5067317485809326, 0.514232337474823, 0.07286487519741058, -0.4153997004032135],
            *[-0.5751296281814575, -0.16796456277370453],
        ]
    ),
    np.sin(np.arange(7.0)),
    2,
    1.5,
    0.3,
    0.75,
    rtol=1e-5,
    atol=1e-6,
)
add(
    sg.weighted_cross_entropy_with_logits,
    np.array([0.0, 0.12146838, 140.0]),
    np.array([0.0, 1.0, 0.3]),
    np.array([-50.0, 3.0, 200.0]),
    2.5,
    rtol=1e-5,
    atol=1e-6,
)
add(
    sg.log_poisson_loss,
    np.array([1.6487212, 1.3678794, 3.1531377]),
    np.array([0.0, 1.0, 3.0]),
    np.array([0.5, -1.0, 2.0]),
    True,
    rtol=1e-5,
)


@CASES.compared
def test_functions_of_networks(engine: str, name: str) -> None:
    CASES.check(engine, name)


# ----------------------------------------------------------------------------------------- gradients

DIFFERENTIABLE: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = [
    (sg.selu, (X,), ()),
    (sg.celu, (X,), (0.5,)),
    (sg.mish, (X,), ()),
    (sg.softsign, (X,), ()),
    (sg.hard_sigmoid, (X,), ()),
    (sg.hard_swish, (X,), ()),
    (sg.glu, (X,), ()),
    (lambda x, b: sg.silu(x, b), (X, Y), ()),
    (lambda x: sg.moments(x, 0), (X,), ()),
    (lambda x, w: sg.weighted_moments(x, 0, w), (X, WEIGHTS), ()),
    (sg.batch_normalization, (X, Y[0], Y[1] ** 2 + 0.5, Y[2], X[0]), (1e-3,)),
    (lambda x, s, b: sg.group_norm(x, 3, s, b), (IMAGE, SCALE, OFFSET), ()),
    (sg.instance_norm, (IMAGE, SCALE, OFFSET), ()),
    (sg.rms_norm, (IMAGE, SCALE), ()),
    (sg.local_response_normalization, (X,), (1, 1.0, 0.5, 0.75)),
    (sg.huber, (X, Y), (0.7,)),
    (sg.log_cosh, (X, Y), ()),
    (sg.l2_loss, (X,), ()),
    (lambda z, c: sg.log_poisson_loss(z, c, True), (P * 4 + 1.5, Y), ()),
    (sg.poisson_loss, (P, Q), ()),
    (sg.squared_hinge, (np.sign(X), Y), ()),
    (sg.weighted_cross_entropy_with_logits, (P, X, WEIGHTS), ()),
    (sg.smooth_labels, (P, WEIGHTS), ()),
    (sg.sigmoid_focal_loss, (P, X), (2.0,)),
    (sg.sigmoid_focal_loss, (P, X), (0.5, 0.25)),
    (sg.softmax_focal_loss, (P, X), (0.5,)),
    (sg.kl_divergence, (P, Q), ()),
    (sg.kl_div, (np.log(Q), P), ()),
    (lambda q, p: sg.kl_div(q, p, "sum", True), (np.log(Q), np.log(P)), ()),
    (sg.cosine_similarity, (X, Y), ()),
    (lambda d: sg.contrastive_loss(YES, d), (P * 4,), ()),
    (sg.triplet_margin_loss, (X, Y, normal(3, 4, seed=4)), (9.0,)),
    (sg.info_nce, (X, Y, normal(5, 4, seed=5), np.array(0.5)), ()),
    (lambda s: sg.pairwise_logistic_loss(GRADES, s), (X,), ()),
    (lambda s: sg.listmle_loss(GRADES, s), (X,), ()),
    (sg.listnet_loss, (Y, X), ()),
]


@pytest.mark.parametrize(("f", "arrays", "rest"), DIFFERENTIABLE)
def test_derivatives_of_both_orders(f: Callable[..., Any], arrays: Any, rest: Any) -> None:
    check_derivatives(lambda *xs: f(*xs, *rest), tuple(np.asarray(a, float) for a in arrays))


@each_engine
def test_losses_and_gradients_stay_finite_where_answers_are_certain(engine: str) -> None:
    far = np.array([-1e4, -200.0, 0.0, 200.0, 1e4], np.float32)
    for labels in (np.zeros(5, np.float32), np.ones(5, np.float32)):
        for gamma in (0.0, 0.5, 1.0, 2.0):
            f = sg.function(
                sg.value_and_grad(
                    lambda x, z, gamma=gamma: sg.reduce_sum(sg.sigmoid_focal_loss(z, x, gamma)), argnums=0
                ),
                engine=engine,
            )
            value, slope = f(far, labels)
            assert np.isfinite(value)
            assert np.isfinite(slope).all()
    logits = np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], np.float32)
    for label in range(3):
        one = np.eye(3, dtype=np.float32)[[label, label]]
        f = sg.function(
            sg.value_and_grad(lambda x, z: sg.reduce_sum(sg.softmax_focal_loss(z, x, 0.5)), argnums=0),
            engine=engine,
        )
        value, slope = f(logits, one)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_are_rounded_once(dtype: str) -> None:
    x = np.asarray(sg.cast(300 * normal(4, 8).astype(np.float32), dtype))
    wide = x.astype(np.float64)
    for f in (sg.rms_norm, sg.mish, sg.selu):
        found, expected = f(x), f(wide)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, np.asarray(sg.cast(np.asarray(expected, np.float32), dtype)))


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("even size", lambda: sg.glu(X[:, :3])),
        ("alpha is a number other than 0", lambda: sg.celu(X, 0)),
        ("5 groups do not divide 6 channels", lambda: sg.group_norm(IMAGE, 5)),
        ("first axis is that of the examples", lambda: sg.group_norm(IMAGE, 2, axis=0)),
        ("takes .batch, spatial..., channels", lambda: sg.instance_norm(X)),
        ("depth_radius is 0 or more", lambda: sg.lrn(X, -1)),
        ("takes .batch, ..., channels. and .channels.", lambda: sg.bias_add(X, Y[:, 0])),
        ("data_format='CHW' is unknown", lambda: sg.bias_add(X, Y[0], "CHW")),
        ("reduction='average' is unknown; take one of 'none', 'sum'", lambda: sg.kl_div(X, X, "average")),
        ("takes both labels and logits", lambda: sg.sigmoid_cross_entropy_with_logits(X)),
        ("must have as many axes", lambda: sg.listnet_loss(X, X[0])),
        ("takes .n, features.", lambda: sg.info_nce(X[0], X[0])),
        ("do not broadcast", lambda: sg.huber(X, Y[:, :3])),
        ("takes floating-point", lambda: sg.mish(1j * X)),
    ],
)
def test_what_does_not_fit_is_refused(what: str, call: Callable[[], Any]) -> None:
    with pytest.raises(sg.StopgradError, match=what):
        call()
