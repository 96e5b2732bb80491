"""Contract 3: a gradient is a value or an absence with a reason, and the reasons are kept apart."""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as sg


def cut_of(found):
    """The one cut, as (type, file, line, status)."""
    (cut,) = found.cuts
    return cut.operation.type, cut.location.file, cut.location.line, cut.status


@pytest.fixture
def x(graph):
    return sg.placeholder(sg.float32, [3], name="x")


def status(y, x, **kwargs):
    return sg.explain(y, [x], **kwargs)[x].status


def arrives(y, x, **kwargs):
    return sg.gradients(y, [x], **kwargs)[0] is not None


# ------------------------------------------------------------------------------------------ each reason


def test_flows(x):
    y = sg.reduce_sum(sg.exp(x))
    assert sg.explain(y, [x])[x] == sg.Reach("flows", ())
    assert arrives(y, x)


def test_disconnected(x):
    z = sg.placeholder(sg.float32)
    assert sg.explain(sg.exp(z), [x])[x] == sg.Reach("disconnected", ())
    assert not arrives(sg.exp(z), x)


def test_what_is_computed_from_x_but_does_not_lead_to_y_does_not_connect_it(x):
    z = sg.placeholder(sg.float32, [3])
    sg.stop_gradient(sg.exp(x)) * z
    assert status(z * 2.0, x) == "disconnected"


def test_stopped_by_the_gate_on_its_line(x, here):
    gate, line = sg.stop_gradient(sg.exp(x)), here()
    y = sg.reduce_sum(gate * 2.0)
    found = sg.explain(y, [x])[x]
    assert found.status == "stopped"
    assert cut_of(found) == ("StopGradient", __file__, line, "stopped")
    assert found.cuts[0].operation is gate.op
    assert not arrives(y, x)


NOT_DIFFERENTIABLE = {
    "Cast": lambda x: sg.cast(x, sg.int32),
    "ArgMax": lambda x: sg.argmax(x),
    "Greater": lambda x: sg.where(x > 0.0, 1.0, 2.0),
    "Floor": lambda x: sg.floor(x),
    "IsNan": lambda x: sg.is_nan(x),
}


@pytest.mark.parametrize("operation", NOT_DIFFERENTIABLE)
def test_not_differentiable_by_the_operation_on_its_line(operation, x, here):
    made, line = NOT_DIFFERENTIABLE[operation](sg.exp(x)), here()
    y = made if made.dtype.is_differentiable else sg.cast(made, sg.float32)
    found = sg.explain(y * 2.0, [x])[x]
    assert found.status == "not differentiable"
    assert {cut.status for cut in found.cuts} == {"not differentiable"}
    assert operation in {cut.operation.type for cut in found.cuts}
    assert {cut.location.file for cut in found.cuts} == {__file__}
    # The line inside of the lambda above, or this test's for the cast back.
    assert all(cut.location.line < line or cut.operation.type == "Cast" for cut in found.cuts)
    assert not arrives(y * 2.0, x)


def test_an_integer_y_is_not_differentiable(x):
    y = sg.argmax(x)
    assert status(y, x) == "not differentiable"
    assert not arrives(y, x)


def test_an_integer_x_is_not_differentiable(graph):
    n = sg.placeholder(sg.int32)
    y = sg.cast(n, sg.float32) * 2.0
    assert status(y, n) == "not differentiable"
    assert not arrives(y, n)


def test_undefined_with_its_reason_on_its_line(x, here):
    gate, line = sg.prevent_gradient(x, "take the other loss"), here()
    y = sg.reduce_sum(gate)
    found = sg.explain(y, [x])[x]
    assert found.status == "undefined"
    assert cut_of(found) == ("PreventGradient", __file__, line, "undefined")
    assert found.cuts[0].reason == "take the other loss"
    with pytest.raises(sg.GradientError, match="take the other loss"):
        sg.gradients(y, [x])


@pytest.mark.parametrize(
    "zero", [sg.zero_gradient, sg.sign, lambda x: x * 0.0], ids=["zero_gradient", "sign", "times zero"]
)
def test_zero_is_a_value_not_an_absence(zero, x, run):
    y = zero(x)
    assert status(y, x) == "flows"
    (dx,) = sg.gradients(y, [x])
    assert run(dx, {x: [1.0, -2.0, 3.0]}).tolist() == [0.0, 0.0, 0.0]


# ------------------------------------------------------------------------------------------ mixed ways


def test_one_way_open_one_stopped_is_partly_stopped(x, here):
    gate, line = sg.stop_gradient(x), here()
    found = sg.explain(sg.reduce_sum(x * gate), [x])[x]
    assert found.status == "partly stopped"
    assert cut_of(found) == ("StopGradient", __file__, line, "stopped")
    assert arrives(sg.reduce_sum(x * gate), x)


def test_all_cuts_are_named_each_once_each_with_its_line(x, here):
    a, line_a = sg.stop_gradient(x * 2.0), here()
    b, line_b = sg.stop_gradient(x * 3.0), here()
    found = sg.explain(a * b + a, [x])[x]
    assert found.status == "stopped"
    assert {(cut.operation, cut.location.line) for cut in found.cuts} == {(a.op, line_a), (b.op, line_b)}
    assert len(found.cuts) == 2


def test_a_stopped_way_counts_more_than_one_without_derivative(x):
    """Without the gates, a gradient would arrive."""
    y = sg.stop_gradient(x) + sg.floor(x)
    found = sg.explain(y, [x])[x]
    assert found.status == "stopped"
    assert {cut.status for cut in found.cuts} == {"stopped", "not differentiable"}


def test_a_gate_on_a_way_that_is_no_way_anyhow_stops_nothing(x):
    """Without the gate, floor would still be in the way."""
    assert status(sg.floor(sg.stop_gradient(x)), x) == "not differentiable"
    assert status(sg.stop_gradient(sg.floor(x)), x) == "not differentiable"


def test_a_refusing_way_counts_more_than_a_stopped_one(x):
    y = sg.prevent_gradient(x, "no") + sg.stop_gradient(x)
    assert status(y, x) == "undefined"
    with pytest.raises(sg.GradientError, match="no"):
        sg.gradients(y, [x])


def test_a_refusal_behind_a_stop_is_only_stopped(x):
    y = sg.stop_gradient(sg.prevent_gradient(x, "no"))
    assert status(y, x) == "stopped"
    assert not arrives(y, x)


def test_a_refusal_before_a_stop_is_only_stopped(x):
    """The way from y passes the refusal first, but leads nowhere."""
    y = sg.prevent_gradient(sg.stop_gradient(x), "no")
    assert status(y, x) == "stopped"
    assert not arrives(y, x)


def test_a_way_that_flows_beside_one_without_derivative_flows(x, run):
    y = x * sg.floor(x)
    assert arrives(y, x)
    assert status(y, x) in ("flows", "partly stopped")
    assert run(sg.gradients(y, [x])[0], {x: [1.5, 2.5, -0.5]}).tolist() == [1.0, 2.0, -1.0]


def test_the_second_derivative_may_be_stopped_where_the_first_is_not(x):
    """x·sg(x): the gradient is sg(x)."""
    (dx,) = sg.gradients(sg.reduce_sum(x * sg.stop_gradient(x)), [x])
    found = sg.explain(dx, [x])[x]
    assert found.status == "stopped"
    assert [cut.operation.type for cut in found.cuts] == ["StopGradient"]
    assert not arrives(dx, x)


def test_the_second_derivative_of_a_linear_function_is_disconnected(x):
    (dx,) = sg.gradients(sg.reduce_sum(3.0 * x), [x])
    assert status(dx, x) == "disconnected"
    assert not arrives(dx, x)


def test_each_x_has_its_own_reason(graph):
    a, b, c, d = (sg.placeholder(sg.float32, name=n) for n in "abcd")
    y = a * sg.stop_gradient(b) + sg.floor(c)
    flow = sg.explain(y, [a, b, c, d])
    assert [flow[v].status for v in (a, b, c, d)] == [
        "flows",
        "stopped",
        "not differentiable",
        "disconnected",
    ]
    assert [g is not None for g in sg.gradients(y, [a, b, c, d])] == [True, False, False, False]


def test_stop_gradients_is_a_reason_too(x):
    h = sg.exp(x)
    y = h * 2.0
    assert status(y, x, stop_gradients=[h]) == "stopped"
    assert status(y, h, stop_gradients=[h]) == "flows"
    assert not arrives(y, x, stop_gradients=[h])


def test_y_is_x(x):
    assert status(x, x) == "flows"
    assert arrives(x, x)


def test_sibling_outputs_of_one_operation_do_not_lead_to_each_other(x):
    a, b, c = sg.split(x, 3)
    assert status(a * 2.0, b) == "disconnected"
    assert status([a, sg.stop_gradient(b)], b) == "stopped"
    assert sg.gradients(a, [b, c]) == [None, None]


def test_through_one_output_of_several(x):
    a, b, _ = sg.split(x, 3)
    assert status(sg.stop_gradient(a) * b, x) == "partly stopped"
    assert status(sg.stop_gradient(a), x) == "stopped"


# ------------------------------------------------------------------------------------ zeros on request


def test_unconnected_zero_gives_zeros_of_the_shape_of_x(graph, run):
    """TensorFlow: unconnected_gradients="zero", whatever the reason."""
    x, y = sg.ones([2, 2]) * 1.0, sg.fill([3, 1], 3.0)
    (dx,) = sg.gradients(y, [x], unconnected_gradients="zero")
    assert run(dx).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert sg.gradients(y, [x], unconnected_gradients="none") == [None]
    assert sg.gradients(y, [x]) == [None]


def test_unconnected_zero_changes_nothing_where_there_is_a_gradient(graph, run):
    x = sg.placeholder(sg.float32)
    (dx,) = sg.gradients(x * 3.0, [x], unconnected_gradients="zero")
    assert run(dx, {x: 1.0}) == 3.0


def test_unconnected_takes_two_values(x):
    with pytest.raises((ValueError, sg.StopgradError), match="nonsense"):
        sg.gradients(x, [x], unconnected_gradients="nonsense")


@pytest.mark.parametrize(
    "f",
    [sg.stop_gradient, sg.floor, lambda x: sg.ones([2])],
    ids=["stopped", "not differentiable", "disconnected"],
)
def test_functions_return_zeros_or_none_on_request(f):
    loss = lambda x: sg.reduce_sum(f(x))
    at = np.array([1.0, 2.0])
    assert sg.grad(loss)(at).tolist() == [0.0, 0.0]
    assert sg.grad(loss, unconnected="none")(at) is None


# -------------------------------------------------------------------------------------- what is printed


def test_the_text_names_tensor_status_reason_and_line(x, here):
    gate, line = sg.stop_gradient(sg.exp(x), name="wall"), here()
    text = sg.explain(gate * 2.0, [x]).to_text()
    summary, empty, tensor, cut, source, underline = text.splitlines()
    assert summary == "No gradient reaches x: stopped."
    assert not empty
    assert tensor == "stopped: x"
    assert cut.endswith(f"test_absences.py:{line}  stop_gradient")
    at = source.index('sg.stop_gradient(sg.exp(x), name="wall")')
    assert underline.rstrip("^") + "^" == f"{'':6} |{'':{at - 8}}^"


def test_functions_are_explained_by_argument_paths(here):
    lines = []

    def loss(params, x):
        frozen, line = sg.stop_gradient(params["layers"][0]), here()
        lines.append(line)
        return sg.reduce_sum(frozen * x + params["b"])

    flow = sg.explain(loss, {"layers": [np.ones(2), np.ones(2)], "b": 1.0}, np.ones(2))
    assert {key: found.status for key, found in flow.items()} == {
        "params.b": "flows",
        "params.layers.0": "stopped",
        "params.layers.1": "disconnected",
        "x": "flows",
    }
    assert cut_of(flow["params.layers.0"]) == ("StopGradient", __file__, lines[0], "stopped")


def test_idle_gates_are_shown_as_such(x):
    z = sg.placeholder(sg.float32, [3], name="z")
    idle, acting = sg.stop_gradient(z), sg.stop_gradient(x)
    flow = sg.explain(x * acting * idle, [x])
    assert {use.operation: use.idle for use in flow.gates} == {idle.op: True, acting.op: False}
    assert {use.operation: use.cuts for use in flow.gates}[acting.op] == ("x:0",)


def test_assertions(x):
    gate = sg.stop_gradient(x)
    other = sg.stop_gradient(x)
    sg.assert_flows(x * gate, [x])
    sg.assert_blocked(gate, [x])
    sg.assert_blocked(gate, [x], by=gate)
    with pytest.raises(sg.GradientError, match="do not arrive"):
        sg.assert_flows(gate * 2.0, [x])
    with pytest.raises(sg.GradientError, match="arrive"):
        sg.assert_blocked(x * gate, [x])
    with pytest.raises(sg.GradientError, match="not cut by"):
        sg.assert_blocked(gate, [x], by=other)


# -------------------------------------------------------------- explain and the generator always agree


def random_graph(seed):
    """A small graph of operations that let pass, stop, refuse nothing, or have no derivative."""
    random = np.random.default_rng(seed)
    graph = sg.Graph()
    with graph.as_default():
        xs = [sg.placeholder(sg.float32, [2]) for _ in range(3)]
        known = list(xs)
        for _ in range(12):
            a, b = (known[i] for i in random.integers(0, len(known), 2))
            known.append(
                [
                    lambda a, b: a * b,
                    lambda a, b: sg.exp(a),
                    lambda a, b: sg.stop_gradient(a),
                    lambda a, b: sg.floor(a) + 0.0,
                    lambda a, b: sg.stop_gradient(a, wrt=[xs[0]]),
                    lambda a, b: sg.straight_through(a, b),
                    lambda a, b: sg.where(a > b, a, b),
                    lambda a, b: sg.split(sg.concat([a, b], 0), 2)[1],
                ][random.integers(8)](a, b)
            )
    return graph, xs, known


@pytest.mark.parametrize("seed", range(40))
def test_explain_agrees_with_the_generator(seed):
    graph, xs, known = random_graph(seed)
    ys = known[-2:]
    flow = sg.explain(ys, xs)
    with graph.as_default():
        found = sg.gradients(ys, xs)
    assert [flow[x].status in ("flows", "partly stopped") for x in xs] == [g is not None for g in found]
    for x in xs:
        assert bool(flow[x].cuts) == (flow[x].status not in ("flows", "disconnected"))


def test_explain_sees_that_the_value_asked_about_has_left_a_no_gradient_block():
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, name="x")
        with sg.no_gradient():
            y = sg.exp(x)
    assert sg.gradients(y, [x]) == [None]
    assert sg.explain(y, [x])[x].status == "stopped"


def test_explain_of_a_function_refuses_positions_that_it_has_not():
    with pytest.raises(sg.GradientError, match="argnums=5"):
        sg.explain(lambda x: x, 1.0, argnums=5)


@pytest.mark.parametrize("check", [sg.assert_flows, sg.assert_blocked, sg.assert_only_flows])
def test_the_assertions_take_outputs_or_a_function(check):
    with pytest.raises(sg.GraphError, match="takes outputs of a graph"):
        check(1.0, 1.0)
