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


# ------------------------------------------------------------------------------- loops of known length


def swapping(n: int, gate: Any) -> Any:
    """Both carries change places at every step; one of them passes a gate on its way."""
    return lambda a, b: sg.fori_loop(0, n, lambda i, c: (c[1] * 2.0, gate(c[0])), (a, b))[0]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 999_999, 10**6])
def test_carries_that_swap_are_told_apart_by_the_number_of_steps(n: int) -> None:
    f = swapping(n, lambda t: t)
    comes, stays = ("a", "b") if n % 2 == 0 else ("b", "a")
    flow = sg.explain(f, X, X)
    assert (flow[comes].status, flow[stays].status) == ("flows", "disconnected")
    if n < 10:
        found = sg.grad(lambda a, b: sg.reduce_sum(f(a, b)), argnums=(0, 1))(X, X)
        slopes = {comes: 2.0 ** -(-n // 2), stays: 0.0}
        assert [g.tolist() for g in found] == [[slopes[key]] * 3 for key in "ab"]


@pytest.mark.parametrize(("n", "a", "b"), [
    (0, "flows", "disconnected"),
    (1, "disconnected", "flows"),  # The gate is passed by the other carry.
    (2, "stopped", "disconnected"),
    (3, "disconnected", "stopped"),
    (10**6, "stopped", "disconnected"),
])  # fmt: skip
def test_a_swap_with_a_stop_on_one_side(n: int, a: str, b: str) -> None:
    flow = sg.explain(swapping(n, sg.stop_gradient), X, X)
    assert (flow["a"].status, flow["b"].status) == (a, b)
    behind = [k for k in "ab" if flow[k].status == "stopped"]
    assert [list(cut.behind) for cut in flow.cuts] == ([behind] if behind else [])
    assert [gate.idle for gate in flow.gates] == [not behind]


def test_what_refuses_a_gradient_in_a_step_that_is_not_taken_does_not_refuse() -> None:
    f = swapping(0, lambda t: sg.prevent_gradient(t, "not here"))
    assert sg.explain(f, X, X)["a"].status == "flows"
    assert sg.grad(lambda a: sg.reduce_sum(f(a, X)))(X).tolist() == [1.0, 1.0, 1.0]
    f = swapping(1, lambda t: sg.prevent_gradient(t, "not here"))
    assert sg.explain(f, X, X)["b"].status == "flows"
    assert sg.grad(lambda b: sg.reduce_sum(f(X, b)))(X).tolist() == [2.0, 2.0, 2.0]
    f = swapping(2, lambda t: sg.prevent_gradient(t, "not here"))
    assert sg.explain(f, X, X)["a"].status == "undefined"


def test_a_delay_line_is_as_long_as_it_is() -> None:
    """Each carry becomes the one before it: after n steps, the first is what the n-th was."""

    def delayed(n: int) -> Any:
        return lambda cs: sg.scan(lambda c, _: (c[1:] + c[:1], c[0]), cs, length=n)

    start = {f"cs.{k}": k for k in range(5)}
    for n in (1, 3, 12, 10**6 + 2):
        flow = sg.explain(lambda cs: delayed(n)(cs)[0][0], [X] * 5)
        assert [key for key in start if flow[key].arrives] == [f"cs.{n % 5}"]
        flow = sg.explain(lambda cs: delayed(n)(cs)[1], [X] * 5)
        assert [key for key in start if flow[key].arrives] == list(start)[:n]


def test_a_loop_without_a_step_has_no_results() -> None:
    flow = sg.explain(lambda w, xs: sg.map_fn(lambda x: w * x, xs), X, ROWS[:0])
    assert {str(found.status) for found in flow.values()} == {"disconnected"}


@pytest.mark.parametrize(("limit", "a", "b", "c", "bound"), [
    (0, "flows", "disconnected", "disconnected", "disconnected"),
    (1, "partly stopped", "flows", "disconnected", "not differentiable"),
    (2, "partly stopped", "partly stopped", "stopped", "not differentiable"),
])  # fmt: skip
def test_a_loop_of_at_most_so_many_steps(limit: int, a: str, b: str, c: str, bound: str) -> None:
    """It may also take fewer. Its condition is asked before each step that it could take."""

    def f(a: Any, b: Any, c: Any, bound: Any) -> Any:
        below = lambda a, b, c: sg.reduce_sum(a) < bound
        turn = lambda a, b, c: (b, sg.stop_gradient(c), c)
        return sg.while_loop(below, turn, [a, b, c], maximum_iterations=limit)[0]

    flow = sg.explain(f, X, X, X, np.float32(9.0))
    assert [str(found.status) for found in flow.values()] == [a, b, c, bound]


def test_a_loop_in_a_loop_takes_the_product_of_both_numbers() -> None:
    def f(n: int, m: int) -> Any:
        once = lambda i, c: (c[1], c[0])
        return lambda a, b: sg.fori_loop(0, n, lambda i, c: sg.fori_loop(0, m, once, c), (a, b))[0]

    for n, m in ((2, 3), (3, 3), (3, 0), (1001, 1001)):
        comes, stays = ("b", "a") if n * m % 2 else ("a", "b")
        flow = sg.explain(f(n, m), X, X)
        assert (flow[comes].status, flow[stays].status) == ("flows", "disconnected")
