"""What TensorFlow's own tests say about gradients through loops and stops around and inside of them.

The programs and numbers are those of ``control_flow_ops_py_test.py`` (``testWhileGrad_*`` and others).
Where we differ, by intent, the test says so: a path that is stopped inside a body is an absence with a reason
for us, not a zero; and a loop needs ``maximum_iterations`` to have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.body import bodies_in

Run = Callable[..., Any]


def squares(x: Any, y: Any, stop: Callable[[Any], Any] = lambda v: v) -> Any:
    """The loop of ``testWhileGrad_StopGrad``: x becomes x² + y², y becomes y², until x is 100."""

    def body(x: Any, y: Any) -> Any:
        y1 = stop(sg.square(y, name="squared"))
        return sg.square(x) + y1, y1

    return sg.while_loop(lambda x, y: x < 100.0, body, [x, y], maximum_iterations=5)


def everything(graph: sg.Graph) -> list[Any]:
    """All operations, also those inside bodies; a graph that several bodies share counts once."""
    graphs, found = [graph], []
    for one in graphs:
        for op in one.operations:
            found.append(op)
            graphs += [body.graph for body in bodies_in(op.values) if body.graph not in graphs]
    return found


@pytest.fixture
def x(graph: sg.Graph) -> Any:
    return sg.constant(3.0, name="x")


@pytest.fixture
def y(graph: sg.Graph) -> Any:
    return sg.constant(2.0, name="y")


# ------------------------------------------------------------------------------- stops outside of a loop


def test_the_gradients_of_a_loop(run: Run, x: Any, y: Any) -> None:
    rx, ry = squares(x, y)
    assert run([rx, ry]) == [185.0, 16.0]
    assert run(sg.gradients(rx, y)) == [136.0]
    assert run(sg.gradients(ry, y)) == [32.0]
    assert run(sg.gradients(rx + ry, y)) == [168.0]


def test_behind_a_stop_after_the_loop_there_is_no_gradient(x: Any, y: Any) -> None:
    rx, ry = squares(x, y)
    for stopped in (rx, ry, sg.square(rx), rx + ry):
        before = len(x.graph)
        hidden = sg.stop_gradient(stopped)
        assert sg.gradients(hidden, [x, y]) == [None, None]
        assert [op.type for op in x.graph.operations[before:] if op.origin is None] == ["StopGradient"]
        assert sg.explain(hidden, [y])[y].status == "stopped"


def test_one_of_two_results_is_stopped(run: Run, x: Any, y: Any) -> None:
    rx, ry = squares(x, y)
    assert run(sg.gradients(rx + sg.stop_gradient(ry), y)) == [136.0]
    assert run(sg.gradients(sg.stop_gradient(rx) + ry, y)) == [32.0]


def test_a_gradient_stopped_and_used_again(run: Run, graph: sg.Graph) -> None:
    """``testStopGradOnWhileGrad``: 4 + 384 from the loop, and nothing from its stopped gradient."""
    x, y = sg.constant(2.0), sg.constant(2.0)
    rx = sg.while_loop(lambda x: x < 100.0, lambda x: x * y, [x], maximum_iterations=10)
    rx = rx[0] if isinstance(rx, (list, tuple)) else rx
    (slope,) = sg.gradients(rx, y)
    total = sg.square(y) + rx + sg.stop_gradient(slope)
    assert run(sg.gradients(total, y)) == [388.0]


def test_a_norm_of_gradients_stopped_and_added(run: Run, graph: sg.Graph) -> None:
    """``testStopGradMultiFlows``: a parameter read inside, and a second flow that is stopped."""
    x = sg.parameter(np.ones((), np.float32), name="x")

    def body(i: Any, y: Any, r: Any) -> Any:
        y = y * x
        return i + 1, y, r + sg.reduce_sum(y)

    start = (sg.constant(0), sg.ones(5), sg.constant(0.0))
    _, _, r = sg.while_loop(lambda i, y, r: i < 1, body, start, maximum_iterations=1)
    (slope,) = sg.gradients(r, x)
    z = r + sg.stop_gradient(sg.reduce_sum(sg.sqrt(sg.square(slope))))
    assert run(z) == 10.0
    assert run(sg.gradients(z, x)) == [5.0]


# ------------------------------------------------------------------------------------ stops inside a body


def test_a_carry_stopped_inside_the_body(run: Run, x: Any, y: Any) -> None:
    """``testWhileGrad_StopGradInside``: 156 for x; where TensorFlow has 0 for y, we have None."""
    rx, ry = squares(x, y, sg.stop_gradient)
    assert run(sg.gradients(rx, x)) == [156.0]
    assert sg.gradients(rx, [y]) == [None]
    assert run(sg.gradients(rx, y, unconnected_gradients="zero")) == [0.0]
    assert run([rx, ry]) == [185.0, 16.0]


def test_a_stop_inside_says_stopped(x: Any, y: Any) -> None:
    rx, _ = squares(x, y, sg.stop_gradient)
    found = sg.explain(rx, [x, y])
    assert found[x].status == "partly stopped"  # How often the loop runs depends on it, too.
    assert found[x].cuts[0].operation.type == "Less"
    assert found[y].status == "stopped"
    assert {cut.operation.type for cut in found[y].cuts} == {"Less", "StopGradient"}
    assert {cut.location.file for cut in found[y].cuts} == {__file__}


def test_a_carry_stopped_inside_a_loop_that_may_run_no_time(run: Run, x: Any, y: Any) -> None:
    """Such a loop hands on the start: y is partly stopped, and what arrives depends on the steps run."""
    _, ry = squares(x, y, sg.stop_gradient)
    assert sg.explain(ry, [y])[y].status == "partly stopped"
    assert run(sg.gradients(ry, y)) == [0.0]
    far = sg.constant(200.0)
    _, ry = squares(far, y, sg.stop_gradient)
    assert run(sg.gradients(ry, y)) == [1.0]


def test_nothing_of_a_stopped_path_is_in_the_gradient(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_StopGradInsideNoShape``: nothing is generated for what is hidden, in no body either."""
    x = sg.placeholder(sg.float32, [2])
    y = sg.placeholder(sg.float32, [2])

    def body(x: Any, y: Any) -> Any:
        y1 = sg.stop_gradient(sg.tanh(y, name="hidden") * 3.0)
        return sg.square(x) + y1, y1

    def below(x: Any, y: Any) -> Any:
        return sg.reduce_sum(x) < 100.0

    rx, _ = sg.while_loop(below, body, [x, y], maximum_iterations=5)
    (dx,) = sg.gradients(rx, x)
    types = [op.type for op in everything(graph) if op.origin is not None]
    assert types
    assert "TanhGrad" not in types
    feeds = {x: np.array([3.0, 4.0], np.float32), y: np.array([2.0, 3.0], np.float32)}
    first = np.square([3.0, 4.0]) + 3 * np.tanh([2.0, 3.0])
    np.testing.assert_allclose(run(dx, feeds), 4 * np.array([3.0, 4.0]) * first, rtol=1e-5)


def test_what_is_stopped_is_not_computed_again_for_the_gradient(graph: sg.Graph) -> None:
    x, y = sg.placeholder(sg.float32, [2]), sg.placeholder(sg.float32, [2])

    def step(carry: Any, _: Any) -> Any:
        x, y = carry
        y1 = sg.stop_gradient(sg.tanh(y) * 3.0)
        return (sg.sin(x) + y1, y1), None

    (rx, _), _ = sg.scan(step, (x, y), length=5)
    before = sorted(op.type for op in everything(graph))
    assert sg.gradients(rx, [x])[0] is not None
    added = sorted(op.type for op in everything(graph))
    for type in before:
        added.remove(type)
    assert "Cos" in added
    assert {"Tanh", "TanhGrad", "StopGradient"}.isdisjoint(added)


def test_a_stopped_path_with_symbolic_sizes(run: Run, graph: sg.Graph) -> None:
    x, y = sg.placeholder(sg.float32, ["n"]), sg.placeholder(sg.float32, ["n"])

    def body(x: Any, y: Any) -> Any:
        y1 = sg.stop_gradient(sg.square(y))
        return sg.square(x) + y1, y1

    rx, _ = sg.while_loop(lambda x, y: sg.reduce_sum(x) < 100.0, body, [x, y], maximum_iterations=5)
    assert sg.gradients(rx, [y]) == [None]
    feeds = {x: np.array([3.0, 4.0], np.float32), y: np.array([2.0, 3.0], np.float32)}
    np.testing.assert_allclose(run(sg.gradients(rx, x), feeds)[0], [156.0, 400.0])


# --------------------------------------------------------------------------------------- loops, no stops


def one(result: Any) -> Any:
    """A loop over one tensor gives it back in a list."""
    return result[0] if isinstance(result, (list, tuple)) else result


def below(limit: float) -> Callable[[Any], Any]:
    return lambda v: v < limit


def test_squaring_until_100(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_Square``, ``_MultipleUses`` and ``_LoopAdd``."""
    v = sg.constant(2.0)
    r = one(sg.while_loop(below(100.0), sg.square, [v], maximum_iterations=4))
    chosen = sg.cond(sg.constant(1) < 2, lambda: r, lambda: v)
    assert run(sg.gradients(chosen, v)) == [1024.0]
    assert run(sg.gradients(r * r, v)) == [524288.0]
    assert run(sg.gradients(r + r, v)) == [2048.0]


def test_a_captured_factor(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_Mul`` and ``_Variable``."""
    a, v = sg.parameter(np.float32(3.0), name="a"), sg.constant(2.0)
    r = one(sg.while_loop(below(100.0), lambda v: v * a, [v], maximum_iterations=9))
    assert run(sg.gradients(r, [a, v])) == [216.0, 81.0]


def test_two_results_and_two_starts(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_ys_xs``."""
    x, y = sg.constant(3.0), sg.constant(2.0)

    def body(x: Any, y: Any) -> Any:
        y1 = x + y
        return x * y1, y1

    rx, ry = sg.while_loop(lambda x, y: x < 100.0, body, [x, y], maximum_iterations=6)
    assert run(sg.gradients([rx, ry], [x, y])) == [304.0, 124.0]
    assert run(sg.gradients(rx, [x, y])) == [295.0, 120.0]


def test_a_counter_has_no_gradient(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_Dependency``."""
    i, x = sg.constant(0), sg.constant(2.0)
    ri, rx = sg.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x * 2.0), [i, x], maximum_iterations=10)
    assert run(sg.gradients([ri, rx], x)) == [1024.0]
    assert run(sg.gradients(rx, x)) == [1024.0]
    assert sg.gradients(ri, [x]) == [None]


def test_loops_in_a_row_and_side_by_side(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_SerialTwoLoops`` and ``_ParallelTwoLoops``."""
    i, x = sg.constant(0), sg.constant(2.0)

    def five(x: Any) -> Any:
        return sg.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2.0), [i, x], maximum_iterations=5)[
            1
        ]

    assert run(sg.gradients(five(five(x)), x)) == [1024.0]
    assert run(sg.gradients(five(x) + five(x), x)) == [64.0]


def test_a_loop_in_a_branch_in_a_loop(run: Run, graph: sg.Graph) -> None:
    """``testNestedWhileCondWhileGrad`` and ``testNestedWhileGrad_Simple``."""
    v = sg.constant(1.0)

    def inner(s: Any) -> Any:
        start = (sg.constant(0), s)
        return sg.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2.0), start, maximum_iterations=4)[
            1
        ]

    def body(x: Any) -> Any:
        return sg.cond(sg.constant(True), lambda: sg.square(inner(x)), lambda: x * 2.0)

    r = one(sg.while_loop(below(128.0), body, [v], maximum_iterations=7))
    assert run(sg.gradients(r, v)) == [512.0]

    def four(x: Any) -> Any:
        return one(sg.while_loop(below(4.0), lambda x: x * 2.0, [x], maximum_iterations=3))

    r = one(sg.while_loop(below(2.0), lambda x: four(x) * 2.0, [v], maximum_iterations=3))
    assert run(sg.gradients(r, v)) == [8.0]


def test_a_gradient_generated_inside_a_branch_and_a_loop(run: Run, graph: sg.Graph) -> None:
    """``testWhileGradInCond`` and ``testWhileGradInWhile``."""
    x = sg.placeholder(sg.float32, [])

    def to_ten(n: Any) -> Any:
        r = one(sg.while_loop(below(10.0), lambda n: n + x, [n], maximum_iterations=20))
        return sg.gradients(r, x)[0]

    n = sg.constant(1.0)
    assert run(sg.cond(sg.constant(1) < 2, lambda: to_ten(n), lambda: x), {x: 1.0}) == 9.0
    assert run(one(sg.while_loop(below(6.0), to_ten, [n])), {x: 1.0}) == 9.0


def test_a_gradient_of_captured_tensors_inside_a_loop(run: Run, graph: sg.Graph) -> None:
    """``testCallGradInLoop``: ten times (1 + 2 + 3) · d(p²)/dp at 5."""
    p = sg.constant(5.0)
    square = sg.square(p)

    def body(i: Any, x: Any) -> Any:
        data = np.array([1.0, 2.0, 3.0], np.float32) * square
        return i + 1, x + sg.gradients(data, p)[0]

    start = (sg.constant(0), sg.constant(0.0))
    assert run(sg.while_loop(lambda i, x: i < 10, body, start)[1]) == 600.0


def test_a_map_inside_a_loop(run: Run, graph: sg.Graph) -> None:
    """``testWhileAndTensorArray``."""
    p = sg.constant(2.0)
    y = sg.constant(np.arange(1.0, 7.0, dtype=np.float32))
    _, r = sg.while_loop(
        lambda i, y: i < 10,
        lambda i, y: (i + 1, sg.map_fn(lambda x: x * p, y)),
        [sg.constant(0), y],
        maximum_iterations=10,
    )
    assert run(sg.gradients(r, p)) == [107520.0]


def test_a_loop_that_never_runs(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_BaseShape`` and ``_Const``."""
    x, v = sg.placeholder(sg.float32, ["n"]), sg.constant(np.array([2.0, 2.0], np.float32))
    w = sg.placeholder(sg.float32, [2])
    r = one(sg.while_loop(lambda v: sg.constant(False), lambda v: v * w, [v], maximum_iterations=3))
    feeds = {w: [1.0, 2.0], x: [1.0, 2.0]}
    assert run(sg.gradients(r, w), feeds)[0].tolist() == [0.0, 0.0]
    assert run(sg.gradients([r, sg.square(x)], x), feeds)[0].tolist() == [2.0, 4.0]
    assert run(sg.gradients(r, v), feeds)[0].tolist() == [1.0, 1.0]


def test_a_carry_that_depends_on_nothing_of_the_start(run: Run, graph: sg.Graph) -> None:
    """``testWhileGrad_NoDependency``: the last carry is the second, handed on."""
    p = sg.parameter(np.ones((2, 3), np.float32), name="p")
    start = [sg.constant(0), p, p]
    results = sg.while_loop(lambda i, *_: i < 10, lambda i, t, _: (i + 1, t, t), start, maximum_iterations=10)
    assert run(sg.gradients(sg.reduce_sum(results[2]), [p]))[0].tolist() == np.ones((2, 3)).tolist()


def test_the_structure_of_the_start_comes_back(run: Run, graph: sg.Graph) -> None:
    """``testWhile_NestedInput``."""
    start = [
        {"a": sg.constant(0.0), "b": sg.constant(1.0)},
        (sg.constant(2.0), sg.constant(3.0)),
        sg.constant(4.0),
    ]

    def body(first: Any, second: Any, third: Any) -> Any:
        return [{"a": first["a"] + 1, "b": first["b"]}, (second[0] + 1, second[1]), third + 2]

    results = sg.while_loop(lambda first, *_: first["a"] < 100.0, body, start)
    assert isinstance(results, list)
    assert isinstance(results[1], tuple)
    assert run(results) == [{"a": 100.0, "b": 1.0}, (102.0, 3.0), 204.0]


def test_second_order_through_a_scan(run: Run, graph: sg.Graph) -> None:
    """``testWhileGradGradFail``: what TensorFlow refuses is here a gradient; stopped, it is none for both."""
    theta = sg.parameter(np.float32(1.5), name="theta")
    xs = np.array([1.0, 2.0, 3.0], np.float32)
    _, ys = sg.scan(lambda c, x: ((c + x) * theta, c + x * theta * theta), sg.constant(0.0), xs)
    (slope,) = sg.gradients(ys, theta)
    (curve,) = sg.gradients(slope, theta)
    # The carries before the steps are 0, t and t² + 2t; with t², 2t² and 3t² the results sum to 7t² + 3t.
    assert run([sg.reduce_sum(ys), slope, curve]) == [7 * 1.5**2 + 3 * 1.5, 14 * 1.5 + 3, 14.0]
    assert sg.gradients(sg.stop_gradient(slope), [theta]) == [None]
