"""Programs as TensorFlow's guides have them, with ``sg``: they run, or the error names the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg


def test_softmax_of_the_page_on_stop_gradient() -> None:
    def stable_softmax(x: Any) -> Any:
        z = x - sg.stop_gradient(sg.reduce_max(x))
        return sg.exp(z) / sg.reduce_sum(sg.exp(z))

    x = np.array([1000.0, 1001.0])
    np.testing.assert_allclose(stable_softmax(x), np.exp([-1.0, 0.0]) / np.exp([-1.0, 0.0]).sum())


def test_a_graph_and_a_session() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, shape=[None, 2], name="x")
        w = sg.parameter(np.ones((2, 1), np.float32), name="w")
        loss = sg.reduce_mean(sg.square(sg.matmul(x, w)))
        (slope,) = sg.gradients(loss, [w])
        train = sg.assign(w, w - 0.1 * slope)
    feed = {x: np.eye(2, dtype=np.float32)}
    with sg.Session(graph) as session:
        assert session.run(loss, feed_dict=feed) == 1.0
        session.run(train, feed_dict=feed)
        np.testing.assert_allclose(session.run("w"), [[0.9], [0.9]])


def test_a_function_that_prints(capsys: pytest.CaptureFixture[str]) -> None:
    @sg.function
    def f(x: Any) -> Any:
        sg.print("tracing:", x)
        return x + 1.0

    assert f(1.0) == 2.0
    assert capsys.readouterr().out == "tracing: 1.0\n"


def test_while_loop_over_loop_variables() -> None:
    i, total = sg.while_loop(lambda i, total: i < 5, lambda i, total: [i + 1, total + i], [0, 0])
    assert (i, total) == (5, 10)


def test_custom_gradient_of_log1pexp() -> None:
    @sg.custom_gradient
    def log1pexp(x: Any) -> Any:
        e = sg.exp(x)

        def grad(upstream: Any) -> Any:
            return upstream * (1 - 1 / (1 + e))

        return sg.log(1 + e), grad

    assert sg.grad(log1pexp)(100.0) == 1.0


def test_losses_and_layers_of_tf_nn() -> None:
    labels, logits = np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]])
    found = sg.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    np.testing.assert_allclose(found, [np.log(np.exp(2.0) + np.exp(1.0)) - 1.0])
    image = np.ones((1, 4, 4, 1), np.float32)
    made = sg.nn.conv2d(image, np.ones((3, 3, 1, 2), np.float32), strides=1, padding="SAME")
    assert sg.nn.max_pool2d(made, ksize=2, strides=2, padding="VALID").shape == (1, 2, 2, 2)


def test_random_numbers_with_a_key() -> None:
    drawn = sg.random_normal([2, 2], sg.random_key(5), mean=10.0, stddev=0.1)
    assert abs(drawn.mean() - 10) < 0.5
    assert sg.random_uniform([3], sg.random_key(0), 0, 10, sg.int32).dtype == np.int32


def test_nested_structures() -> None:
    found = sg.map_structure(lambda x: x + 1, {"a": [1, 2]})
    assert found == {"a": [2, 3]}
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [])
    with sg.Session(graph) as session:
        assert session.run({"a": x, "b": [x]}, {x: 1.0}) == {"a": 1.0, "b": [1.0]}


def fed() -> Any:
    x = sg.placeholder(sg.float32, [2], name="x")
    with sg.Session(x.graph, engine="numpy") as session:
        return session.run(x + 1.0)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "Variable": (lambda: sg.Variable(1.0), "it is sg.parameter"),
    "GradientTape": (lambda: sg.GradientTape(), "it is sg.gradients"),
    "keras": (lambda: sg.keras.Sequential, "a layer is a function"),
    "initializer": (lambda: sg.global_variables_initializer(), "leave it out"),
    "compat.v1": (lambda: sg.compat.v1.placeholder, "leave it out"),
    "train": (lambda: sg.train.GradientDescentOptimizer(0.1), "sg.optimizers"),
    "no feed": (fed, "must be fed"),
    "no key": (lambda: sg.random_normal([2, 2]), r"key"),
    "a seed": (lambda: sg.random_normal([2, 2], seed=1), r"key=sg.random_key\(seed\)"),
    "eval": (lambda: sg.placeholder(sg.float32, []).eval(), "sg.Session"),
    "string": (lambda: sg.string, "there are no tensors of text"),
    "ragged": (lambda: sg.ragged.constant([[1], []]), "mask with sg.where"),
    "sparse": (lambda: sg.sparse.SparseTensor, "sg.gather"),
    "data": (lambda: sg.Dataset, "sg.data.batches"),
    "image": (lambda: sg.image.resize, "sg.max_pool2d"),
    "math": (lambda: sg.math.exp, "as in sg.exp"),
    "py_function": (lambda: sg.py_function, "fetch with sg.Session.run"),
    "iterating": (lambda: [v for v in sg.placeholder(sg.float32, [None])], "known when a value is fed"),  # noqa: C416
    "assert": (lambda: sg.debugging.assert_equal(1, 1), "sg.debug_callback"),
    "mixed graphs": (lambda: sg.add(sg.placeholder(sg.float32, []), other()), "graph"),
}


def other() -> Any:
    with sg.Graph().as_default():
        return sg.placeholder(sg.float32, [])


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_work_names_the_cure(name: str) -> None:
    wrong, says = WRONG[name]
    with sg.Graph().as_default(), pytest.raises((sg.StopgradError, AttributeError), match=says):
        wrong()
