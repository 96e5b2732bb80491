"""``explain`` looks into bodies: each result of a loop by itself, gates inside, as the gradient has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

Run = Callable[..., Any]
X = np.array([0.5, -1.0, 2.0], np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) / 4


def test_each_result_of_a_loop_is_explained_by_itself(graph: sg.Graph) -> None:
    a, b, k = (sg.placeholder(sg.float32, [], name=name) for name in "abk")

    def step(carry: Any, _: Any) -> Any:
        a, b, n = carry
        return (sg.sin(a), sg.stop_gradient(b) * 2.0, n + 1), {"both": a * b, "round": sg.round(a * k)}

    (end_a, end_b, n), ys = sg.scan(step, (a, b, 0), length=4)

    def statuses(y: Any) -> list[str]:
        return [str(sg.explain(y, [x])[x].status) for x in (a, b, k)]

    assert statuses(end_a) == ["flows", "disconnected", "disconnected"]
    assert statuses(end_b) == ["disconnected", "stopped", "disconnected"]
    assert statuses(ys["both"]) == ["flows", "partly stopped", "disconnected"]
    assert statuses(ys["round"]) == ["not differentiable", "disconnected", "not differentiable"]
    assert statuses(n) == ["disconnected"] * 3
    for y in (end_a, end_b, *ys.values(), n):
        found = sg.gradients(y, [a, b, k])
        for x, g in zip((a, b, k), found, strict=True):
            assert (g is not None) == (sg.explain(y, [x])[x].status in ("flows", "partly stopped"))


def test_a_stop_that_acts_in_the_second_round_only(graph: sg.Graph) -> None:
    """a leads to b, and b through a stop to c: what reaches c in the second round is stopped."""
    a, b, c = (sg.placeholder(sg.float32, [], name=name) for name in "abc")

    def step(carry: Any, _: Any) -> Any:
        a, b, _ = carry
        return (a, sg.exp(a), sg.stop_gradient(b)), None

    (_, end_b, end_c), _ = sg.scan(step, (a, b, c), length=3)
    assert sg.explain(end_b, [a])[a].status == "flows"
    assert sg.explain(end_c, [a])[a].status == "stopped"
    assert sg.gradients(end_c, [a, b, c]) == [None, None, None]


def test_branches_are_explained_together(graph: sg.Graph) -> None:
    p, x, y = sg.placeholder(sg.bool, []), sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [])
    first, second = sg.cond(p, lambda: (x, sg.stop_gradient(x)), lambda: (sg.stop_gradient(x), sg.floor(y)))
    assert sg.explain(first, [x])[x].status == "partly stopped"
    assert sg.explain(second, [x])[x].status == "stopped"
    assert sg.explain(second, [y])[y].status == "not differentiable"
    assert sg.explain(first, [p])[p].status == "not differentiable"
    assert sg.gradients(second, [x, y]) == [None, None]
    cut = sg.explain(second, [x])[x].cuts[0]
    assert cut.operation.type == "StopGradient"
    assert cut.location.file == __file__


def test_an_unused_argument_of_a_function_is_explained_through_loops() -> None:
    def f(params: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return sg.tanh(c * params["w"] + x), sg.stop_gradient(c) * params["v"]

        end, ys = sg.scan(step, params["h"], xs)
        return sg.reduce_sum(end) + sg.reduce_sum(ys)

    flow = sg.explain(f, {"w": X, "v": X, "h": X, "unused": X}, ROWS)
    assert {key: str(found.status) for key, found in flow.items()} == {
        "params.h": "partly stopped",
        "params.unused": "disconnected",
        "params.v": "flows",
        "params.w": "partly stopped",
        "xs": "partly stopped",
    }


def test_a_selective_stop_inside_a_body(run: Run, graph: sg.Graph) -> None:
    a, b = sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [])

    def step(c: Any, _: Any) -> Any:
        return sg.stop_gradient(c * a, wrt=[a]) + b * a, None

    end, _ = sg.scan(step, sg.constant(1.0), length=2)
    # ((a + ba) a) + ba = a² + ba² + ba; with the gate, a is held inside of it.
    da, db = sg.gradients(end, [a, b])
    assert run([end, da, db], {a: 3.0, b: 5.0}) == [69.0, 5.0, 12.0]
    assert sg.explain(end, [a])[a].status == "partly stopped"
    assert sg.explain(end, [b])[b].status == "flows"


@pytest.mark.parametrize("closed", [True, False])
def test_a_stop_inside_a_body_that_can_be_switched(run: Run, graph: sg.Graph, closed: bool) -> None:
    p, x = sg.placeholder(sg.bool, []), sg.placeholder(sg.float32, [])
    end, _ = sg.scan(lambda c, _: (sg.stop_gradient(c, when=p) * c, None), x, length=2)
    (dx,) = sg.gradients(end, [x])
    assert run([end, dx], {p: closed, x: 3.0}) == [81.0, 27.0 if closed else 108.0]


def test_a_stop_at_every_second_step(run: Run, graph: sg.Graph) -> None:
    """Truncated back-propagation through time: the gate's condition is computed from the step."""
    x = sg.placeholder(sg.float64, [])

    def step(c: Any, i: Any) -> Any:
        return sg.stop_gradient(c, when=sg.equal(i % 2, 0)) * x, None

    end, _ = sg.scan(step, np.float64(1.0), np.arange(5, dtype=np.int32))
    assert run([end, *sg.gradients(end, [x])], {x: 2.0}) == [32.0, 16.0]
