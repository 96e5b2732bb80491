"""The three snippets of TensorFlow's StopGradient page, word for word, in all three styles."""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as tf


def softmax(x):
    numerator = tf.exp(x)
    denominator = tf.reduce_sum(numerator)
    return numerator / denominator


def stable_softmax(x):
    z = x - tf.reduce_max(x)
    numerator = tf.exp(z)
    denominator = tf.reduce_sum(numerator)
    return numerator / denominator


def stopped_softmax(x):
    z = x - tf.stop_gradient(tf.reduce_max(x))
    numerator = tf.exp(z)
    denominator = tf.reduce_sum(numerator)
    return numerator / denominator


SNIPPETS = [softmax, stable_softmax, stopped_softmax]
STABLE = [stable_softmax, stopped_softmax]
X = np.array([1.0, 3.0, 3.0, -2.0])
C = np.array([1.0, 10.0, 100.0, 1000.0])
P = np.exp(X) / np.exp(X).sum()
DX = P * (C - (P * C).sum())
LARGE = np.array([1000.0, 999.0, 0.0])
P_LARGE = np.array([1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(1.0)), 0.0])


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_graph_style(snippet, graph, run_everywhere):
    x = tf.placeholder(tf.float64, [None], name="x")
    y = snippet(x)
    (dx,) = tf.gradients(y, [x], [C])
    found = run_everywhere([y, dx], {x: X})
    assert np.allclose(found[0], P, rtol=1e-12)
    assert np.allclose(found[1], DX, rtol=1e-10)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_function_style(snippet, engine):
    loss = lambda x: tf.reduce_sum(snippet(x) * C)
    assert np.allclose(tf.grad(loss)(X), DX, rtol=1e-10)
    assert np.allclose(tf.function(tf.grad(loss), engine=engine)(X), DX, rtol=1e-10)
    assert np.allclose(tf.function(snippet, engine=engine)(X), P, rtol=1e-12)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_immediate_style(snippet):
    assert isinstance(snippet(X), np.ndarray)
    assert np.allclose(snippet(X), P, rtol=1e-12)


@pytest.mark.parametrize("snippet", STABLE)
def test_the_stable_forms_do_not_overflow(snippet):
    assert np.allclose(snippet(LARGE), P_LARGE, rtol=1e-12)
    assert np.isfinite(tf.grad(lambda x: snippet(x)[0])(LARGE)).all()


def test_the_plain_form_does():
    with np.errstate(all="ignore"):
        assert np.isnan(softmax(LARGE)).any()


def test_the_stop_spares_the_way_through_the_maximum(graph):
    x = tf.placeholder(tf.float64, [None])
    sizes = []
    for snippet in (softmax, stable_softmax, stopped_softmax):
        y = snippet(x)
        start = len(graph)
        tf.gradients(y, [x])
        sizes.append(len(graph) - start)
    assert sizes[2] <= sizes[0] < sizes[1]
