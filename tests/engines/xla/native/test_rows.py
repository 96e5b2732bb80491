"""The vector machine for rows: instructions, extremes, whole programs; against NumPy and plain XLA."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from native_rows import (
    APPROXIMATE,
    BINARY,
    LOSSES,
    REDUCTIONS,
    UNARY,
    R,
    agree,
    exactly,
    is_for_positive,
    native,
    normal,
    normed,
    plain,
    stable,
    watched,
)

import stopgrad as sg
from stopgrad.engines.xla.native.library import library
from stopgrad.engines.xla.native.rows import _pays, kind_of
from stopgrad.graph.interpreter import Region

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}"),
]

INF, NAN = np.inf, np.nan


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions of all graphs that a test compiles, which may be as small as they like."""
    return watched(monkeypatch)


SHAPES = [(1, 2), (3, 5), (7, 16), (2, 33), (130, 17), (5, 1000), (3, 5000), (1, 65536), (2, 3, 40), (0, 5)]
SPECIAL = np.array(
    [[0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e4, -1e4, 88.7, 88.8, -87.3, 3e38, 1e-8, 2.5, -3.5, 0.5]],
    np.float32,
)

# ------------------------------------------------------------------------------------------- instructions


@pytest.mark.parametrize("f", UNARY, ids=lambda f: f.__name__)
def test_functions_of_one_number(f: Any, found: list[Region]) -> None:
    for shape in SHAPES:
        x = normal(*shape, scale=3.0)
        x = np.abs(x) + np.float32(1e-3) if is_for_positive(f) else x
        # Rounding x where a result is near 0 is no matter of the function.
        agree(lambda x: f(x), x, rtol=2e-6, atol=3e-7)
    assert found


@pytest.mark.parametrize("f", UNARY, ids=lambda f: f.__name__)
def test_functions_of_extremes(f: Any) -> None:
    (got,), (want,) = native(f, SPECIAL), exactly(f, SPECIAL)
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    # One form loses digits where tanh is near -1.
    np.testing.assert_allclose(got, want, rtol=4e-6, atol=2e-7 if f is APPROXIMATE else 2e-38)


@pytest.mark.parametrize("n", range(len(BINARY)))
@pytest.mark.parametrize("other", ["same", "row", "vector", "number", "swapped row", "some rows"])
def test_functions_of_two_numbers(n: int, other: str, found: list[Region]) -> None:
    f = BINARY[n]
    for shape in [(3, 5), (130, 17), (5, 1000), (4, 5000), (2, 3, 40)]:
        x = normal(*shape)
        y = normal(
            *{
                "same": shape,
                "row": (*shape[:-1], 1),
                "swapped row": (*shape[:-1], 1),
                "vector": shape[-1:],
                "number": (),
                "some rows": (*[1 for _ in shape[:-2]], *shape[-2:]),
            }[other]
        )
        agree((lambda x, y: f(y, x)) if other == "swapped row" else f, x, y, rtol=3e-7)
    assert found


def test_division_by_a_number_of_the_row_is_as_exact_as_any() -> None:
    x = np.concatenate([normal(8, 50) * np.float32(10.0) ** k for k in (-30, -3, 0, 3, 30)])
    x[:, :4] = [INF, -INF, NAN, 0.0]
    for y in (3.0, -0.7, 1e-35, 1e35, 0.0, INF, NAN, 1e-29, 1e29):
        (got,) = native(lambda x, y: x / y, x, np.full((40, 1), y, np.float32))
        with np.errstate(all="ignore"):
            want = x / np.float32(y)
        normal_range = ~(np.abs(want) < 1.2e-38)
        np.testing.assert_allclose(got[normal_range], want[normal_range], rtol=1.2e-7)


# --------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_of_rows(reduction: Any, keepdims: bool, found: list[Region]) -> None:
    for shape in SHAPES:
        # Terms of size 1 are added at a size of √N, and the sum may then come out small: of 65,536 ours errs
        # by 1.9e-4 at most (300 draws), NumPy's by 0.9e-4, XLA's by 0.7e-4; it is multiplied by up to 5.
        atol = 1e-5 + 4e-6 * shape[-1] ** 0.5
        agree(lambda x: reduction(x + 1.0, axis=-1, keepdims=keepdims), normal(*shape), rtol=3e-6, atol=atol)
        # Used again on the same rows.
        agree(lambda x: x * reduction(x, axis=-1, keepdims=True), normal(*shape), rtol=3e-6, atol=atol)
    assert found


@pytest.mark.parametrize("reduction", [sg.reduce_max, sg.reduce_min, sg.reduce_sum])
def test_reductions_of_rows_with_extremes(reduction: Any) -> None:
    for n in (3, 17, 100, 5000):
        x = normal(9, n)
        x[0], x[1], x[2] = -INF, INF, NAN
        x[3, -1], x[4, 0], x[5, n // 2] = NAN, NAN, NAN
        x[6, :] = 2.0
        x[7, n // 2], x[8, -1] = INF, -INF
        agree(lambda x: x * 0.5 + reduction(x, axis=-1, keepdims=True), x, rtol=1e-6, atol=1e-4)


def test_sums_over_all_and_over_rows(found: list[Region]) -> None:
    for shape in [(3, 5), (130, 17), (2000, 40), (5, 5000)]:
        x, y = normal(*shape), normal(*shape)
        agree(lambda x, y: sg.reduce_sum(x * y), x, y, rtol=1e-5, atol=1e-3)
        agree(lambda x, y: sg.reduce_mean(sg.square(x - y)) * 3.0, x, y, rtol=1e-5)
        agree(lambda x, y: sg.reduce_sum(x * y, axis=0), x, y, rtol=1e-4, atol=1e-4)
        agree(
            lambda x, y: [sg.reduce_sum(x * y, axis=0), sg.reduce_sum(x * y, axis=0, keepdims=True)],
            x,
            y,
            atol=1e-4,
        )
        agree(lambda x, y: sg.reduce_sum(sg.reduce_max(x, axis=-1)) + sg.reduce_sum(y * 2.0), x, y, atol=1e-2)
    assert found


def test_long_sums_are_precise() -> None:
    x = np.full((4, 60000), 0.1, np.float32)
    agree(lambda x: sg.reduce_sum(x * 1.0, axis=-1), x, rtol=2e-6)
    agree(lambda x: sg.reduce_sum(x * 1.0), x, rtol=2e-6)


def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = normal(3000, 130), normal(3000, 130)

    def loss(x: Any, w: Any) -> Any:
        return sg.reduce_sum(w * sg.softmax(x)), sg.reduce_sum(w * sg.softmax(x), axis=0)

    first = native(loss, x, w)
    for _ in range(20):
        for a, b in zip(first, native(loss, x, w), strict=True):
            np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_labels(dtype: Any, found: list[Region]) -> None:
    for rows_, columns in ((6, 9), (50, 1000), (4, 5000)):
        x = normal(rows_, columns)
        if dtype is np.uint8:
            x = x[:, :200]
        columns = x.shape[1]
        y = R.integers(0, columns, rows_).astype(dtype)
        if dtype is not np.uint8:
            y[0], y[1] = -1, columns
        for f in (
            lambda x, y: sg.sparse_softmax_cross_entropy_with_logits(y, x),
            lambda x, y: sg.cast(sg.one_hot(y, x.shape[-1]), x.dtype) * x,
            lambda x, y: sg.reduce_sum(
                sg.cast(sg.one_hot(y, x.shape[-1]), x.dtype) * sg.log_softmax(x), axis=-1
            ),
            lambda x, y: sg.take_along_axis(sg.log_softmax(x), sg.expand_dims(y, -1), axis=-1),
        ):
            agree(f, x, y, rtol=3e-6, atol=1e-5)
            loss = lambda x, y, f=f: sg.reduce_sum(f(x, y) * 2.0)
            if y.min() >= 0:
                agree(sg.grad(loss), x, y, rtol=3e-6, atol=1e-5)
    assert found


def test_masks_as_results_and_operands(found: list[Region]) -> None:
    x = normal(20, 70)
    for got, want in zip(
        native(lambda x, m: [x > 0, sg.where(m, x, -1e9), sg.reduce_any(x > 2.5, axis=-1)], x, x < 1),
        [x > 0, np.where(x < 1, x, -1e9), (x > 2.5).any(-1)],
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)
    assert found


def test_masks_that_rows_share() -> None:
    x, mask = normal(3, 4, 9, 9), np.tril(np.ones((9, 9), bool))
    agree(lambda x, m: sg.softmax(sg.where(m, x, -1e9)), x, mask, atol=1e-6)
    agree(lambda x, m: sg.softmax(x + m), x, normal(3, 1, 9, 9), atol=1e-6)
    agree(lambda x, m: sg.softmax(x + m), x, normal(3, 1, 9, 1), atol=1e-6)
    agree(lambda x, m: sg.softmax(x * m), x, normal(4, 1, 9), atol=1e-6)
    agree(lambda x, m: sg.softmax(x * m), x, normal(4, 1, 1), atol=1e-6)


# --------------------------------------------------------------------------------------- whole computations


@pytest.mark.parametrize("n", range(len(LOSSES)))
@pytest.mark.parametrize("shape", [(3, 5), (200, 33), (64, 1000), (3, 9000), (1, 70), (2, 3, 50)])
def test_losses_and_their_gradients(n: int, shape: tuple[int, ...], found: list[Region]) -> None:
    f = sg.value_and_grad(LOSSES[n], argnums=(0, 1))

    def flat(x: Any, w: Any) -> Any:
        value, (dx, dw) = f(x, w)
        return value, dx, dw

    agree(flat, normal(*shape), normal(*shape), rtol=1e-5, atol=1e-4)
    assert len([r for r in found if any(x.shape == shape for x in r.inputs)]) == 1


def test_layers_and_their_gradients_are_one_pass(found: list[Region]) -> None:
    x, w = normal(300, 40), normal(40)
    for got, want in zip(
        native(sg.grad(normed, argnums=(0, 1)), x, w),
        exactly(sg.grad(normed, argnums=(0, 1)), x, w),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)
    assert len([region for region in found if len(region.operations) > 1]) == 1


@pytest.mark.parametrize("f", [stable, LOSSES[2], LOSSES[3]])
def test_losses_at_extremes(f: Any) -> None:
    x = normal(12, 37)
    x[0], x[1], x[2] = 1e4 * x[0], -INF, 0.0
    x[3, 0], x[4, 1], x[5, 2] = INF, NAN, -INF
    x[6, 1:], x[7] = -INF, 3e38
    w = normal(12, 37)
    for got, want in zip(
        native(sg.value_and_grad(f), x, w)[1:], plain(sg.value_and_grad(f), x, w)[1:], strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------ random programs


@st.composite
def programs(draw: Any) -> tuple[Any, tuple[int, int]]:
    """A function of x [R, N], r [R, 1] and v [N] whose values stay near 1."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 13), st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=12
        )
    )

    def f(x: Any, r: Any, v: Any) -> Any:
        values = [x, sg.tanh(x + r), x * sg.tanh(v)]
        for kind, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            made = [
                lambda: sg.tanh(a + b),
                lambda: sg.sigmoid(a) * b,
                lambda: sg.softmax(a),
                lambda: sg.layer_norm(a, epsilon=0.1),
                lambda: a - sg.reduce_mean(b, axis=-1, keepdims=True),
                lambda: sg.exp(sg.minimum(a, 1.0)),
                lambda: sg.log(sg.abs(a) + 1.5),
                lambda: a / (1.0 + sg.reduce_sum(sg.square(b), axis=-1, keepdims=True)),
                lambda: sg.where(a > b, a, 0.5 * b),
                lambda: sg.gelu(a),
                lambda: sg.log_softmax(a) * 0.1,
                lambda: a * sg.tanh(r) + v * 0.1,
                lambda: sg.tanh(sg.reduce_max(a, axis=-1, keepdims=True)) + b,
                lambda: sg.maximum(a, sg.stop_gradient(b)) * 0.7,
            ][kind]()
            values.append(made)
        return sg.reduce_sum(values[-1] * sg.tanh(values[-2])) + sg.reduce_mean(values[-3])

    return f, (draw(st.integers(1, 40)), draw(st.integers(2, 60)))


@given(programs())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_programs_and_their_gradients(made: tuple[Any, tuple[int, int]]) -> None:
    f, (rows_, columns) = made
    arrays = normal(rows_, columns), normal(rows_, 1), normal(columns)
    g = sg.grad(f, argnums=(0, 1, 2))
    for got, want in zip(native(g, *arrays), plain(g, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)


# ------------------------------------------------------------------------------------------ where it runs


def test_between_regions_other_operations_are_computed(found: list[Region]) -> None:
    """Attention: products between softmax and its gradient, which must not close a circle."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        p = sg.softmax(q @ sg.transpose(k) * 0.3)
        h = sg.layer_norm(p @ v + q)
        p = sg.softmax(h @ sg.transpose(k) + p)
        return sg.reduce_sum(sg.square(sg.layer_norm(p @ v + h) + p @ v))

    arrays = normal(20, 30), normal(20, 30), normal(20, 30)
    f = sg.grad(attention, argnums=(0, 1, 2))
    for got, want in zip(native(f, *arrays), plain(f, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert len(found) > 2


@pytest.mark.parametrize(
    ("f", "rows", "columns", "ours"),
    [
        *[(sg.tanh, 128, 256, True), (sg.sigmoid, 512, 512, True), (sg.exp, 64, 256, False)],
        *[(sg.tanh, 1024, 512, False), (sg.nn.relu, 128, 256, False)],
    ],
)
def test_functions_between_products_of_matrices(
    f: Any, rows: int, columns: int, ours: bool, found: list[Region], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stopgrad.engines.xla.native.rows._pays", _pays)

    def repeated(x: Any, w: Any) -> Any:
        return sg.fori_loop(0, 3, lambda _, y: f(y @ w + x), x)

    x, w = normal(rows, columns), 0.01 * normal(columns, columns)
    for got, want in zip(native(repeated, x, w), plain(repeated, x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert [*map(kind_of, found)] == ["functions"] * ours


def test_inside_loops(found: list[Region]) -> None:
    def f(x: Any) -> Any:
        last, _ = sg.scan(lambda h, _: (sg.softmax(h * 2.0 + x), sg.reduce_sum(h)), x, None, length=5)
        return sg.reduce_sum(sg.square(last))

    x = normal(500, 40)
    for got, want in zip(native(sg.grad(f), x), plain(sg.grad(f), x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert found


def test_many_threads_at_once() -> None:
    x, w = normal(500, 300), normal(500, 300)
    f = sg.function(sg.grad(stable), engine="xla")
    want = np.asarray(f(x, w))
    wrong = []

    def call() -> None:
        for _ in range(30):
            if not np.array_equal(np.asarray(f(x, w)), want):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_strict_takes_the_plain_form(found: list[Region]) -> None:
    plain(stable, normal(8, 9), normal(8, 9))
    assert not found


def test_switched_off_there_are_no_regions(monkeypatch: pytest.MonkeyPatch, found: list[Region]) -> None:
    monkeypatch.setenv("STOPGRAD_NATIVE", "0")
    agree(stable, normal(8, 9), normal(8, 9), atol=1e-5)
    assert not found


def test_jax_can_still_differentiate_what_was_compiled() -> None:
    jax = pytest.importorskip("jax")
    f = sg.function(stable, engine="xla")
    x, w = jax.numpy.asarray(normal(8, 9)), jax.numpy.asarray(normal(8, 9))
    f(x, w)
    got = jax.grad(lambda x: f(x, w))(x)
    x, w = np.asarray(x), np.asarray(w)
    np.testing.assert_allclose(got, exactly(sg.grad(stable), x, w)[0], atol=1e-6)
    assert jax.vmap(lambda x: f(x, jax.numpy.asarray(w)))(jax.numpy.stack([x, x])).shape == (2,)
