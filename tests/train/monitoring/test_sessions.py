"""Monitors of sessions: what a training of ours is told of its gradients, and that nothing else changes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import stopgrad as sg


def training(seed: int = 0) -> tuple[sg.Graph, Any, Any, Any, list[Any]]:
    """A network whose first layer dies as soon as its bias is pulled down."""
    rng = np.random.default_rng(seed)
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        w = sg.parameter(rng.standard_normal((3, 4)).astype(np.float32), name="w")
        b = sg.parameter(np.zeros(4, np.float32), name="b")
        v = sg.parameter(rng.standard_normal((4, 1)).astype(np.float32), name="v")
        loss = sg.reduce_mean(sg.square(sg.relu(x @ w + b) @ v - 1.0))
        update = sg.optimizers.sgd(loss, [w, b, v], learning_rate=0.01)
        kill = sg.assign(b, b - 100.0)
    return graph, x, loss, update, [w, b, v, kill]


def batch(step: int) -> Any:
    return np.random.default_rng(step).standard_normal((6, 3)).astype(np.float32)


def test_a_layer_that_dies_is_told_with_its_line_in_the_next_sample() -> None:
    graph, x, loss, update, (*_, kill) = training()
    told = io.StringIO()
    with sg.Session(graph, engine="numpy") as session:
        monitor = sg.monitor(session, loss, every=5, to=told)
        for step in range(20):
            monitor({x: batch(step)})
            session.run(kill if step == 7 else update.run, {x: batch(step)})
    (change, other) = monitor.changes
    assert (change.step, change.state, change.keys) == (10, "zero", ("w:0", "b:0"))
    assert change.cause.endswith(" Relu is dead: it is off wherever a gradient arrives")
    assert "test_sessions.py:" in change.cause
    assert (other.step, other.keys) == (10, ("v:0",))
    assert told.getvalue().count("\n") == 2


def test_a_training_is_the_same_bits_with_and_without_a_monitor() -> None:
    found = []
    for monitored in (False, True):
        graph, x, loss, update, (w, b, v, _) = training()
        with sg.Session(graph, engine="numpy") as session:
            monitor = sg.monitor(session, loss, every=2, to=io.StringIO()) if monitored else None
            count = len(graph.operations)
            for step in range(7):
                if monitor is not None:
                    monitor({x: batch(step)})
                session.run(update.run, {x: batch(step)})
            assert len(graph.operations) == count
            found.append([session.value(p).tobytes() for p in (w, b, v)])
    assert found[0] == found[1]


def test_only_some_parameters_can_be_monitored() -> None:
    graph, x, loss, _, (w, _, v, _) = training()
    stream = io.StringIO()
    with sg.Session(graph, engine="numpy") as session:
        monitor = sg.monitor(
            session, sg.stop_gradient(loss) + 0.0 * sg.reduce_sum(v), [w, v], every=1, to=stream
        )
        monitor({x: batch(0)})
    states = {change.keys: change.state for change in monitor.changes}
    assert states == {("w:0",): "stopped", ("v:0",): "zero"}


def test_batches_of_another_size_are_sampled_too() -> None:
    graph, x, loss, _, _ = training()
    with sg.Session(graph, engine="numpy") as session:
        monitor = sg.monitor(session, loss, every=1, to=io.StringIO())
        for size in (6, 2, 6):
            monitor({x: batch(0)[:size]})
    assert monitor.changes == ()


def test_a_step_that_cannot_be_sampled_is_a_warning_and_the_training_goes_on() -> None:
    graph, _, loss, _, _ = training()
    with sg.Session(graph, engine="numpy") as session:
        monitor = sg.monitor(session, loss, every=1, to=io.StringIO())
        with pytest.warns(RuntimeWarning, match="failed at step 0, sampling .FeedError"):
            monitor({})
        monitor({})
    assert monitor.step == 2


def test_what_is_no_session_is_refused() -> None:
    graph, _, loss, _, _ = training()
    with pytest.raises(sg.ArgumentError, match="a session is needed"):
        sg.monitor(graph, loss)
