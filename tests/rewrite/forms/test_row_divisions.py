"""What is divided by a row's sum or root mean square is divided last, in whatever way users write it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forms_tools import Case, agree, same_as_written
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from stopgrad.rewrite import formed, prepare
from stopgrad.rewrite.forms import FORMS

F32 = np.float32
INF, NAN = np.inf, np.nan


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


def softmax(
    x: Any, axis: Any = -1, stop: bool = True, keepdims: bool = True, division: str = "/", maximum: Any = None
) -> Any:
    """As users write it."""

    def over(reduce: Any, y: Any) -> Any:
        made = reduce(y, axis, keepdims)
        return made if keepdims else sg.expand_dims(made, axis)

    top = over(sg.reduce_max, x if maximum is None else maximum)
    e = sg.exp(x - (sg.stop_gradient(top) if stop else top))
    s = over(sg.reduce_sum, e)
    if division == "/":
        return e / s
    return e * (1.0 / s if division == "one over" else sg.reciprocal(s))


LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "weighted": lambda p, w, axis: sg.reduce_sum(w * p),
    "weighted mean": lambda p, w, axis: sg.reduce_mean(p * w),
    "weighted rows": lambda p, w, axis: sg.reduce_sum(w * p, axis),
    "minus": lambda p, w, axis: -sg.reduce_sum(w * -p),
    "the first": lambda p, w, axis: -sg.reduce_mean(sg.log(p[:, 0])),
    "cross entropy": lambda p, w, axis: -sg.reduce_mean(sg.reduce_sum(sg.abs(w) * sg.log(p), axis)),
    "entropy": lambda p, w, axis: -sg.reduce_sum(p * sg.log(p), axis),
    "squares": lambda p, w, axis: sg.reduce_sum(sg.square(p - w)),
    "quotient": lambda p, w, axis: sg.reduce_sum(w / p),
    "itself": lambda p, w, axis: p,
    "row times": lambda p, w, axis: sg.reduce_sum(p * sg.reduce_sum(w, axis, True) * w),
    "sum and difference": lambda p, w, axis: sg.reduce_sum(sg.tanh((p + p * w) - p * sg.sin(w))),
    "other axis": lambda p, w, axis: sg.reduce_sum(p * w, 0),
    "vector": lambda p, w, axis: sg.reduce_sum(p * w[0]),
}
CLOSED = {"Max": 1, "Sub": 2, "Exp": 1, "Sum": 3, "Mul": 2, "RealDiv": 2, "Placeholder": 2}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(sorted(LOSSES)),
    axis=st.sampled_from([-1, 0, 1]),
    stop=st.booleans(),
    keepdims=st.booleans(),
    division=st.sampled_from(["/", "one over", "reciprocal"]),
    shape=st.sampled_from([(3, 5), (4, 2), (1, 6), (5, 1), (2, 3)]),
)
def test_every_spelling_keeps_its_value_and_gradient(
    loss: str, axis: int, stop: bool, keepdims: bool, division: str, shape: tuple[int, int]
) -> None:
    def f(x: Any, w: Any) -> Any:
        return LOSSES[loss](softmax(x, axis, stop, keepdims, division), w, axis)

    agree(f, normal(*shape), normal(*shape, seed=1))


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("keepdims", [True, False])
def test_a_softmax_as_written_becomes_the_closed_form(stop: bool, keepdims: bool) -> None:
    with sg.Graph().as_default():
        x, w = sg.placeholder(sg.float32, [16, 8]), sg.placeholder(sg.float32, [16, 8])
        loss = sg.reduce_sum(w * softmax(x, stop=stop, keepdims=keepdims))
        (dx,) = sg.gradients(loss, [x])
    done = formed(prepare([loss, dx], [x, w]), FORMS)
    assert Counter(op.type for op in done.graph.subgraph_to(done.outputs)) == CLOSED


def test_softmax_as_one_operation_becomes_the_closed_form_too() -> None:
    case = agree(lambda x, w: sg.reduce_sum(w * sg.softmax(x)), normal(4, 6), normal(4, 6, seed=1))
    assert not case.types()["Softmax"]


def test_several_axes_and_a_batch() -> None:
    def f(x: Any, w: Any) -> Any:
        return sg.reduce_sum(w * softmax(x, (1, 3)), (1, 3))

    agree(f, normal(2, 3, 2, 4), normal(2, 3, 2, 4, seed=1))


@pytest.mark.parametrize("stop", [True, False])
def test_log_softmax_as_written(stop: bool) -> None:
    def f(x: Any, q: Any) -> Any:
        top = sg.reduce_max(x, -1, True)
        z = x - (sg.stop_gradient(top) if stop else top)
        return -sg.reduce_mean(sg.reduce_sum(q * (z - sg.log(sg.reduce_sum(sg.exp(z), -1, True))), -1))

    case = agree(f, normal(5, 7), normal(5, 7, seed=1))
    assert not case.types()["Equal"]  # Nothing comes back through the maximum.


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(sg.matmul(q, k, transpose_b=True) * 0.5, stop=False) @ v


def test_attention() -> None:
    agree(attention, normal(2, 4, 3), normal(2, 5, 3, seed=1), normal(2, 5, 6, seed=2))


def test_the_second_derivative() -> None:
    def f(x: Any, w: Any) -> Any:
        (dx,) = sg.gradients(sg.reduce_sum(w * sg.square(softmax(x, stop=False))), [x])
        return sg.reduce_sum(dx * w)

    agree(f, normal(3, 4), normal(3, 4, seed=1))


def test_a_stopped_softmax_takes_no_gradient() -> None:
    case = agree(lambda x, w: sg.stop_gradient(softmax(x)) * w, normal(3, 4), normal(3, 4, seed=1))
    np.testing.assert_array_equal(case.run(case.formed)[1], np.zeros((3, 4), F32))


EXTREME = {
    "rows of -inf": [[-INF, -INF, -INF], [0.0, 1.0, 2.0]],
    "some -inf": [[-INF, 0.0, 1.0], [2.0, -INF, -INF]],
    "inf": [[INF, 0.0, 1.0], [0.0, 1.0, 2.0]],
    "NaN": [[NAN, 0.0, 1.0], [0.0, 1.0, 2.0]],
    "ties": [[3.0, 3.0, 1.0], [2.0, 2.0, 2.0]],
    "large": [[1e4, -1e4, 0.0], [1e4, 1e4, -1e4]],
    "huge": [[3e38, -3e38, 0.0], [0.0, 1e30, 1.0]],
}


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("loss", ["weighted", "weighted rows", "the first", "cross entropy"])
@pytest.mark.parametrize("stop", [True, False])
def test_extremes_stay_as_they_were(name: str, loss: str, stop: bool) -> None:
    def f(x: Any, w: Any) -> Any:
        return LOSSES[loss](softmax(x, stop=stop), w, -1)

    same_as_written(f, np.array(EXTREME[name], F32), normal(2, 3))


def test_weights_that_are_not_finite_stay_where_they_were() -> None:
    w = np.array([[INF, 0.0, 1.0], [NAN, 1.0, 2.0], [-INF, INF, 1.0]], F32)
    same_as_written(lambda x, w: sg.reduce_sum(w * softmax(x), -1), normal(3, 3), w)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (3, 1), (1, 1)])
@pytest.mark.parametrize("stop", [True, False])
def test_empty_rows_and_rows_of_one(shape: tuple[int, int], stop: bool) -> None:
    same_as_written(lambda x, w: sg.reduce_sum(w * softmax(x, stop=stop), -1), normal(*shape), normal(*shape))


def _no_maximum(x: Any) -> Any:
    return sg.exp(x) / sg.reduce_sum(sg.exp(x), -1, True)


def _sum_over_another_axis(x: Any) -> Any:
    e = sg.exp(x - sg.reduce_max(x, -1, True))
    return e / sg.reduce_sum(e, 0, True)


def _broadcast_the_wrong_way(x: Any) -> Any:
    e = sg.exp(x - sg.reduce_max(x, -1, True))
    return e / sg.reduce_sum(e, -1)


def _maximum_of_all(x: Any) -> Any:
    e = sg.exp(x - sg.reduce_max(x))
    return e / sg.reduce_sum(e, -1, True)


def _power_of_two(x: Any) -> Any:
    e = sg.pow(x * 0.0 + 2.0, x - sg.reduce_max(x, -1, True))
    return e / sg.reduce_sum(e, -1, True)


NEAR = {
    "no maximum": _no_maximum,
    "sum over another axis": _sum_over_another_axis,
    "sum broadcast the wrong way": _broadcast_the_wrong_way,
    "maximum of all": _maximum_of_all,
    "maximum over another axis": lambda x: (
        sg.exp(x - sg.reduce_max(x, 0, True)) / sg.reduce_sum(sg.exp(x - sg.reduce_max(x, 0, True)), -1, True)
    ),
    "maximum of another": lambda x: softmax(x, maximum=sg.sin(x)),
    "power of two": _power_of_two,
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_no_safe_softmax_is_left_as_it_is(name: str) -> None:
    case = agree(lambda x, w: sg.reduce_sum(w * NEAR[name](x)), normal(4, 4), normal(4, 4, seed=1))
    divisions = sum(op.type == "RealDiv" for op in case.plain.graph.subgraph_to(case.plain.outputs))
    assert case.types()["RealDiv"] == divisions


def test_16_bit_floats_are_left_as_they_are() -> None:
    case = Case(lambda x, w: sg.reduce_sum(w * softmax(x)), [normal(3, 4).astype(np.float16)] * 2)
    assert not case.changed()


# --------------------------------------------------------------------------------------- normalisation


def layer_norm(x: Any, root: str, epsilon: float, variance: str) -> Any:
    centred = x - sg.reduce_mean(x, -1, True)
    if variance == "operation":
        v = sg.reduce_variance(x, -1, True)
    else:
        squares = {"square": sg.square(centred), "product": centred * centred, "power": centred**2}[variance]
        v = sg.reduce_mean(squares, -1, True)
    return centred / sg.sqrt(v + epsilon) if root == "sqrt" else centred * sg.rsqrt(v + epsilon)


def rms_norm(x: Any, root: str, epsilon: float, variance: str) -> Any:
    v = sg.reduce_mean(x * x if variance == "product" else sg.square(x), -1, True)
    return x / sg.sqrt(epsilon + v) if root == "sqrt" else x * sg.rsqrt(epsilon + v)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    norm=st.sampled_from([layer_norm, rms_norm]),
    root=st.sampled_from(["sqrt", "rsqrt"]),
    variance=st.sampled_from(["square", "product", "power", "operation"]),
    after=st.sampled_from(["scale and offset", "tanh", "weights", "residual"]),
    shape=st.sampled_from([(3, 5), (2, 3, 4), (4, 2)]),
)
def test_every_spelling_of_a_normalisation_keeps_its_value_and_gradient(
    norm: Any, root: str, variance: str, after: str, shape: tuple[int, ...]
) -> None:
    def f(x: Any, w: Any, scale: Any, offset: Any) -> Any:
        y = norm(x, root, 1e-3, variance)
        if after == "tanh":
            return sg.tanh(y) * w
        if after == "residual":
            return x + y * w
        return y * scale + offset if after == "scale and offset" else sg.reduce_sum(y * w)

    last = shape[-1]
    agree(f, normal(*shape), normal(*shape, seed=1), normal(last, seed=2), normal(last, seed=3))


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
@pytest.mark.parametrize("root", ["sqrt", "rsqrt"])
def test_the_gradient_of_a_normalisation_reads_each_sum_once(norm: Any, root: str) -> None:
    def f(x: Any, w: Any) -> Any:
        return sg.reduce_sum(norm(x, root, 1e-5, "product") * w)

    case = agree(f, normal(4, 6), normal(4, 6, seed=1))
    # For the loss and Σ w c, and for layer norm Σ w; the mean and the variance are Mean.
    assert case.types()["Sum"] <= (3 if norm is layer_norm else 2) + 1
    assert case.changed()


def test_layer_norm_as_one_operation() -> None:
    case = agree(
        lambda x, w: sg.reduce_sum(sg.tanh(sg.layer_norm(x)) * w), normal(4, 6), normal(4, 6, seed=1)
    )
    assert not case.types()["LayerNorm"]
    assert not case.types()["Variance"]


@pytest.mark.parametrize("name", [name for name in EXTREME if name != "huge"])
@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_extremes_of_a_normalisation(name: str, norm: Any) -> None:
    x = np.array(EXTREME[name], F32)
    same_as_written(lambda x, w: sg.reduce_sum(norm(x, "sqrt", 1e-5, "square") * w), x, normal(2, 3))


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_where_a_variance_overflows_no_finite_number_is_lost(norm: Any) -> None:
    f = lambda x, w: sg.reduce_sum(norm(x, "sqrt", 1e-5, "square") * w)
    case = Case(f, [np.array(EXTREME["huge"], F32), normal(2, 3)])
    for made, want in zip(case.run(case.formed), case.run(case.plain), strict=True):
        finite = np.isfinite(want)
        np.testing.assert_array_equal(made[finite], want[finite])


def test_rows_that_are_constant_have_a_finite_gradient() -> None:
    x = np.array([[2.0, 2.0, 2.0], [1e-20, 2e-20, 0.0]], F32)
    agree(lambda x, w: sg.reduce_sum(layer_norm(x, "sqrt", 1e-5, "square") * w, -1), x, normal(2, 3))


def test_a_root_without_a_positive_number_is_left_as_it_is() -> None:
    def f(x: Any, w: Any) -> Any:
        return sg.reduce_sum(w * (x / sg.sqrt(sg.reduce_mean(x * x, -1, True))))

    assert not Case(f, [normal(3, 4), normal(3, 4)]).changed()


# ------------------------------------------------------------------------------------------- rewriting


@pytest.mark.slow
def test_rewriting_takes_linear_time() -> None:
    """Counted in operations made, not in seconds."""

    def made(layers: int) -> int:
        def f(x: Any, w: Any) -> Any:
            for _ in range(layers):
                x = x + layer_norm(softmax(x @ w, stop=False), "sqrt", 1e-5, "product")
            return sg.reduce_sum(x)

        return len(Case(f, [normal(3, 4), normal(4, 4)]).formed.graph)

    one, two, four = made(10), made(20), made(40)
    assert four - two <= 2.2 * (two - one)
