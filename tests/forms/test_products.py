"""Sums of products as products of matrices, in whatever way they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from forms_tools import Case, agree, same_as_written
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
