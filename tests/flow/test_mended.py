"""What random programs found in ``explain``, and its reports in other circumstances."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import stopgrad as sg


@pytest.fixture
def graph() -> Any:
    with sg.Graph().as_default() as made:
        yield made


def vector(name: str, dtype: Any = sg.float64) -> sg.Output:
    return sg.placeholder(dtype, [4], name=name)


def test_integers_named_in_stop_gradients_are_no_stop(graph: sg.Graph) -> None:
    """As for ``stop_gradient``, which leaves them alone: the path ends where they were made."""
    x = vector("x")
    n = sg.cast(x, sg.int32)
    (cut,) = sg.explain(sg.cast(n, sg.float64), [x], stop_gradients=[n])[x].cuts
    assert (cut.operation.type, cut.status) == ("Cast", "not differentiable")


def test_what_is_named_in_stop_gradients_is_not_cut_by_the_gate_that_it_is(graph: sg.Graph) -> None:
    x = vector("x")
    stop = sg.stop_gradient(x)
    (gate,) = sg.explain(stop * 2.0, [x], stop_gradients=[stop]).gates
    assert gate.cuts == ()
    assert gate.idle


def test_two_stops_of_one_line_open_together(graph: sg.Graph) -> None:
    x = vector("x")
    y = x
    for _ in range(3):
        y = sg.stop_gradient(sg.tanh(y))
    (cut,) = sg.explain(y, [x])[x].cuts
    assert cut.uses == 1
    assert cut.opens == ("x:0",)


def test_stops_of_two_lines_do_not_open_one_by_one(graph: sg.Graph) -> None:
    x = vector("x")
    inner = sg.stop_gradient(x)
    (cut,) = sg.explain(sg.stop_gradient(inner), [x])[x].cuts
    assert cut.behind == ("x:0",)
    assert cut.opens == ()


def test_two_stops_of_one_line_in_a_body_open_together(graph: sg.Graph) -> None:
    x = vector("x")
    end, _ = sg.scan(lambda c, _: (sg.stop_gradient(sg.tanh(sg.stop_gradient(c * 2.0))), None), x, length=2)
    assert [cut.opens for cut in sg.explain(end, [x])[x].cuts] == [("x:0",)]


def test_an_operation_is_live_only_by_the_output_that_a_gradient_comes_to(graph: sg.Graph) -> None:
    a, b = vector("a"), vector("b")
    (end, other), _ = sg.scan(lambda c, _: ((sg.tanh(c[0]), sg.sin(c[1])), None), (a, b), length=2)
    flow = sg.explain(end + sg.stop_gradient(other), [b])
    assert flow.marks()[end.op] == "hidden"


def test_a_gate_that_a_gradient_passes_is_live(graph: sg.Graph) -> None:
    a, b = vector("a"), vector("b")
    gate = sg.stop_gradient(a * b, wrt=[a])
    flow = sg.explain(gate, [b])
    assert flow.marks()[gate.op] == "live"
    assert flow.gates[0].why_idle == "it acts for none of the tensors asked about"


def test_a_stop_of_integers_is_idle_because_they_are(graph: sg.Graph) -> None:
    x = vector("x")
    with sg.no_gradient():
        n = sg.argmax(x)
    (gate,) = sg.explain(sg.cast(n, sg.float64), [x]).gates
    assert gate.why_idle == "int64 carries no gradient"


def test_a_stop_that_keeps_away_an_error_is_not_idle(graph: sg.Graph) -> None:
    x = vector("x")
    y = sg.prevent_gradient(sg.stop_gradient(x), "not here")
    assert not any(gate.idle for gate in sg.explain(y, [x]).gates)
    assert sg.gradients(y, [x]) == [None]
    with pytest.raises(sg.GradientError):
        sg.gradients(sg.prevent_gradient(x, "not here"), [x])


def test_gates_of_a_custom_gradient_s_function_are_not_asked_about(graph: sg.Graph) -> None:
    @sg.custom_gradient
    def f(x: Any) -> Any:
        return sg.tanh(x), lambda g: sg.stop_gradient(g) * 2.0

    x = vector("x")
    flow = sg.explain(f(x), [x])
    assert flow.gates == ()
    assert flow.findings == ()


def test_a_loop_of_any_number_of_steps_is_undefined(graph: sg.Graph) -> None:
    x = vector("x")
    end = sg.while_loop(lambda c: sg.reduce_sum(c) < 3.0, lambda c: c * 2.0, (x,))[0]
    assert sg.explain(end, [x])[x].status == "undefined"
    with pytest.raises(sg.GradientError, match="maximum_iterations"):
        sg.gradients(end, [x])


def test_what_only_the_condition_of_a_loop_reads_is_not_disconnected(graph: sg.Graph) -> None:
    x, limit = vector("x"), sg.placeholder(sg.float64, [], name="limit")
    end = sg.while_loop(lambda c: sg.reduce_sum(c) < limit, lambda c: c * 2.0, (x,), maximum_iterations=3)[0]
    flow = sg.explain(end, [limit])
    assert flow[limit].status == "not differentiable"
    assert flow[limit].cuts[0].operation.type == "Less"


# --------------------------------------------------------------------------------------- circumstances


def test_at_a_recursion_limit_of_200(graph: sg.Graph) -> None:
    x = y = vector("x")
    for k in range(3000):
        y = sg.stop_gradient(y) + sg.tanh(y) if k % 3 == 0 else sg.tanh(y)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        flow = sg.explain(y, [x])
        reach = flow[x]
        counted = reach.paths, reach.cut_paths, len(reach.cuts), flow.findings, len(flow.marks())
    finally:
        sys.setrecursionlimit(before)
    assert counted[:3] == (2**1000, 2**1000 - 1, 1)


@pytest.mark.parametrize("size", [None, "batch", 4])
def test_sizes_that_are_not_known_change_nothing(graph: sg.Graph, size: Any) -> None:
    x = sg.placeholder(sg.float64, [size, 2], name="x")
    y = sg.reduce_sum(sg.stop_gradient(x) * x, axis=0)
    reach = sg.explain(y, [x])[x]
    assert (reach.status, reach.paths, reach.cut_paths) == ("partly stopped", 2, 1)


def test_parts_of_a_report() -> None:
    def f(params: Any, x: Any) -> Any:
        return params["w"] * x + sg.stop_gradient(params["b"])

    flow = sg.explain(f, {"w": np.ones(2), "b": np.ones(2)}, np.ones(2))
    assert {k: str(r.status) for k, r in flow["params"].items()} == {
        "params.b": "stopped",
        "params.w": "flows",
    }
    assert flow["params"].status == "mixed"
    assert flow[["params.w", "x"]].status == "flows"
    with pytest.raises(KeyError, match=r"did you mean 'params\.w'"):
        flow["param.w"]
    with pytest.raises(KeyError, match="it knows"):
        flow["zzz"]


def test_parts_of_a_report_about_a_graph(graph: sg.Graph) -> None:
    w, b = vector("w"), vector("b")
    flow = sg.explain(w * sg.stop_gradient(b), [w, b])
    assert flow["w"] is flow["w:0"] is flow[w] is flow[w.op]
    assert list(flow[{"first": b}]) == [b]


def test_threads_see_the_same_report(graph: sg.Graph) -> None:
    x, w = vector("x"), vector("w")

    def body(c: Any, _: Any) -> Any:
        return sg.stop_gradient(c) * w + sg.tanh(c), None

    end, _ = sg.scan(body, x, length=3)
    expected = None
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: sg.explain(end, [x, w]).to_text(), range(40)):
            expected = expected or found
            assert found == expected
