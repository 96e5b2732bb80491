"""``sg.explain``, the command and the fixture know functions that are written with TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import stopgrad as sg  # noqa: E402
import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.base.errors import ArgumentError, GraphError  # noqa: E402
from stopgrad.tools import cli  # noqa: E402

SOURCE = """
import keras
import tensorflow as tf

w = tf.Variable([1.0, 2.0], name="w")
net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

def loss():
    return tf.reduce_sum(tf.cast(tf.argmax(w * 2.0), tf.float32))

def fine():
    return tf.reduce_sum(w * 2.0)

def of_network(x: "float32[4, 3]"):
    return tf.reduce_mean(net(x) ** 2)

def step():
    with tf.GradientTape() as tape:
        cut = tf.reduce_sum(tf.stop_gradient(w))
    tape.gradient(cut, [w])
"""


@pytest.fixture
def statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)

    def asked(name: str, *options: str) -> dict[str, str]:
        assert cli.main(["explain", f"{path}:{name}", *options, "--json"]) == cli.OK
        told = json.loads(capsys.readouterr().out)
        return {one["key"]: one["status"] for one in told["xs"]}

    return asked


def test_the_command(statuses: Any) -> None:
    assert statuses("loss") == {"w": "not differentiable"}
    assert statuses("fine") == {"w": "flows"}
    assert statuses("step") == {"w": "stopped"}
    found = statuses("of_network")
    assert {name.rpartition("/")[2] for name in found} == {"kernel", "bias", "x"}
    assert set(found.values()) == {"flows"}


def test_the_library_asks_the_world_of_a_function() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    assert sg.explain(lambda: tf.reduce_sum(tf.round(w)))["w"].status == "not differentiable"
    assert sg.explain(lambda x: tf.reduce_sum(w * x), tf.ones(2))["x"].status == "flows"
    assert sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status == "stopped"
    ones = pytest.importorskip("jax").numpy.ones(2)
    with pytest.raises(ArgumentError, match="both"):
        sg.explain(lambda x, y: x, tf.ones(2), ones)


def test_a_watched_loss() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    with sgtf.watch(), tf.GradientTape():
        loss = tf.reduce_sum(tf.stop_gradient(w))
    assert sg.explain(loss, w)["w"].status == "stopped"
    with pytest.raises(GraphError, match="no watch saw"):
        sg.explain(tf.constant(1.0) * 2.0, w)


def test_a_compiled_model_with_data_stands_for_the_loss_of_fit() -> None:
    x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    with pytest.raises(ArgumentError, match="not compiled"):
        sg.explain(net, x, y)
    net.compile("sgd", "mse")
    before = [one.numpy() for one in net.weights]
    assert {one.status for one in sg.explain(net, x, y).values()} == {"flows"}
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, net.weights, strict=True))
    net.layers[0].trainable = False
    found = sg.explain(net, x, y)
    assert [found[one.path].status for one in net.layers[0].weights] == ["stopped", "stopped"]
    assert "trainable is False" in " ".join(str(found).split())
