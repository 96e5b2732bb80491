"""``check_gradients`` of JAX functions: JAX's own rules are judged, and what is stopped is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiers import some

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.lax import stop_gradient as stop  # noqa: E402
from jax.test_util import check_grads  # noqa: E402
from stopgrad.errors import ArgumentError, GradientError  # noqa: E402

import stopgrad as sg  # noqa: E402
import stopgrad.jax as sgj  # noqa: E402

X = jnp.array([0.5, 2.0, -1.25])


def ruled(factor: float) -> Callable[[Any], Any]:
    """A square, whose rule is right for a factor of 2."""

    @jax.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, g: (factor * g * x,))
    return square


def pushed(factor: float) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def square(x: Any) -> Any:
        return x * x

    square.defjvp(lambda xs, ts: (xs[0] * xs[0], factor * xs[0] * ts[0]))
    return square


def scanned(x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        return c * stop(c) + x, c

    return jax.lax.scan(body, x, None, length=3)[0]


def branched(x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        return jax.lax.cond(i > 1, lambda c: c * stop(x), lambda c: jnp.cos(c) * stop(c), c)

    return jax.lax.fori_loop(0, 4, step, x)


def endless(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: c * c * stop(jnp.sin(c) + 3) + 1, x)


def elsewhere(x: Any) -> Any:
    inner = jax.vmap(jax.jit(lambda row: row * stop(row)))
    return jnp.sum(inner(x)) + jax.checkpoint(lambda x: jnp.sum(jnp.sin(x) * stop(x)))(x)


def drawn(x: Any) -> Any:
    noise = jax.random.normal(jax.random.key(3), x.shape)
    kept = jax.random.bernoulli(jax.random.key(1), 0.5, x.shape)
    return jnp.sum(jnp.where(kept, x * noise, 0.0) * stop(x))


def estimated(x: Any) -> Any:
    return jnp.sum((x + stop(jnp.round(x) - x)) ** 2)


def softmax(x: Any) -> Any:
    z = jnp.exp(x - stop(jnp.max(x)))
    return (z / jnp.sum(z)) ** 2


RIGHT = {
    "scan": scanned, "branches": branched, "while": endless, "vmap, jit and checkpoint": elsewhere,
    "random": drawn, "straight-through": estimated, "softmax": softmax,
    "stopped": lambda x: jnp.sum(stop(x) ** 2), "relu": lambda x: jnp.sum(jax.nn.relu(x) * stop(x)),
    "custom_vjp": lambda x: jnp.sum(ruled(2.0)(x) * stop(x)), "custom_jvp": lambda x: pushed(2.0)(x),
    "Python": lambda x: sum(x[i] ** i * stop(x[i]) for i in range(3)),
    "logsumexp": lambda x: jax.nn.logsumexp(x) * jax.nn.log_softmax(x),
}  # fmt: skip


@pytest.mark.parametrize("name", some(RIGHT, 3))
def test_right_gradients_pass_with_their_stops_held(name: str) -> None:
    checked = sgj.check_gradients(RIGHT[name], X)
    assert checked.passed
    assert checked["x"].error < 1e-3
    assert not checked["x"].kinks


@pytest.mark.parametrize(
    "name", some(["scan", "branches", "vmap, jit and checkpoint", "random", "stopped"], 3)
)
def test_ignored_stops_are_told_by_how_far_they_are_from_the_derivative(name: str) -> None:
    assert not sgj.check_gradients(RIGHT[name], X, stops="ignore").passed


def test_a_stop_in_a_loop_is_held_at_each_iteration() -> None:
    def closed(x: float) -> float:  # d/dx of c1 = s0 c + x, with s the values at the base point.
        c, slope = x, 1.0
        for _ in range(3):
            c, slope = c * c + x, c * slope + 1.0
        return slope

    checked = sgj.check_gradients(scanned, 0.7, raises=False)
    worst = checked["x"].worst
    assert worst is not None
    assert worst.generated == pytest.approx(closed(0.7), rel=1e-6)
    assert worst.numeric == pytest.approx(closed(0.7), rel=1e-6)


@pytest.mark.parametrize("make", [ruled, pushed])
@pytest.mark.parametrize("factor", some([2.002, 1.0, -2.0], 3))
def test_wrong_rules_differ(make: Callable[[float], Any], factor: float) -> None:
    with pytest.raises(GradientError, match="differ"):
        sgj.check_gradients(lambda x: make(factor)(x), X, rtol=1e-4)
    worst = sgj.check_gradients(make(factor), X, raises=False, rtol=1e-4)["x"].worst
    assert worst is not None
    assert worst.index is not None
    x = float(X[worst.index[0]])
    assert worst.generated == pytest.approx(factor * x, rel=1e-5)
    assert worst.numeric == pytest.approx(2.0 * x, rel=1e-5)
    with pytest.raises(AssertionError):
        check_grads(make(factor), (X,), 1, modes=["rev"], rtol=1e-4, atol=1e-4)
    check_grads(make(2.0), (X,), 1, modes=["rev"], rtol=1e-2, atol=1e-2)
    sgj.check_gradients(make(2.0), X)


def test_the_way_names_stops_and_rules_by_their_lines_and_none_of_the_librarys() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(ruled(1.0)(x) * stop(x) + jax.nn.relu(x) + jax.nn.softmax(x))

    checked = sgj.check_gradients(loss, X, raises=False)
    assert [held.what for held in checked.custom] == ["custom_vjp"]
    assert [held.what for held in checked.held] == ["stop_gradient"]
    assert checked.held[0].location is not None
    assert checked.held[0].location.file == __file__
    assert checked.modes == ("reverse",)
    assert "not compared in forward mode, in which JAX does not differentiate it" in checked.notes[0]


def test_modes_that_jax_refuses_are_errors_where_nothing_else_was_asked_for() -> None:
    with pytest.raises(GradientError, match="in forward mode: can't apply forward-mode"):
        sgj.check_gradients(ruled(2.0), X, modes="forward")
    with pytest.raises(GradientError, match="in reverse mode: Reverse-mode"):
        sgj.check_gradients(endless, X, modes="reverse")
    assert sgj.check_gradients(endless, X).modes == ("forward",)


def wrong_twice(is_right: bool) -> Callable[[Any], Any]:
    """A square whose first derivative is right, and whose rule stops the second."""

    @jax.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    def back(x: Any, g: Any) -> Any:
        return (2.0 * g * (x if is_right else stop(x)),)

    square.defvjp(lambda x: (x * x, x), back)
    return square


def test_second_derivatives_and_the_stops_of_rules() -> None:
    right, wrong = wrong_twice(True), wrong_twice(False)
    assert sgj.check_gradients(right, X, order=2).passed
    assert sgj.check_gradients(wrong, X, order=2).passed  # Its rule's stop is held.
    assert sgj.check_gradients(right, X, order=2, stops="program").passed
    checked = sgj.check_gradients(wrong, X, order=2, stops="program", raises=False)
    worst = checked["x"].worst
    assert worst is not None
    assert worst.order == 2
    assert worst.generated == 0.0
    assert sgj.check_gradients(lambda x: jnp.sum(x**3 * stop(x)), X, order=2, stops="program").passed


def test_kinks_ties_and_infinite_derivatives() -> None:
    checked = sgj.check_gradients(lambda x: jnp.sum(jax.nn.relu(x)), jnp.array([0.0, 1.0]))
    assert [(kink.index, kink.low, kink.high) for kink in checked["x"].kinks] == [((0,), 0.0, 1.0)]
    tied = sgj.check_gradients(lambda x: jnp.max(x), jnp.array([1.0, 1.0, 0.0]))
    assert {kink.index for kink in tied["x"].kinks} == {(0,), (1,)}
    steep = sgj.check_gradients(lambda x: jnp.sum(jnp.cbrt(x)), jnp.array([0.0, 1.0]), raises=False)
    assert all(kink.low == kink.high for kink in steep["x"].kinks)
    broken = sgj.check_gradients(lambda x: jnp.log(x), -1.0, raises=False)
    assert "NaN or infinite" in broken["x"].reason


@pytest.mark.parametrize("dtype", some(["float64", "float32", "float16", "bfloat16", "complex64"], 3))
def test_every_precision(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = jnp.array([0.5, 1.25, -1.0], dtype)
        assert sgj.check_gradients(lambda x: jnp.sum(jnp.abs(x * x) * stop(jnp.abs(x))), x).passed
        wrong = sgj.check_gradients(lambda x: jnp.abs(ruled(1.0)(x)), x, raises=False, modes="reverse")
        assert not wrong.passed


def test_other_arguments_keep_their_values() -> None:
    def loss(w: Any, n: int, training: bool, name: str) -> Any:
        y = jnp.reshape(w * 2.0 if training else w, (n, -1))
        return jax.lax.fori_loop(0, n, lambda i, y: y * y, y), name

    checked = sgj.check_gradients(loss, {"a": X, "i": np.arange(3)}["a"], 3, True, "name")
    assert list(checked) == ["w"]
    tree = sgj.check_gradients(lambda p, x: p["w"] @ x + p["b"], {"w": X, "b": 1.0}, X, argnums=0)
    assert list(tree) == ["p.b", "p.w"]


def test_empty_and_large_arrays() -> None:
    assert sgj.check_gradients(lambda x, e: jnp.sum(x) + jnp.sum(e), X, jnp.zeros((0, 2))).passed
    large = jnp.linspace(-1.0, 2.0, 1000)
    assert sgj.check_gradients(lambda x: jnp.sum(jnp.sin(x) * stop(x)), large)["x"].method == "directional"
    wrong = sgj.check_gradients(lambda x: jnp.sum(ruled(1.9)(x)), large, raises=False)
    assert not wrong.passed


def test_what_cannot_be_checked() -> None:
    gone = jnp.ones(2)
    gone.delete()
    for f, args, says in [
        (lambda x: x, (1,), "none of the function's inputs"),
        (lambda x: jnp.sum(x > 0), (X,), "none of the function's results"),
        (lambda x: x, (jax.ShapeDtypeStruct((2,), "float32"),), "x is only a shape"),
        (lambda x: x, (gone,), "x is deleted: it was donated"),
        (jax.jit(lambda x: x if x[0] > 0 else -x), (X,), "Python decides by a traced value"),
    ]:
        with pytest.raises(ArgumentError, match=says):
            sgj.check_gradients(f, *args)


def test_the_question_finds_its_world() -> None:
    assert sg.check_gradients(lambda x: jnp.sum(jnp.sin(x) * stop(x)), X).passed
    with pytest.raises(GradientError):
        sg.check_gradients(lambda x: jnp.sum(ruled(1.0)(x)), X)
