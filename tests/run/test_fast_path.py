"""Calls like the last one take a shorter way; what they return is what they would return without it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.run import fast_path


class Point(NamedTuple):
    """A structure that JAX and we know."""

    x: Any
    y: Any


def wide(values: Any) -> Any:
    """An array of JAX's own with 64 bits."""
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(values, np.float64))


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "float32": lambda: np.array([1.0, 2.0], np.float32),
    "float64": lambda: np.array([1.0, 2.0]),
    "float16": lambda: np.array([1.0, 2.0], np.float16),
    "big endian": lambda: np.array([1.0, 2.0], ">f4"),
    "read only": lambda: np.broadcast_to(np.float32(1.5), (2,)),
    "longer": lambda: np.array([1.0, 2.0, 3.0], np.float32),
    "jax": lambda: jnp.array([1.0, 2.0], jnp.float32),
    "jax longer": lambda: jnp.array([1.0, 2.0, 3.0], jnp.float32),
    "jax, 64 bits": lambda: wide([1.0, 2.0]),
    "scalar": lambda: np.float32(2.0),
    "scalar array": lambda: np.array(2.0, np.float32),
    "wide scalar array": lambda: np.array(2.0),
    "jax scalar": lambda: jnp.float32(2.0),
    "Python float": lambda: 2.5,
    "nested": lambda: {"a": np.ones(2, np.float32), "b": [np.ones(3, np.float32), jnp.ones(2)]},
    "nested otherwise": lambda: {"a": np.ones(2, np.float32), "b": (np.ones(3, np.float32), jnp.ones(2))},
    "point": lambda: Point(np.ones(2, np.float32), np.zeros(2, np.float32)),
    "point of jax": lambda: Point(jnp.ones(2), jnp.zeros(2)),
    "mixed widths": lambda: (np.ones(2, np.float32), np.zeros(2, np.float64)),
    "mixed widths, swapped": lambda: (np.ones(2, np.float64), np.zeros(2, np.float32)),
}


def doubled(tree: Any) -> Any:
    """Twice all that is in a structure, and its sines."""
    return {"twice": jax.tree.map(lambda x: x * 2.0, tree), "sin": jax.tree.map(sg.sin, tree), "note": "x"}


def kinds(tree: Any) -> list[Any]:
    return [(type(x), x.dtype, x.shape) for x in jax.tree.leaves(tree) if hasattr(x, "dtype")]


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert kinds(found) == kinds(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["xla", "numpy", "auto"])
def test_any_call_may_follow_any_other(engine: str) -> None:
    expected = {name: sg.function(doubled, engine=engine)(make()) for name, make in ARGUMENTS.items()}
    f = sg.function(doubled, engine=engine)
    for first, then in itertools.product(ARGUMENTS, repeat=2):
        for name in (first, first, first, then, then, then):
            same(f(ARGUMENTS[name]()), expected[name])


@pytest.mark.parametrize("engine", ["xla", "numpy", "auto"])
def test_the_shorter_way_is_taken(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[Any] = []
    f = sg.function(doubled, engine=engine)
    usual = type(f)._arguments
    monkeypatch.setattr(type(f), "_arguments", lambda *args: slow.append(args) or usual(*args))
    known = ("jax", "nested", "point of jax") if engine != "numpy" else ("point", "Python float")
    for name in ("float32", *known):
        slow.clear()
        for _ in range(5):
            f(ARGUMENTS[name]())
        assert 1 <= len(slow) <= 2, name


def test_calls_that_alternate_do_not_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    usual = fast_path.repeated_call
    monkeypatch.setattr(
        sys.modules["stopgrad.run.function"], "repeated_call", lambda *args: made.append(args) or usual(*args)
    )
    f = sg.function(sg.sin, engine="xla")
    for name in ["float32", "longer"] * 4:
        f(ARGUMENTS[name]())
    assert made == []


def test_keywords_constants_and_graphs() -> None:
    f = sg.function(lambda x, y=1.0, flip=False: x - y if flip else x + y, engine="xla")
    x = np.array([1.0, 2.0], np.float32)
    for _ in range(3):
        assert f(x).tolist() == [2.0, 3.0]
        assert f(x, flip=True).tolist() == [0.0, 1.0]
        assert f(x, y=x).tolist() == [2.0, 4.0]
        assert f(x, y=x).tolist() == [2.0, 4.0]
        assert f(x, 2.0).tolist() == [3.0, 4.0]
    g = sg.function(sg.sin, engine="xla")
    assert [type(g(x)) for _ in range(3)] == [np.ndarray] * 3
    with sg.Graph().as_default():
        assert isinstance(g(x), sg.Output)


def test_in_jax_transformations_it_stays_out() -> None:
    f = sg.function(lambda x: sg.reduce_sum(sg.sin(x)), engine="xla")
    x = jnp.ones(3)
    for _ in range(3):
        f(x)
    np.testing.assert_allclose(jax.grad(f)(x), np.cos(np.ones(3)), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(jnp.ones((2, 3))), np.full(2, 3 * np.sin(1.0)), rtol=1e-6)


def test_numpy_arguments_may_be_written_to_afterwards() -> None:
    f = sg.function(lambda x: x * 2.0, engine="xla")
    x = np.zeros(100_000, np.float32)
    for i in range(20):
        x[:] = i
        found = f(x)
        x[:] = -1
        assert (found == 2.0 * i).all()


def test_donated_arguments() -> None:
    f = sg.function(lambda x: x + 1.0, engine="xla", donate_argnums=0)
    x = jnp.zeros(1000)
    for i in range(5):
        before, x = x, f(x)
        assert before.is_deleted()
        assert float(x[0]) == i + 1
    with pytest.raises(sg.EngineError, match="deleted"):
        f(before)


def test_threads_call_with_different_arguments() -> None:
    f = sg.function(lambda x: x * 2.0, engine="xla")
    wrong: list[Any] = []

    def call(length: int, make: Callable[..., Any]) -> None:
        for i in range(300):
            found = f(make(np.full(length, i, np.float32)))
            if found.shape != (length,) or (np.asarray(found) != 2.0 * i).any():
                wrong.append((length, i))

    threads = [
        threading.Thread(target=call, args=case)
        for case in itertools.product((1, 5), (np.asarray, jnp.asarray))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
