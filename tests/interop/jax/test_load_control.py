"""Loaded JAX functions with loops, branches, calls and gradients of their own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_cases import Group, assert_round_trip, draw, ints

import stopgrad as sg
import stopgrad.jax as sgj

X = draw(5, 3)
V = draw(3, seed=1)


def _scan(c: Any, xs: Any, **settings: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = jnp.tanh(c * x) + x
        return c, c * c

    return lax.scan(step, c, xs, **settings)


def _scan_of_scans(c: Any, xs: Any) -> Any:
    def outer(c: Any, x: Any) -> Any:
        inner, ys = lax.scan(lambda a, b: (a * b + jnp.sin(a), a), c.sum(), x)
        return c * jnp.cos(inner), ys

    return lax.scan(outer, c, xs)


def _while(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * 1.1 + jnp.sin(s[1])), (0, x))[1]


def _fori(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, c: c * 0.5 + jnp.sin(c) * i, x)


def _cond(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda a: a * a, lambda a: jnp.sin(a), x)


def _switch(i: Any, x: Any) -> Any:
    return lax.switch(i, [lambda a: a, lambda a: a * a, lambda a: jnp.sin(a) * V.sum()], x)


def _in_loop(x: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = lax.cond(c.sum() > 0, lambda a: a + x, lambda a: jnp.exp(a) - x, c)
        return lax.stop_gradient(c) * 0.5 + c * x, c

    return lax.scan(step, x[0], x)


@jax.custom_jvp
def _own_jvp(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


@_own_jvp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return _own_jvp(x, y), 3.0 * jnp.cos(x) * dx * y + dy * x


@jax.custom_vjp
def _own_vjp(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


_own_vjp.defvjp(
    lambda x, y: (_own_vjp(x, y), (x, y)), lambda kept, g: (g * jnp.exp(kept[0]) * kept[1], g * kept[0] ** 2)
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _clipped(limit: float, x: Any) -> Any:
    return x


_clipped.defvjp(lambda limit, x: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))


def _in_while(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: jnp.tanh(_own_vjp(c, x)) + jax.nn.softplus(c), x)


CASES: dict[str, Any] = {
    "scan": (_scan, V, X),
    "scan backwards": (functools.partial(_scan, reverse=True), V, X),
    "scan unrolled": (functools.partial(_scan, unroll=2), V, X),
    "scan of scans": (_scan_of_scans, V, X),
    "scan without sequences": (
        lambda c: lax.scan(lambda c, _: (c * 2 + jnp.sin(c), c), c, None, length=3),
        V,
    ),
    "scan without carry": (lambda xs: lax.scan(lambda _, x: (None, jnp.sin(x)), None, xs)[1], X),
    "map": (lambda xs: lax.map(lambda x: jnp.sin(x).sum(), xs), X),
    "scan of nothing": (_scan, V, X[:0]),
    "associative scan": (lambda xs: lax.associative_scan(lambda a, b: a * b + b, xs), X),
    "fori": (_fori, V),
    "cond": (_cond, V),
    "cond otherwise": (_cond, -np.abs(V)),
    "switch": (_switch, np.int32(1), V),
    "switch beyond": (_switch, np.int32(7), V),
    "branches in a loop": (_in_loop, X),
    "vmap of cond": (lambda xs: jax.vmap(_cond)(xs), X),
    "jit": (lambda x: jax.jit(lambda a: jax.jit(jnp.sin)(a) * a)(x), V),
    "remat": (lambda x: jax.checkpoint(lambda a: jnp.sin(jnp.exp(a)))(x) * x, V),
    "custom jvp": (_own_jvp, V, V + 1),
    "custom vjp": (_own_vjp, V, V + 1),
    "custom rules in a loop": (_in_while, V),
    "custom rules in remat": (jax.checkpoint(lambda x: _own_vjp(x, x) * _own_jvp(x, x)), V),
    "clipped gradient": (lambda x: _clipped(0.5, x * x) * 3.0, V),
    "gradient inside": (lambda x: jax.grad(lambda a: jnp.sin(a * x).sum())(x), V),
    "hessian inside": (lambda x: jax.hessian(lambda a: jnp.sin(a).prod())(x), V),
    "jvp inside": (lambda x: jax.jvp(lambda a: _own_jvp(a, a), (x,), (x * 2,)), V),
    "gradient of custom inside": (lambda x: jax.grad(lambda a: _own_vjp(a, a * a).sum())(x), V),
    "gradient of a scan inside": (lambda c, x: jax.grad(lambda a: _scan(a, x)[0].sum())(c), V, X),
    "relu": (lambda x: [jax.nn.relu(x), jax.nn.relu6(x), jax.nn.silu(x), jax.nn.gelu(x), jax.nn.elu(x)], X),
    "softmax": (lambda x: [jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x)], X),
    "softplus": (lambda x: [jax.nn.softplus(x), jnp.logaddexp(x, 1.0), jnp.hypot(x, 2.0)], X),
    "more activations": (
        lambda x: [jax.nn.sigmoid(x), jax.nn.selu(x), jax.nn.leaky_relu(x), jax.nn.celu(x), jax.nn.mish(x)],
        X,
    ),
    "norms": (lambda x: [jnp.linalg.norm(x), jnp.var(x, 0), jnp.std(x), jax.nn.standardize(x)], X),
    "base two": (lambda x: jnp.log2(jnp.abs(x) + 0.5), X),
    "halves and powers": (lambda x: jnp.ldexp(jnp.frexp(x)[0], 3), X),
    "slope of a tanh": (lambda x: jax.grad(lambda y: jnp.tanh(y).sum())(x), X),
    "interpolation": (lambda x: jnp.interp(x, jnp.array([-2.0, 0, 2]), jnp.array([1.0, 3, 2])), X),
    "nan to num": (lambda x: [jnp.nan_to_num(x), jnp.sinc(x), jnp.sign(x) * x], X),
    "one hot": (lambda x, i: (jax.nn.one_hot(i, 3) * jax.nn.log_softmax(x)).sum(), X, ints(5, high=3)),
    "cross entropy": (
        lambda x, i: jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], 1).mean(),
        X,
        ints(5, high=3),
    ),
    "triangles": (lambda x: [jnp.tril(x), jnp.triu(x), jnp.trace(x), jnp.diag(V), jnp.eye(3)], X),
    "roll": (lambda x: [jnp.roll(x, 2, 0), jnp.flip(x, 1), jnp.diff(x, axis=0), jnp.repeat(x, 2, 0)], X),
    "pads": (lambda x: [jnp.pad(x, 1, mode=m) for m in ("constant", "reflect", "edge", "wrap")], X),
}


GROUP = Group(CASES, 2)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CASES)
def test_round_trip(name: str, order: int) -> None:
    GROUP.check(name, order)


def test_while_loop() -> None:
    # Neither JAX nor we have a gradient of it.
    assert_round_trip(_while, V, order=0)
    assert sgj.explain(_while, V)["x"].status == "undefined"


def test_a_gradient_rule_is_kept_twice() -> None:
    model = sgj.load(_own_vjp, 0.5, 2.0)
    twice = sg.grad(lambda x: sg.grad(model)(x, 2.0))
    assert abs(float(twice(0.5)) - float(jax.grad(jax.grad(_own_vjp))(0.5, 2.0))) < 1e-5


@pytest.mark.parametrize("name", ["scan", "cond", "custom vjp", "custom rules in a loop", "remat"])
def test_on_xla(name: str) -> None:
    f, *args = CASES[name]
    assert_round_trip(f, *args, order=0, engine="xla")


def test_double_precision() -> None:
    with jax.enable_x64(True):
        args = (V.astype("f8"), X.astype("f8"))
        assert_round_trip(_scan, *args)
        assert_round_trip(_in_loop, args[1])
        assert_round_trip(_own_vjp, args[0], args[0] + 1)
        assert_round_trip(_own_jvp, args[0], args[0] + 1)
