"""jacobian and hessian: one pullback for all elements, and the values of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg

W = np.random.default_rng(0).normal(size=(6, 5))
X = np.random.default_rng(1).normal(size=5)


@pytest.fixture(autouse=True)
def wide() -> Any:
    with jax.enable_x64(True):
        yield


def operations(transform: Callable[..., Any], f: Callable[..., Any], size: int) -> int:
    """How many operations a transform of f builds at an argument of this size."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [size])
        before = len(graph)
        transform(f)(x)
    return len(graph) - before


FUNCTIONS = {
    "elementwise": lambda l: lambda x: l.tanh(x) * x,
    "matrix": lambda l: lambda x: l.tanh(W @ x) if l is jnp else sg.tanh(W @ x),
    "structure": lambda l: lambda x: {"a": x[:2] * x[2], "b": (l.sin(x), x[0])},
    "sort": lambda l: lambda x: l.sort(x),
    "softmax": lambda l: jax.nn.softmax if l is jnp else sg.softmax,
    "matrix result": lambda l: lambda x: x[:, None] * x[None, :],
    "cumprod": lambda l: lambda x: l.cumprod(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@each_engine
def test_jacobians_are_those_of_jax(name: str, engine: str) -> None:
    found = sg.function(sg.jacobian(FUNCTIONS[name](sg)), engine=engine)(X)
    expected = jax.jacrev(FUNCTIONS[name](jnp))(X)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@each_engine
def test_hessians_are_those_of_jax(engine: str) -> None:
    def loss(lib: Any) -> Any:
        return lambda x: lib.sum(lib.tanh(W @ x) ** 2) if lib is jnp else sg.reduce_sum(sg.tanh(W @ x) ** 2)

    found = sg.function(sg.hessian(loss(sg)), engine=engine)(X)
    np.testing.assert_allclose(found, jax.hessian(loss(jnp))(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transform", [sg.jacobian, lambda f: sg.hessian(lambda x: sg.reduce_sum(f(x)))])
def test_the_number_of_operations_does_not_grow_with_the_number_of_results(transform: Any) -> None:
    def f(x: Any) -> Any:
        return sg.tanh(sg.softmax(x) * sg.cumsum(x)) * x

    assert operations(transform, f, 1000) == operations(transform, f, 3) < 250


def test_behind_a_stop_nothing_is_built() -> None:
    stopped = operations(sg.jacobian, lambda x: sg.stop_gradient(sg.tanh(sg.exp(x))) * x, 4)
    whole = operations(sg.jacobian, lambda x: sg.tanh(sg.exp(x)) * x, 4)
    assert stopped < whole
    np.testing.assert_array_equal(
        sg.jacobian(lambda x: sg.stop_gradient(sg.exp(x)) * x)(X), np.diag(np.exp(X))
    )


def test_a_jacobian_with_respect_to_several_of_which_one_is_not_reached() -> None:
    da, db = sg.jacobian(lambda a, b: a * 2.0, (0, 1))(X, W)
    np.testing.assert_array_equal(da, 2.0 * np.eye(5))
    np.testing.assert_array_equal(db, np.zeros((5, 6, 5)))


def test_a_jacobian_through_a_custom_gradient_and_a_selective_stop() -> None:
    f = sg.custom_gradient(lambda x: (x * x, lambda g: g * 10.0))
    np.testing.assert_array_equal(sg.jacobian(f)(X), 10.0 * np.eye(5))
    graph = sg.Graph()
    with graph.as_default():
        a, b = sg.placeholder(sg.float64, [2]), sg.placeholder(sg.float64, [2])
        da, db = sg.jacobian(lambda a, b: sg.stop_gradient(a * b, wrt=[a]), (0, 1))(a, b)
    with sg.Session(graph) as session:
        found = session.run([da, db], {a: [2.0, 3.0], b: [5.0, 7.0]})
    np.testing.assert_array_equal(found[0], np.zeros((2, 2)))
    np.testing.assert_array_equal(found[1], np.diag([2.0, 3.0]))


def test_a_jacobian_of_a_loop() -> None:
    def states(x: Any) -> Any:
        return sg.scan(lambda c, part: (sg.sin(c + part), c * part), sg.reduce_sum(x) * 0.0, x)[1]

    def in_jax(x: Any) -> Any:
        return jax.lax.scan(lambda c, part: (jnp.sin(c + part), c * part), x.sum() * 0.0, x)[1]

    np.testing.assert_allclose(sg.jacobian(states)(X), jax.jacrev(in_jax)(X), rtol=1e-10, atol=1e-12)
    loss, in_jax_loss = (lambda x: sg.reduce_sum(states(x) ** 2)), (lambda x: (in_jax(x) ** 2).sum())
    np.testing.assert_allclose(sg.hessian(loss)(X), jax.hessian(in_jax_loss)(X), rtol=1e-10, atol=1e-12)


def test_integer_and_complex_results() -> None:
    assert not sg.jacobian(lambda x: sg.cast(x, sg.int32))(X).any()
    z = X + 1j * X[::-1]
    graph = sg.Graph()
    with graph.as_default():
        w = sg.placeholder(sg.complex128, [5])
        j = sg.jacobian(lambda v: v * v)(w)
        rows = [sg.gradients(w * w, [w], [np.eye(5)[i].astype(complex)])[0] for i in range(5)]
    with sg.Session(graph) as session:
        found, expected = session.run([j, sg_stack(graph, rows)], {w: z})
    np.testing.assert_allclose(found, expected)


def sg_stack(graph: Any, rows: Any) -> Any:
    with graph.as_default():
        return sg.stack(rows)
