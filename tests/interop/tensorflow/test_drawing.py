"""Random operations of TensorFlow's graphs: what they draw, and when they draw the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensorflow_nodes import Nodes

import stopgrad as sg
import stopgrad.tensorflow as sgtf

COUNT = 4000


def drawn(op: str, *more: str, seed: int | None = None, **attributes: Any) -> Any:
    """What an operation draws for a shape, as the only node of a graph."""
    nodes = Nodes()
    shape = nodes.constant("shape", [COUNT], np.int32)
    operands = {
        "seed": ([5, seed or 0], np.int32),
        "key": ([seed or 0], np.uint64),
        "counter": ([0, 0], np.uint64),
        "algorithm": (1, np.int32),
        "low": (-3, np.int32),
        "high": (4, np.int32),
    }
    given = [nodes.constant(name, *operands[name]) for name in more]
    if seed is not None and not more:
        attributes |= {"seed": seed, "seed2": 1}
    nodes.add(op, "y", shape, *given, **attributes)
    return sgtf.load(nodes.content(), outputs="y")()


WAYS: dict[str, Callable[..., Any]] = {
    "{}": lambda op, **seed: drawn(op, dtype=np.float32, **seed),
    "Stateless{}": lambda op, **seed: drawn(op, "seed", dtype=np.float32, **seed),
    "Stateless{}V2": lambda op, **seed: drawn(op, "key", "counter", "algorithm", dtype=np.float32, **seed),
}


@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated"])
def test_numbers_have_the_distribution_that_the_operation_names(kind: str, form: str) -> None:
    plain = {"uniform": "RandomUniform", "normal": "RandomStandardNormal", "truncated": "TruncatedNormal"}
    op = plain[kind] if form == "{}" else plain[kind].replace("Standard", "")
    x = WAYS[form](form.format(op))
    assert (x.shape, x.dtype) == ((COUNT,), np.float32)
    mean, deviation = {"uniform": (0.5, 12**-0.5), "normal": (0.0, 1.0), "truncated": (0.0, 0.8796)}[kind]
    assert abs(x.mean() - mean) < 5 * deviation / COUNT**0.5
    assert abs(x.std() - deviation) < 0.05
    if kind == "uniform":
        assert 0 <= x.min() <= x.max() < 1
    if kind == "truncated":
        assert np.abs(x).max() <= 2


@pytest.mark.parametrize("form", WAYS)
def test_the_same_seed_draws_the_same_numbers_and_another_others(form: str) -> None:
    first, again, other = (WAYS[form](form.format("RandomUniform"), seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.99


def test_integers_are_between_their_bounds_and_each_occurs() -> None:
    for more in (("low", "high"), ("seed", "low", "high"), ("key", "counter", "algorithm", "low", "high")):
        form = {2: "{}", 3: "Stateless{}", 5: "Stateless{}V2"}[len(more)]
        x = drawn(form.format("RandomUniformInt"), *more, seed=7 if len(more) > 2 else None)
        assert x.dtype == np.int32
        np.testing.assert_array_equal(np.unique(x), np.arange(-3, 4))


def test_nodes_without_seeds_draw_different_numbers_and_other_ones_for_another_key() -> None:
    nodes = Nodes()
    shape = nodes.constant("shape", [50], np.int32)
    a, b = (nodes.add("RandomUniform", name, shape, dtype=np.float32) for name in "ab")
    model = sgtf.load(nodes.content(), outputs=[a, b])
    first = model()
    assert not np.array_equal(first["a"], first["b"])
    other = model.apply({"random_key": np.asarray([1, 2], np.uint32)})
    assert not np.array_equal(first["a"], other["a"])


def test_categories_are_drawn_as_often_as_their_logits_say() -> None:
    nodes = Nodes()
    logits = nodes.constant("logits", np.log([[0.2, 0.5, 0.3]]), np.float32)
    count, seed = nodes.constant("count", COUNT, np.int32), nodes.constant("seed", [1, 2], np.int32)
    nodes.add("Multinomial", "a", logits, count, T=np.float32, output_dtype=np.int32)
    nodes.add("StatelessMultinomial", "b", logits, count, seed, T=np.float32)
    for found, dtype in zip(sgtf.load(nodes.content())().values(), (np.int32, np.int64), strict=True):
        assert (found.shape, found.dtype) == ((1, COUNT), dtype)
        np.testing.assert_allclose(np.bincount(found[0]) / COUNT, [0.2, 0.5, 0.3], atol=0.04)


def test_a_shuffle_keeps_the_rows() -> None:
    nodes = Nodes()
    nodes.add("RandomShuffle", "y", nodes.place("x", np.float32, 20, 2), T=np.float32)
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    y = sgtf.load(nodes.content())(x)
    np.testing.assert_array_equal(y[y[:, 0].argsort()], x)
    assert not np.array_equal(y, x)


def test_the_gradient_of_dropout_is_its_mask() -> None:
    """The graph that ``tf.nn.dropout`` makes: a comparison of random numbers with the rate."""
    nodes = Nodes()
    x = nodes.place("x", np.float32, COUNT)
    drawn = nodes.add("RandomUniform", "draw", nodes.constant("shape", [COUNT], np.int32), dtype=np.float32)
    kept = nodes.add("GreaterEqual", "kept", drawn, nodes.constant("rate", 0.25, np.float32))
    scaled = nodes.add("Mul", "scaled", x, nodes.constant("scale", 4 / 3, np.float32))
    nodes.add("SelectV2", "y", kept, scaled, nodes.constant("zero", 0.0, np.float32))
    model = sgtf.load(nodes.content())
    given = np.linspace(1, 2, COUNT, dtype=np.float32)
    y, slope = model(given), sg.grad(lambda x: sg.reduce_sum(model(x)))(given)
    np.testing.assert_allclose(slope, y / given, rtol=1e-6)
    assert abs((slope == 0).mean() - 0.25) < 0.04


def test_a_seed_becomes_a_key_and_a_counter_with_which_it_draws() -> None:
    """What ``tf.random.stateless_uniform`` writes."""
    nodes = Nodes()
    seed = nodes.place("seed", np.int32, 2)
    pair = nodes.add("StatelessRandomGetKeyCounter", "pair", seed, Tseed=np.int32)
    algorithm = nodes.add("StatelessRandomGetAlg", "algorithm")
    shape = nodes.constant("shape", [30], np.int32)
    nodes.add("StatelessRandomUniformV2", "y", shape, pair, f"{pair}:1", algorithm, dtype=np.float32)
    model = sgtf.load(nodes.content(), outputs="y")
    first, again, other = (model(np.asarray(s, np.int32)) for s in ([1, 2], [1, 2], [2, 1]))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
