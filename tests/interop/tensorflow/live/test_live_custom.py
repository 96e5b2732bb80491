"""Custom gradients: what they take, and what their functions only close over, eagerly and in graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import stopgrad.tensorflow as sgtf  # noqa: E402

LINE = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# <g>"))
WAYS = [lambda f: f, tf.function]


def scaled(x: Any, k: Any) -> Any:
    @tf.custom_gradient
    def g(a: Any) -> Any:
        return a * k + k, lambda dy: dy * 2.0

    return g(x)  # <g>


@tf.custom_gradient
def straight_through(x: Any) -> Any:
    return tf.round(x), lambda dy: dy


@tf.custom_gradient
def half_stopped(x: Any, y: Any) -> Any:
    return x * y, lambda dy: (dy * y, None)


@pytest.mark.parametrize("way", WAYS, ids=["eager", "graph"])
def test_what_is_closed_over_gets_no_gradient(way: Callable[..., Any]) -> None:
    w, c = tf.Variable(3.0, name="w"), tf.Variable(2.0, name="c")
    flow = sgtf.explain(way(lambda: scaled(w * 1.0, c * 1.0)))
    assert (flow["w"].status, flow["c"].status) == ("flows", "stopped")
    assert [cut.location.line for cut in flow["c"].cuts] == [LINE]
    flow = sgtf.explain(way(lambda: scaled(w * 1.0, c * 1.0) * c))
    assert (flow["w"].status, flow["c"].status) == ("flows", "partly stopped")


@pytest.mark.parametrize("way", WAYS, ids=["eager", "graph"])
def test_a_straight_through_is_no_cut(way: Callable[..., Any]) -> None:
    w = tf.Variable(3.2, name="w")
    assert sgtf.explain(way(lambda: straight_through(w * 2.0)))["w"].status == "flows"


@pytest.mark.parametrize("way", WAYS, ids=["eager", "graph"])
def test_none_for_an_argument_ends_its_gradient_alone(way: Callable[..., Any]) -> None:
    w, c = tf.Variable(3.0, name="w"), tf.Variable(2.0, name="c")
    flow = sgtf.explain(way(lambda: half_stopped(w * 1.0, c * 1.0)))
    assert flow["w"].status == "flows"
    assert not flow["c"].arrives
    assert "returns None" in str(flow)


@pytest.mark.parametrize("closes", [False, True], ids=["argument", "closed over"])
def test_an_argument_that_the_function_watches_itself_is_not_closed_over(closes: bool) -> None:
    w, c = tf.Variable([0.2, 0.4], name="w"), tf.Variable([0.1, 0.3], name="c")
    with sgtf.watch() as seen, tf.GradientTape() as tape:
        other = c * 1.0

        @tf.custom_gradient
        def penalised(x: Any) -> Any:
            size = tf.sin(x) + (other if closes else 0.0)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.tanh(x)
            return inner.gradient(y, x) * size, lambda dy: 2.0 * dy

        loss = tf.reduce_sum(penalised(w * 2.0)) + 0.0 * tf.reduce_sum(other)
    given = tape.gradient(loss, [w, c])
    np.testing.assert_allclose(given[0], [4.0, 4.0])
    np.testing.assert_allclose(given[1], [0.0, 0.0])
    flow = seen.explain(loss, [w, c])
    assert flow["w"].status == "flows"
    assert flow["c"].status == ("partly stopped" if closes else "flows")
