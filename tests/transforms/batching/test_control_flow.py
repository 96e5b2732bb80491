"""vmap of control flow gives what the loop over the examples gives, and what jax.vmap gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.base.structure import flatten, unflatten
from stopgrad.graph import batched_bodies
from stopgrad.graph.graph import Graph

XS = np.array([0.5, -1.25, 2.0, 3.5])
ROWS = np.random.default_rng(0).normal(size=(4, 5))


def loop(f: Callable[..., Any], *arrays: Any) -> Any:
    rows = [flatten(f(*parts)) for parts in zip(*arrays, strict=True)]
    columns = zip(*[leaves for leaves, _ in rows], strict=True)
    return unflatten(rows[0][1], [np.stack(column) for column in columns])


def assert_alike(found: Any, expected: Any) -> None:
    for a, b in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def rnn(x: Any, w: Any = 0.7) -> Any:
    """A scan whose first carry is the same for all examples, and one of whose carries stays so."""
    start = (np.zeros(()), np.zeros((), np.int32))
    (h, n), states = sg.scan(lambda c, part: ((sg.tanh(w * c[0] + part), c[1] + 1), c[0] * 2.0), start, x)
    return sg.reduce_sum(states) + h * sg.cast(n, sg.float64)


def collatz_like(x: Any) -> Any:
    """A while loop that ends after a number of steps of the example's own."""
    return sg.while_loop(
        lambda y, n: y < 50.0, lambda y, n: (y * y + 1.0, n + 1.0), (x, x * 0.0), maximum_iterations=9
    )


def counted(x: Any) -> Any:
    """A while loop that ends after as many steps for all."""
    return sg.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, sg.sin(y)), (0, x))[1]


def branching(x: Any) -> Any:
    return sg.cond(x > 1.0, lambda y: y * y, lambda y: sg.exp(y), x)


def three_ways(x: Any) -> Any:
    return sg.switch(
        sg.cast(x, sg.int32), [lambda y: -y, lambda y: y * y, lambda y: sg.stop_gradient(y) * y], x
    )


def nested(x: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        inner = sg.fori_loop(0, 3, lambda _, y: y * 0.5 + x, c)
        return sg.cond(inner > 1.0, lambda: inner * 0.1, lambda: inner + 1.0), inner

    return sg.scan(step, x, np.arange(3))


def kept(x: Any) -> Any:
    return sg.checkpoint(lambda y: sg.sin(sg.exp(y)))(x)


SCALAR = {f.__name__: f for f in (collatz_like, counted, branching, three_ways, nested, kept)}


@pytest.mark.parametrize("name", SCALAR)
@each_engine
def test_values_are_those_of_the_loop(name: str, engine: str) -> None:
    f = SCALAR[name]
    assert_alike(sg.function(sg.vmap(f), engine=engine)(XS), loop(f, XS))


@pytest.mark.parametrize("name", sorted(set(SCALAR) - {"counted"}))
@each_engine
def test_gradients_are_those_of_the_loop(name: str, engine: str) -> None:
    """The gradient inside of vmap, and that of vmap."""

    def f(x: Any) -> Any:
        return sum((sg.reduce_sum(y) for y in flatten(SCALAR[name](x))[0]), 0.0)

    expected = loop(sg.grad(f), XS)
    assert_alike(sg.function(sg.vmap(sg.grad(f)), engine=engine)(XS), expected)
    assert_alike(sg.function(sg.grad(lambda xs: sg.reduce_sum(sg.vmap(f)(xs))), engine=engine)(XS), expected)


@each_engine
def test_a_scan_over_parts_of_each_example(engine: str) -> None:
    assert_alike(sg.function(sg.vmap(rnn), engine=engine)(ROWS), loop(rnn, ROWS))
    assert_alike(sg.function(sg.vmap(sg.grad(rnn)), engine=engine)(ROWS), loop(sg.grad(rnn), ROWS))
    w = np.array([0.1, 0.2, 0.3, 0.4])
    both = sg.vmap(sg.grad(rnn, (0, 1)), in_axes=(None, 0))
    assert_alike(
        sg.function(both, engine=engine)(ROWS[0], w), loop(lambda v: sg.grad(rnn, (0, 1))(ROWS[0], v), w)
    )


def test_second_order_through_a_batched_scan() -> None:
    found = sg.vmap(sg.hessian(rnn))(ROWS)

    def in_jax(x: Any) -> Any:
        start = (jax.numpy.zeros(()), jax.numpy.zeros((), np.int32))
        (h, n), states = jax.lax.scan(
            lambda c, part: ((jax.numpy.tanh(0.7 * c[0] + part), c[1] + 1), c[0] * 2.0), start, x
        )
        return states.sum() + h * n

    with jax.enable_x64(True):
        expected = jax.vmap(jax.hessian(in_jax))(ROWS)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_an_index_of_each_example_chooses_for_it_alone() -> None:
    f = sg.vmap(lambda i, x: sg.switch(i, [lambda y: y, lambda y: -y, lambda y: y * y], x))
    np.testing.assert_array_equal(f(np.array([-5, 1, 7, 0]), XS), [XS[0], -XS[1], XS[2] ** 2, XS[3]])


def test_an_index_for_all_stays_a_choice() -> None:
    """What differs only in its operands runs one branch, not all."""
    graph = Graph()
    with graph.as_default():
        x, i = sg.placeholder(sg.float64, [4]), sg.placeholder(sg.int32)
        y = sg.vmap(lambda v: sg.switch(i, [sg.exp, sg.sin], v))(x)
    types = [op.type for op in graph.subgraph_to([y])]
    assert "Case" in types
    assert "SelectV2" not in types
    with sg.Session(graph) as session:
        np.testing.assert_array_equal(session.run(y, {x: XS, i: 1}), np.sin(XS))


def test_a_loop_with_one_end_for_all_chooses_nothing() -> None:
    graph = Graph()
    with graph.as_default():
        y = sg.vmap(counted)(sg.placeholder(sg.float64, [4]))
    (loop_op,) = [op for op in graph.subgraph_to([y]) if op.type == "While"]
    assert "SelectV2" not in [op.type for op in loop_op.body.operations()]
    assert [t.shape for t in loop_op.body.input_types[:2]] == [(), (4,)]


def test_what_no_example_changes_is_carried_once() -> None:
    graph = Graph()
    with graph.as_default():
        y = sg.vmap(rnn)(sg.placeholder(sg.float64, [4, 5]))
    (scan,) = [op for op in graph.subgraph_to([y]) if op.type == "Scan"]
    assert [t.shape for t in scan.body.input_types] == [(4,), (), (4,)]


def test_the_forward_loop_of_a_batched_gradient_runs_once() -> None:
    graph = Graph()
    with graph.as_default():
        g = sg.vmap(sg.grad(rnn))(sg.placeholder(sg.float64, [4, 5]))
    loops = [op for op in graph.subgraph_to([g]) if op.type == "Scan"]
    assert len(loops) == 2
    assert sorted(op.reverse for op in loops) == [False, True]


def test_a_symbolic_number_of_examples() -> None:
    graph = Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["n", 5])
        g = sg.vmap(sg.grad(rnn))(x)
        z = sg.vmap(branching)(x[:, 0])
    with sg.Session(graph) as session:
        for n in (1, 3):
            found, chosen = session.run([g, z], {x: ROWS[:n]})
            assert_alike(found, loop(sg.grad(rnn), ROWS[:n]))
            assert_alike(chosen, loop(branching, ROWS[:n, 0]))


def test_loops_in_loops_are_batched_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of nested loops holds each body several times; work grows with the depth, no faster."""

    def nest(depth: int, x: Any) -> Any:
        if not depth:
            return sg.sin(x)
        return sg.scan(lambda c, _: (nest(depth - 1, c), None), x, None, 2)[0]

    steps = []
    build = batched_bodies._Replay.build
    monkeypatch.setattr(
        batched_bodies._Replay, "build", lambda self, op, xs: (steps.append(op), build(self, op, xs))[1]
    )
    counts = []
    for depth in (6, 12):
        steps.clear()
        with Graph().as_default():
            sg.vmap(sg.grad(lambda x, depth=depth: nest(depth, x)))(sg.placeholder(sg.float64, [4]))
        counts.append(len(steps))
    assert counts[1] < 6 * counts[0]


def test_bodies_nested_fifty_deep() -> None:
    def nest(depth: int, x: Any) -> Any:
        return sg.cond(x > 0.0, lambda: nest(depth - 1, x * 1.01), lambda: x) if depth else sg.sin(x)

    found = sg.vmap(sg.grad(lambda x: nest(50, x)))(XS)
    np.testing.assert_allclose(found, np.where(XS > 0, 1.01**50 * np.cos(XS * 1.01**50), 1.0))
