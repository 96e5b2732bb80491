"""Ablation: what a stop does to the gradient and what it costs, and where one more would cost nothing.

Gradients with and without are compared with JAX's, or with what a derivation by hand says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from examples_references import all_cases, example
from jax.nn import one_hot, softmax

import stopgrad as sg
from stopgrad.flow import Stop
from stopgrad.flow.ablation.variants import Variant, jittered, problem
from stopgrad.flow.asked import asked

RNG = np.random.default_rng(11)
W, X, V = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 4)), RNG.normal(size=4)

CHANGES = "changes the gradient"
NOTHING = "changes nothing and saves nothing"
ERROR = "without it, the gradient is an error"


def ablated(ys: Any, *args: Any, **kwargs: Any) -> sg.Ablation:
    """Without times, unless they are asked for."""
    return sg.ablate(ys, *args, **{"repeats": 0, **kwargs})


def only(report: sg.Ablation) -> Stop:
    """The one entry of a report on one line with stops."""
    (stop,) = report.stops
    return stop


def figures(given: Any, without: Any) -> tuple[float, float]:
    """The norm of the difference, relative to the larger norm, and the cosine."""
    a, b = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(one)]) for one in (given, without))
    norms = np.linalg.norm(a), np.linalg.norm(b)
    return float(np.linalg.norm(a - b) / max(norms)), float(a @ b / norms[0] / norms[1])


def check(stop: Stop, given: Any, without: Any) -> None:
    """The figures of an entry, held against gradients from elsewhere."""
    difference, cosine = figures(given, without)
    assert stop.difference == pytest.approx(difference, rel=1e-9)
    assert stop.cosine == pytest.approx(cosine, rel=1e-9)


@pytest.fixture(autouse=True)
def exactly() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def graph() -> Any:
    """A fresh graph, the default one during the test."""
    made = sg.Graph()
    with made.as_default():
        yield made


@pytest.fixture
def here() -> Callable[[], int]:
    """The line of the test that asks."""
    return lambda: sys._getframe(1).f_lineno


# ----------------------------------------------------------------------------------- the literature


def stable(x: Any) -> Any:
    z = sg.exp(x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True)))
    return sg.reduce_sum(sg.log(z / sg.reduce_sum(z, axis=-1, keepdims=True))[..., 0])


def unstopped(x: Any, here: Callable[[], int] = lambda: 0) -> Any:
    top, line = sg.reduce_max(x, axis=-1, keepdims=True), here()
    z = sg.exp(x - top)
    lines.append(line)
    return sg.reduce_sum(sg.log(z / sg.reduce_sum(z, axis=-1, keepdims=True))[..., 0])


lines: list[int] = []

FLOATS = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_stopped_maximum_of_a_softmax_changes_nothing_and_saves_work(dtype: str) -> None:
    report = ablated(stable, X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    stop = only(report)
    saved = stop.operations_without - stop.operations_with
    assert saved > 0
    assert stop.verdict == f"changes nothing, and saves {saved} operations"
    assert "evidence, no proof" in stop.evidence
    assert report.points == 5
    assert report.suggestions == ()
    assert stop.difference < {"float64": 1e-14, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_unstopped_maximum_of_a_softmax_is_where_to_put_a_stop(
    dtype: str, here: Callable[[], int]
) -> None:
    array = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    report = ablated(lambda x: unstopped(x, here), array)
    assert report.stops == report.zeros == ()
    (one,) = report.suggestions
    assert one.operation.type == "Max"
    assert one.location.file == __file__
    assert one.location.line == lines[-1]
    assert one.location.source == "sg.reduce_max(x, axis=-1, keepdims=True)"
    assert not one.within
    assert one.disconnects == ()
    # The same program with that stop is the one above.
    stopped = only(ablated(stable, array))
    assert one.operations_without == stopped.operations_without
    assert one.operations_with == stopped.operations_with
    assert one.operations_saved == stopped.operations_without - stopped.operations_with


def test_a_maximum_that_is_added_again_cancels_over_its_uses() -> None:
    def logsumexp(x: Any) -> Any:
        top = sg.reduce_max(x)
        return sg.log(sg.reduce_sum(sg.exp(x - top))) + top

    assert [one.operation.type for one in ablated(logsumexp, V).suggestions] == ["Max"]


def dqn(params: Any, state: Any, action: Any, reward: Any, later: Any, stop: Callable[[Any], Any]) -> Any:
    xp = jnp if stop is not sg.stop_gradient else sg
    chosen = (xp.tanh(state @ params["a"]) @ params["b"] * action).sum(1)
    best = (xp.tanh(later @ params["a"]) @ params["b"]).max(1)
    return xp.square(chosen - (reward + 0.9 * stop(best))).mean()


def test_the_target_of_deep_q_learning() -> None:
    params = {"a": W, "b": RNG.normal(size=(3, 2))}
    data = (X, np.asarray(one_hot(np.arange(5) % 2, 2)), RNG.normal(size=5), RNG.normal(size=(5, 4)))
    stop = only(ablated(dqn, params, *data, sg.stop_gradient, argnums=0))
    assert stop.verdict == CHANGES
    given = jax.grad(dqn)(params, *data, jax.lax.stop_gradient)
    without = jax.grad(dqn)(params, *data, lambda x: x)
    check(stop, given, without)
    for name in "ab":
        change = stop.inputs[f"params.{name}"]
        difference, cosine = figures(given[name], without[name])
        assert change.difference == pytest.approx(difference, rel=1e-9)
        assert change.cosine == pytest.approx(cosine, rel=1e-9)
        assert change.arrives_with
        assert change.arrives_without


def mixture(means: Any, x: Any, weigh: Callable[[Any], Any], xp: Any, soft: Any) -> Any:
    """The expected log likelihood of unit Gaussians, by responsibilities that the E-step computes."""
    logs = -0.5 * xp.square(x[:, None] - means)
    return (weigh(soft(logs)) * logs).sum()


def test_the_e_step_of_a_mixture() -> None:
    means, x = np.array([-1.0, 0.5, 2.0]), RNG.normal(size=20)
    stop = only(ablated(lambda m: mixture(m, x, sg.stop_gradient, sg, sg.softmax), means))
    given = jax.grad(lambda m: mixture(m, x, jax.lax.stop_gradient, jnp, softmax))(means)
    without = jax.grad(lambda m: mixture(m, x, lambda r: r, jnp, softmax))(means)
    assert stop.verdict == CHANGES
    check(stop, given, without)


def test_the_e_step_stops_nothing_where_the_bound_is_tight() -> None:
    """With the entropy added, the bound's derivative in the responsibilities is constant along their sum.

    The free energy is stationary in them at the E-step (Neal and Hinton 1998), so that the stop changes
    nothing there: sum(r * (logs - log r)) has derivative logs - log r - 1 = logsumexp - 1, the same for all
    responsibilities of a point, and these sum to one.
    """

    def energy(means: Any) -> Any:
        logs = -0.5 * sg.square(DATA[:, None] - means)
        r = sg.stop_gradient(sg.softmax(logs))
        return sg.reduce_sum(r * (logs - sg.log(r)))

    stop = only(ablated(energy, np.array([-1.0, 0.5, 2.0])))
    assert stop.verdict.startswith("changes nothing, and saves ")
    assert stop.difference < 1e-13


DATA = RNG.normal(size=20)


def simsiam(params: Any, a: Any, b: Any, stop: Callable[[Any], Any], xp: Any) -> Any:
    def cosine(p: Any, z: Any) -> Any:
        norms = xp.sqrt(xp.square(p).sum(-1)) * xp.sqrt(xp.square(z).sum(-1))
        return ((p * z).sum(-1) / norms).mean()

    za, zb = xp.tanh(a @ params["w"]), xp.tanh(b @ params["w"])
    pa, pb = za @ params["p"], zb @ params["p"]
    return -0.5 * (cosine(pa, stop(zb)) + cosine(pb, stop(za)))


def test_simsiam_has_two_stops_on_one_line() -> None:
    params, a, b = {"w": W, "p": RNG.normal(size=(3, 3))}, X, X + 0.1 * RNG.normal(size=X.shape)
    stop = only(ablated(simsiam, params, a, b, sg.stop_gradient, sg, argnums=0))
    assert len(stop.operations) == 2
    assert stop.verdict == CHANGES
    given = jax.grad(simsiam)(params, a, b, jax.lax.stop_gradient, jnp)
    without = jax.grad(simsiam)(params, a, b, lambda x: x, jnp)
    check(stop, given, without)
    # The predictor's gradient does not pass the stops.
    assert stop.inputs["params.p"].difference == 0.0
    assert stop.inputs["params.p"].cosine == pytest.approx(1.0)
    assert stop.inputs["params.w"].difference > 0.1


# ------------------------------------------------------------------------------------------- by hand


def test_a_product_with_its_stopped_self() -> None:
    """x·[x] has the gradient x; x² has 2x: half of the larger, in one direction."""
    stop = only(ablated(lambda x: sg.reduce_sum(x * sg.stop_gradient(x)), V))
    assert stop.difference == pytest.approx(0.5)
    assert stop.cosine == pytest.approx(1.0)


def test_an_input_that_nothing_but_the_stop_cuts_off() -> None:
    stop = only(ablated(lambda a, b: a * sg.stop_gradient(b), 2.0, 3.0))
    assert stop.inputs["a"].difference == 0.0
    change = stop.inputs["b"]
    assert (change.arrives_with, change.arrives_without) == (False, True)
    assert change.difference == 1.0
    assert change.cosine is None
    # (3, 0) with, (3, 2) without.
    assert stop.difference == pytest.approx(2 / np.sqrt(13))
    assert stop.cosine == pytest.approx(3 / np.sqrt(13))


def test_a_stop_in_the_body_of_a_scan() -> None:
    """h ← [w·h] · w from 1: after n steps wⁿ·wⁿ; the last w alone carries a gradient."""

    def loop(w: Any) -> Any:
        return sg.scan(lambda h, _: (sg.stop_gradient(w * h) * w, None), np.array(1.0), length=3)[0]

    stop = only(ablated(loop, 1.5))
    assert stop.verdict == CHANGES
    assert stop.operations[0].graph._body_of is not None
    assert stop.difference == pytest.approx(1 - 1 / 6, rel=1e-6)
    assert stop.cosine == pytest.approx(1.0)


def test_a_stop_in_a_loop_with_a_bound() -> None:
    def loop(w: Any) -> Any:
        return sg.while_loop(lambda v: v < 10.0, lambda v: sg.stop_gradient(v) * w, w, maximum_iterations=9)

    # 1.5⁶ is the first beyond 10: w⁶, of which the stop leaves one factor.
    stop = only(ablated(loop, np.float64(1.5)))
    assert stop.verdict == CHANGES
    assert stop.difference == pytest.approx(1 - 1 / 6)


@pytest.mark.parametrize("taken", [True, False])
def test_a_stop_in_a_branch(taken: bool) -> None:
    def f(w: Any, which: Any) -> Any:
        return sg.cond(which, lambda: sg.stop_gradient(w) * w, lambda: 3.0 * w)

    stop = only(ablated(f, np.float64(2.0), np.array(taken)))
    if taken:
        assert stop.verdict == CHANGES
        assert stop.difference == pytest.approx(0.5)
    else:
        assert stop.verdict.startswith("changes nothing")
        assert "evidence, no proof" in stop.evidence


def test_stops_in_map_fn_and_checkpoint() -> None:
    def f(w: Any, x: Any) -> Any:
        mapped = sg.map_fn(lambda v: v * sg.stop_gradient(w * v), x)
        return sg.reduce_sum(mapped) + sg.checkpoint(lambda v: v * sg.stop_gradient(v))(w)

    first, second = ablated(f, np.float64(3.0), np.array([1.0, 2.0])).stops
    # w: 3 with both stops; 3 + 1 + 4 without the first, 6 without the second. x: 3x; 6x without the first.
    check(first, [3.0, 3.0, 6.0], [8.0, 6.0, 12.0])
    check(second, [3.0, 3.0, 6.0], [6.0, 3.0, 6.0])


@pytest.mark.parametrize("acts", [True, False])
def test_a_switched_stop(graph: sg.Graph, acts: bool) -> None:
    x, off = sg.parameter(V, name="x"), sg.placeholder(sg.bool, name="off")
    y = sg.reduce_sum(x * sg.stop_gradient(x * x * x, when=off))
    report = ablated(y, x, feed_dict={off: acts})
    stop = only(report)
    assert stop.kind == "stop_gradient(when=...)"
    if acts:
        assert stop.verdict == CHANGES
        assert stop.difference == pytest.approx(0.75)
    else:
        assert stop.verdict == NOTHING
        assert "does not hold" in stop.evidence
        assert stop.difference == 0.0
    # What is zero only while the switch is on is no place for a stop.
    assert report.suggestions == report.zeros == ()


def test_a_stop_towards_chosen_tensors(graph: sg.Graph) -> None:
    a, b = sg.parameter(np.array(2.0), name="a"), sg.parameter(np.array(5.0), name="b")
    y = b * sg.stop_gradient(a * b, wrt=[a]) + a
    stop = only(ablated(y, [a, b]))
    assert stop.kind == "stop_gradient(wrt=...)"
    # a: 1 with, b² + 1 without; b: 2ab either way.
    check(stop, [1.0, 20.0], [26.0, 20.0])
    assert stop.inputs["b:0"].difference == 0.0
    assert only(ablated(y, [b])).verdict == "idle"


def test_a_no_gradient_block_is_one_entry_at_its_line(graph: sg.Graph, here: Callable[[], int]) -> None:
    x = sg.parameter(V, name="x")
    with sg.no_gradient():
        first, line = sg.exp(x), here() - 1
        second = sg.sin(x)
    stop = only(ablated(sg.reduce_sum(x * first + x * second), x))
    assert stop.kind == "no_gradient"
    assert stop.location.line == line
    assert len(stop.operations) == 2
    check(stop, np.exp(V) + np.sin(V), np.exp(V) + np.sin(V) + V * np.exp(V) + V * np.cos(V))


def test_two_stops_behind_each_other(graph: sg.Graph) -> None:
    x = sg.parameter(V, name="x")
    inner = sg.stop_gradient(x * x)
    outer = sg.stop_gradient(2.0 * inner)
    report = ablated(sg.reduce_sum(x * outer), x)
    by_operation = {stop.operations[0]: stop for stop in report.stops}
    assert by_operation[inner.op].verdict == "idle"
    assert "cut before" in by_operation[inner.op].evidence
    assert by_operation[outer.op].verdict == NOTHING
    assert "other stops" in by_operation[outer.op].evidence
    assert all(stop.operations_with == stop.operations_without for stop in report.stops)


def test_a_stop_behind_which_is_no_input(graph: sg.Graph) -> None:
    x, z = sg.parameter(V, name="x"), sg.parameter(V, name="z")
    stop = only(ablated(sg.reduce_sum(x * sg.stop_gradient(z)), x))
    assert stop.verdict == "idle"
    assert "depends on what was asked about" in stop.evidence
    assert only(ablated(sg.reduce_sum(x * sg.stop_gradient(z)), [x, z])).verdict == CHANGES


def test_straight_through() -> None:
    """Towards the soft value with it, towards the hard one without."""
    codes = np.array([[0.0, 1.0], [2.0, 1.0]])

    def nearest(z: Any, codes: Any) -> Any:
        chosen = sg.gather(codes, np.array([1]))[0]
        return sg.reduce_sum(np.array([3.0, 4.0]) * sg.straight_through(chosen, z))

    stop = only(ablated(nearest, np.array([1.5, 1.0]), codes))
    assert stop.kind == "straight_through"
    assert stop.verdict == CHANGES
    assert (stop.inputs["z"].arrives_with, stop.inputs["z"].arrives_without) == (True, False)
    assert (stop.inputs["codes"].arrives_with, stop.inputs["codes"].arrives_without) == (False, True)
    check(stop, [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0])

    rounded = only(ablated(lambda x: sg.straight_through(sg.round(x), x) * 2.0, 1.7))
    assert rounded.verdict == CHANGES
    assert not rounded.inputs["x"].arrives_without


def test_a_gradient_function_that_returns_none_is_no_stop() -> None:
    @sg.custom_gradient
    def f(x: Any, y: Any) -> Any:
        return x * y, lambda g: (g * sg.stop_gradient(y), None)

    assert ablated(f, 1.0, 2.0).stops == ()


def test_a_stop_on_the_way_to_a_gradient_of_the_programs_own() -> None:
    """First-order MAML for sin from w: (w − a·cos w)² has 2(w − a·cos w), times 1 + a·sin w without."""

    def outer(w: Any) -> Any:
        return sg.square(w - 0.1 * sg.stop_gradient(sg.grad(sg.sin)(w)))

    stop = only(ablated(outer, np.float64(1.2)))
    assert stop.verdict == CHANGES
    assert stop.difference == pytest.approx(1 - 1 / (1 + 0.1 * np.sin(1.2)))


# ------------------------------------------------------------------------ where there is no gradient


def test_a_gradient_that_would_be_an_error_is_told_in_its_entry() -> None:
    def f(w: Any) -> Any:
        first = sg.stop_gradient(sg.prevent_gradient(w, "by the other loss"))
        return first * w + sg.stop_gradient(sg.while_loop(lambda v: v < 9.0, lambda v: v * w, w)) + w * w

    first, second = ablated(f, 2.0).stops
    assert first.verdict == second.verdict == ERROR
    assert "by the other loss" in first.error
    assert "maximum_iterations" in second.error
    assert first.difference is first.cosine is first.operations_without is first.seconds_without is None
    assert first.operations_with > 0
    text = ablated(f, 2.0).to_text()
    assert "by the other loss" in text


def test_a_stop_that_keeps_a_nan_out() -> None:
    stop = only(ablated(lambda x: sg.reduce_sum(x * sg.stop_gradient(sg.sqrt(x))), np.array([0.0, 4.0])))
    assert stop.verdict == CHANGES
    assert "without it" in stop.evidence
    assert stop.difference == np.inf
    found = json.loads(ablated(lambda x: x * sg.stop_gradient(sg.sqrt(x)), 0.0).to_json())
    assert found["stops"][0]["difference"] == "inf"


# ---------------------------------------------------------------------------------- what is no evidence


def test_a_zero_by_chance_is_not_taken_for_a_law() -> None:
    """At the least squares' solution the residual, and so the gradient, is zero; beside it, it is not."""

    def fit(w: Any) -> Any:
        predicted = 2.0 * w
        return sg.reduce_sum(sg.square(sg.stop_gradient(predicted) + predicted - 8.0))

    report = ablated(fit, np.array([2.0, 2.0]))
    assert report.suggestions == report.zeros == ()
    assert only(report).difference == 0.0
    assert only(report).verdict == CHANGES


def test_a_relu_that_is_dead_by_chance_is_no_place_for_a_stop() -> None:
    report = ablated(lambda w: sg.reduce_sum(sg.relu(w * 2.0)) + sg.reduce_sum(w), np.array([-1.0, -2.0]))
    assert report.suggestions == report.zeros == ()


def test_a_small_effect_is_no_zero_in_single_precision() -> None:
    """1e-9 of the gradient is less than its rounding, and no rounding of what the stop holds back."""

    def f(x: Any) -> Any:
        return sg.reduce_sum(sg.sin(x)) + 1e-9 * sg.reduce_sum(x * sg.stop_gradient(x))

    stop = only(ablated(f, V.astype(np.float32)))
    assert stop.difference < 1e-7
    assert stop.verdict == CHANGES


def test_a_small_effect_in_a_body_is_no_zero_in_single_precision() -> None:
    def f(x: Any) -> Any:
        def step(total: Any, v: Any) -> Any:
            return total + sg.sin(v) + np.float32(1e-9) * v * sg.stop_gradient(v), None

        return sg.scan(step, np.float32(0.0), x)[0]

    stop = only(ablated(f, V.astype(np.float32)))
    assert stop.difference < 1e-7
    assert stop.verdict == CHANGES


@pytest.mark.parametrize(
    ("dtype", "rest"),
    [(ml_dtypes.bfloat16, 0.02), (np.float16, 1e-3), (np.float32, 1e-6), (np.float64, 1e-9)],
)
def test_a_sum_that_nearly_cancels_is_no_zero(dtype: Any, rest: float) -> None:
    """Of contributions 1, −1 and a rest the rest is left: little beside them, and beside the gradient."""
    signs = np.array([1.0, -1.0, rest] * 20).astype(dtype)

    def f(x: Any) -> Any:
        shift = sg.sin(sg.reduce_sum(x))
        return sg.reduce_sum(signs * sg.broadcast_to(shift, [60])) + sg.reduce_sum(x * x * dtype(100.0))

    report = ablated(f, np.ones(3).astype(dtype))
    assert report.suggestions == report.zeros == ()


def test_what_comes_through_many_layers_is_no_zero() -> None:
    """Sums of absolute contributions would grow by 5 or so in each layer, where true gradients do not."""
    layers = RNG.normal(size=(40, 32, 32)) / np.sqrt(32)

    def f(x: Any) -> Any:
        y = x * sg.stop_gradient(x)
        for w in layers:
            y = y @ w
        return sg.reduce_sum(y)

    stop = only(ablated(f, RNG.normal(size=(2, 32))))
    assert stop.verdict == CHANGES
    assert stop.difference == pytest.approx(0.5)


def test_what_is_tried_out_changes_no_status() -> None:
    """w reaches the loss only times zero: a stop there turns its zeros into None, and is told apart."""
    report = ablated(lambda x, w: sg.reduce_sum(x * x + 0.0 * sg.sin(w * x)), V, 2.0)
    assert report.suggestions == ()
    (one,) = report.zeros
    assert one.disconnects == ("w",)
    assert one.operation.type == "Sin"
    assert one.operations_saved > 0
    assert "of w is none instead of zero" in report.to_text()


def test_a_normaliser_that_cancels() -> None:
    """The direction of s·x does not depend on s: what arrives at s is zero, though s has two uses."""

    def direction(x: Any, s: Any) -> Any:
        scale = sg.exp(sg.sin(s) + sg.reduce_sum(x))
        scaled = scale * x
        return sg.reduce_sum(scaled * np.arange(4.0)) / sg.sqrt(sg.reduce_sum(sg.square(scaled)))

    report = ablated(direction, V, 0.3, argnums=0)
    (one,) = report.suggestions
    assert one.location.source == "sg.exp(sg.sin(s) + sg.reduce_sum(x))"
    given = ablated(direction, V, 0.3)
    assert given.suggestions == ()
    assert given.zeros[0].disconnects == ("s",)


def test_only_the_first_zero_from_ys_is_a_place() -> None:
    def f(x: Any) -> Any:
        shift = sg.sin(sg.cos(sg.reduce_max(x)))
        return sg.log(sg.reduce_sum(sg.exp(x - shift))) + shift

    assert [one.operation.type for one in ablated(f, V).suggestions] == ["Sin"]


def test_a_line_in_a_loop_of_python_is_one_place() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            top = sg.reduce_max(x)
            e = sg.exp(x - top)
            x = x + e / sg.reduce_sum(e)
        return sg.reduce_sum(x * x)

    (one,) = ablated(f, V).suggestions
    assert [op.type for op in one.operations] == ["Max"] * 3


def attention(weights: Any, x: Any, shifted: Callable[[Any], Any]) -> Any:
    scores = x * weights
    e = sg.exp(scores - shifted(sg.reduce_max(scores)))
    return sg.reduce_sum(e / sg.reduce_sum(e) * x)


def in_scan(w: Any, x: Any, stop: Callable[[Any], Any]) -> Any:
    return sg.scan(lambda h, v: (h + attention(w + h, v, stop), h), np.float32(0.1), x, reverse=True)[0]


def in_checkpoint(w: Any, x: Any, stop: Callable[[Any], Any]) -> Any:
    return sg.checkpoint(lambda w: attention(w, x[0], stop))(w)


def in_map_fn(w: Any, x: Any, stop: Callable[[Any], Any]) -> Any:
    return sg.reduce_sum(sg.map_fn(lambda v: attention(w, v, stop), x))


def in_a_loop_in_a_checkpoint(w: Any, x: Any, stop: Callable[[Any], Any]) -> Any:
    return sg.checkpoint(lambda w: in_scan(w, x, stop))(w)


@pytest.mark.parametrize("f", [in_scan, in_checkpoint, in_map_fn, in_a_loop_in_a_checkpoint])
def test_bodies_are_looked_into(f: Callable[..., Any]) -> None:
    w, x = V.astype(np.float32), X.astype(np.float32)
    stopped = ablated(f, w, x, sg.stop_gradient, argnums=0)
    assert only(stopped).verdict.startswith("changes nothing, and saves")
    assert stopped.suggestions == ()
    report = ablated(f, w, x, lambda y: y, argnums=0)
    (one,) = report.suggestions
    assert one.operation.type == "Max"
    assert one.location.source == "sg.reduce_max(scores)"
    assert one.operations_with == only(stopped).operations_with
    assert one.operations_without == only(stopped).operations_without


@pytest.mark.parametrize("reverse", [True, False])
def test_what_is_written_out_is_the_same_program(reverse: bool) -> None:
    def f(w: Any, x: Any) -> Any:
        def step(h: Any, v: Any) -> Any:
            later = sg.checkpoint(lambda h: sg.sin(w * h) + v)(h)
            return later, (h * v, sg.stop_gradient(later) * h)

        last, (some, others) = sg.scan(step, w, x, reverse=reverse)
        return last + sg.reduce_sum(some * np.arange(1.0, 4.0)) + sg.reduce_sum(others * x)

    args = np.float64(0.7), np.array([1.0, 2.0, 3.0])
    data = problem("", asked("", f, args, {}), None)
    flat = data.to_judge()
    assert flat.flat
    as_it_is, out = Variant(data), Variant(flat)
    assert not any(op.definition.has_bodies for op in out.copied.graph.operations)
    for g, h in zip(as_it_is.run(data.values), out.run(flat.values), strict=True):
        np.testing.assert_allclose(g, h, rtol=1e-13)


def test_what_is_zero_in_one_step_only_is_no_place() -> None:
    """What the last step adds to the state is never used; what the others add is."""

    def f(w: Any, x: Any) -> Any:
        def step(h: Any, v: Any) -> Any:
            return sg.sin(w * h), h * v

        return sg.reduce_sum(sg.scan(step, w, x)[1])

    assert ablated(f, 0.5, np.array([1.0, 2.0, 3.0]), argnums=0).suggestions == ()


def test_loops_that_are_too_long_to_be_written_out_stay_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stopgrad.flow.ablation.without.MOST", 20)
    w, x = V.astype(np.float32), X.astype(np.float32)
    assert ablated(in_scan, w, x, lambda y: y, argnums=0).suggestions == ()
    verdict = only(ablated(in_scan, w, x, sg.stop_gradient, argnums=0)).verdict
    assert verdict.startswith("changes nothing, and saves")

    def nested(w: Any) -> Any:
        inner = lambda h: sg.scan(lambda h, v: (sg.sin(h * v * sg.stop_gradient(w)), None), h, X[:, 0])[0]
        return sg.scan(lambda h, _: (inner(h), None), w, length=2)[0]

    assert only(ablated(nested, np.float64(0.5))).verdict == CHANGES


def test_a_line_that_is_zero_only_now_and_then_is_no_place() -> None:
    """The same line, once in a softmax and once in a loss: nobody could stop only one of them."""

    def top(x: Any) -> Any:
        return sg.reduce_max(x)

    def f(x: Any) -> Any:
        e = sg.exp(x - top(x))
        return (e / sg.reduce_sum(e))[0] + top(sg.sin(x))

    assert ablated(f, V).suggestions == ()


def test_an_inner_value_of_a_call_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = ablated(lambda x: unstopped(x), V).suggestions
    assert not one.within

    def inner(x: Any) -> Any:
        # As a library writes: what it computes on the way was built by the user's one call.
        e = sg.exp(x - sg.reduce_max(x))
        return (e / sg.reduce_sum(e))[0]

    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [4], name="x")
        y = inner(x)
        place = (y.op._place, y.op._instruction)
        for op in graph.operations[1:]:
            op._place, op._instruction = place
    (one,) = ablated(y, x, feed_dict={x: V}).suggestions
    assert one.within
    assert "inner value" in ablated(y, x, feed_dict={x: V}).to_text()


def test_an_asked_input_is_no_place(graph: sg.Graph) -> None:
    x = sg.parameter(V, name="x")
    top = sg.reduce_max(x)
    e = sg.exp(x - top)
    y = (e / sg.reduce_sum(e))[0]
    assert len(ablated(y, [x]).suggestions) == 1
    assert ablated(y, [x, top]).suggestions == ()


# ------------------------------------------------------------------------------------------ both styles


def test_graphs_with_sizes_left_open_fed_by_name(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, ["n", 4], name="x")
    w = sg.parameter(W, name="w")
    hidden = sg.tanh(x @ w)
    y = sg.reduce_sum(hidden * sg.stop_gradient(hidden))
    report = ablated(y, {"w": w}, feed_dict={"x": X})
    assert report.inputs == ("w:0",)
    assert only(report).difference == pytest.approx(0.5)
    before = len(graph)
    ablated(y, w, feed_dict={x: X[:2]})
    assert len(graph) == before


def test_parameters_have_their_stored_values_unless_fed(graph: sg.Graph) -> None:
    a, b = sg.parameter(np.array(2.0), name="a"), sg.parameter(np.array(3.0), name="b")
    y = a * a + sg.stop_gradient(b * a) * b
    assert only(ablated(y, [a])).difference == pytest.approx(9 / 13)
    assert only(ablated(y, [a], feed_dict={b: 1.0})).difference == pytest.approx(1 / 5)


def test_arguments_of_functions_are_called_by_their_paths() -> None:
    def f(params: Any, mode: str, *, scale: Any) -> Any:
        return sg.reduce_sum(params["layers"][0] * sg.stop_gradient(params["layers"][1])) * scale

    report = ablated(f, {"layers": [V, V], "steps": 3}, "fast", scale=np.float64(2.0))
    assert report.inputs == ("params.layers.0", "params.layers.1")
    assert ablated(f, {"layers": [V, V]}, "", argnums=(0,), scale=1.0).inputs == report.inputs


@pytest.mark.parametrize("engine", ["numpy", "xla", None])
def test_times_are_measured_on_an_engine(engine: str | None) -> None:
    report = sg.ablate(stable, X, engine=engine, repeats=2)
    assert report.engine == (engine or "xla")
    assert only(report).seconds_with > 0
    assert only(report).seconds_without > 0
    assert f"({report.engine})" in report.to_text()
    (one,) = sg.ablate(unstopped, X, engine=engine, repeats=1).suggestions
    assert one.seconds_with > 0
    assert one.seconds_without > 0
    assert ablated(stable, X, engine=engine).engine is None


def test_noise_that_leads_out_of_a_functions_domain_is_no_evidence() -> None:
    report = ablated(lambda x: stable(sg.log(x)), np.abs(X))
    assert 2 <= report.points < 5
    assert only(report).verdict.startswith("changes nothing, and saves")


def test_all_but_the_times_is_the_same_each_time() -> None:
    def f(x: Any) -> Any:
        return unstopped(x) + stable(x) * sg.stop_gradient(sg.reduce_sum(x))

    assert ablated(f, X).to_json() == ablated(f, X).to_json()


def test_a_program_that_double_precision_cannot_compute_is_judged_in_its_own() -> None:
    """The gradient function returns single precision, and nothing else fits what it was written for."""

    @sg.custom_gradient
    def f(x: Any) -> Any:
        return sg.exp(x), lambda g: g * np.exp(V).astype(np.float32)

    stop = only(ablated(lambda x: sg.reduce_sum(f(x) * sg.stop_gradient(x)), V.astype(np.float32)))
    assert stop.verdict == CHANGES


def test_the_noise_keeps_what_is_no_float_and_the_signs_once() -> None:
    arrays: Sequence[Any] = [np.array([1.0, 0.0, -2.0]), np.array([1, 2]), np.array([True]), np.zeros(0)]
    copies = jittered(arrays, 0)
    assert len(copies) == 4
    for copy in copies:
        assert copy[1] is arrays[1]
        assert copy[2] is arrays[2]
        assert copy[3] is arrays[3]
        assert (copy[0] != arrays[0]).sum() >= 2
    np.testing.assert_array_equal(np.sign(copies[0][0]), np.sign(arrays[0]))
    assert jittered(arrays[1:], 0) == []


# --------------------------------------------------------------------------------------------- reports


def test_text_fits_a_terminal_and_underlines_the_expression() -> None:
    text = ablated(stable, X).to_text()
    assert max(map(len, text.splitlines())) <= 80
    line, carets = (text.splitlines()[i] for i in (3, 4))
    start, end = carets.index("^"), len(carets)
    assert line[start:end] == "sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True))"
    assert "operations" in text
    report = ablated(dqn, {"a": W, "b": W.T[:, :2]}, X, X[:, :2], X[:, 0], X, sg.stop_gradient)
    assert max(map(len, report.to_text().splitlines())) <= 80
    assert max(map(len, report.to_text(width=50).splitlines())) <= 50
    assert ablated(lambda x: x * x, 1.0).to_text().startswith("no stops")


def test_of_many_inputs_the_most_changed_are_shown() -> None:
    def f(params: Any) -> Any:
        return sum(scale * x * sg.stop_gradient(x) for scale, x in enumerate(params))

    text = ablated(f, [float(i + 1) for i in range(30)]).to_text()
    assert len(text.splitlines()) < 26
    assert "and 17 inputs with less difference" in text
    assert "the same with and without: 1 input" in text


def test_json_says_all() -> None:
    def f(x: Any, w: Any) -> Any:
        return unstopped(x) * sg.stop_gradient(x)[0, 0] + 0.0 * sg.sin(w)

    report = ablated(f, X, 1.0)
    found = json.loads(report.to_json())
    assert (found["format"], found["version"]) == ("stopgrad.ablate", 2)
    assert found["inputs"] == ["x", "w"]
    (stop,) = found["stops"]
    assert stop["location"]["file"] == __file__
    assert stop["location"]["expression"] == "sg.stop_gradient(x)"
    assert stop["operations"] == [{"name": "StopGradient", "type": "StopGradient", "gradient_of": None}]
    assert set(stop["inputs"]) == {"x", "w"}
    assert stop["verdict"] == CHANGES
    assert found["suggestions"][0]["operations_saved"] > 0
    assert found["zeros"][0]["disconnects"] == ["w"]


# -------------------------------------------------------------------------------------------- bad input


def test_what_is_not_fed_is_named(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [3], name="x")
    with pytest.raises(sg.FeedError, match=r"Placeholder 'x' .* must be fed"):
        sg.ablate(sg.reduce_sum(x), x)
    with pytest.raises(sg.FeedError, match="shape"):
        sg.ablate(sg.reduce_sum(x), x, feed_dict={x: np.ones(4)})
    with pytest.raises(sg.GraphError, match="no output, operation or name"):
        sg.ablate(sg.reduce_sum(x), x, feed_dict={3: np.ones(4)})
    with sg.Graph().as_default():
        other = sg.placeholder(sg.float64, [3], name="other")
    with pytest.raises(sg.GraphError, match="another graph"):
        sg.ablate(sg.reduce_sum(x), x, feed_dict={other: np.ones(3)})


def test_numbers_and_words_of_numpy_are_taken() -> None:
    given = {"repeats": np.int8(1), "seed": np.int64(3), "argnums": np.int64(0), "engine": np.str_("numpy")}
    report = sg.ablate(lambda x, y: x * sg.stop_gradient(x) * y, 1.0, 2.0, **given)
    assert report.inputs == ("x",)
    assert report.engine == "numpy"


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"feed_dict": {}}, sg.FeedError, "feed_dict is for graphs"),
        ({"engine": 3}, sg.ArgumentError, "engine is a name"),
        ({"engine": "abacus"}, sg.EngineError, "no engine 'abacus'"),
        ({"repeats": -1}, sg.ArgumentError, "repeats is a whole number"),
        ({"repeats": 1.5}, sg.ArgumentError, "repeats is a whole number"),
        ({"seed": "x"}, sg.ArgumentError, "seed is a whole number"),
        ({"argnums": 7}, sg.GradientError, "argnums"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        sg.ablate(lambda x: x * x, 1.0, **wrong)


def test_a_gradient_that_is_an_error_as_it_is() -> None:
    with pytest.raises(sg.GradientError, match="never"):
        sg.ablate(lambda x: sg.prevent_gradient(x, "never"), 1.0)
    with pytest.raises(sg.GradientError, match="ys is empty"):
        sg.ablate([], [])


# --------------------------------------------------------------------------------- on the examples

CASES = all_cases()
DOES_NOTHING = {
    # What goes to each expert first is counted: there is no gradient to stop.
    ("mixture_of_experts", "loss"): "idle",
    ("mixture_of_experts", "loss without room for all"): "idle",
    # These data switch on none of the cuts in time.
    ("gated_rnn", "loss"): NOTHING,
    ("gated_rnn", "loss with clipped gradients"): NOTHING,
}
# A covariance does not depend on where its centred data are: their mean's cotangent is a sum over them.
WASTES = {("self_supervised", "vicreg_loss"): ["z.mean(axis=0)"]}


@pytest.mark.slow
@pytest.mark.parametrize("key", CASES, ids=["-".join(key) for key in CASES])
def test_the_stops_of_the_literature_change_the_gradient(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, module = CASES[key], example(key[0])
    for setting, value in case.settings.items():
        monkeypatch.setattr(module, setting, value)
    f = case.call(module) if case.call is not None else getattr(module, key[1])
    report = ablated(f, *case.arguments(module, np.random.default_rng(0)))
    assert {stop.verdict for stop in report.stops} <= {DOES_NOTHING.get(key, CHANGES)}
    assert [one.location.source for one in report.suggestions] == WASTES.get(key, [])
    assert report.zeros == ()
    assert max(map(len, report.to_text().splitlines())) <= 80


# -------------------------------------------------------------------------------- on random programs

STEPS = {
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "sine": "sg.sin(a)",
    "cancel": "a + (b - b)",
    "shift": "sg.log(sg.reduce_sum(sg.exp(a - b))) + b",
    "top": "sg.reduce_max(a, keepdims=True)",
    "normal": "sg.exp(a - sg.reduce_max(b)) / sg.reduce_sum(sg.exp(a - b))",
    "stop": "sg.stop_gradient(a)",
    "round": "sg.round(a)",
}


class Program:
    """A random program: its steps are known by their numbers, so that it can be built with other stops."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        names = generator.choice([*STEPS, "stop", "multiply", "shift"], 12)
        self.steps = [(str(name), *generator.integers(0, i + 2, 2)) for i, name in enumerate(names)]

    def build(self, stopped: int = -1, open: int = -1) -> tuple[list[sg.Output], sg.Output, list[sg.Output]]:
        """The inputs, the result, and what each step has computed; with a stop more, or one less."""
        xs = [sg.placeholder(sg.float64, [3], name=name) for name in "ab"]
        made: list[Any] = [*xs]
        plain = []
        for i, (name, left, right) in enumerate(self.steps):
            # Each at a line of its own.
            code = compile("\n" * i + STEPS[name], "program", "eval")
            y = made[left] if i == open else eval(code, {"sg": sg, "a": made[left], "b": made[right]})
            plain.append(y)
            made.append(sg.stop_gradient(y) if i == stopped else y)
        return xs, sg.reduce_sum(sg.sin(made[-1]) + sg.cos(made[-2]) * made[-3]), plain

    def gradients(self, points: Any, **kwargs: int) -> list[Any]:
        """What arrives at both inputs, at several points; zeros where nothing does."""
        with sg.Graph().as_default() as graph:
            xs, y, _ = self.build(**kwargs)
            found = sg.gradients(y, xs, unconnected_gradients="zero")
        with sg.Session(graph, engine="numpy") as session:
            return [np.array(session.run(found, dict(zip(xs, point, strict=True)))) for point in points]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_verdicts_and_suggestions_hold_on_random_programs(seed: int) -> None:
    program, points = Program(seed), np.random.default_rng(seed).normal(size=(4, 2, 3))
    given = program.gradients(points)

    def same(**kwargs: int) -> bool:
        others = program.gradients(points, **kwargs)
        scales = [
            max(1e-3, float(np.abs(a).max()), float(np.abs(b).max()))
            for a, b in zip(given, others, strict=True)
        ]
        return all(np.abs(a - b).max() <= 1e-10 * s for a, b, s in zip(given, others, scales, strict=True))

    with sg.Graph().as_default():
        xs, y, made = program.build()
    report = ablated(y, xs, feed_dict=dict(zip(xs, points[0], strict=True)))
    number = {x.op: i for i, x in reversed(list(enumerate(made)))}
    for entry in report.stops:
        (op,) = entry.operations
        assert (entry.verdict == CHANGES) == (not same(open=number[op])), (entry.verdict, number[op])
    for one in (*report.suggestions, *report.zeros):
        for op in one.operations:
            if op in number:
                assert same(stopped=number[op]), number[op]
