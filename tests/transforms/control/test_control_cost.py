"""What loops cost: operations, memory, depth. How fast anything is, no test asks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.body import bodies_in


def graphs_of(graph: sg.Graph) -> list[sg.Graph]:
    """The graph, and those of all bodies in it."""
    found = [graph]
    for one in found:
        for op in one.operations:
            found += [body.graph for body in bodies_in(op.values) if body.graph not in found]
    return found


def everything(graph: sg.Graph) -> list[sg.Operation]:
    return [op for one in graphs_of(graph) for op in one.operations]


# ----------------------------------------------------------------------------------------------- cost


def built(n: int, order: int) -> int:
    with sg.Graph().as_default() as graph:
        w, xs = sg.placeholder(sg.float32, [3, 3]), sg.placeholder(sg.float32, [n, 3])
        end, ys = sg.scan(lambda c, x: ((h := sg.tanh(c @ w + x)), sg.sin(h)), sg.zeros([1, 3]), xs)
        y = sg.reduce_sum(end) + sg.reduce_sum(ys)
        for _ in range(order):
            y = sg.reduce_sum(sg.gradients(y, [w])[0])
    return len(everything(graph))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_what_is_built_does_not_depend_on_the_number_of_steps(order: int) -> None:
    assert built(10, order) == built(1000, order) == built(100_000, order)


def test_a_scan_keeps_what_its_gradient_needs_and_no_more(graph: sg.Graph) -> None:
    """Of tanh its result; of a sum nothing; what is the same for every step is not kept for each."""
    n, width = 7, 5
    w, xs = sg.placeholder(sg.float32, [width]), sg.placeholder(sg.float32, [n, width])

    def step(c: Any, x: Any) -> Any:
        return sg.tanh(c + x) * sg.exp(w) + x, None

    end, _ = sg.scan(step, sg.zeros([width]), xs)
    before = len(graph)
    sg.gradients(end, [xs])
    kept = [
        y
        for op in graph.operations[before:]
        if op.type == "Scan" and not op.reverse
        for y in op.outputs
        if y.ndim > 1
    ]
    assert [y.shape for y in kept] == [(n, width)]


def steps_of(n: int, checkpointed: bool) -> Callable[[Any], Any]:
    """n · n steps in n blocks of n."""

    def step(c: Any, _: Any) -> Any:
        for _ in range(3):
            c = sg.sin(c) * 1.01
        return c, None

    def block(c: Any) -> Any:
        return sg.scan(step, c, length=n)[0]

    block = sg.checkpoint(block) if checkpointed else block
    return lambda x: sg.reduce_sum(sg.scan(lambda c, _: (block(c), None), x, length=n)[0])


def peak(f: Callable[[], Any]) -> tuple[Any, int]:
    """The value of a call, and the most bytes that it held."""
    f()  # What is remembered for later calls does not count.
    tracemalloc.start()
    try:
        value = f()
        return value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_checkpoints_bring_the_memory_of_a_long_loop_to_its_square_root() -> None:
    n, x = 30, np.linspace(0.1, 0.9, 512)
    plain_gradient, again_gradient = (
        sg.function(sg.grad(steps_of(n, checkpointed)), engine="numpy") for checkpointed in (False, True)
    )
    plain, much = peak(lambda: plain_gradient(x))
    again, little = peak(lambda: again_gradient(x))
    np.testing.assert_allclose(plain, again, rtol=1e-12)
    assert much > n * n * x.nbytes
    assert little < 12 * n * x.nbytes


# ----------------------------------------------------------------------------------------------- size


KINDS = ("scan", "cond", "while_loop", "checkpoint", "map_fn", "switch")


def deep(kinds: tuple[str, ...], depth: int, x: Any) -> Any:
    """Constructs inside each other, the kinds taking turns; the sine is innermost."""
    if depth == 0:
        return sg.sin(x)

    def f(v: Any) -> Any:
        return deep(kinds, depth - 1, v)

    match kinds[depth % len(kinds)]:
        case "scan":
            return sg.scan(lambda c, _: (f(c), None), x, length=1)[0]
        case "cond":
            return sg.cond(sg.constant(True), f, lambda v: v, x)
        case "while_loop":
            return sg.while_loop(lambda v: sg.constant(True), f, x, maximum_iterations=1)
        case "map_fn":
            return sg.map_fn(f, sg.expand_dims(x, 0))[0]
        case "switch":
            return sg.switch(sg.constant(1), [lambda v: v, f], x)
    return sg.checkpoint(f)(x)


DEEP = pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), KINDS], ids="+".join)


def nested_bodies(kinds: tuple[str, ...], depth: int, order: int) -> int:
    """Build, differentiate, run, write and read back; how many operations there are then."""
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [], name="x")
        found = [deep(kinds, depth, x)]
        assert sg.explain(found[0], [x])[x].status in ("flows", "partly stopped")
        for _ in range(order):
            found += sg.gradients(found[-1], [x])
    with sg.Session(graph, engine="numpy") as session:
        values = session.run(found, {x: 0.5})
    np.testing.assert_allclose(values, [np.sin(0.5), np.cos(0.5), -np.sin(0.5)][: order + 1])
    with sg.Session(sg.Graph.from_text(graph.to_text()), engine="numpy") as session:
        np.testing.assert_array_equal(session.run([y.name for y in found], {"x:0": 0.5}), values)
    return len(everything(graph))


@DEEP
def test_bodies_nested_fifty_deep(kinds: tuple[str, ...]) -> None:
    assert nested_bodies(kinds, 50, order=1) < 2.5 * nested_bodies(kinds, 25, order=1)


@DEEP
def test_second_derivatives_of_nested_bodies(kinds: tuple[str, ...]) -> None:
    """Every body holds its own derivatives: their number grows with the square of the depth, no faster."""
    assert nested_bodies(kinds, 16, order=2) < 5 * nested_bodies(kinds, 8, order=2)


LONG = """
    import sys
    sys.setrecursionlimit(200)
    import numpy as np
    import stopgrad as sg

    length = {length}

    def step(c, _):
        for _ in range(length):
            c = sg.sin(c)
        return c, None

    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, name="x")
        y, _ = sg.scan(step, x, length=2)
        (dx,) = sg.gradients(y, [x])
        assert sg.explain(y, [x])[x].status == "flows"
        assert sg.explain(sg.stop_gradient(y), [x])[x].status == "stopped"
    again = sg.Graph.from_text(graph.to_text())
    found = []
    for one in (graph, again):
        with sg.Session(one, engine="numpy") as session:
            found.append(session.run([y.name, dx.name], {{"x:0": 1.0}}))
    assert found[0] == found[1]
    v, s = 1.0, 1.0
    for _ in range(2 * length):
        s, v = s * np.cos(v), np.sin(v)
    assert np.isclose(found[0][0], v), (found, v)
    assert np.isclose(found[0][1], s, rtol=1e-6), (found, s)
    assert sys.getrecursionlimit() == 200
    print("done")
"""


@pytest.mark.parametrize("length", [5_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_a_long_body_at_a_recursion_limit_of_200(length: int) -> None:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LONG.format(length=length))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.strip() == "done", made.stderr[-3000:]
