"""Values of gates, of what a graph stores, and of the transforms, which are those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from all_engines import each_engine, each_style
from values import Cases, complex_normal, normal, same_values, values_of

import stopgrad as sg

CASES = Cases()
X, Y, C = normal(2, 3), normal(2, 3, seed=1), complex_normal(3)
SPECIAL = np.array([np.nan, np.inf, -0.0, 1.5])

# ------------------------------------------------------------------------------------------- gates


def handed_on(gate: Any, **attributes: Any) -> None:
    """A gate's value is its first operand, bit for bit."""
    for x in (X, C, SPECIAL):
        CASES.add(gate, lambda x, *_: x, x, rtol=0, atol=0, **attributes)


handed_on(sg.stop_gradient)
handed_on(sg.stop_gradient, when=True)
handed_on(sg.stop_gradient, when=False)
handed_on(sg.zero_gradient)
handed_on(sg.scale_gradient, s=-3.0)
handed_on(sg.reverse_gradient)
handed_on(sg.reverse_gradient, s=0.5)
handed_on(sg.clip_gradient_norm, max_norm=0.1)
handed_on(sg.prevent_gradient, message="never")
handed_on(sg.probe, name="here")
CASES.add(sg.clip_gradient, lambda x: x, X, low=-0.1, high=0.1, rtol=0, atol=0)
CASES.add(sg.straight_through, lambda hard, soft: hard, X, Y, rtol=0, atol=0)
CASES.add(sg.straight_through, lambda hard, soft: hard, np.round(X), X, rtol=0, atol=0)


@CASES.compared
def test_gates(engine: str, name: str) -> None:
    CASES.check(engine, name)


@each_engine
@values_of(sg.no_gradient, sg.custom_gradient)
def test_values_inside_of_blocks_and_custom_gradients(engine: str) -> None:
    @sg.custom_gradient
    def cubed(x: Any, y: Any) -> Any:
        return x * x * x - y, lambda g: (g, g)

    def both(x: Any, y: Any) -> Any:
        with sg.no_gradient():
            z = x * y - y
        return z, cubed(x, y)

    inside, made = sg.function(both, engine=engine)(X, Y)
    same_values(inside, X * Y - Y, 1e-12, 0, "no_gradient")
    same_values(made, X**3 - Y, 1e-12, 1e-14, "custom_gradient")
    same_values(cubed(X, Y), X**3 - Y, 1e-12, 1e-14, "custom_gradient, immediately")


# ------------------------------------------------------------------------------------ stored, fed


@each_engine
@values_of(sg.parameter, sg.assign, sg.placeholder)
def test_values_that_are_stored_and_fed(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        w, x = sg.parameter(X), sg.placeholder(sg.float64, [3])
        step = sg.assign(w, w * 2.0 + x)
    with sg.Session(graph, engine=engine) as session:
        same_values(session.run(w), X, 0, 0, "first value")
        before, new = session.run([w, step], {x: Y[0]})
        same_values(before, X, 0, 0, "value before the assignment")
        same_values(new, 2 * X + Y[0], 1e-15, 0, "assigned value")
        same_values(session.run(w), 2 * X + Y[0], 1e-15, 0, "value after the assignment")
        same_values(session.run(x, {x: Y[1]}), Y[1], 0, 0, "fed value")


# -------------------------------------------------------------------------------------- transforms


def ours(x: Any, w: Any) -> Any:
    return sg.reduce_sum(sg.tanh(x * w) * sg.exp(x)) + sg.reduce_prod(x)


def theirs(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.tanh(x * w) * jnp.exp(x)) + jnp.prod(x)


def our_vector(x: Any) -> Any:
    return sg.cumsum(sg.sin(x) * x, axis=0)


def their_vector(x: Any) -> Any:
    return jnp.cumsum(jnp.sin(x) * x, axis=0)


def all_of_theirs(x: Any, w: Any, v: Any) -> Any:
    value, pull = jax.vjp(their_vector, x)
    return [
        jax.grad(theirs)(x, w),
        jax.grad(theirs, (1, 0))(x, w),
        jax.value_and_grad(theirs, 1)(x, w),
        (value, pull(v)),
        jax.jvp(their_vector, (x,), (v,)),
        jax.jacobian(their_vector)(x),
        jax.hessian(theirs)(x, w),
        jax.jvp(jax.grad(lambda x: theirs(x, w)), (x,), (v,))[1],
    ]


def _same(found: Any, expected: Any, what: str) -> None:
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        same_values(a, b, 1e-11, 1e-13, what)


@each_style
@values_of(sg.grad, sg.value_and_grad, sg.vjp, sg.jvp, sg.jacobian, sg.hessian, sg.hvp)
def test_transforms_are_those_of_jax(engine: str) -> None:
    x, w, v = normal(4), normal(4, seed=1), normal(4, seed=2)

    def all_of_ours(x: Any, w: Any, v: Any) -> Any:
        value, pull = sg.vjp(our_vector, x)
        return [
            sg.grad(ours)(x, w),
            sg.grad(ours, (1, 0))(x, w),
            sg.value_and_grad(ours, 1)(x, w),
            (value, pull(v)),
            sg.jvp(our_vector, (x,), (v,)),
            sg.jacobian(our_vector)(x),
            sg.hessian(lambda x: ours(x, w))(x),
            sg.hvp(lambda x: ours(x, w), (x,), (v,)),
        ]

    names = ["grad", "grad for two", "value_and_grad", "vjp", "jvp", "jacobian", "hessian", "hvp"]
    found = (all_of_ours if engine == "immediate" else sg.function(all_of_ours, engine=engine))(x, w, v)
    with jax.enable_x64(True):
        expected = jax.jit(all_of_theirs)(x, w, v)
    for name, a, b in zip(names, found, expected, strict=True):
        _same(a, b, name)
