"""``sg.random`` takes arguments as ``jax.random`` does; other namespaces hold what exists."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from together import together

import stopgrad as sg

SEED = 11
KEY = sg.random.key(SEED)
A, B = np.float32(2.5), np.array([1.5, 3.0], np.float32)
LOGITS = np.array([[0.3, -1.0, 2.0], [0.0, 0.5, 0.1]], np.float32)

# The arguments behind the key. The first have the numbers of JAX, up to rounding.
ALIKE: dict[str, tuple[Any, ...]] = {
    "bits": ((3,), np.uint32),
    "uniform": ((2, 3), np.float32, -1.0, 2.0),
    "normal": ((2, 3), np.float32),
    "truncated_normal": (-1.0, 0.5, (4,)),
    "exponential": ((3,),),
    "gumbel": ((3,), np.float32),
    "laplace": ((3,),),
    "logistic": ((3,),),
    "cauchy": ((3,),),
    "bernoulli": (0.3, (5,)),
    "categorical": (LOGITS, -1, (4, 2)),
}
OTHERWISE: dict[str, tuple[Any, ...]] = {
    "randint": ((4,), -3, 9),
    "gamma": (A, (3,)),
    "beta": (A, B),
    "dirichlet": (B, (3,)),
    "poisson": (A, (4,)),
    "permutation": (np.arange(6.0).reshape(3, 2), 1),
    "choice": (7, (3,)),
}
DOORS = ["fft", "linalg", "losses", "nn", "random", "tree"]
LACKING = {"impl", "mode", "replace", "out_sharding", "method"}
ORDERED = {"randint": "random_integers"}


@pytest.mark.parametrize("name", ALIKE)
def test_a_draw_is_that_of_jax_with_the_same_arguments(name: str) -> None:
    theirs = getattr(jax.random, name)(jax.random.key(SEED), *ALIKE[name])
    found = getattr(sg.random, name)(KEY, *ALIKE[name])
    assert found.shape == theirs.shape
    np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_draw_has_the_shape_and_kind_of_that_of_jax(name: str) -> None:
    theirs = getattr(jax.random, name)(jax.random.key(SEED), *OTHERWISE[name])
    found = getattr(sg.random, name)(KEY, *OTHERWISE[name])
    assert found.shape == theirs.shape
    assert found.dtype.kind == theirs.dtype.kind


@together("name", sorted(sg.random.__all__))
def test_parameters_are_those_of_jax(name: str) -> None:
    ours = inspect.signature(getattr(sg.random, name)).parameters
    theirs = inspect.signature(getattr(jax.random, name)).parameters
    lacking = LACKING | ({"dtype"} if list(ours) == ["seed"] else set())
    expected = [one for one in theirs if one in ours or one not in lacking]
    assert list(ours) == expected
    for one in expected:
        same = ours[one].default == theirs[one].default or None in (ours[one].default, theirs[one].default)
        assert same or theirs[one].default in (np.float32, float, int), one


@together("name", [name for name in [*ALIKE, *OTHERWISE] if name != "categorical"])
def test_tensorflows_names_take_a_key_that_comes_first(name: str) -> None:
    arguments = {**ALIKE, **OTHERWISE}[name]
    function = getattr(sg, ORDERED.get(name, f"random_{name}"))
    np.testing.assert_array_equal(function(KEY, *arguments), getattr(sg.random, name)(KEY, *arguments))


@pytest.mark.parametrize("name", DOORS)
def test_a_namespace_is_imported_as_a_module(name: str) -> None:
    assert importlib.import_module(f"stopgrad.{name}") is getattr(sg, name)


def test_names_are_imported_from_a_namespace_before_anything_else() -> None:
    program = "from stopgrad.nn import relu; import stopgrad as sg; assert relu is sg.nn.relu"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_is_no_namespace_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"stopgrad\.relu"):
        importlib.import_module("stopgrad.relu")


def test_type_checkers_are_told_of_each_namespace() -> None:
    folder = Path(__file__).parents[2] / "src/stopgrad"
    assert sorted(one.stem for one in folder.glob("*.pyi")) == sorted(DOORS)


def test_a_key_comes_first_second_or_by_name() -> None:
    expected = sg.random_normal((3,), KEY)
    np.testing.assert_array_equal(sg.random_normal(KEY, (3,)), expected)
    np.testing.assert_array_equal(sg.random_normal((3,), key=KEY), expected)
    np.testing.assert_array_equal(sg.random_normal(KEY, shape=(3,)), expected)
    np.testing.assert_allclose(sg.random_normal(KEY, (3,), mean=2.0, stddev=3.0), 2 + 3 * expected, rtol=1e-6)
    np.testing.assert_array_equal(
        sg.random_categorical(KEY, LOGITS), sg.random_categorical(LOGITS, None, KEY)
    )
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(sg.dropout(x, 0.5, KEY), sg.dropout(x, 0.5, key=KEY))
    # Two numbers that look like a key are data where a key follows.
    data = np.array([7, 9], np.uint32)
    assert sorted(sg.random_permutation(data, KEY)) == [7, 9]
    assert sorted(sg.random_shuffle(KEY, data)) == sorted(KEY)


def test_a_key_in_a_graph_is_fed_and_made() -> None:
    with sg.Graph().as_default() as graph:
        fed = sg.placeholder(sg.uint32, [2])
        seed = sg.placeholder(sg.int32, [])
        made = sg.random.key(seed)
        first, _ = sg.random.split(made)
        drawn = [
            sg.random_normal(fed, (3,)),
            sg.random.normal(first, (3,)),
            sg.dropout(np.ones(4), 0.5, made),
        ]
    with sg.Session(graph, engine="numpy") as session:
        found = session.run(drawn, {fed: KEY, seed: SEED})
    expected = [
        sg.random.normal(KEY, (3,)),
        sg.random.normal(sg.random.split(KEY)[0], (3,)),
        sg.dropout(np.ones(4), 0.5, KEY),
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_each_example_of_vmap_and_each_step_of_scan_has_its_key() -> None:
    keys = sg.random.split(KEY, 3)
    expected = np.stack([sg.random.normal(key, (2,)) for key in keys])
    np.testing.assert_array_equal(sg.vmap(lambda key: sg.random.normal(key, (2,)))(keys), expected)
    np.testing.assert_array_equal(
        sg.scan(lambda carry, key: (carry, sg.random_normal(key, (2,))), 0.0, keys)[1], expected
    )


def test_a_shape_of_classes_ends_as_that_of_the_distributions() -> None:
    with pytest.raises(sg.ShapeError, match=r"random.categorical: the shape \[4, 3\] must end as"):
        sg.random.categorical(KEY, LOGITS, shape=(4, 3))
    with pytest.raises(sg.ArgumentError, match="independent"):
        sg.random.permutation(KEY, np.arange(3), independent=True)


# ---------------------------------------------------------------------------------- fft, linalg, nn, losses

SPACES: dict[str, tuple[ModuleType, tuple[str, ...]]] = {
    "fft": (sg.fft, ("fft", "ifft", "rfft", "fftn", "fftfreq", "fftshift")),
    "linalg": (
        sg.linalg,
        ("norm", "inv", "solve", "det", "svd", "cholesky", "lstsq", "expm"),
    ),
    "losses": (sg.losses, ("mean_squared_error", "huber", "hinge", "softmax_cross_entropy_with_logits")),
    "nn": (sg.nn, ("relu", "softmax", "conv2d", "max_pool2d", "dropout", "one_hot", "gelu", "layer_norm")),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_namespace_has_what_one_looks_for(name: str) -> None:
    space, wanted = SPACES[name]
    assert set(wanted) <= set(dir(space)) == set(space.__all__)
    for one in wanted:
        assert callable(getattr(space, one))
    if name in ("nn", "losses"):
        assert all(getattr(space, one) is getattr(sg, one) for one in space.__all__)


def test_results_of_linear_algebra_are_numpys() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2))
    for ours, theirs in zip(sg.linalg.svd(x, full_matrices=False), np.linalg.svd(x, False), strict=True):
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-10)
    np.testing.assert_allclose(sg.fft.fft(x[:, 0]), np.fft.fft(x[:, 0]), rtol=1e-10)


def test_what_a_namespace_lacks_is_told() -> None:
    for text, says in {
        "nn.lstm": "sg.nn has no 'lstm'; it is sg.lstm",
        "nn.rleu": "did you mean sg.nn.relu?",
        "nn.Linear": "there are no layers",
        "linalg.multi_dot": r"dir\(sg.linalg\) lists what it has",
        "random.randn": "it is sg.random_normal",
        "fft._x": "no attribute '_x'",
    }.items():
        space, name = text.split(".")
        with pytest.raises(AttributeError, match=says):
            getattr(getattr(sg, space), name)
