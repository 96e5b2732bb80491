"""Functions of ours inside JAX's transformations: values, derivatives of every order and mode, gates."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from threading import Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import some

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.interop.jax.callable.computations import Computation

X = jnp.asarray([0.3, -0.7, 1.2], jnp.float32)
Y = jnp.asarray([0.5, 0.25, -1.5], jnp.float32)


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def ours(x: Any, y: Any) -> Any:
    return sg.reduce_sum(sg.tanh(x * y) * sg.exp(y) + sg.stop_gradient(x) * x * y)


def theirs(x: Any, y: Any) -> Any:
    return jnp.sum(jnp.tanh(x * y) * jnp.exp(y) + jax.lax.stop_gradient(x) * x * y)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "call": lambda f: f(X, Y),
    "jit": lambda f: jax.jit(f)(X, Y),
    "grad": lambda f: jax.grad(f)(X, Y),
    "grad of both": lambda f: jax.grad(f, (0, 1))(X, Y),
    "value_and_grad": lambda f: jax.jit(jax.value_and_grad(f, 1))(X, Y),
    "vjp": lambda f: jax.vjp(f, X, Y)[1](jnp.float32(2.0)),
    "jvp": lambda f: jax.jvp(f, (X, Y), (Y, X)),
    "jvp of one": lambda f: jax.jvp(lambda x: f(x, Y), (X,), (Y,)),
    "linearize": lambda f: jax.linearize(f, X, Y)[1](Y, X),
    "linear_transpose": lambda f: jax.linear_transpose(jax.linearize(f, X, Y)[1], X, Y)(jnp.float32(2.0)),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1))(X, Y),
    "jacrev of grad": lambda f: jax.jacrev(jax.grad(f, (0, 1)), (0, 1))(X, Y),
    "hessian": lambda f: jax.jit(jax.hessian(f, (0, 1)))(X, Y),
    "jacfwd twice": lambda f: jax.jacfwd(jax.jacfwd(f), 1)(X, Y),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f), 1)(X, Y),
    "third order": lambda f: jax.jacfwd(jax.jacrev(jax.grad(f, 1), 1), 1)(X, Y),
    "third order backwards": lambda f: jax.grad(
        lambda y: jnp.sum(jax.grad(lambda y: jnp.sum(jax.grad(f, 1)(X, y) ** 2.0))(y))
    )(Y),
    "vmap": lambda f: jax.vmap(f, (0, None))(jnp.stack([X, Y]), Y),
    "vmap of grad": lambda f: jax.jit(jax.vmap(jax.grad(f, (0, 1)), (None, 1)))(X, jnp.stack([X, Y], 1)),
    "grad of vmap": lambda f: jax.grad(lambda y: jnp.sum(jax.vmap(f, (0, None))(jnp.stack([X, Y]), y)))(Y),
    "vmap of vmap of jacfwd": lambda f: jax.vmap(jax.vmap(jax.jacfwd(f), (0, None)), (None, 0))(
        jnp.stack([X, Y]), jnp.stack([Y, X, Y])
    ),
    "checkpoint": lambda f: jax.jit(jax.grad(jax.checkpoint(f), (0, 1)))(X, Y),
    "scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, y: (c + 0.1 * f(c * x, y), f(x, y)), x[0], jnp.stack([X, Y]))[0]
    )(X),
    "jvp of scan": lambda f: jax.jvp(
        lambda x: jax.lax.scan(lambda c, y: (c + 0.1 * f(c * x, y), f(x, y)), x[0], jnp.stack([X, Y])),
        (X,),
        (Y,),
    ),
    "cond": lambda f: jax.grad(lambda x: jax.lax.cond(x[0] > 0, f, lambda x, y: 0.0, x, Y))(X),
    "while": lambda f: jax.jvp(
        lambda x: jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * f(s[1] * x, Y)), (0, 1.0)
        ),
        (X,),
        (Y,),
    )[0],
    "fori_loop": lambda f: jax.grad(lambda x: jax.lax.fori_loop(0, 3, lambda i, s: s + f(s * x, Y), 0.1))(X),
    "associative": lambda f: jax.grad(lambda x: f(f(x, Y) * X, f(Y, x) * x))(X),
    "custom_vjp around": lambda f: jax.grad(jax.jit(lambda x: jnp.sin(f(jnp.cos(x), Y))))(X),
}


LONG = {
    *("jacfwd twice", "third order", "third order backwards", "vmap of vmap of jacfwd", "fori_loop"),
    *("jacrev of jacfwd", "associative", "custom_vjp around", "grad of vmap", "vmap"),
}


SHORT = [name for name in TRANSFORMS if name not in LONG]


@pytest.mark.parametrize("name", some(SHORT, 3))
def test_transforms_see_what_they_see_of_a_function_of_jax(name: str) -> None:
    close(TRANSFORMS[name](sgj.callable(ours)), TRANSFORMS[name](theirs))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name in LONG])
def test_long_transforms_see_what_they_see_of_a_function_of_jax(name: str) -> None:
    close(TRANSFORMS[name](sgj.callable(ours)), TRANSFORMS[name](theirs))


def test_derivatives_of_double_precision_agree_to_rounding() -> None:
    with jax.enable_x64(True):
        x, y = np.array([0.3, -0.7]), np.array([0.5, -1.5])
        for transform in (lambda f: f, jax.grad, jax.hessian):
            found = jax.jit(transform(sgj.callable(ours)))(x, y)
            assert found.dtype == jnp.float64
            close(found, jax.jit(transform(theirs))(x, y), 1e-13)


def test_vmap_is_a_loop_over_examples() -> None:
    def scanned(xs: Any, w: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = sg.tanh(c * w + x)
            return c, sg.reduce_max(c)

        last, seen = sg.scan(step, sg.zeros_like(xs[0]), xs)
        return sg.reduce_sum(last) + sg.reduce_sum(seen)

    f = jax.value_and_grad(sgj.callable(scanned), (0, 1))
    xs, ws = jax.random.normal(jax.random.key(0), (4, 5, 3)), jnp.arange(4.0)
    looped = [f(x, w) for x, w in zip(xs, ws, strict=True)]
    close(jax.jit(jax.vmap(f))(xs, ws), jax.tree.map(lambda *parts: jnp.stack(parts), *looped))


# ------------------------------------------------------------------------------------------------- gates

GATES: dict[str, Callable[[Any, Any], Any]] = {
    "stop_gradient": lambda x, y: sg.stop_gradient(x) * y,
    "wrt the other": lambda x, y: sg.stop_gradient(sg.exp(x) * y, wrt=[y]) * x * y,
    "when": lambda x, y: sg.stop_gradient(x * x, when=x[0] > 0.0) * y,
    "when not": lambda x, y: sg.stop_gradient(x * x, when=x[0] < 0.0) * y,
    "zero_gradient": lambda x, y: sg.zero_gradient(x) * y * x,
    "scale_gradient": lambda x, y: sg.exp(sg.scale_gradient(x * y, 3.0)),
    "reverse_gradient": lambda x, y: sg.exp(sg.reverse_gradient(x * y)) * x,
    "clip_gradient": lambda x, y: sg.clip_gradient(x * y, -0.2, 0.3) * sg.exp(y),
    "clip_gradient_norm": lambda x, y: sg.clip_gradient_norm(x * y, 0.5) * sg.exp(y),
    "straight_through": lambda x, y: sg.straight_through(sg.round(x), x * x) * y,
    "custom_gradient": lambda x, y: sg.custom_gradient(lambda x: (x * x, lambda g: g * sg.exp(x)))(x) * y,
    "probe": lambda x, y: sg.probe(x * y, "here") * y,
    "in a loop": lambda x, y: sg.scan(
        lambda c, t: (c * t + sg.stop_gradient(c), sg.clip_gradient(c, -1.0, 1.0)), x[0], y
    )[1],
    "in a checkpoint": lambda x, y: sg.checkpoint(lambda x: sg.exp(sg.stop_gradient(x) * x))(x) * y,
}


@pytest.mark.parametrize("name", some(GATES, 3))
def test_gates_are_obeyed_at_every_order(name: str) -> None:
    def total(x: Any, y: Any) -> Any:
        return sg.reduce_sum(GATES[name](x, y) * sg.sin(y))

    def squared(transform: Any, f: Any, add: Any) -> Any:
        return lambda x, y: add([add(g * g) for g in transform(f, (0, 1))(x, y)])

    f = sgj.callable(total)
    close(f(X, Y), jnp.asarray(total(np.asarray(X), np.asarray(Y))))
    x, y = np.asarray(X), np.asarray(Y)
    close(jax.jit(jax.grad(f, (0, 1)))(X, Y), sg.grad(total, (0, 1))(x, y))
    ours = sg.grad(squared(sg.grad, total, lambda gs: sg.add_n([sg.reduce_sum(g) for g in gs])), (0, 1))
    found = jax.grad(squared(jax.grad, f, lambda gs: sum(jnp.sum(g) for g in gs)), (0, 1))
    close(jax.jit(found)(X, Y), ours(x, y))


@pytest.mark.parametrize("name", [name for name in GATES if not name.startswith("wrt")])
def test_gates_are_obeyed_forwards(name: str) -> None:
    f = GATES[name]
    found = jax.jit(lambda *args: jax.jvp(sgj.callable(f), args, (Y, X)))(X, Y)
    arrays = np.asarray(X), np.asarray(Y)
    close(found, sg.jvp(f, arrays, arrays[::-1]))


def test_a_stop_towards_one_argument_acts_when_that_one_is_differentiated() -> None:
    f = sgj.callable(lambda x, y: sg.reduce_sum(sg.stop_gradient(x * y, wrt=[y]) + y))
    close(jax.grad(f, (0, 1))(X, Y), (Y, jnp.ones(3)))
    close(jax.grad(f, 1)(X, Y), jnp.ones(3))
    close(jax.jacfwd(f, (0, 1))(X, Y), (Y, jnp.ones(3)))


def test_a_gate_towards_one_tensor_inside_a_gradient_keeps_its_way_whole() -> None:
    def total(x: Any, w: Any) -> Any:
        h = sg.exp(x * w)
        f = sg.custom_gradient(lambda h: (h * h, lambda g: g * sg.stop_gradient(h * h, wrt=[w])))
        return sg.reduce_sum(f(h) * x)

    def twice(grad: Any, total: Any, add: Any) -> Any:
        return grad(lambda x, w: add(grad(total, 1)(x, w)), (0, 1))

    x, y = np.asarray(X), np.asarray(Y)
    close(twice(jax.grad, sgj.callable(total), jnp.sum)(X, Y), twice(sg.grad, total, sg.reduce_sum)(x, y))


def test_a_prevented_gradient_is_an_error_with_the_message_and_both_lines() -> None:
    f = sgj.callable(lambda x, y: sg.reduce_sum(sg.prevent_gradient(x, "no gradient for x, please") * y))
    close(f(X, Y), jnp.sum(X * Y))
    close(jax.jit(jax.grad(f, 1))(X, Y), X)
    for run in (jax.grad(f), jax.jit(jax.grad(f)), lambda x, y: jax.jvp(f, (x, y), (x, y))):
        with pytest.raises(sg.GradientError, match="no gradient for x, please") as caught:
            run(X, Y)
        assert str(caught.value).count("test_callable.py") == 2


def test_a_prevented_gradient_that_jax_drops_is_no_error() -> None:
    f = sgj.callable(lambda x: (sg.prevent_gradient(x, "no"), x * x))
    close(jax.grad(lambda x: jnp.sum(f(x)[1]))(X), 2.0 * X)
    close(jax.grad(lambda x: jnp.sum(jax.lax.stop_gradient(f(x)[0]) * x))(X), X)


def test_one_gate_in_a_function_of_jax() -> None:
    clip = sgj.callable(lambda x: sg.clip_gradient(x, -1.0, 1.0))
    reverse = sgj.callable(sg.reverse_gradient)

    @jax.jit
    def loss(x: Any) -> Any:
        return jnp.sum(clip(x) ** 2.0) + jnp.sum(reverse(x))

    close(jax.grad(loss)(X), jnp.clip(2.0 * X, -1.0, 1.0) - 1.0)
    tree = {"a": X, "b": (Y, jnp.arange(3))}
    assert jax.tree.structure(reverse(tree)) == jax.tree.structure(tree)


# ------------------------------------------------------------------------------------------------ the work


def test_nothing_is_kept_where_nothing_is_differentiated() -> None:
    f = sgj.callable(lambda x: sg.reduce_sum(sg.tanh(x) * sg.exp(x)))
    lowered = jax.jit(f).lower(X).as_text()
    assert (lowered.count("stablehlo.tanh"), lowered.count("stablehlo.exponential")) == (1, 1)
    assert "_gradient" not in lowered


def test_the_forward_computation_is_not_done_twice() -> None:
    f = sgj.callable(lambda x: sg.reduce_sum(sg.tanh(sg.tanh(x) * 2.0)))
    lowered = jax.jit(jax.value_and_grad(f)).lower(X).as_text()
    assert lowered.count("stablehlo.tanh") == 2


def test_a_loop_runs_once_forwards_and_once_backwards() -> None:
    def total(x: Any) -> Any:
        last, seen = sg.scan(lambda c, t: (sg.tanh(c * t), sg.sin(c)), x[0], x)
        return sg.reduce_sum(seen) * last, sg.stop_gradient(last)

    f = sgj.callable(total)
    for gradient in (jax.grad(f, has_aux=True), jax.grad(lambda x: f(x)[0])):
        assert jax.jit(gradient).lower(X).as_text().count("stablehlo.while") == 2


def test_a_loop_of_jax_keeps_only_what_the_gradient_uses() -> None:
    cell = sgj.callable(lambda c, x: (sg.tanh(c + x), sg.reduce_sum(c + x)))

    def total(c: Any, xs: Any) -> Any:
        last, sums = jax.lax.scan(cell, c, xs)
        return jnp.sum(last) + jnp.sum(sums)

    pull = jax.vjp(total, X, jnp.stack([X, Y, X, Y]))[1]
    stacked = [x for x in jax.tree.leaves(pull) if np.shape(x) == (4, 3)]
    assert len(stacked) == 1  # The results of tanh; neither the carries before it nor the xs.


def test_nothing_is_generated_for_arguments_that_are_not_differentiated() -> None:
    f = sgj.callable(lambda x, w: sg.reduce_sum(sg.sin(sg.matmul(x, w))))
    args = jnp.ones((2, 3)), jnp.ones((3, 4))

    def products(argnums: Any) -> int:
        return jax.jit(jax.grad(f, argnums)).lower(*args).as_text().count("dot_general")

    assert (products((0, 1)), products(0), products(1)) == (3, 2, 2)


def test_it_is_traced_once_per_types_of_arguments() -> None:
    calls = []

    def f(x: Any, n: int = 2) -> Any:
        calls.append(x.shape)
        return sg.reduce_sum(x**n)

    g = sgj.callable(f)
    for _ in range(3):
        g(X), jax.grad(g)(X), jax.jit(jax.grad(g))(X), g(np.asarray(X))
    assert calls == [(3,)]
    g(X, 3), g(X[:2])
    assert calls == [(3,), (3,), (2,)]
    small = sgj.callable(f, cache_size=1)
    small(X), small(X[:2]), small(X)
    assert len(calls) == 6


def test_what_is_traced_goes_with_the_function() -> None:
    f = sgj.callable(lambda x: sg.reduce_sum(sg.exp(x)))
    jax.grad(f)(X)
    computation = next(x for x in gc.get_objects() if isinstance(x, Computation))
    seen = weakref.ref(computation.outputs[0].op.graph)
    del f, computation
    jax.clear_caches()
    gc.collect()
    assert seen() is None


def test_threads_may_share_it() -> None:
    f = sgj.callable(ours)
    found: list[Any] = []
    threads = [Thread(target=lambda: found.append(jax.grad(f, (0, 1))(X, Y))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        close(one, jax.grad(theirs, (0, 1))(X, Y))
    assert len(found) == 4
