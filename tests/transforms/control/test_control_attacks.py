"""Corners of control flow that once went wrong, or nearly did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytestmark = pytest.mark.slow

X = np.array([0.5, -1.0, 2.0])
U = np.sin(X)

# ------------------------------------------- closing over a graph's tensors, outside of any default graph

CLOSURES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a carry times it": (lambda u: sg.scan(lambda c, _: (c * u, None), X, length=2)[0], X * U * U),
    "a branch returns it": (lambda u: sg.cond(np.array(True), lambda: u, lambda: u * 2.0), U),
    "the first branch returns it": (lambda u: sg.cond(np.array(False), lambda: u * 2.0, lambda: u), U),
    "both branches return it": (lambda u: sg.switch(1, [lambda: u, lambda: u]), U),
    "a step returns it": (
        lambda u: sg.scan(lambda c, _: (c, u), np.array(1.0), length=2)[1],
        np.stack([U, U]),
    ),
    "a loop in a loop": (
        lambda u: sg.scan(lambda c, _: (sg.fori_loop(0, 2, lambda i, d: d * u, X), None), X, length=2)[0],
        X * U * U,
    ),
    "a branch in a loop": (
        lambda u: sg.fori_loop(0, 2, lambda i, c: sg.cond(np.array(True), lambda: c * u, lambda: u), X),
        X * U * U,
    ),
    "a constant comes first": (
        lambda u: sg.fori_loop(0, 1, lambda i, c: sg.ones([3], sg.float64) * c * u, X),
        X * U,
    ),
    "a checkpoint": (lambda u: sg.checkpoint(lambda c: c * u)(X), X * U),
    "a gradient in a loop in a loop": (
        lambda u: sg.fori_loop(
            0,
            2,
            lambda i, c: sg.map_fn(lambda d: sg.gradients(d * sg.reduce_sum(u * u), [u])[0][0], X),
            X,
        ),
        X * 2.0 * U[0],
    ),
}


@pytest.mark.parametrize("name", CLOSURES)
def test_a_construct_is_built_in_the_graph_of_what_it_closes_over(name: str, run: Callable[..., Any]) -> None:
    build, want = CLOSURES[name]
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [3])
        u = sg.sin(x)
    made = build(u)
    assert made.op.graph is graph
    np.testing.assert_allclose(run(made, {x: X}), want, rtol=1e-12)


def test_a_function_that_fails_leaves_nothing_in_the_graph_of_what_it_closes_over() -> None:
    graph = sg.Graph()
    with graph.as_default():
        u = sg.sin(sg.placeholder(sg.float64, [3]))
    before = graph.to_text()

    def fails(*_: Any) -> Any:
        sg.cos(u) * 2.0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.scan(lambda c, _: (sg.scan(fails, X, length=2)[0], None), X, length=2)
    assert graph.to_text() == before


def test_a_graph_made_inside_a_body_stays_apart() -> None:
    def body(i: Any, c: Any) -> Any:
        with sg.Graph().as_default() as other:
            y = sg.ones([3], sg.float64) * 2.0
            with sg.Session(other, engine="numpy") as session:
                factor = session.run(y)
        return c * factor

    np.testing.assert_array_equal(sg.fori_loop(0, 2, body, X), X * 4.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda leaked: sg.fori_loop(0, 1, lambda i, c: c * leaked, X),
        lambda leaked: sg.fori_loop(0, 1, lambda i, c: leaked * c, X),
        lambda leaked: sg.grad(lambda x: sg.reduce_sum(x * leaked))(X),
    ],
)
def test_a_tensor_kept_from_the_body_of_another_construct_is_refused(use: Callable[[Any], Any]) -> None:
    kept: list[Any] = []
    sg.scan(lambda c, _: (kept.append(c) or c, None), X, length=2)
    with pytest.raises(sg.GraphError, match=r"was made inside the body of scan.*return it"):
        use(kept[0])
