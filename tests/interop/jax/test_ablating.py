"""``ablate`` of JAX functions: each verdict against gradients of twins without the stops of a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiers import some

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.lax import stop_gradient  # noqa: E402
from stopgrad.errors import ArgumentError  # noqa: E402

import stopgrad as sg  # noqa: E402
import stopgrad.jax as sgj  # noqa: E402

X, Y = jnp.array([0.5, 2.0, -1.25]), jnp.array([1.0, 0.25, 3.0])


def passed(x: Any) -> Any:
    return x


def scanned(first: Any, second: Any) -> Callable[..., Any]:
    def loss(x: Any, y: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            c = c * first(c) + x
            return c, c

        last = jax.lax.scan(body, x, None, length=3)[0]
        return jnp.sum(last * second(y * y))

    return loss


def branched(first: Any, second: Any) -> Callable[..., Any]:
    def loss(x: Any, y: Any) -> Any:
        a = jax.lax.cond(jnp.sum(x) > 0, lambda x: x * first(x), jnp.sin, x)
        b = jax.jit(lambda y: jax.vmap(lambda row: row * second(row))(y))(y)
        return jnp.sum(a * b)

    return loss


def ruled(first: Any, second: Any) -> Callable[..., Any]:
    @jax.custom_vjp
    def double(x: Any) -> Any:
        return 2.0 * x

    double.defvjp(lambda x: (2.0 * x, None), lambda _, g: (5.0 * g,))

    def loss(x: Any, y: Any) -> Any:
        kept = jax.checkpoint(lambda x: jnp.sin(x) * first(x))(x)
        return jnp.sum(double(kept) * second(double(y)))

    return loss


@pytest.mark.parametrize("make", some([scanned, branched, ruled], 3))
def test_each_line_changes_the_gradient_by_what_its_twin_says(make: Callable[..., Any]) -> None:
    found = sgj.ablate(make(stop_gradient, stop_gradient), X, Y, repeats=1)
    assert [stop.verdict for stop in found.stops] == ["changes the gradient"] * 2
    given = jax.grad(make(stop_gradient, stop_gradient), (0, 1))(X, Y)
    for stop, opened in zip(found.stops, [(passed, stop_gradient), (stop_gradient, passed)], strict=True):
        open = jax.grad(make(*opened), (0, 1))(X, Y)
        for name, a, b in zip("xy", given, open, strict=True):
            larger = max(np.linalg.norm(a), np.linalg.norm(b), 1e-30)
            assert stop.inputs[name].difference == pytest.approx(np.linalg.norm(a - b) / larger, rel=1e-5)
        assert stop.seconds_with is not None
        assert stop.seconds_with > 0.0
    assert found.engine == "JAX"
    assert "operations" not in str(found)


def softmax(x: Any) -> Any:
    z = jnp.exp(x - stop_gradient(jnp.max(x)))
    return (z / jnp.sum(z))[0]


def test_verdicts_of_stops_that_change_nothing() -> None:
    for dtype in ("float32", "float16"):
        stop = sgj.ablate(softmax, X.astype(dtype), repeats=0).stops[0]
        assert stop.verdict == "changes nothing"
        assert stop.seconds_with is None
    other = sgj.ablate(lambda x, y: jnp.sum(x * stop_gradient(y)), X, Y, argnums=0, repeats=0).stops[0]
    assert other.verdict == "idle"
    twice = sgj.ablate(lambda x: stop_gradient(stop_gradient(x)) * x, 2.0, repeats=0).stops
    assert [stop.verdict for stop in twice] == ["changes the gradient"]  # They share a line.
    assert sgj.ablate(lambda x: jnp.sum(jax.nn.softmax(x) ** 2), X).stops == ()


def test_without_it_the_gradient_is_an_error() -> None:
    def loss(x: Any) -> Any:
        many = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, stop_gradient(x)))
        return jnp.sum(many[1] + x)

    stop = sgj.ablate(loss, X).stops[0]
    assert stop.verdict == "without it, the gradient is an error"
    assert stop.error is not None
    assert "Reverse-mode differentiation does not work" in stop.error


def test_a_small_change_is_a_change() -> None:
    stop = sgj.ablate(lambda x: jnp.sum(x + 1e-6 * stop_gradient(x) * x), X, repeats=0).stops[0]
    assert stop.verdict == "changes the gradient"


def test_the_question_finds_its_world() -> None:
    assert [one.verdict for one in sg.ablate(softmax, X, repeats=0).stops] == ["changes nothing"]
    with pytest.raises(ArgumentError, match="repeats is a whole number"):
        sgj.ablate(softmax, X, repeats=-1)
    with pytest.raises(ArgumentError, match="none of the function's inputs"):
        sgj.ablate(lambda n: n * 2, 3)
