"""How large gradients are, and what is said where they are zero, vanish, explode or are no numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.flow.page.page_data import page_data

HERE = "test_magnitudes.py"
Arrays = list[Any]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def told(flow: Any) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """The troubles of a report: kind, tensors, causes."""
    return [(one.kind, one.keys, [str(cause) for cause in one.causes]) for one in flow.troubles]


def line_of(flow: Any) -> str:
    """The source of the first cause."""
    return str(flow.troubles[0].causes[0].location.source)


# ------------------------------------------------------------------------------------------- numbers


def test_of_least_squares_the_norms_are_those_of_the_closed_form() -> None:
    x, y, w = rng().standard_normal((7, 3)), rng().standard_normal(7), np.array([1.0, -2.0, 0.5])
    flow = sg.explain(lambda w: sg.reduce_mean(sg.square(x @ w - y)), w, magnitudes=True)
    one = flow["w"].magnitude
    expected = 2.0 / 7.0 * x.T @ (x @ w - y)
    assert one.norm == pytest.approx(np.linalg.norm(expected))
    assert one.parameter_norm == pytest.approx(np.linalg.norm(w))
    assert one.ratio == pytest.approx(np.linalg.norm(expected) / np.linalg.norm(w))
    assert (one.elements, one.zeros, one.nans, one.infs) == (3, 0, 0, 0)
    assert one.is_finite
    assert not one.is_zero


def test_zeros_nans_and_infinities_are_counted() -> None:
    slopes = np.array([0.0, 0.0, 1.0, np.nan, np.inf, -np.inf, -0.0])
    one = sg.explain(lambda w: sg.reduce_sum(w * slopes), np.ones(7), magnitudes=True)["w"].magnitude
    assert (one.elements, one.zeros, one.nans, one.infs) == (7, 3, 1, 2)
    assert math.isnan(one.norm)
    assert not one.is_finite


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (1e-30, np.float32),
        (1e-45, np.float32),
        (3e38, np.float32),
        (1e-200, np.float64),
        (1e300, np.float64),
    ],
)
def test_norms_are_right_where_squares_are_no_numbers(size: float, dtype: Any) -> None:
    slopes = np.array([3.0 if size < 1e30 else 0.75, 4.0 if size < 1e30 else 1.0]).astype(dtype) * dtype(size)
    one = sg.explain(lambda w: sg.reduce_sum(w * slopes), np.ones(2, dtype), magnitudes=True)["w"].magnitude
    assert one.norm == pytest.approx(math.hypot(*map(float, slopes)), rel=1e-6, abs=0)
    assert not one.is_zero


def test_complex_gradients_have_the_norm_of_their_absolute_values() -> None:
    w = np.array([3.0 + 4.0j, 0.0])
    one = sg.explain(lambda w: sg.reduce_sum(sg.real(w * sg.conj(w))), w, magnitudes=True)["w"].magnitude
    assert one.norm == pytest.approx(10.0)  # The gradient of |w|^2 is 2w.
    assert one.zeros == 1


def test_an_empty_tensor_gets_nothing_and_nothing_is_wrong_with_it() -> None:
    flow = sg.explain(lambda w: sg.reduce_sum(w * 2.0), np.ones((0, 3)), magnitudes=True)
    assert flow["w"].magnitude.norm == 0.0
    assert not flow["w"].magnitude.is_zero
    assert flow.troubles == ()


def test_only_what_a_gradient_reaches_has_a_magnitude() -> None:
    def f(a: Any, b: Any, n: Any) -> Any:
        return sg.reduce_sum(a * sg.stop_gradient(b)) * sg.cast(n, sg.float64)

    flow = sg.explain(f, np.ones(2), np.ones(2), np.array(3), magnitudes=True)
    assert flow["a"].magnitude.norm == pytest.approx(3.0 * math.sqrt(2.0))
    assert flow["b"].magnitude is flow["n"].magnitude is None
    assert list(flow.magnitudes) == ["a"]


def test_nothing_is_measured_unless_asked_for() -> None:
    flow = sg.explain(lambda w: sg.reduce_sum(w * 0.0), np.ones(2))
    assert flow["w"].magnitude is None
    assert flow.troubles == ()
    assert "exactly" not in str(flow)


# ----------------------------------------------------------------------------------------- of graphs


def graph_of_a_line() -> tuple[sg.Graph, Any, Any, Any]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["n"], name="x")
        w = sg.parameter(np.array(2.0), name="w")
        loss = sg.reduce_sum(x * w * w)
    return graph, x, w, loss


def test_of_a_graph_values_are_fed_and_parameters_have_their_first_values() -> None:
    graph, x, w, loss = graph_of_a_line()
    count = len(graph.operations)
    flow = sg.explain(loss, [w], magnitudes=True, feed_dict={x: [1.0, 2.0]})
    assert flow[w].magnitude.norm == pytest.approx(2.0 * 2.0 * 3.0)
    assert len(graph.operations) == count  # The graph is as it was.


def test_of_a_graph_parameters_may_have_the_values_of_a_session() -> None:
    graph, x, w, loss = graph_of_a_line()
    with graph.as_default():
        grow = sg.assign(w, w + 3.0)
    with sg.Session(graph, engine="numpy") as session:
        session.run(grow)
        flow = sg.explain(loss, [w], magnitudes=True, feed_dict={x: [1.0, 2.0]}, session=session)
    assert flow[w].magnitude.norm == pytest.approx(2.0 * 5.0 * 3.0)
    assert flow[w].magnitude.parameter_norm == pytest.approx(5.0)


def test_tensors_named_in_stop_gradients_pass_nothing_on() -> None:
    with sg.Graph().as_default():
        w = sg.parameter(np.array(3.0), name="w")
        y = w * w
        loss = y * w
    flow = sg.explain(loss, [w, y], magnitudes=True, stop_gradients=[y])
    assert flow[w].magnitude.norm == pytest.approx(9.0)  # y is a constant for it.
    assert flow[y].magnitude.norm == pytest.approx(3.0)


def test_values_without_magnitudes_are_refused() -> None:
    _, x, w, loss = graph_of_a_line()
    with pytest.raises(sg.FeedError, match="magnitudes=True"):
        sg.explain(loss, [w], feed_dict={x: [1.0]})
    with pytest.raises(sg.FeedError, match="feed"):
        sg.explain(loss, [w], magnitudes=True)
    with pytest.raises(sg.FeedError, match="a function are its values"):
        sg.explain(lambda a: a, 1.0, magnitudes=True, feed_dict={})


# ------------------------------------------------------------------------------------------ exactly 0


def test_a_dead_relu_is_named_with_its_line() -> None:
    def f(w: Any, x: Any) -> Any:
        hidden = sg.relu(x @ w - 100.0)
        return sg.reduce_sum(hidden)

    flow = sg.explain(f, np.ones((3, 2)), np.ones((4, 3)), argnums=0, magnitudes=True)
    assert told(flow) == [("zero", ("w",), ["Relu is dead: it is off wherever a gradient arrives"])]
    assert line_of(flow) == "sg.relu(x @ w - 100.0)"
    (op,) = flow.troubles[0].causes[0].operations
    assert (op.type, op.graph is flow.graph) == ("Relu", True)
    assert str(flow).startswith("A gradient reaches w; it is exactly 0.\n")


@pytest.mark.parametrize(
    ("f", "says", "source"),
    [
        (lambda w: sg.clip_by_value(w, 5.0, 6.0), "passes on nothing: all is outside of its", "sg.clip_by_"),
        (lambda w: sg.where(sg.zeros_like(w) > 0.0, w, 1.0), "takes none of it", "sg.where("),
        (lambda w: w * 0.0, "multiplies it by zeros", "w * 0.0"),
        (lambda w: sg.sigmoid(w * 1e6), "is saturated: its slope is 0 everywhere", "sg.sigmoid("),
        (lambda w: sg.maximum(w, 9.0), "takes other elements wherever", "sg.maximum("),
        (lambda w: sg.zero_gradient(w), "passes on nothing", "sg.zero_gradient(w)"),
    ],
)
def test_what_passes_nothing_on_is_named(f: Callable[[Any], Any], says: str, source: str) -> None:
    flow = sg.explain(lambda w: sg.reduce_sum(f(w)), np.ones(3), magnitudes=True)
    ((kind, keys, (cause,)),) = told(flow)
    assert (kind, keys) == ("zero", ("w",))
    assert says in cause
    assert line_of(flow).startswith(source)


def test_a_factor_of_zero_that_is_trained_is_named() -> None:
    def adapted(down: Any, up: Any, x: Any) -> Any:
        return sg.reduce_mean(sg.square(x + x @ down @ up))

    args = rng().standard_normal((4, 2)), np.zeros((2, 4)), rng().standard_normal((5, 4))
    flow = sg.explain(adapted, *args, argnums=(0, 1), magnitudes=True)
    cause = "MatMul multiplies it by up, which is 0 until the first step changes that"
    assert told(flow) == [("zero", ("down",), [cause])]
    assert flow.to_text().startswith("Gradients reach both tensors; 1 of them gets exactly 0.")


def test_tensors_with_one_cause_are_told_together_and_others_apart() -> None:
    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        first = sg.relu(a * b - 100.0)
        return sg.reduce_sum(first + sg.sigmoid(1e6 * c) + d)

    flow = sg.explain(f, *np.ones((4, 3)), magnitudes=True)
    assert [(kind, keys) for kind, keys, _ in told(flow)] == [("zero", ("a", "b")), ("zero", ("c",))]


def test_where_all_are_zero_the_summary_says_all() -> None:
    flow = sg.explain(lambda a, b, c: 0.0 * (a + b + c), 1.0, 2.0, 3.0, magnitudes=True)
    assert str(flow).startswith("Gradients reach all 3 tensors; all of them get exactly 0.\n")


# ---------------------------------------------------------------------------- vanishing and exploding


def chain(act: Callable[[Any], Any]) -> Callable[..., Any]:
    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            x = act(x @ w)
        return sg.reduce_mean(x)

    return f


def sigmoid_slopes(ws: Arrays, x: Any) -> list[float]:
    """What NumPy finds that each sigmoid passes on of the gradient, from the last to the first."""
    zs = []
    for w in ws:
        zs.append(x @ w)
        x = 1.0 / (1.0 + np.exp(-zs[-1]))
    g, found = np.full(x.shape, 1.0 / x.size), []
    for w, z in zip(ws[::-1], zs[::-1], strict=True):
        s = 1.0 / (1.0 + np.exp(-z))
        found.append(np.linalg.norm(g * s * (1.0 - s)) / np.linalg.norm(g))
        g = (g * s * (1.0 - s)) @ w.T
    return found


def matrices(count: int, scale: float, size: int = 8) -> Arrays:
    return [rng().standard_normal((size, size)) * scale / math.sqrt(size) for _ in range(count)]


def test_a_chain_of_sigmoids_vanishes_and_the_line_and_factor_are_told() -> None:
    ws, x = matrices(20, 0.6), rng().standard_normal((5, 8))
    flow = sg.explain(chain(sg.sigmoid), ws, x, argnums=0, magnitudes=True)
    (trouble,) = flow.troubles
    assert trouble.kind == "vanishing"
    assert trouble.start == ("ws.19", flow["ws.19"].magnitude.norm)
    assert trouble.end == ("ws.0", flow["ws.0"].magnitude.norm)
    assert trouble.end[1] < 1e-10 * trouble.start[1]
    slopes = sigmoid_slopes(ws, x)[1:]  # The last sigmoid is nearer the loss than any layer's result.
    mean = float(np.exp(np.mean(np.log(slopes))))
    cause = trouble.causes[0]
    assert str(cause) == f"Sigmoid passes on {mean:.2g} of it each time (19 uses)"
    assert cause.location.source == "act(x @ w)"
    assert f"; {len(trouble.keys)} of them vanish." in str(flow)
    assert set(trouble.keys) == {f"ws.{i}" for i in range(len(trouble.keys))}


@pytest.mark.parametrize(("factor", "kinds"), [(0.9e-7, ["vanishing"]), (1.1e-7, [])])
def test_what_vanishes_is_less_than_a_ten_millionth_of_a_layer_nearer_the_loss(
    factor: float, kinds: list[str]
) -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        return sg.reduce_sum(b + factor * (a + x))

    flow = sg.explain(f, np.ones(3), np.ones(3), np.ones(3), argnums=(0, 1), magnitudes=True)
    assert [one.kind for one in flow.troubles] == kinds
    for one in flow.troubles:
        assert [str(cause) for cause in one.causes] == ["Mul passes on 9e-8 of it"]


@pytest.mark.parametrize(("factor", "kinds"), [(1.1e7, ["exploding"]), (0.9e7, [])])
def test_what_explodes_is_ten_million_times_a_layer_nearer_the_loss(factor: float, kinds: list[str]) -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        return sg.reduce_sum(b + factor * (a + x))

    flow = sg.explain(f, np.ones(3), np.ones(3), np.ones(3), argnums=(0, 1), magnitudes=True)
    assert [one.kind for one in flow.troubles] == kinds
    for one in flow.troubles:
        assert [str(cause) for cause in one.causes] == ["Mul makes it 1.1e7 times as large"]
        assert flow.to_text().startswith("Gradients reach both tensors; 1 of them explodes.")


def test_a_chain_of_large_matrices_explodes_by_their_gain() -> None:
    ws, x = [10.0 * np.eye(4)] * 12, np.ones((1, 4))
    flow = sg.explain(chain(lambda x: x), ws, x, argnums=0, magnitudes=True)
    (trouble,) = flow.troubles
    assert trouble.kind == "exploding"
    says = "MatMul makes it 10 times as large each time (11 uses)"
    assert [str(cause) for cause in trouble.causes] == [says]
    # Of a linear chain, all gradients of the weights are equally large; what grows is what arrives at them.
    assert trouble.at_layers
    assert trouble.end[1] / trouble.start[1] == pytest.approx(1e11)
    assert len(trouble.keys) == 5  # 1e7, 1e8, ... 1e11 times as much.


def test_a_gradient_that_fades_to_exactly_0_has_vanished_by_all_operations_on_its_way() -> None:

    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            x = w + 1e-10 * x
        return x

    flow = sg.explain(f, [np.float32(1.0)] * 7, np.float32(1.0), argnums=0, magnitudes=True)
    (trouble,) = flow.troubles
    assert (trouble.kind, trouble.start, trouble.end) == ("vanishing", ("ws.6", 1.0), ("ws.0", 0.0))
    assert [str(cause) for cause in trouble.causes] == ["Mul passes on 1e-10 of it each time (4 uses)"]
    # float32 has 1e-10, 1e-20, 1e-30, 1e-40, and nothing below 1e-45.
    assert str(flow).startswith("Gradients reach all 7 tensors; 2 of them get exactly 0 and 4 vanish.")


def test_gradients_that_are_all_too_small_are_told_with_the_operation() -> None:
    flow = sg.explain(lambda a, b: 1e-30 * sg.reduce_sum(a * b), np.ones(2), np.ones(2), magnitudes=True)
    (trouble,) = flow.troubles
    assert (trouble.kind, trouble.keys, trouble.start) == ("vanishing", ("a", "b"), None)
    assert [str(cause) for cause in trouble.causes] == ["Mul passes on 1e-30 of it"]
    assert "vanishes: 1.4e-30 at a at most, the largest of 2 tensors" in str(flow)


def test_what_is_done_to_a_weight_before_it_meets_the_data_counts_too() -> None:
    def f(w: Any, head: Any, x: Any) -> Any:
        return sg.reduce_sum(x * (1e-9 * w) + x * head)

    flow = sg.explain(f, np.ones(3), np.ones(3), np.ones(3), argnums=(0, 1), magnitudes=True)
    assert told(flow) == [("vanishing", ("w",), ["Mul passes on 1e-9 of it"])]
    assert line_of(flow) == "1e-9 * w"


def test_inside_of_a_loop_the_operation_in_its_body_is_named_with_the_number_of_steps() -> None:
    def f(w: Any, h: Any) -> Any:
        h, _ = sg.scan(lambda h, _: (sg.sigmoid(h * w), None), h, length=30)
        return sg.reduce_sum(h)

    flow = sg.explain(f, np.float64(1.0), np.zeros(3), magnitudes=True)
    (trouble,) = flow.troubles
    assert (trouble.kind, trouble.keys) == ("vanishing", ("h",))
    assert str(trouble.causes[0]).startswith("Sigmoid passes on 0.2")
    assert "(29 uses)" in str(trouble.causes[0])
    (op,) = trouble.causes[0].operations  # That of the body, which each step runs.
    assert op.graph is not flow.graph
    assert trouble.causes[0].location.source == "sg.sigmoid(h * w)"


# ----------------------------------------------------------------------------------- no false alarms


def normalized(x: Any) -> Any:
    x = x - sg.reduce_mean(x, axis=0)
    return x / sg.sqrt(sg.reduce_mean(x * x, axis=0) + 1e-5)


def test_a_bias_whose_gradient_cancels_up_to_rounding_has_not_vanished() -> None:
    """What a normalisation behind it subtracts again. The layer itself gets its gradient."""
    x, target = rng().standard_normal((2, 64, 4))

    def f(w: Any, b: Any) -> Any:
        return sg.reduce_sum(normalized(x @ w + b) * target)

    flow = sg.explain(f, np.eye(4), np.ones(4), magnitudes=True)
    assert 0 < flow["b"].magnitude.norm < 1e-10 * flow["w"].magnitude.norm
    assert flow.troubles == ()


@pytest.mark.parametrize(("trained", "kinds"), [(True, []), (False, ["vanishing"])])
def test_a_small_factor_that_is_trained_itself_is_no_trouble(trained: bool, kinds: list[str]) -> None:
    """As the scales of residual branches, which begin small on purpose."""

    def f(w: Any, scale: Any, head: Any, x: Any) -> Any:
        return sg.reduce_sum((x + scale * sg.tanh(x * w)) * head)

    argnums = (0, 1, 2) if trained else (0, 2)
    args = np.ones(4), np.full(4, 1e-9), np.ones(4), np.ones(4)
    flow = sg.explain(f, *args, argnums=argnums, magnitudes=True)
    assert [one.kind for one in flow.troubles] == kinds


def test_a_mean_over_many_elements_is_no_trouble() -> None:
    flow = sg.explain(lambda w, x: sg.reduce_mean(w * x), 1.0, np.full(10**6, 1e-3), magnitudes=True)
    assert flow.troubles == ()


def test_an_auxiliary_loss_with_a_small_weight_is_no_trouble() -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        return sg.reduce_sum(x * a) + 1e-9 * sg.reduce_sum(x * b)

    assert sg.explain(f, *np.ones((3, 4)), argnums=(0, 1), magnitudes=True).troubles == ()


# ------------------------------------------------------------------------------------------ no numbers


def test_what_makes_a_gradient_nan_is_named() -> None:
    def f(a: Any, b: Any) -> Any:
        return sg.reduce_sum(sg.sqrt(a * 0.0) + b)

    flow = sg.explain(f, np.ones(2), np.ones(2), magnitudes=True)
    assert told(flow) == [("not finite", ("a",), ["Sqrt makes it NaN or infinite"])]
    assert flow["a"].magnitude.nans == 2


def test_what_makes_a_gradient_infinite_is_named() -> None:
    flow = sg.explain(lambda a: sg.reduce_sum(sg.sqrt(a)), np.zeros(2), magnitudes=True)
    assert told(flow) == [("not finite", ("a",), ["Sqrt makes it NaN or infinite"])]
    assert "\ninfinite: a\n" in str(flow)
    assert str(flow).startswith("A gradient reaches a; it is NaN or infinite.\n")


# -------------------------------------------------------------------------------------------- telling


def test_the_text_has_the_whole_story_in_a_few_lines() -> None:
    def loss(w: Any, v: Any, x: Any) -> Any:
        return sg.reduce_sum(sg.relu(x @ w - 9.0) + x @ v)

    args = np.zeros((2, 2)), np.zeros((2, 2)), np.ones((1, 2))
    flow = sg.explain(loss, *args, argnums=(0, 1), magnitudes=True)
    lines = flow.to_text(width=200, color=False).splitlines()
    where = next(line for line in lines if "Relu is dead" in line)
    assert f"{HERE}:" in where
    del lines[lines.index(where) : lines.index(where) + 3]
    assert lines == [
        "Gradients reach both tensors; 1 of them gets exactly 0.",
        "",
        "flows: w, v",
        "",
        "exactly 0: w",
        "",
        "norms: 2 at v",
    ]


def test_data_and_notices_have_the_troubles() -> None:
    flow = sg.explain(lambda a, b: sg.relu(a - 9.0) + b, 1.0, 2.0, magnitudes=True)
    data = flow.to_dict()
    counts = {"not finite": 0, "zero": 1, "vanishing": 0, "exploding": 0}
    assert data["summary"]["magnitudes"] == {"measured": 2, "kinds": counts}
    (trouble,) = data["troubles"]
    assert (trouble["kind"], trouble["keys"], trouble["from"], trouble["to"]) == ("zero", ["a"], None, None)
    (cause,) = trouble["causes"]
    assert cause["reason"] == "Relu is dead: it is off wherever a gradient arrives"
    assert (cause["uses"], cause["operations"][0]["type"]) == (1, "Relu")
    assert [x["magnitude"]["norm"] for x in data["xs"]] == [0.0, 1.0]
    (finding,) = [one for one in data["findings"] if one["kind"] == "zero"]
    assert finding["location"]["line"] == cause["location"]["line"]
    notice = flow.to_github()
    assert notice.startswith("::warning file=")
    assert f"line={cause['location']['line']}," in notice
    assert "the gradient is exactly 0 at a: Relu is dead" in notice
    assert '"ruleId": "zero"' in flow.to_sarif()


def test_the_page_has_the_troubles_with_the_operations_in_its_graph(tmp_path: Path) -> None:
    flow = sg.explain(lambda a, b: sg.relu(a - 9.0) + b, 1.0, 2.0, magnitudes=True)
    (trouble,) = [one for one in page_data(flow)["findings"] if one["kind"] == "zero"]
    assert trouble["message"].startswith("the gradient is exactly 0 at a: Relu is dead")
    assert len(trouble["ops"]) == 1
    flow.to_html(tmp_path / "flow.html")
    assert "Relu is dead" in (tmp_path / "flow.html").read_text()


def test_a_part_of_a_report_tells_of_that_part_alone() -> None:
    def f(dead: Any, live: Any) -> Any:
        return sg.relu(dead["a"] - 9.0) + sg.relu(dead["b"] - 9.0) + live["c"]

    flow = sg.explain(f, {"a": 1.0, "b": 1.0}, {"c": 1.0}, magnitudes=True)
    assert [one.keys for one in flow["dead"].troubles] == [("dead.a", "dead.b")]
    assert flow["live"].troubles == ()
    assert str(flow["live"]) == "A gradient reaches live.c.\n\nflows: live.c\n\nnorms: 1 at live.c"
