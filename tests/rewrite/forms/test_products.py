"""Sums of products as products of matrices, in whatever way they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forms_tools import ENGINES, Case, agree, same_as_written
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from stopgrad.rewrite.forms import contractions

F32 = np.float32
INF, NAN = np.inf, np.nan


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contractions, "LARGE", 8)


# --------------------------------------------------------------------------------- the weight's gradient


@pytest.mark.parametrize("batch", [(4,), (2, 3), (1, 2, 2)])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_of_a_weight_is_one_product(batch: tuple[int, ...], transposed: bool) -> None:
    w = normal(6, 5, seed=1) if transposed else normal(5, 6, seed=1)
    case = agree(lambda x, w: sg.matmul(x, w, transpose_b=transposed), normal(*batch, 3, 5), w)
    products = [op for op in case.formed.graph.subgraph_to(case.formed.outputs) if op.type == "MatMul"]
    assert [p.outputs[0].ndim for p in products if p.transpose_a] == [2]


def test_products_that_are_summed_otherwise_stay() -> None:
    def f(a: Any, b: Any) -> Any:
        return (
            sg.reduce_sum(sg.matmul(a, b, transpose_a=True), 1),
            sg.reduce_sum(sg.matmul(a, b), (0, 1)),
        )

    for i in range(2):
        case = agree(lambda a, b, i=i: f(a, b)[i], normal(2, 3, 4, 4), normal(2, 3, 4, 4, seed=1))
        assert not any(op.type == "MatMul" and op.outputs[0].ndim == 2 for op in case.formed.graph.operations)


def test_a_broadcast_batch_stays() -> None:
    agree(
        lambda a, b: sg.reduce_sum(sg.matmul(a, b, transpose_a=True), 0, True),
        normal(3, 4, 5),
        normal(1, 4, 6, seed=1),
    )


# ------------------------------------------------------------------------------------ sums of products

SUMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "a product of matrices": (lambda x, w: sg.reduce_sum(x[:, :, None] * w, 1), ((4, 5), (5, 3))),
    "three": (lambda x, w, v: sg.reduce_sum(x[:, :, None] * w * v, 1), ((4, 5), (5, 3), (3,))),
    "an outer product": (lambda x, y: sg.reduce_sum(x[:, None] * y, 0), ((6,), (5,))),
    "of minus": (lambda x, w: sg.reduce_sum(-(x[:, :, None] * -w) * 3.0, 1, True), ((4, 5), (5, 3))),
    "all": (lambda x, w: sg.reduce_sum(x[:, None] * w), ((4, 5), (3, 5))),
    "squares": (lambda x, w: sg.reduce_sum(sg.square(x[:, None] * w), 2), ((4, 5), (3, 5))),
    "a batch": (
        lambda x, w: sg.reduce_sum(x[:, :, None] * w[:, None], -1),
        ((2, 4, 5), (2, 3, 5)),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_products_of_broadcast_tensors(name: str) -> None:
    f, shapes = SUMS[name]
    case = agree(f, *[normal(*shape, seed=i) for i, shape in enumerate(shapes)])
    assert case.changed()


@pytest.mark.parametrize("name", SUMS)
def test_in_float64_too(name: str) -> None:
    f, shapes = SUMS[name]
    arrays = [normal(*shape, seed=i).astype(np.float64) for i, shape in enumerate(shapes)]
    agree(f, *arrays, rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: sg.reduce_sum(x * w, 1),
        lambda x, w: sg.reduce_sum(x * w[0], 1),
        lambda x, w: sg.reduce_sum(sg.tanh(x[:, :, None] * w[:, 0]), 1),
        lambda x, w: sg.reduce_sum(x[:, None] + w, 2),
        lambda x, w: sg.reduce_sum(
            sg.cast(sg.cast(x[:, None] * 3, "int32") * sg.cast(w, "int32"), "float32"), 2
        ),
        lambda x, w: sg.reduce_sum((x[:, None] + w) * 2.0, 2),
        lambda x, w: sg.reduce_sum((x[:, None] - w) ** 3, 2),
    ],
)
def test_what_is_no_sum_of_such_products_stays(f: Any) -> None:
    case = agree(f, normal(4, 5), normal(4, 5, seed=1))
    value = case.formed.graph.subgraph_to(case.formed.outputs[:1])
    assert not any(op.type in ("Einsum", "Case") for op in value)


# ----------------------------------------------------------------------------------- squared distances


def differences(x: Any, mu: Any, order: str) -> Any:
    a, b = sg.expand_dims(x, 1), sg.expand_dims(mu, 0)
    return a - b if order == "x first" else b - a


def squared(d: Any, how: str, x: Any, mu: Any) -> Any:
    if how == "power":
        return d**2
    if how == "squared difference":
        return sg.squared_difference(sg.expand_dims(x, 1), mu)
    return d * d if how == "product" else sg.square(d)


def test_the_sum_of_all_squared_distances_needs_no_table_of_them() -> None:
    def f(x: Any, mu: Any) -> Any:
        return sg.reduce_sum(sg.square(sg.expand_dims(x, 1) - mu))

    case = agree(f, normal(7, 3), normal(4, 3, seed=1))
    made = [op for op in case.formed.graph.subgraph_to(case.formed.outputs[:1]) if op.type != "Case"]
    assert max(op.outputs[0].type.size for op in made) <= 21


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    how=st.sampled_from(["power", "product", "square", "squared difference"]),
    order=st.sampled_from(["x first", "mu first"]),
    weight=st.sampled_from(["none", "of dimensions", "of both", "of points", "whitened"]),
    keepdims=st.booleans(),
    n=st.integers(2, 6),
    k=st.integers(2, 4),
    d=st.integers(2, 4),
)
def test_every_spelling_of_squared_distances(
    how: str, order: str, weight: str, keepdims: bool, n: int, k: int, d: int
) -> None:
    weights = {
        "none": (1,),
        "of dimensions": (d,),
        "of both": (k, d),
        "of points": (n, 1, 1),
        "whitened": (k, d),
    }

    def f(x: Any, mu: Any, w: Any) -> Any:
        difference = differences(x, mu, order)
        if weight == "whitened":
            return sg.reduce_sum(sg.square(difference * sg.exp(w)), -1, keepdims)
        squares = squared(difference, how, x, mu)
        return sg.reduce_sum(squares if weight == "none" else squares * sg.exp(w), -1, keepdims)

    case = agree(f, normal(n, d), normal(k, d, seed=1), normal(*weights[weight], seed=2), rtol=1e-4)
    if n * k * d >= 8:
        assert case.types()["Case"] >= 1


def distances(x: Any, mu: Any) -> Any:
    return sg.reduce_sum(sg.square(sg.expand_dims(x, 1) - mu), -1)


def worst(x: Any, mu: Any) -> float:
    """The worst relative error of the distances, on both engines."""
    want = ((x.astype(np.float64)[:, None] - mu.astype(np.float64)) ** 2).sum(-1)
    case = same_as_written(distances, x, mu, rtol=1e-5)
    made = case.run(case.formed)[0]
    assert (made >= 0).all()
    return float(np.max(np.abs(made - want) / np.where(want == 0, 1, want)))


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e4])
def test_distances_far_from_the_origin_are_as_precise_as_float32(offset: float, spread: float) -> None:
    x, mu = normal(50, 4) * F32(spread) + F32(offset), normal(6, 4, seed=1) * F32(spread) + F32(offset)
    assert worst(x, mu) < 1e-6


def test_equal_and_nearly_equal_points_are_as_precise_as_float32() -> None:
    x = normal(20, 3) + F32(100)
    near = x.copy()
    near[:10, 0] = np.nextafter(near[:10, 0], F32(INF))
    assert worst(x, near) < 1e-6
    case = Case(lambda x: distances(x, sg.stop_gradient(x)), [x])
    np.testing.assert_array_equal(np.diagonal(case.run(case.formed)[0]), 0)


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1e20, 3e38])
@pytest.mark.parametrize("where", ["x", "mu"])
def test_what_is_not_finite_stays_where_it_was(value: float, where: str) -> None:
    x, mu = normal(5, 3), normal(4, 3, seed=1)
    (x if where == "x" else mu)[1, 2] = value
    case = Case(lambda x, mu: sg.exp(-distances(x, mu)), [x, mu])
    for made, want in zip(case.run(case.formed)[:1], case.run(case.plain)[:1], strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-6)


def test_the_distances_themselves_where_they_overflow() -> None:
    x, mu = normal(5, 3), normal(4, 3, seed=1)
    x[0, 0] = 1e25
    same_as_written(lambda x, mu: 1 / (1 + distances(x, mu)), x, mu)


def test_a_mixture_of_gaussians_with_its_expectation_step() -> None:
    def f(x: Any, mu: Any, log_precision: Any) -> Any:
        joint = -0.5 * sg.reduce_sum(
            sg.square(sg.expand_dims(x, 1) - mu) * sg.exp(log_precision), -1
        ) + 0.5 * sg.reduce_sum(log_precision, -1)
        e = sg.exp(joint - sg.reduce_max(joint, -1, True))
        r = sg.stop_gradient(e / sg.reduce_sum(e, -1, True))
        return sg.reduce_mean(sg.reduce_sum(r * joint, -1))

    agree(f, normal(40, 3), normal(4, 3, seed=1), normal(4, 3, seed=2), rtol=1e-4)


def test_the_second_derivative_of_distances() -> None:
    def f(x: Any, mu: Any) -> Any:
        (dx,) = sg.gradients(sg.reduce_sum(sg.exp(-distances(x, mu))), [x])
        return sg.square(dx)

    agree(f, normal(5, 3), normal(4, 3, seed=1), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_dtypes_are_left_as_they_are(dtype: Any) -> None:
    case = Case(distances, [normal(5, 3).astype(dtype), normal(4, 3, seed=1).astype(dtype)])
    assert not case.types()["Case"]
    assert not case.types()["Einsum"]


def test_a_small_sum_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contractions, "LARGE", 1 << 16)
    assert not Case(distances, [normal(5, 3), normal(4, 3, seed=1)]).changed()


@pytest.mark.parametrize("shapes", [((0, 3), (4, 3)), ((5, 0), (4, 0)), ((5, 3), (0, 3)), ((1, 3), (4, 3))])
def test_axes_without_elements(monkeypatch: pytest.MonkeyPatch, shapes: Any) -> None:
    monkeypatch.setattr(contractions, "LARGE", 0)
    same_as_written(distances, *[normal(*shape, seed=i) for i, shape in enumerate(shapes)])


def test_inside_a_loop() -> None:
    def f(x: Any, mu: Any) -> Any:
        return sg.fori_loop(0, 3, lambda i, m: m * 0.9 + sg.reduce_mean(distances(x, m)) * 0.01, mu)

    same_as_written(f, normal(5, 3), normal(4, 3, seed=1))


# ------------------------------------------------------------------------------------------- quotients


def no_table(case: Case, size: int) -> None:
    """Nothing as large as all the products is made, but where the sum is computed as written."""
    made = [op for op in case.formed.graph.subgraph_to(case.formed.outputs) if op.type != "Placeholder"]
    assert max(y.type.size for op in made for y in op.outputs) < size


def mixture(x: Any, mu: Any, log_scale: Any, logits: Any) -> Any:
    z = (sg.expand_dims(x, 1) - mu) / sg.exp(log_scale)
    log_p = sg.log_softmax(logits) - 0.5 * sg.reduce_sum(z * z, axis=-1) - sg.reduce_sum(log_scale, axis=-1)
    r = sg.stop_gradient(sg.softmax(log_p))
    return -sg.reduce_mean(sg.reduce_sum(r * log_p, axis=-1))


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_mixture_with_scales_makes_no_table(offset: float) -> None:
    x, mu = normal(40, 3) + F32(offset), normal(4, 3, seed=1) + F32(offset)
    case = agree(mixture, x, mu, normal(4, 3, seed=2), normal(4, seed=3), rtol=1e-4)
    no_table(case, 480)


SCALED: dict[str, Callable[..., Any]] = {
    "z * z": lambda d, s, axis: sg.reduce_sum((d / s) * (d / s), axis),
    "square": lambda d, s, axis: sg.reduce_sum(sg.square(d / s), axis),
    "power": lambda d, s, axis: sg.reduce_sum((d / s) ** 2, axis),
    "over the variance": lambda d, s, axis: sg.reduce_sum(sg.square(d) / sg.square(s), axis),
    "over the power": lambda d, s, axis: sg.reduce_sum(d**2 / s**2, axis, True),
    "times the precision": lambda d, s, axis: sg.reduce_sum(d * d * (1 / sg.square(s)), axis),
    "over the precision": lambda d, s, axis: sg.reduce_sum(sg.square(d) / (1 / sg.square(s)), axis),
    "twice over": lambda d, s, axis: sg.reduce_sum(d * d / s / s, axis),
    "half of minus": lambda d, s, axis: sg.reduce_sum(-0.5 * sg.square(d / s), axis),
    "mean": lambda d, s, axis: sg.reduce_mean(sg.square(d / s), axis),
    "over a number": lambda d, s, axis: sg.reduce_sum(sg.square(d / 3.0) / s, axis),
    "over a product": lambda d, s, axis: sg.reduce_sum(sg.square(d) / (2.0 * s * s), axis),
}


LAYOUTS = ["n1d-1kd", "kd-n1d", "dn1-d1k", "1nd-k1d"]


@pytest.mark.parametrize(
    ("name", "layout"), [*((name, "n1d-kd") for name in SCALED), *(("z * z", layout) for layout in LAYOUTS)]
)
@pytest.mark.parametrize("of", ["components", "dimensions"])
def test_every_spelling_of_scaled_distances(name: str, layout: str, of: str) -> None:
    def f(x: Any, mu: Any, s: Any) -> Any:
        s = sg.exp(s)
        axis = -1
        if layout == "n1d-kd":
            d = sg.expand_dims(x, 1) - mu
        elif layout == "n1d-1kd":
            d, s = sg.expand_dims(x, 1) - sg.expand_dims(mu, 0), sg.expand_dims(s, 0)
        elif layout == "kd-n1d":
            d = mu - sg.expand_dims(x, 1)
        elif layout == "dn1-d1k":
            axis = 0
            s = sg.reshape(s, (3, 1, -1))
            d = sg.expand_dims(sg.transpose(x), 2) - sg.expand_dims(sg.transpose(mu), 1)
        else:
            d, s = sg.expand_dims(x, 0) - sg.expand_dims(mu, 1), sg.reshape(s, (-1, 1, 3))
        return SCALED[name](d, s, axis)

    scale = normal(4, 3, seed=2) if of == "components" else normal(1, 3, seed=2)
    case = agree(f, normal(10, 3), normal(4, 3, seed=1), scale, rtol=1e-4)
    no_table(case, 120)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("sign", ["mixed", "positive", "negative"])
def test_weighted_scatter_along_every_axis(axis: Any, sign: str) -> None:
    def f(w: Any, x: Any, mu: Any, s: Any) -> Any:
        w = w if sign == "mixed" else sg.exp(w) if sign == "positive" else -sg.exp(w)
        z = (sg.expand_dims(x, 1) - mu) / (1 + sg.square(s))
        return sg.reduce_sum(sg.expand_dims(w, -1) * z * z, axis)

    arrays = normal(10, 4, seed=4), normal(10, 3), normal(4, 3, seed=1), normal(4, 3, seed=2)
    case = agree(f, *arrays, rtol=1e-4)
    assert case.types()["Case"]


def test_quotients_without_differences() -> None:
    case = agree(
        lambda x, s: sg.reduce_sum(sg.square(sg.expand_dims(x, 1) / (1 + sg.square(s))), -1),
        normal(10, 3),
        normal(4, 3, seed=1),
    )
    no_table(case, 120)
    wide = Case(lambda x, s: sg.reduce_sum(sg.expand_dims(x, 1) / s, -1), [np.ones((9, 3)), np.ones((4, 3))])
    assert not wide.types()["Case"]


@pytest.mark.parametrize("value", [0.0, -0.0, INF, -INF, NAN, 1e-30, 1e30, 1e-44])
@pytest.mark.parametrize("name", ["z * z", "over the power"])
@pytest.mark.parametrize("weighted", [False, True])
def test_scales_that_no_reciprocal_serves(value: float, name: str, weighted: bool) -> None:
    x, mu, s = normal(6, 3), normal(4, 3, seed=1), np.abs(normal(4, 3, seed=2)) + F32(0.5)
    s[1, 2] = value
    mu[1, 2] = x[1, 2]

    def f(x: Any, mu: Any, s: Any) -> Any:
        distances = SCALED[name]((sg.expand_dims(x, 1) - mu), s, -1)
        return sg.exp(-distances) if weighted else distances

    case = Case(f, [x, mu, s])
    for engine in ENGINES:
        for made, want in zip(case.run(case.formed, engine), case.run(case.plain, engine), strict=True):
            # Beyond what float32 can hold on the way the form may know more than the code as written.
            known = (
                np.isfinite(want)
                if abs(value) in (1e-30, 1e30, F32(1e-44), 1e-44)
                else np.full(want.shape, True)
            )
            np.testing.assert_allclose(made[known], want[known], rtol=1e-4, atol=1e-5)


def test_infinite_and_missing_weights_of_scaled_differences() -> None:
    for value in (INF, -INF, NAN):
        w, x, mu, s = normal(6, 4, seed=3), normal(6, 3), normal(4, 3, seed=1), normal(4, 3, seed=2)
        w[2, 1] = value
        same_as_written(
            lambda w, x, mu, s: sg.reduce_sum(sg.expand_dims(w, -1) * ((sg.expand_dims(x, 1) - mu) / s), 0),
            w,
            x,
            mu,
            s,
        )


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e4])
def test_scaled_distances_far_from_the_origin(offset: float, spread: float) -> None:
    x, mu = normal(50, 4) * F32(spread) + F32(offset), normal(6, 4, seed=1) * F32(spread) + F32(offset)
    s = np.exp(normal(6, 4, seed=2))
    mu[0] = x[0]
    case = Case(lambda x, mu, s: sg.reduce_sum(sg.square((sg.expand_dims(x, 1) - mu) / s), -1), [x, mu, s])
    exact = ((x.astype(np.float64)[:, None] - mu) / s.astype(np.float64)) ** 2
    want = exact.sum(-1)
    for engine in ENGINES:
        made = case.run(case.formed, engine)[0]
        assert (made >= 0).all()
        assert made[0, 0] == 0
        assert np.max(np.abs(made - want) / np.where(want == 0, 1, want)) < 1e-6


def test_a_scatter_that_cancels_is_computed_as_written() -> None:
    x = np.full((20, 3), 1e4, F32) + normal(20, 3) * F32(1e-2)
    mu = np.array([[1e4] * 3, [-1e8] * 3, [1e8] * 3], F32)
    w = np.abs(normal(20, 3, seed=2))
    f = lambda w, x, mu: sg.reduce_sum(
        sg.expand_dims(sg.abs(w), -1) * sg.square(sg.expand_dims(x, 1) - mu), 0
    )
    case = Case(f, [w, x, mu])
    want = (w.astype(np.float64)[..., None] * (x.astype(np.float64)[:, None] - mu) ** 2).sum(0)
    for engine in ENGINES:
        np.testing.assert_allclose(case.run(case.formed, engine)[0], want, rtol=2e-6)


def test_nearest_centres_and_their_means() -> None:
    def f(x: Any, mu: Any) -> Any:
        d = sg.reduce_sum(sg.squared_difference(sg.expand_dims(x, 1), mu), 2)
        member = sg.one_hot(sg.argmin(d, 1), 4, dtype=x.dtype)
        total = sg.reduce_sum(sg.expand_dims(member, 2) * sg.expand_dims(x, 1), 0)
        return total / sg.expand_dims(1 + sg.reduce_sum(member, 0), 1)

    no_table(agree(f, normal(30, 3), normal(4, 3, seed=1)), 360)


def test_a_kernel_with_a_length_for_each_dimension() -> None:
    def f(x: Any, y: Any, length: Any) -> Any:
        d = (sg.expand_dims(x, 1) - sg.expand_dims(y, 0)) / sg.exp(length)
        return sg.exp(-0.5 * sg.reduce_sum(d * d, -1))

    no_table(agree(f, normal(9, 3), normal(7, 3, seed=1), normal(3, seed=2), rtol=1e-4), 189)


@pytest.mark.parametrize("shapes", [((0, 3), (4, 3)), ((5, 0), (4, 0)), ((5, 3), (0, 3)), ((1, 3), (4, 3))])
def test_scaled_distances_without_elements(monkeypatch: pytest.MonkeyPatch, shapes: Any) -> None:
    monkeypatch.setattr(contractions, "LARGE", 0)
    arrays = [normal(*shape, seed=i) for i, shape in enumerate((*shapes, shapes[1]))]
    for name in ("z * z", "over the power"):
        same_as_written(lambda x, mu, s, name=name: SCALED[name](sg.expand_dims(x, 1) - mu, s, -1), *arrays)


def test_the_sign_of_a_weight() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder("float32", (3,))
        positive = [sg.exp(x), x * x, sg.square(x) / 2.0, sg.reduce_sum(sg.softmax(x)), sg.sqrt(x)]
        assert [contractions.sign_of(y) for y in positive] == [1] * 5
        assert [contractions.sign_of(-y) for y in positive] == [-1] * 5
        for y in (x, x * sg.exp(x), sg.exp(x) - 1, sg.constant([-1.0, 1.0])):
            assert contractions.sign_of(y) == 0
