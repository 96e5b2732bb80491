"""``check_gradients``: real rules pass, deliberate stops pass, kinks are recognised, reports can be read."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sample_tools import with_dtype
from stopgrad.errors import StopgradError
from together import together

import stopgrad as sg
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import dtype_of, tensor_type
from stopgrad.flow.checking.finite_differences import JUMP, KINK, SMOOTH, Steps, complex_slope, slope_at
from stopgrad.flow.checking.frozen import COMPLEX
from stopgrad.flow.checking.numeric import ELEMENTWISE
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.interpreter import NUMPY_BACKEND, Types, prepared
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import REGISTRY, Op, Unsupported
from stopgrad.graph.operands import type_of
from stopgrad.ops.random.gamma_quantiles import moved_log_gamma
from stopgrad.ops.structural.sources import Placeholder

Array = np.ndarray[Any, Any]

X = np.array([0.3, -0.8, 1.4])
Y = np.array([1.2, 0.5, -0.4])


def drawn(sample: Sample) -> list[Array]:
    """Operands of a sample, the same in every run."""
    generator = np.random.default_rng(zlib.crc32(repr(sample).encode()))
    return [o.draw(generator, {"n": 3}) if isinstance(o, Values) else o for o in sample.operands]


def moves(definition: type[Op], sample: Sample) -> bool:
    """Whether it takes and returns tensors that carry gradients."""
    if isinstance(definition.lower, Unsupported):
        return False
    types = tuple(type_of(a) for a in drawn(sample))
    made = infer_types(definition, types, tuple(sample.attributes[a] for a in definition.attributes))
    return any(t.differentiable for t in types) and any(t.differentiable for t in made)


# ---------------------------------------------------------------------------------------------- real rules

CASES = [
    pytest.param(definition, s, id=f"{name}-{i}", marks=[] if i == 0 else pytest.mark.nightly)
    for name, definition in REGISTRY.items()
    for i, s in enumerate(definition.samples)
    if moves(definition, s)
]


@pytest.mark.slow
@together(("definition", "sample"), CASES, parts=4)
def test_every_rule_passes(definition: type[Op], sample: Sample) -> None:
    """First and second derivatives, reverse and forward: of all operations, gates among them."""
    graph, arrays = Graph(), drawn(sample)
    xs = [emit(Placeholder, (), (dtype_of(a.dtype), a.shape, ()), "", graph).outputs[0] for a in arrays]
    if definition.type == "Assign":
        with graph.as_default():
            xs[0] = sg.parameter(arrays[0])
    values = tuple(sample.attributes[name] for name in definition.attributes)
    outputs = emit(definition, tuple(xs), values, None, graph).outputs
    ys = [y for y in outputs if y.type.differentiable]
    moved = [x for x in xs if x.type.differentiable]
    feeds = {x: a for x, a in zip(xs, arrays, strict=True) if x.op.definition is Placeholder}
    if definition.type == "PreventGradient":
        with pytest.raises(sg.GradientError, match="not here"):
            sg.check_gradients(ys, moved, feed_dict=feeds)
        return
    check = sg.check_gradients(ys, moved, feed_dict=feeds, order=2)
    assert set(check) == set(moved)
    assert all(found.error < 10.0 * check.rtol for found in check.values())


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [sg.float32, sg.float16], ids=str)
@pytest.mark.parametrize(("definition", "sample"), [c for c in CASES if c.id.endswith("-0")])
def test_every_rule_passes_in_small_dtypes(definition: type[Op], sample: Sample, dtype: Any) -> None:
    (small,) = with_dtype([sample], dtype)
    arrays, values = drawn(small), tuple(sample.attributes[name] for name in definition.attributes)
    try:
        infer_types(definition, tuple(type_of(a) for a in arrays), values)
    except sg.DTypeError:
        return  # It takes float64 alone.
    if definition.type not in ("Assign", "PreventGradient"):
        test_every_rule_passes(definition, small)


# --------------------------------------------------------------------------------------------------- stops


def stable_softmax(x: Any) -> Any:
    e = sg.exp(x - sg.stop_gradient(sg.reduce_max(x)))
    return e / sg.reduce_sum(e)


def vector_quantization(z: Any, codes: Any) -> Any:
    """VQ-VAE: straight-through, a codebook and a commitment loss (van den Oord et al. 2017)."""
    distance = sg.square(sg.expand_dims(z, 1) - codes)
    nearest = sg.gather(codes, sg.argmin(distance, 1))
    passed = sg.straight_through(nearest, z)
    commitment = sg.square(z - sg.stop_gradient(nearest))
    return sg.square(passed - 1.0) + sg.square(nearest - sg.stop_gradient(z)) + 0.25 * commitment


def by_hand(z: Any, codes: Any) -> Any:
    """The straight-through trick with nothing but a stop."""
    nearest = sg.gather(codes, sg.argmin(sg.square(sg.expand_dims(z, 1) - codes), 1))
    return sg.square(z + sg.stop_gradient(nearest - z) - 1.0)


def temporal_difference(w: Any, s: Any) -> Any:
    target = sg.stop_gradient(1.0 + 0.9 * sg.reduce_sum(w * s * s))
    return sg.square(sg.reduce_sum(w * s) - target)


def in_a_scan(x: Any, w: Any) -> Any:
    return sg.scan(lambda c, _: (sg.sin(c) * sg.stop_gradient(c) + w, None), x, length=4)[0]


def in_a_branch(x: Any, w: Any) -> Any:
    return sg.cond(sg.reduce_sum(x) > 0.0, lambda: sg.stop_gradient(w) * x * w, lambda: x)


def in_a_loop(x: Any, w: Any) -> Any:
    body = lambda i, c: (i + 1, sg.sin(c) * sg.stop_gradient(w * c) + w)
    return sg.while_loop(lambda i, c: i < 3, body, (0, x), maximum_iterations=5)[1]


def in_a_recomputed_part(x: Any, w: Any) -> Any:
    return sg.checkpoint(lambda x, w: sg.exp(x) * sg.stop_gradient(x * w) * w)(x, w)


def in_a_block(x: Any, w: Any) -> Any:
    with sg.no_gradient():
        target = sg.exp(x) * w
    return target * x * w


def towards_one(x: Any, w: Any) -> Any:
    return sg.stop_gradient(x * w, wrt=[x]) * x + w


def towards_one_in_a_scan(x: Any, w: Any) -> Any:
    return sg.scan(lambda c, _: (sg.stop_gradient(c * x * w, wrt=[x]) + x, None), w, length=3)[0]


def switched_on(x: Any, w: Any) -> Any:
    return sg.stop_gradient(x * w, when=sg.reduce_sum(x) > 0.0) * x


def switched_off(x: Any, w: Any) -> Any:
    return sg.stop_gradient(x * w, when=sg.reduce_sum(x) < 0.0) * x


def changed(x: Any, w: Any) -> Any:
    return sg.scale_gradient(x * x, 0.3) * w + sg.reverse_gradient(sg.exp(w)) * sg.zero_gradient(x)


def without_one(x: Any, w: Any) -> Any:
    @sg.custom_gradient
    def scaled(x: Any, w: Any) -> Any:
        e = sg.exp(x)
        return e * w, lambda g: (None, g * e)

    return scaled(x, w) * x


def nested_without_one(x: Any, w: Any) -> Any:
    @sg.custom_gradient
    def outer(x: Any, w: Any) -> Any:
        y = without_one(x, w)
        return y * x, lambda g: (None, sg.gradients(y * x, [w], g)[0])

    return outer(x, w) + x


def many_times(x: Any, w: Any) -> Any:
    step = lambda c, v: (sg.stop_gradient(c) * sg.sin(v) + c, sg.stop_gradient(v) * c)
    inner = lambda c: sg.scan(step, c, x)
    return sg.scan(lambda c, _: (inner(c)[0], inner(c)[1]), sg.reduce_sum(w), length=2)[1]


STOPS: list[tuple[Callable[..., Any], tuple[Array, ...], set[str]]] = [
    (stable_softmax, (X,), set()),  # The one stop that changes nothing.
    (vector_quantization, (X, np.array([-1.0, 0.2, 1.0])), {"z", "codes"}),
    (by_hand, (X, np.array([-1.0, 0.2, 1.0])), {"z", "codes"}),
    (temporal_difference, (X, Y), {"w", "s"}),
    (in_a_scan, (X, Y), {"x", "w"}),
    (in_a_branch, (X, Y), {"w"}),
    (in_a_loop, (X, Y), {"x", "w"}),
    (in_a_recomputed_part, (X, Y), {"x", "w"}),
    (in_a_block, (X, Y), {"x", "w"}),
    (towards_one, (X, Y), {"x"}),
    (towards_one_in_a_scan, (X, Y), {"x"}),
    (switched_on, (X, Y), {"x", "w"}),
    (switched_off, (X, Y), set()),
    (changed, (X, Y), {"x", "w"}),
    (without_one, (X, Y), {"x"}),
    (nested_without_one, (X, Y), {"x"}),
    (many_times, (X, Y), {"x", "w"}),
]


@pytest.mark.parametrize(("f", "args", "moved"), STOPS, ids=lambda v: getattr(v, "__name__", ""))
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_deliberate_stops_pass(
    f: Callable[..., Any], args: tuple[Array, ...], moved: set[str], dtype: type
) -> None:
    arrays = [a.astype(dtype) for a in args]
    check = sg.check_gradients(f, *arrays, order=2)
    assert check.passed
    assert check.held or check.custom
    # Stops ignored, exactly those inputs differ for which a path is stopped; that is told and not raised.
    ignored = sg.check_gradients(f, *arrays, stops="ignore")
    assert {name for name, found in ignored.items() if not found.passed} == moved
    assert all(found.error > 1e-3 for name, found in ignored.items() if name in moved)
    assert "true total derivative" in ignored.to_text().replace("\n ", "")


def programs(seed: int) -> Callable[[Any, Any], Any]:
    """A random program of smooth operations, gates, and bodies with gates in them."""

    def program(x: Any, w: Any) -> Any:
        random = np.random.default_rng(seed)
        values = [x, w]

        def any_value() -> Any:
            return values[random.integers(len(values))]

        for _ in range(12):
            a, b = any_value(), any_value()
            made = [
                lambda: sg.tanh(a) * b,
                lambda: sg.sin(a) + b,
                lambda: sg.softmax(a),
                lambda: sg.relu(a) - 0.3 * b,
                lambda: sg.stop_gradient(a) * b,
                lambda: sg.stop_gradient(a * b, wrt=[[x], [w]][random.integers(2)]) + a,
                lambda: sg.straight_through(sg.round(a), a) * b,
                lambda: sg.scale_gradient(a, 0.25) + b,
                lambda: sg.stop_gradient(a, when=sg.reduce_sum(b) > 0.0) * b,
                lambda: sg.scan(lambda c, v: (sg.sin(c) * sg.stop_gradient(v), c * v), b[0], a)[1],
                lambda: sg.cond(sg.reduce_sum(a) > 0.0, lambda: sg.stop_gradient(a) * b, lambda: a + b),
                lambda: sg.checkpoint(lambda u, v: sg.tanh(u * sg.stop_gradient(v)))(a, b),
            ]
            values.append(made[random.integers(len(made))]())
        return sum(values[2:])

    return program


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_with_stops_pass(seed: int) -> None:
    assert sg.check_gradients(programs(seed), X, Y, order=2).passed


def test_the_distance_to_the_total_derivative_is_told() -> None:
    """d/dx x stop(x) is x, and d/dx x² is 2 x: half of it."""
    check = sg.check_gradients(lambda x: x * sg.stop_gradient(x), X, stops="ignore")
    assert check["x"].error == pytest.approx(0.5)
    worst = check["x"].worst
    assert worst is not None
    assert worst.numeric == pytest.approx(2.0 * worst.generated)


def test_clipped_gradients_are_compared_unclipped() -> None:
    for clip in (lambda x: sg.clip_gradient(x, -0.1, 0.1), lambda x: sg.clip_gradient_norm(x, 0.1)):
        check = sg.check_gradients(lambda x, clip=clip: sg.square(clip(x * 5.0)), X)
        assert "clipped nothing" in check.to_text()


def test_a_draw_passes_with_its_implicit_gradient() -> None:
    key = sg.random_key(3)
    for f in (
        lambda a: sg.random_gamma(None, key, a),
        lambda a: sg.random_beta(None, key, a, 2.0 * a),
        lambda a: sg.random_dirichlet(None, key, a),
        lambda a: sg.random_normal([3], key, dtype=sg.float64) * a,
    ):
        assert sg.check_gradients(f, np.array([0.7, 2.0, 11.0]), order=2).passed
    assert sg.check_gradients(lambda x: sg.dropout(x, 0.5, key=key), X.astype(np.float32)).passed


def test_quantiles_stay_where_a_gamma_number_moves() -> None:
    special = pytest.importorskip("scipy.special")
    shape, other = np.array([0.05, 0.8, 3.0, 40.0, 0.02]), np.array([0.06, 0.7, 3.5, 39.0, 0.021])
    draw = np.array([-18.0, -0.3, 2.4, 3.6, -120.0])
    moved = moved_log_gamma(draw, shape, other)
    before, after = special.gammainc(shape, np.exp(draw)), special.gammainc(other, np.exp(moved))
    np.testing.assert_allclose(after, before, rtol=1e-12)


# --------------------------------------------------------------------------------------------------- kinks


@pytest.mark.parametrize(
    ("f", "x", "kinks"),
    [
        (sg.relu, [0.0, 1.0, -1.0, 0.0], {(0,), (3,)}),
        (lambda x: sg.where(x > 0.0, x, 0.0 * x), [0.0, 1.0], {(0,)}),
        (sg.abs, [0.0, 2.0], {(0,)}),
        (sg.reduce_max, [1.0, 3.0, 3.0], {(1,), (2,)}),
        (lambda x: sg.maximum(x, 0.5), [0.5, 0.7], {(0,)}),
        (lambda x: sg.sort(x), [2.0, 1.0, 2.0], {(0,), (2,)}),
        (lambda x: sg.clip_by_value(x, -1.0, 1.0), [1.0, 0.2], {(0,)}),
        # Moving the third alone changes neither of the two largest.
        (lambda x: sg.top_k(x, 2)[0], [1.0, 1.0, 1.0, 0.5], {(0,), (1,), (2,)}),
        (sg.relu, [1e-12, -1e-12, 1.0], {(0,), (1,)}),  # So near that every step crosses it.
    ],
)
def test_kinks_are_reported_and_pass(f: Callable[..., Any], x: list[float], kinks: set[Any]) -> None:
    check = sg.check_gradients(f, np.array(x))
    found = check["x" if "x" in check else next(iter(check))]
    assert {kink.index for kink in found.kinks} == kinks
    assert all(kink.low - 1e-6 <= kink.generated <= kink.high + 1e-6 for kink in found.kinks)
    assert not any(kink.jump for kink in found.kinks)
    assert "one-sided" in check.to_text()


@pytest.mark.parametrize("near", [1e-2, 1e-4, 1e-6])
def test_a_corner_beside_the_point_is_none(near: float) -> None:
    """Some steps cross it; smaller ones do not."""
    check = sg.check_gradients(lambda x: sg.relu(x) * 3.0, np.array([near, -near, 1.0]))
    assert check["x"].kinks == ()


def test_leaps_are_recognised() -> None:
    check = sg.check_gradients(lambda x: sg.floor(x) * x, np.array([2.0, 1.5]))
    assert [(kink.index, kink.jump) for kink in check["x"].kinks] == [((0,), True)]
    flips = sg.check_gradients(lambda x: sg.where(x >= 1.0, 5.0 + x, 2.0 * x), np.array([1.0, 0.2]))
    assert [(kink.index, kink.jump) for kink in flips["x"].kinks] == [((0,), True)]


@pytest.mark.parametrize("slope", [-0.5, 1.5, 2.0])
def test_at_a_kink_a_wrong_gradient_still_fails(slope: float) -> None:
    wrong = sg.custom_gradient(lambda x: (sg.relu(x), lambda g: g * sg.where(x > 0.0, 1.0, slope)))
    check = sg.check_gradients(wrong, np.array([0.0, 1.0]), raises=False)
    assert not check.passed
    assert "one-sided derivatives, 0 and 1" in " ".join(check.to_text().split())
    right = sg.custom_gradient(lambda x: (sg.relu(x), lambda g: g * sg.where(x > 0.0, 1.0, 0.0) + 0.0 * g))
    assert sg.check_gradients(right, np.array([0.0, 1.0])).passed


def test_two_kinks_that_make_a_smooth_function_fail() -> None:
    """It is x, whose derivative is 1; of each relu the gradient at 0 is 0. The other points pass."""
    check = sg.check_gradients(lambda x: sg.relu(x) - sg.relu(-x), np.array([0.0, 1.0]), raises=False)
    assert not check.passed
    worst = check["x"].worst
    assert worst is not None
    assert (worst.index, worst.generated) == ((0,), 0.0)
    assert worst.numeric == pytest.approx(1.0)


def test_kinks_of_large_inputs_are_set_aside() -> None:
    x = np.random.default_rng(0).normal(size=1000)
    x[[3, 500, 998]] = 0.0
    check = sg.check_gradients(lambda x: sg.leaky_relu(x, 0.1), x)
    assert check["x"].method == "directional"


def test_where_a_function_ends_its_one_side_is_compared() -> None:
    assert sg.check_gradients(lambda x: x**1.5, np.array([0.0, 2.0])).passed
    assert sg.check_gradients(lambda x: sg.xlogy(x, x + 1.0), np.array([0.0, 2.0])).passed


# ------------------------------------------------------------------------------------------ dtypes, sizes


@pytest.mark.parametrize("dtype", [sg.float16, sg.bfloat16, sg.float32, sg.float64], ids=str)
def test_every_precision_has_a_tolerance_that_fits(dtype: Any) -> None:
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(dtype.numpy)
    w = np.random.default_rng(2).normal(size=(3, 5)).astype(dtype.numpy)
    f = lambda x, w: sg.reduce_logsumexp(sg.tanh(x @ w), -1)
    assert sg.check_gradients(f, x, w).passed
    wrong = sg.custom_gradient(lambda x: (sg.tanh(x), lambda g: g * (1.0 - sg.tanh(x))))
    assert not sg.check_gradients(wrong, x, raises=False).passed


def test_the_coarsest_dtype_on_the_way_counts() -> None:
    f = lambda x: sg.cast(sg.exp(sg.cast(x, sg.float16)), sg.float64)
    assert sg.check_gradients(f, X).rtol == sg.check_gradients(sg.exp, X.astype(np.float16)).rtol


def test_complex_inputs_follow_the_convention() -> None:
    z = np.array([0.3 + 1.2j, -0.7 + 0.4j])
    for f in (
        lambda z: sg.square(sg.abs(z)) * sg.real(z),
        lambda z: sg.conj(z) * sg.exp(z),
        lambda z: sg.sqrt(z) / z,
        sg.xp.fft.fft,
    ):
        assert sg.check_gradients(f, z, order=2).passed
        assert sg.check_gradients(f, z.astype(np.complex64)).passed
    wrong = sg.custom_gradient(lambda z: (sg.exp(z), lambda g: g * sg.exp(z)))  # not conjugated
    assert not sg.check_gradients(wrong, z, raises=False).passed


def test_integers_are_passed_over_and_empty_arrays_pass() -> None:
    check = sg.check_gradients(lambda x, i, b: sg.gather(x, i) * 2.0, X, np.array([0, 2]), True)
    assert list(check) == ["x"]
    empty = sg.check_gradients(lambda x: sg.softmax(x), np.zeros((0, 3)))
    assert empty["x"].worst is None
    assert empty.passed
    assert sg.check_gradients(lambda x: x[:0], X, order=2).passed


def test_large_inputs_are_moved_in_directions() -> None:
    w = np.random.default_rng(0).normal(size=(60, 50)).astype(np.float32)
    f = lambda w: sg.reduce_mean(sg.softplus(w @ sg.transpose(w)))
    check = sg.check_gradients(f, w)
    assert check["w"].method == "directional"
    assert sg.check_gradients(f, w, directions=2, seed=5).passed
    assert sg.check_gradients(f, w[:4, :4])["w"].method != "directional"
    assert ELEMENTWISE >= 16
    assert sg.check_gradients(f, w[:4, :4], directions=3)["w"].method == "directional"


def test_the_seed_decides() -> None:
    x = np.random.default_rng(0).normal(size=200)
    once, again, other = (sg.check_gradients(sg.sin, x, seed=seed)["x"].worst for seed in (1, 1, 2))
    assert once == again != other


def test_numbers_of_very_different_size() -> None:
    x = np.array([1e-9, 1.0, 1e6])
    assert sg.check_gradients(lambda x: sg.log(x), x).passed
    assert sg.check_gradients(lambda x: sg.log(x) + 0.0 * sg.abs(x), x).passed
    assert sg.check_gradients(lambda x: sg.reduce_sum(sg.abs(x) ** 0.5), x).passed
    wrong = sg.custom_gradient(lambda x: (sg.log(sg.abs(x)), lambda g: 1.01 * g / x))
    assert not sg.check_gradients(wrong, x, raises=False).passed


# ----------------------------------------------------------------------------------------------- two styles


def test_graphs_with_parameters_and_open_sizes() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["n", 2], name="x")
        w = sg.parameter(np.array([1.0, 2.0]), name="w")
        hidden = sg.tanh(x * w)
        first, second = sg.split(hidden * sg.stop_gradient(hidden), 2, axis=1)
        y = sg.reduce_sum(first * second)
    count = len(graph.operations)
    feeds = {"x": np.random.default_rng(0).normal(size=(3, 2))}
    check = sg.check_gradients(y, [w, x, hidden, first], feed_dict=feeds, order=2)
    assert len(graph.operations) == count, "the user's graph is as it was"
    assert set(check) == {w, x, hidden, first}
    assert check["w"] is check["w:0"] is check[w] is check[w.op]
    assert sg.check_gradients(y, w, feed_dict={**feeds, w: [3.0, -1.0]}).passed
    with pytest.raises(sg.FeedError, match="must be fed"):
        sg.check_gradients(y, w)
    with pytest.raises(KeyError, match="it checked w:0"):
        sg.check_gradients(y, w, feed_dict=feeds)["nothing"]


def test_several_results_count_with_their_sum() -> None:
    check = sg.check_gradients(
        lambda p, k=1.0: {"a": p["u"] * k, "b": [sg.sin(p["v"])]}, {"u": 2.0, "v": X}, k=3.0
    )
    assert list(check) == ["p.u", "p.v"]
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [3])
        check = sg.check_gradients([sg.exp(x), sg.cast(x, sg.int32), sg.sin(x)], [x], feed_dict={x: X})
    assert check.passed


def test_what_is_disconnected_or_only_stopped_is_zero() -> None:
    check = sg.check_gradients(lambda a, b: a * sg.stop_gradient(b), X, Y, order=2)
    assert check["b"].worst is not None
    assert check["b"].worst.generated == check["b"].worst.numeric == 0.0


def test_argnums_choose_and_modes_are_told() -> None:
    check = sg.check_gradients(lambda a, b: a * b, X, Y, argnums=1, modes="forward")
    assert list(check) == ["b"]
    assert check.modes == ("forward",)


def test_long_chains_need_no_recursion() -> None:
    def chain(x: Any) -> Any:
        for _ in range(2000):
            x = sg.sin(x)
        return x

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        assert sg.check_gradients(chain, 0.5).passed
    finally:
        sys.setrecursionlimit(limit)


# -------------------------------------------------------------------------------------------------- reports


@sg.custom_gradient
def _wrong(x: Any) -> Any:
    e = sg.exp(x)

    def back(g: Any) -> Any:
        return g * e * 2.0

    return e, back


def test_a_failure_names_the_input_the_numbers_and_the_lines() -> None:
    f = lambda params: sg.reduce_sum(_wrong(params["weights"]) * sg.stop_gradient(params["weights"]))
    with pytest.raises(sg.GradientError) as caught:
        sg.check_gradients(f, {"weights": X, "bias": Y})
    message = str(caught.value)
    report = sg.check_gradients(f, {"weights": X, "bias": Y}, raises=False).to_text()
    value = 1.4 * np.exp(1.4)
    for text in (message, report):
        assert "params.weights float64[3]: DIFFERS" in text
        assert f"generated {2.0 * value:.10g}" in text
        assert re.search(rf"numeric +{str(value)[:6]}", text)
        assert "at [2]" in text
        assert "operations whose own rules differ" in text
        assert "g * e * 2.0" in text
        assert "test_check_gradients.py" in text
    assert message.count("\n") < 12  # A traceback has room for it.
    assert "params.bias float64[3]: passed" in report
    assert "at [2], order 1, reverse mode" in report
    assert "sg.stop_gradient(params" in report
    assert max(map(len, report.splitlines())) <= 80


def test_no_right_rule_is_accused() -> None:
    """The exponent of a negative number has no derivative, and nobody asks for it."""
    check = sg.check_gradients(lambda x: sg.reduce_mean((_wrong(x) - 1.0) ** 2), X, raises=False)
    assert not check.passed
    assert [[op.type for op in held.operations] for held in check.wrong] == [["CustomGradient"]]


def test_every_report_fits_and_is_valid_json() -> None:
    checks = [sg.check_gradients(f, *args, stops="ignore") for f, args, _ in STOPS]
    checks += [sg.check_gradients(sg.relu, np.zeros(50)), sg.check_gradients(sg.sqrt, 0.0, raises=False)]
    for check in checks:
        assert max(map(len, check.to_text().splitlines())) <= 80
        report = json.loads(check.to_json())
        assert report["passed"] is check.passed is bool(check)
        assert set(report["inputs"]) == set(check)
        assert len(report["held"]) == len(check.held)
        assert repr(check).startswith("<GradientCheck ")


def test_values_that_are_not_finite_point_to_trace_nan() -> None:
    for f, x, says in (
        (lambda x: sg.log(x), -1.0, "the value of"),
        (lambda x: sg.sqrt(x) * 0.0, 0.0, "gradient is NaN or infinite"),
        (lambda x: sg.where(x > 0.0, sg.sqrt(x), 0.0), -1.0, "gradient is NaN or infinite"),
        (lambda x: x, np.nan, "the input x"),
    ):
        with pytest.raises(sg.GradientError, match="trace_nan") as caught:
            sg.check_gradients(f, x)
        assert says in " ".join(str(caught.value).split())


def test_why_there_is_no_complex_step_is_told() -> None:
    assert sg.check_gradients(sg.exp, X)["x"].method == "complex step"
    check = sg.check_gradients(lambda x: sg.norm(x), X)
    assert check["x"].method == "central"
    assert any("not holomorphic" in note for note in check.notes)
    assert sg.check_gradients(lambda x: sg.where(x > 0.0, x, 2.0 * x), X)["x"].method == "central"


@together("name", [n for n, d in REGISTRY.items() if d.samples], parts=2)
def test_what_takes_complex_numbers_is_holomorphic_or_said_not_to_be(name: str) -> None:
    """On each sample in complex numbers: the complex step against central differences."""
    definition = REGISTRY[name]
    for sample in definition.samples:
        arrays = drawn(sample)
        if isinstance(definition.lower, Unsupported) or any(a.dtype.kind == "c" for a in arrays):
            continue
        slopes = _complex_slopes(definition, sample, arrays)
        if slopes is not None:
            step, central = slopes
            close = np.allclose(step, central, rtol=1e-5, atol=1e-6)
            assert close or definition.not_holomorphic, f"{sample}: {step} and {central}"


def _complex_slopes(
    definition: type[Op], sample: Sample, arrays: Sequence[Array]
) -> tuple[Array, Array] | None:
    """By the complex step and by differences; None where the operation takes no complex numbers."""
    kinds = [COMPLEX.get(dtype_of(a.dtype), dtype_of(a.dtype)) for a in arrays]
    given = [sample.attributes[a] for a in definition.attributes]
    values = tuple(
        COMPLEX.get(v, v) if kind is Kind.DTYPE else v
        for kind, v in zip(definition.kinds.values(), given, strict=True)
    )
    types = tuple(tensor_type(d, a.shape) for d, a in zip(kinds, arrays, strict=True))
    try:
        made = infer_types(definition, types, values)
    except StopgradError:
        return None
    if any(t.dtype.is_floating for t in made) or not any(t.dtype.is_complex for t in made):
        return None  # A real value of a complex number: that is seen, and no complex step taken.
    compute = prepared(definition, values, Types(types, made), NUMPY_BACKEND, lambda: definition.type)
    generator = np.random.default_rng(4)
    directions = [generator.uniform(-1.0, 1.0, a.shape) for a in arrays]

    def at(t: complex) -> Array:
        moved = [
            a.astype(complex) + t * d if a.dtype.kind == "f" else a
            for a, d in zip(arrays, directions, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = compute(*moved)
        parts = found if len(made) > 1 else [found]
        return np.concatenate([np.asarray(p, complex).ravel() for p in parts])

    return at(1e-20j).imag / 1e-20, ((at(1e-6) - at(-1e-6)) / 2e-6).real


# ------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"order": 3}, sg.ArgumentError, "order is 1 or 2"),
        ({"order": 1.5}, sg.ArgumentError, "order is 1 or 2"),
        ({"modes": "sideways"}, sg.ArgumentError, "modes are"),
        ({"modes": ()}, sg.ArgumentError, "modes are"),
        ({"stops": "keep"}, sg.ArgumentError, "stops is 'hold', 'program' or 'ignore'"),
        ({"rtol": -1.0}, sg.ArgumentError, "rtol is a number from 0"),
        ({"rtol": "small"}, sg.ArgumentError, "small"),
        ({"atol": float("nan")}, sg.ArgumentError, "atol is a number from 0"),
        ({"directions": 0}, sg.ArgumentError, "directions is a whole number from 1"),
        ({"seed": -1}, sg.ArgumentError, "seed is a whole number from 0"),
        ({"raises": "yes"}, sg.ArgumentError, "raises"),
        ({"feed_dict": {}}, sg.ArgumentError, "feed_dict is for outputs"),
        ({"argnums": 4}, sg.GradientError, "argnums"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        sg.check_gradients(sg.exp, X, **arguments)


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(sg.DTypeError, match="none of the inputs is floating-point"):
        sg.check_gradients(lambda i: sg.cast(i, sg.float32), 3)
    with pytest.raises(sg.DTypeError, match="none of the results is floating-point"):
        sg.check_gradients(lambda x: sg.cast(x, sg.int32), X)
    with pytest.raises(sg.GraphError, match="takes ys and xs"):
        sg.check_gradients(X, X, X)
    with pytest.raises(sg.GradientError, match="not this way"):
        sg.check_gradients(lambda x: sg.prevent_gradient(x, "not this way"), X)
    with pytest.raises(ZeroDivisionError):
        sg.check_gradients(lambda x: x * (1 / 0), X)


# -------------------------------------------------------------------------------- where the gradient is zero

STATIONARY: dict[str, Callable[[Any], Any]] = {
    "x*x": lambda x: sg.reduce_sum(x * x),
    "x**2": lambda x: sg.reduce_sum(x**2),
    "x**2.0": lambda x: sg.reduce_sum(x**2.0),
    "x**3": lambda x: sg.reduce_sum(x**3),
    "x**4": lambda x: sg.reduce_sum(x**4),
    "tanh(x*x)": lambda x: sg.reduce_sum(sg.tanh(x * x)),
    "cos": lambda x: sg.reduce_sum(sg.cos(x)),
    "several results": lambda x: x * x,
    "far steeper elsewhere": lambda x: sg.reduce_sum(sg.cosh(100.0 * sg.abs(x) ** 2.0) - 1.0),
    "tiny": lambda x: sg.reduce_sum(1e-30 * x * x),
}
CORNERS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda x: sg.norm(x),
    "abs": lambda x: sg.reduce_sum(sg.abs(x)),
    "max(abs)": lambda x: sg.reduce_max(sg.abs(x)),
}
FLOATS = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
ORDERS = pytest.mark.parametrize("order", [1, 2])


@FLOATS
@ORDERS
def test_right_gradients_that_are_zero_pass(dtype: Any, order: int) -> None:
    for name, f in STATIONARY.items():
        for size in (3, ELEMENTWISE + 6):
            found = sg.check_gradients(f, np.zeros(size, dtype), order=order, raises=False)["x"]
            assert (found.passed, found.kinks) == (True, ()), (name, size)
            assert found.error < 1e-9, (name, size)


@FLOATS
@ORDERS
def test_corners_with_a_gradient_of_zero_pass_and_are_told(dtype: Any, order: int) -> None:
    """The generated 0 lies between the slopes on both sides, -1 and 1."""
    for name, f in CORNERS.items():
        found = sg.check_gradients(f, np.zeros(3, dtype), order=order, raises=False)["x"]
        assert found.passed, name
        kinks = [
            (k.index, k.generated, round(k.low, 6), round(k.high, 6)) for k in found.kinks if k.order == 1
        ]
        assert kinks == [((i,), 0.0, -1.0, 1.0) for i in range(3)], name


@FLOATS
@ORDERS
@pytest.mark.parametrize("size", [1.0, 3.7e5, 2.9e-9])
def test_losses_pass_at_their_minimum(dtype: Any, order: int, size: float) -> None:
    """Here the points themselves are rounded, so neither gradient need be exactly 0."""
    generator = np.random.default_rng(4)
    x = (size * generator.normal(size=5)).astype(dtype)
    matrix = generator.normal(size=(7, 5)).astype(dtype)
    reached = matrix @ x
    losses: dict[str, Callable[[Any], Any]] = {
        "to a constant": lambda x0: sg.reduce_mean((x0 - x) ** 2),
        "to a stopped copy": lambda x0: sg.reduce_mean((x0 - sg.stop_gradient(x0)) ** 2),
        "squares": lambda x0: sg.reduce_mean(sg.square(x0 - x)),
        "least squares": lambda x0: sg.reduce_sum((sg.reduce_sum(matrix * x0, axis=1) - reached) ** 2),
    }
    for name, loss in losses.items():
        assert sg.check_gradients(loss, x, order=order, raises=False).passed, name


@FLOATS
@pytest.mark.parametrize("count", [3, ELEMENTWISE + 6])
@pytest.mark.parametrize("size", [1.0, 2.0**20, 2.0**-20])
def test_wrong_slopes_at_a_minimum_still_fail(dtype: Any, count: int, size: float) -> None:
    """Wrong by a thousandth of the slope that the function has elsewhere at this size of numbers."""
    center = np.full(count, size, dtype)
    wrong: dict[str, Any] = {
        "everywhere": lambda d: g_of(d, 1e-3 * size),
        "by the other sign": lambda d: g_of(d, -1e-3 * size),
        "half as much": lambda d: g_of(d, 5e-4 * size),
    }

    def g_of(d: Any, offset: float) -> Any:
        return sg.custom_gradient(lambda d: (sg.reduce_sum(d * d), lambda g: g * (2.0 * d + offset)))(d)

    for name, loss in wrong.items():
        check = sg.check_gradients(
            lambda x, loss=loss: loss(x - center), center, raises=False, modes="reverse"
        )
        assert not check.passed, name
    right = sg.check_gradients(lambda x: g_of(x - center, 0.0), center)
    assert right.passed


@FLOATS
def test_wrong_slopes_at_other_stationary_points_still_fail(dtype: Any) -> None:
    """Of one number of three, beside right ones; and of a second derivative."""
    off = np.array([0.0, 1e-3, 0.0], dtype)
    zero = np.zeros(3, dtype)
    for f, slope in (
        (sg.cos, lambda x: -sg.sin(x)),
        (lambda x: sg.tanh(x * x), lambda x: 2.0 * x * (1.0 - sg.tanh(x * x) ** 2)),
        (lambda x: x**3, lambda x: 3.0 * x * x),
        (lambda x: x**4, lambda x: 4.0 * x**3),
    ):
        wrong = sg.custom_gradient(lambda x, f=f, slope=slope: (f(x), lambda g: g * (slope(x) + off)))
        check = sg.check_gradients(lambda x, wrong=wrong: sg.reduce_sum(wrong(x)), zero, raises=False)
        worst = check["x"].worst
        assert not check.passed
        assert worst is not None
        assert worst.index == (1,)
        assert 0.0 < worst.allowed < 5e-4
    bent = sg.custom_gradient(lambda x: (3.0 * x * x, lambda g: g * (6.0 * x + 1e-3)))
    cube = sg.custom_gradient(lambda x: (x**3, lambda g: g * bent(x)))
    assert sg.check_gradients(cube, zero).passed
    assert not sg.check_gradients(cube, zero, order=2, raises=False).passed


def test_a_corner_with_a_gradient_beyond_its_slopes_still_fails() -> None:
    wrong = sg.custom_gradient(lambda x: (sg.abs(x), lambda g: g * (sg.sign(x) + 1.001)))
    assert not sg.check_gradients(wrong, np.zeros(3), raises=False).passed


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_where_terms_cancel_is_no_kink(seed: int) -> None:
    """Of a saturated softmax the derivatives are differences of numbers around 1, and may be 10⁻¹⁰."""
    for count in (3, 5, 8):
        x = np.random.default_rng(seed).normal(size=count)
        found = sg.check_gradients(lambda x: sg.reduce_sum(sg.softmax(50.0 * x) ** 2), x, order=2)["x"]
        assert found.kinks == (), count


def test_how_far_a_slope_bends_is_measured() -> None:
    curve = lambda t: np.array([3.0 * t * t, 5.0 + 2.0 * t, t**3, 0.0, np.cosh(1e3 * t) - 1.0])
    with np.errstate(over="ignore"):
        found = slope_at(curve, curve(0.0), 1.0, Steps.of(2.0**-52), 1e-7)
    assert found.bend[0] == pytest.approx(6.0)
    assert 0.0 < found.bend[1] < 1e-11  # A straight line bends by its rounding.
    assert 0.0 < found.bend[2] < 0.25
    assert found.bend[3] == 0.0
    assert found.bend[4] == pytest.approx(1e6, rel=1.0)


# --------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda t: np.sin(100.0 * t + 1.0), 100.0 * np.cos(1.0)),
        (lambda t: np.exp(t), 1.0),
        (lambda t: 1e6 + t, 1.0),
        (lambda t: 1.0 / (1.0 + t), -1.0),
        (lambda t: np.where(t > 1e-5, 1e-5 + 7.0 * (t - 1e-5), t), 1.0),  # A corner that large steps cross.
        (lambda t: np.where(t > 1e-4, np.nan, t), 1.0),  # The edge of the domain is near.
        (lambda t: 3.0 + 0.0 * t, 0.0),
    ],
)
def test_slopes_come_with_an_honest_error(f: Callable[[Any], Any], expected: float) -> None:
    curve = lambda t: np.array([float(f(t))])
    found = slope_at(curve, curve(0.0), 1.0, Steps.of(2.0**-52), 1e-7)
    assert found.kind[0] == SMOOTH
    assert found.value[0] == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert abs(found.value[0] - expected) <= 4.0 * found.error[0]


def test_kinks_and_leaps_of_curves() -> None:
    def curve(t: float) -> Array:
        return np.array([abs(t), np.exp(t) + (t > 0.0), t * t, -abs(t) * 1e-3 + t, float(t >= 0.0)])

    found = slope_at(curve, curve(0.0), 1.0, Steps.of(2.0**-52), 1e-7)
    assert found.kind.tolist() == [KINK, JUMP, SMOOTH, KINK, JUMP]
    np.testing.assert_allclose(found.above, [1.0, 1.0, 0.0, 0.999, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.below, [-1.0, 1.0, 0.0, 1.001, 0.0], atol=1e-6)


def test_a_complex_step_refuses_what_is_not_holomorphic() -> None:
    parts = lambda z: (np.array([np.real(z)]), np.array([np.imag(z)]))
    found = complex_slope(lambda t: parts(np.exp(1.0 + t)), np.array([np.exp(1.0)]), 1.0)
    assert found is not None
    assert found.value[0] == pytest.approx(np.e, rel=1e-14)
    for size in (1e-8, 1e10):  # The step goes with the size of what moves.
        found = complex_slope(lambda t, x=size: parts((x + t) ** 3), np.array([size**3]), size)  # type: ignore[misc]
        assert found is not None
        assert found.value[0] == pytest.approx(3.0 * size**2, rel=1e-14)
    assert complex_slope(lambda t: parts(5.0 if t else 1.0), np.array([1.0]), 1.0) is None


def stops_in_its_rule(x: Any) -> Any:
    """x³, whose gradient function claims that 3 x² is a constant."""
    rule = lambda g: g * 3.0 * sg.stop_gradient(x * x)
    return x * x * x, rule


def test_a_stop_inside_a_gradient_function_is_told_and_can_be_left_out() -> None:
    loss = lambda x: sg.reduce_sum(sg.custom_gradient(stops_in_its_rule)(x))
    check = sg.check_gradients(loss, np.array([1.0, 2.0]), order=2)
    assert check.passed
    assert [held.what for held in check.rules] == ["StopGradient"]
    assert 'stops="program"' in check.to_text()
    assert not check.held
    assert not sg.check_gradients(loss, np.ones(2)).rules
    with pytest.raises(sg.GradientError, match="generated 0") as caught:
        sg.check_gradients(loss, np.array([1.0, 2.0]), order=2, stops="program")
    assert "stop_gradient(x * x)" in str(caught.value)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: sg.reduce_sum(sg.exp(x) * sg.stop_gradient(sg.exp(x))),
        lambda x: sg.fori_loop(0, 3, lambda i, c: sg.sin(c) * sg.stop_gradient(c) + c, sg.reduce_sum(x)),
        lambda x: sg.reduce_sum(sg.scan(lambda c, v: (c * v + sg.stop_gradient(c), c), x[0], x)[1]),
        lambda x: sg.reduce_sum(sg.map_fn(lambda v: sg.exp(v) * sg.stop_gradient(v), x)),
        lambda x: sg.reduce_sum(sg.grad(lambda y: sg.reduce_sum(y**3 * sg.stop_gradient(y)))(x)),
    ],
    ids=["plain", "loop", "scan", "map", "inside grad"],
)
def test_the_programs_own_stops_are_held_in_its_gradients_too(loss: Any) -> None:
    check = sg.check_gradients(loss, np.array([0.5, 0.8]), order=2, stops="program")
    assert check.passed
    assert not check.rules
