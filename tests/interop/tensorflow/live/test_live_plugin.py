"""The marker ``gradient_flow`` of pytest, for tests that train with TensorFlow's tapes and Keras' ``fit``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import stopgrad as sg

pytest_plugins = ["pytester"]

HEAD = """
import keras
import pytest
import tensorflow as tf

encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh", name="encoder")])
head = keras.layers.Dense(1, name="head")
head.build((None, 4))
variables = encoder.trainable_variables + head.trainable_variables
x = tf.ones((5, 3))

def trained(sources, cut=lambda x: x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(head(cut(encoder(x))) ** 2)
    return tape.gradient(loss, sources)
"""

RIGHT = """
@pytest.mark.gradient_flow
def test_all():
    trained(variables)

@pytest.mark.gradient_flow
def test_the_others_are_trained_by_another_tape():
    trained(variables, tf.stop_gradient)
    trained(encoder.trainable_variables)

@pytest.mark.gradient_flow(only=["head/*"])
def test_only():
    trained(variables, tf.stop_gradient)

@pytest.mark.gradient_flow(blocked=["*encoder/*"])
def test_blocked():
    trained(variables, tf.stop_gradient)

@pytest.mark.gradient_flow(ignore=["*encoder/*"])
def test_ignored():
    trained(variables, tf.stop_gradient)

@pytest.mark.gradient_flow
def test_compiled():
    tf.function(lambda: trained(variables))()

@pytest.mark.gradient_flow
def test_fit():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, tf.ones((5, 1)), verbose=0)
"""

WRONG = """
@pytest.mark.gradient_flow
def test_stopped():
    trained(variables, tf.stop_gradient)

@pytest.mark.gradient_flow(blocked=["*encoder/*"])
def test_not_blocked():
    trained(variables)

@pytest.mark.gradient_flow
def test_fit_stopped():
    inputs = keras.Input((3,))
    hidden = keras.ops.stop_gradient(keras.layers.Dense(4, name="first")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile("sgd", "mse")
    model.fit(x, tf.ones((5, 1)), verbose=0)

@pytest.mark.gradient_flow
def test_none_asked():
    head(encoder(x))
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str) -> pytest.RunResult:
    monkeypatch.setenv("PYTHONPATH", str(Path(sg.__file__).parents[1]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest('pytest_plugins = ["stopgrad.pytest_plugin"]')
    pytester.makepyfile(HEAD + text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore")


def test_the_marker_passes_what_is_trained(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pytester, monkeypatch, RIGHT).assert_outcomes(passed=RIGHT.count("def test_"))


def test_the_marker_fails_a_test_with_the_report(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(pytester, monkeypatch, WRONG)
    result.assert_outcomes(failed=WRONG.count("def test_"))
    result.stdout.fnmatch_lines(
        [
            "gradient_flow: no tape.gradient() gives a gradient to *encoder/kernel and *encoder/bias *",
            "tape.gradient() at *:14",
            "stopped: *encoder/kernel, *encoder/bias",
            "*:13  tf.stop_gradient",
            "gradient_flow: tape.gradient() gives a gradient to *encoder/kernel and *encoder/bias, and *",
            "gradient_flow: no tape.gradient() gives a gradient to first/kernel and first/bias (the sources)",
            "gradient_flow: the test calls tape.gradient() nowhere*",
        ]
    )
