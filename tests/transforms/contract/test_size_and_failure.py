"""Deep graphs, linear growth, and nothing left half done."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import stopgrad as sg

DEEP = """
    import sys
    sys.setrecursionlimit(200)
    import numpy as np
    import stopgrad as sg

    length = {length}
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, name="x")
        y = x
        for _ in range(length):
            y = sg.sin(y)
        before = len(graph)
        (dx,) = sg.gradients(y, [x])
        generated = len(graph) - before
        assert 2 * length <= generated <= 2 * length + 2, generated
        assert sg.gradients(sg.stop_gradient(y), [x]) == [None]
        assert sg.explain(y, [x])[x].status == "flows"
        assert sg.explain(sg.stop_gradient(y), [x])[x].status == "stopped"
        assert len(graph.subgraph_to([dx])) > length
        assert dx.name
        {second}
    with sg.Session(graph, engine="numpy") as session:
        value, slope = session.run([y, dx], {{x: 1.0}})
    v, s = np.float64(1.0), np.float64(1.0)
    for _ in range(length):
        s, v = s * np.cos(v), np.sin(v)
    assert value == v, (value, v)
    assert np.isclose(slope, s, rtol=1e-6), (slope, s)
    assert sys.getrecursionlimit() == 200
    print("done")
"""


def deep(length, second=""):
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DEEP.format(length=length, second=second))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.strip() == "done", made.stderr[-3000:]


@pytest.mark.slow
def test_a_chain_of_fifty_thousand_at_a_recursion_limit_of_200():
    deep(50_000)


def test_second_derivatives_of_a_deep_chain():
    deep(2_000, "(ddx,) = sg.gradients(dx, [x]); assert ddx is not None")


@pytest.mark.nightly
def test_a_chain_of_a_million_at_a_recursion_limit_of_200():
    deep(1_000_000)


# -------------------------------------------------------------------------------------------------- growth


def generated(build, length, order=1):
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64)
        y = build(x, length)
        start = len(graph)
        (dx,) = sg.gradients(y, [x])
        for _ in range(order - 1):
            start = len(graph)
            (dx,) = sg.gradients(dx, [x])
    return len(graph) - start


def chain(x, length):
    for _ in range(length):
        x = sg.sin(x) * 0.5
    return x


def ladder(x, length):
    """Each rung uses both rungs below: 2ⁿ ways, n operations."""
    a, b = x, x * 2.0
    for _ in range(length):
        a, b = a + b, a * b
    return a + b


def fan(x, length):
    return sg.add_n([sg.sin(x * (1.0 + n)) for n in range(length)])


@pytest.mark.parametrize("build", [chain, ladder, fan])
def test_generated_operations_grow_linearly(build):
    sizes = [generated(build, n) for n in (100, 200, 300, 400)]
    steps = np.diff(sizes)
    assert steps[0] == steps[1] == steps[2] > 0
    assert sizes[-1] < 8 * 400 + 10


@pytest.mark.parametrize("build", [chain, fan])
def test_at_second_order_too(build):
    steps = np.diff([generated(build, n, order=2) for n in (100, 200, 300)])
    assert steps[0] == steps[1]


def test_explaining_many_ways_is_linear():
    """2²⁰⁰ ways from x to y, each cut, are told as the few operations that cut them."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64)
        y = sg.stop_gradient(ladder(sg.floor(x), 200)) + ladder(sg.stop_gradient(x), 200)
        found = sg.explain(y, [x])[x]
    assert found.status == "stopped"
    (cut,) = found.cuts
    assert cut.uses == 2
    assert found.paths == found.cut_paths == 2**202


# ------------------------------------------------------------------------------------------------- failing


class MineError(Exception):
    pass


@sg.custom_gradient
def failing(x):
    def pullback(g):
        sg.exp(g)
        raise MineError

    return x * 1.0, pullback


@pytest.fixture(params=["rule raises", "rule refuses", "wrong cotangent", "another graph"])
def failure(request, graph):
    """A call of gradients that fails, some of them midway, and its error."""
    x = sg.placeholder(sg.float64, [3], name="x")
    other = sg.Graph()
    with other.as_default():
        foreign = sg.placeholder(sg.float64, [3])
    y = {"rule raises": failing, "rule refuses": lambda x: sg.prevent_gradient(x, "no")}.get(
        request.param, sg.identity
    )(x * x)
    z = sg.exp(sg.sin(y)) * sg.probe(x, "p")
    seeds = {"wrong cotangent": [np.ones(7)], "another graph": [foreign]}.get(request.param)
    return graph, lambda: sg.gradients(z, [x], seeds), (MineError, sg.StopgradError), z, x


def state(graph):
    return [(op.name, op.type, op.inputs) for op in graph.operations]


@pytest.mark.parametrize("named", ["before", "after"])
def test_a_failed_gradient_leaves_the_graph_as_it_was(named, failure):
    graph, attempt, errors, z, _ = failure
    if named == "before":
        before = state(graph)
    length = len(graph)
    with pytest.raises(errors):
        attempt()
    assert len(graph) == length
    if named == "before":
        assert state(graph) == before
    assert graph.operation("gradients/Mul") is None
    assert graph.operation("p/gradient") is None
    # The names, and the scope's, are free again, and building goes on outside of any gradient.
    again = sg.exp(z, name="again")
    assert again.op.origin is None
    assert again.name == "again:0"
    assert sg.cos(z).op.origin is None
    with sg.name_scope("gradients") as scope:
        assert scope.prefix == "gradients/"


def test_after_a_failure_the_same_graph_differentiates(failure, run):
    _, attempt, errors, z, x = failure
    with pytest.raises(errors):
        attempt()
    (dx,) = sg.gradients(sg.stop_gradient(z) * x, [x])
    assert dx.name.startswith("gradients/")
    assert run(dx, {x: [0.0, 0.0, 0.0]}).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled, graph):
    x = sg.placeholder(sg.float64)
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        sg.gradients(sg.exp(x), [x])
        assert gc.isenabled() is enabled
        with pytest.raises(MineError):
            sg.gradients(failing(x), [x])
        assert gc.isenabled() is enabled
        with sg.Session(graph, engine="numpy") as session:
            session.run(sg.exp(x), {x: 1.0})
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_a_failing_function_in_custom_gradient_leaves_the_graph_as_it_was(graph):
    x = sg.placeholder(sg.float64)
    before = state(graph)

    @sg.custom_gradient
    def broken(x):
        sg.exp(x)
        raise MineError

    with pytest.raises(MineError):
        broken(x)
    assert state(graph) == before


def test_gradients_twice_give_equal_values_under_names_of_their_own(graph, run):
    x = sg.placeholder(sg.float64)
    y = sg.exp(x) * x
    first, second = sg.gradients(y, [x])[0], sg.gradients(y, [x])[0]
    assert first.name.startswith("gradients/")
    assert second.name.startswith("gradients_1/")
    a, b = run([first, second], {x: 0.7})
    assert a == b == pytest.approx(np.exp(0.7) * 1.7)
